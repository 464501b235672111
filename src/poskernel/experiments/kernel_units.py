"""Units that measure the positional kernels of all heads: of a small model before and after training, or pretrained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.attention.sources.capture import AttentionSource
from poskernel.attention.sources.rotary_probe import rotary_probes
from poskernel.attention.sources.self_test import self_test
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.attention.sources.untrained import untrained_source
from poskernel.errors import InputError
from poskernel.experiments.experiment import ConditionCell, ExperimentUnit, Quantity
from poskernel.experiments.kernel_measures import (
    KERNEL,
    SPECTRUM,
    VARIANTS,
    MeasuredHeads,
    held_out_tokens,
    line_frequencies,
    measured_heads,
    source_subject,
)
from poskernel.experiments.language_grid import FULL, Grid
from poskernel.experiments.language_units import LOSS_MEASURES, LanguageUnit, LossUnit, Part
from poskernel.models.language import Text
from poskernel.models.language_training import TrainedLanguage
from poskernel.models.text import corpus
from poskernel.models.training import initial_model
from poskernel.models.transformer import Transformer
from poskernel.study.grid import Cell
from poskernel.study.units import Measurement

STATES = ("untrained", "trained")
SHOWN_OFFSETS = 64
"""Offsets of a profile that a figure shows."""
HEAD_MEASURES = (*KERNEL, *VARIANTS, *SPECTRUM)
PROFILE = Quantity("g", "g of the head with the largest signal, less its mean over pairs, nats", "offset")
KERNEL_MEASURES = (*LOSS_MEASURES, *HEAD_MEASURES, PROFILE)
LETTERS_A_TOKEN = 8
"""Of text handed to the tokenizer for every token wanted: English has 4 to 5."""
Values = dict[tuple[Cell, str, int], float | str]


def measured_model(model: Transformer, source: Text, grid: Grid, variants: bool) -> MeasuredHeads:
    """All heads of one of our transformers on held-out windows of its training length."""
    shape = model.architecture
    tokens = held_out_tokens(source, grid.sequences, shape.train_length)
    frequencies = dict.fromkeys(range(shape.layers), line_frequencies(model.encoding, shape.shape))
    subject = source_subject(TransformerSource(model), tokens, grid.dropped)
    return measured_heads(subject, frequencies, variants)


@dataclass(frozen=True)
class KernelUnit(LanguageUnit):
    """One small model: its loss curves, and every head untrained and trained."""

    grid: Grid = FULL

    @property
    def losses(self) -> LossUnit:
        """The unit of its curves."""
        return LossUnit(self.cell, self.seed)

    @property
    def offsets(self) -> int:
        """Offsets of a profile that are kept."""
        return min(SHOWN_OFFSETS, self.cell.train_length - self.grid.dropped)

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Curves, then for each state all heads and the strongest one's profile."""
        shape = self.cell.condition.architecture
        found = list(self.losses.measures)
        for state in STATES:
            for layer in range(shape.layers):
                for head in range(shape.heads):
                    part = self.cell.at(state=state, layer=layer, head=head)
                    found += [(part, each.name, shape.train_length) for each in HEAD_MEASURES]
            whole = self.cell.at(state=state)
            found += [(whole, PROFILE.name, offset) for offset in range(self.offsets)]
        return found

    def measured(self, trained: TrainedLanguage) -> Values:
        """Every measure of both states."""
        condition = self.cell.condition
        source, length = condition.recipe.source, condition.architecture.train_length
        assert isinstance(source, Text)
        values: Values = dict(self.losses.measured(trained))
        fresh = initial_model(condition.architecture, condition.encoding, self.seed).eval()
        for state, model in zip(STATES, (fresh, trained.model), strict=True):
            found = measured_model(model, source, self.grid, variants=True)
            for (layer, head), numbers in found.values.items():
                part = self.cell.at(state=state, layer=layer, head=head)
                values |= {(part, metric, length): number for metric, number in numbers.items()}
            whole = self.cell.at(state=state)
            values |= {(whole, PROFILE.name, d): float(found.strongest[d]) for d in range(self.offsets)}
        return values


@dataclass(frozen=True)
class PretrainedCell(ConditionCell):
    """A pretrained model on windows of one of several disjoint texts; the seed says which."""

    kind = "pretrained"
    model: str
    source: str = "sotu"
    sequences: int = 16
    length: int = 512
    part: Part = ()

    def at(self, **part: str | int | float) -> "PretrainedCell":
        """The cell of a part of the same model."""
        return PretrainedCell(self.model, self.source, self.sequences, self.length, tuple(part.items()))

    @property
    def label(self) -> str:
        """The model."""
        return self.model

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
        """Model, corpus, and the part."""
        return {"source": self.source, "encoding": self.model, "direction": "causal", **dict(self.part)}

    @property
    def description(self) -> str:
        """The model; what is measured of it names the text."""
        return self.model


@dataclass(frozen=True)
class PretrainedKernelUnit(ExperimentUnit):
    """Every head of a pretrained model, and of the same architecture with weights drawn anew, on one text."""

    cell: PretrainedCell
    texts: int = 3
    layers: int = 30
    heads: int = 9
    dropped: int = 16

    @property
    def cost(self) -> float:
        """A few core-minutes."""
        return 5.0

    @property
    def aspect(self) -> str:
        """Kernels, on which text."""
        return f"kernels on {self.cell.source}"

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Kernel and spectrum of every head in both states."""
        parts = [
            self.cell.at(state=state, layer=layer, head=head)
            for state in STATES
            for layer in range(self.layers)
            for head in range(self.heads)
        ]
        return [(part, each.name, self.cell.length) for part in parts for each in (*KERNEL, *SPECTRUM)]

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Load, test that what is captured is the model's own, measure."""
        from poskernel.attention.sources.loading import load

        loaded, cell = load(self.cell.model), self.cell
        windows = encoded_windows(loaded.encode, cell.source, self.seed, self.texts, cell.sequences, cell.length)
        values: Values = {}
        for state, source in zip(STATES, (untrained_source(loaded.source, self.seed), loaded.source), strict=True):
            for (layer, head), numbers in self.found(source, windows).values.items():
                part = cell.at(state=state, layer=layer, head=head)
                values |= {(part, metric, cell.length): each for metric, each in numbers.items()}
        return self.done(values)

    def found(self, source: AttentionSource, windows: torch.Tensor) -> MeasuredHeads:
        """Its heads, at the frequencies that its own rotation has."""
        self_test(source)
        frequencies = {layer: probe.frequencies for layer, probe in rotary_probes(source).items()}
        return measured_heads(source_subject(source, windows, self.dropped), frequencies)


def disjoint_text(source: str, number: int, texts: int) -> str:
    """One of `texts` parts of a corpus that share no document: every so many documents, joined, from `number` on."""
    documents = corpus(source).documents
    return "\n\n".join(documents[name] for name in sorted(documents)[number::texts])


def encoded_windows(
    encode: Callable[[str], Sequence[int]], source: str, number: int, texts: int, sequences: int, length: int
) -> Int[Tensor, "sequence position"]:
    """The first windows of one of `texts` disjoint parts of a corpus; no token is added to them.

    Raises InputError where the part is too short.
    """
    wanted = sequences * length
    tokens = encode(disjoint_text(source, number, texts)[: LETTERS_A_TOKEN * wanted])
    if len(tokens) < wanted:
        raise InputError(
            f"text {number} of the corpus '{source}' gives {len(tokens)} tokens, not {wanted}: take fewer texts, or "
            "a larger corpus."
        )
    return torch.tensor(tokens[:wanted]).view(sequences, length)
