"""analyze: a model in, an atlas of its heads out."""

import html
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from poskernel.attention.determined import median_head, where_determined
from poskernel.attention.estimators.pairs import MINIMUM_SEQUENCES
from poskernel.attention.head_report import HeadReport, listed_offsets, without_nan
from poskernel.attention.measures import check_sequences, chosen_measures, measure_with
from poskernel.attention.measuring import Progress, Subject, silent
from poskernel.attention.sources.capture import AttentionSource
from poskernel.attention.sources.module_facts import require_positions, rotary
from poskernel.attention.sources.self_test import self_test
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.attention.sources.windows import SHORTEST, windows
from poskernel.errors import InputError, lookup
from poskernel.models.transformer import Transformer
from poskernel.specification import layer_numbers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SCHEMA = "poskernel.analyze/1"
DEFAULT_STATISTIC = "r2"
DOCUMENT: Mapping[str, str] = {
    "schema": "name and version of this form",
    "model": "the name that was given",
    "weights_digest": "SHA-256 of the weights' content; null for a live module",
    "quantization": "of a GGUF file, such as Q4_1; null for full weights",
    "dtype": "precision that the model ran in",
    "text_digest": "SHA-256 of the text, or of its token ids where those were given",
    "sequences": "number of sequences measured",
    "length": "tokens of each",
    "dropped": "first positions left out, as queries and as keys",
    "seed": "of everything random",
    "encoder_or_decoder": "decoder where queries see the past alone",
    "measures": "what was measured beside the kernels",
    "pattern_error": "largest difference between rebuilt and own attention weights in the self-test",
    "offsets": "offsets that g is listed at: 0 to 64, then 192 log-spaced; negative ones too for encoders",
    "words": "text of the tokens of the first sequence; empty without the measure tokens",
    "heads": "a row a head, with the columns below",
}
"""What the keys of the JSON document hold."""


@dataclass(frozen=True)
class Setting:
    """What a measurement was made of."""

    model: str
    weights_digest: str | None
    quantization: str | None
    dtype: str
    text_digest: str | None
    sequences: int
    length: int
    dropped: int
    seed: int
    encoder_or_decoder: str
    measures: tuple[str, ...]
    """What was measured beside the kernels."""
    pattern_error: float
    """Largest difference between rebuilt and own attention weights in the self-test."""

    @classmethod
    def of(
        cls,
        subject: Subject,
        origin: tuple[str | None, str | None],
        text_digest: str | None,
        measures: tuple[str, ...],
        pattern_error: float,
    ) -> "Setting":
        """Of what was measured; `origin` is the digest of the weights and their quantization."""
        source, (sequences, length) = subject.source, subject.tokens.shape
        return cls(
            model=source.name,
            weights_digest=origin[0],
            quantization=origin[1],
            dtype=str(source.dtype).removeprefix("torch."),
            text_digest=text_digest,
            sequences=sequences,
            length=length,
            dropped=subject.dropped,
            seed=subject.seed,
            encoder_or_decoder="decoder" if subject.causal else "encoder",
            measures=measures,
            pattern_error=pattern_error,
        )


@dataclass(frozen=True, eq=False)
class Atlas:
    """Every head measured, and the setting it was measured in."""

    setting: Setting
    heads: Mapping[tuple[int, int], HeadReport]
    offsets: tuple[int, ...]
    words: tuple[str, ...] = ()
    """Text of the tokens of the first sequence, "#" and the id where no tokenizer is known; only with `tokens`."""

    def head(self, layer: int, head: int) -> HeadReport:
        """One head; InputError if it was not measured."""
        if (layer, head) not in self.heads:
            layers = sorted({name[0] for name in self.heads})
            heads = 1 + max(name[1] for name in self.heads)
            raise InputError(
                f"layer {layer} head {head} was not measured: layers are {layers[0]} to {layers[-1]} "
                f"({len(layers)} of them), heads 0 to {heads - 1}."
            )
        return self.heads[layer, head]

    def to_frame(self) -> "pd.DataFrame":
        """One row a head; g, g_low and g_high are lists over `offsets`."""
        import pandas as pd

        return pd.DataFrame([report.row(self.offsets) for report in self.heads.values()])

    def about(self) -> dict[str, Any]:
        """Schema and setting: the document without its heads."""
        return {"schema": SCHEMA} | {name: getattr(self.setting, name) for name in self.setting.__dataclass_fields__}

    def document(self) -> dict[str, Any]:
        """The JSON document of `analyze`, whose keys DOCUMENT explains; undefined numbers are None, never nan."""
        rows = [report.row(self.offsets) for report in self.heads.values()]
        document = self.about() | {"offsets": list(self.offsets), "words": list(self.words), "heads": rows}
        return {name: without_nan(value) for name, value in document.items()}

    def plot(self, statistic: str = DEFAULT_STATISTIC, ax: "Axes | None" = None) -> "Axes":
        """Draw a layer x head map of one number of `to_frame`, or of "kind"; on axes of its own by default.

        Values that are undefined, and shares or R2 whose interval is wider than 1, stay empty. Raises InputError for a
        column that is none or holds no number a head, MissingExtraError without matplotlib.
        """
        from poskernel.report.head_curves import kind_map, statistic_map

        heads = self.to_frame()
        if statistic == "kind":
            return kind_map(heads, f"kinds of {self.setting.model}", ax)
        numbers = {str(name): None for name in heads if heads[name].dtype.kind in "fibu"}
        if statistic not in heads:
            lookup({**numbers, "kind": None}, statistic, "column")
        if statistic not in numbers:
            raise InputError(
                f"the column '{statistic}' is no number a head: give one such as r2, signal or share, or kind."
            )
        heads[statistic] = where_determined(heads, statistic)
        return statistic_map(heads, statistic, f"{statistic} of {self.setting.model}", ax)

    def _repr_html_(self) -> str:
        columns = ["layer", "head", "kind", "r2", "signal", "share", "peak_offset", "first_mass", "sentence"]
        table: str = self.to_frame()[columns].to_html(
            index=False, max_rows=20, float_format="{:.3f}".format, escape=True
        )
        return f"<p>{html.escape(repr(self))}</p>{table}"

    def __repr__(self) -> str:
        setting = self.setting
        r2 = median_head([report.estimate.r2 for report in self.heads.values()], share=True)
        median = "" if math.isnan(r2.value) else f", median R2 {r2.value:.2f} of {r2.n}"
        size = f"{len(self.heads)} heads on {setting.sequences} x {setting.length} tokens"
        return f"Atlas of {setting.model}: {size}{median}"


def analyze(
    model: Any,
    text: str | Tensor | None = None,
    sequences: int = 16,
    length: int = 512,
    layers: str | int | Iterable[int] | None = None,
    dropped: int = 16,
    seed: int = 0,
    null: bool = True,
    progress: Progress | None = None,
    device: str = "auto",
    measures: str | Iterable[str] = (),
) -> Atlas:
    """Measure the positional kernel of every head of a model, or of the given layers.

    `model` is a name (folder, .gguf file, package:NAME, hub id), what `load` gave, a live Hugging Face module or one of
    our transformers (then give `text` as token ids, [sequence, position]), or any AttentionSource. `text` defaults to
    the help topics that CPython ships, joined in sorted order of their keys. Sequences are the first `sequences`
    consecutive windows of `length` tokens of the text; no token is added to them (no BOS): the first token takes its
    place, and the first `dropped` positions are left out of every estimate as queries and as keys. `layers` are numbers
    or the text of the command line, "0-5,9"; all layers up to the highest run in any case.

    Of an encoder g is measured at signed offsets, negative ones for keys after their query. `measures` names what is
    measured beside the kernels (`poskernel.attention.measures.MEASURES` says what each is, costs and needs at least in
    sequences; "all" for all): each fills the field of that name in every HeadReport, and columns of the table.

    `device` is auto (an accelerator where there is one), cpu, cuda or mps; estimates are made on the CPU.

    Raises InputError for input that cannot be measured, RunError for activations that are not finite numbers.
    """
    place, wanted, numbers = present_device(device), chosen_measures(measures), wanted_layers(layers)
    check_sizes(sequences, length, dropped)
    check_sequences(wanted, sequences)
    step = progress or silent
    source, encode, origin, decode = opened(model, length, step)
    source.to(place)
    step("self-test", 0, 1)
    check_length(source, length)
    test = self_test(source)
    chosen = chosen_layers(source, numbers)
    tokens, text_digest = windows(source.name, encode, text, sequences, length, source.vocabulary)
    subject = Subject(source, tokens, chosen, dropped, seed, null, test.causal, place, step)
    kernels, found = measure_with(subject, wanted)
    setting = Setting.of(subject, origin, text_digest, tuple(wanted), test.pattern_error)
    names = [(kernel.layer, kernel.head) for kernel in kernels]
    heads = {
        name: HeadReport.of(kernel, length - dropped, found[name], dropped)
        for name, kernel in zip(names, kernels, strict=True)
    }
    words = tuple(map(decode, tokens[0].tolist())) if "tokens" in wanted else ()
    return Atlas(setting, heads, listed_offsets(length - dropped, test.causal), words)


def present_device(device: str) -> str:
    """The device that a name stands for; InputError for an accelerator that is not there."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if there[name])
    if device not in there:
        raise InputError(f"device '{device}' is unknown: give auto, {', '.join(there)}.")
    if not there[device]:
        raise InputError(f"there is no {device} device here: take cpu.")
    return device


Opened = tuple[AttentionSource, Callable[[str], list[int]] | None, tuple[str | None, str | None], Callable[[int], str]]


def opened(model: Any, length: int | None = None, step: Progress = silent) -> Opened:
    """(source, tokenizer, (weights digest, quantization), text of a token) of whatever stands for a model.

    InputError, before weights are read, for a name whose config has no room for sequences of `length`.
    """
    unknown = (None, (None, None), "#{}".format)
    if isinstance(model, AttentionSource):
        return model, *unknown
    from poskernel.attention.sources.huggingface import HuggingFaceSource
    from poskernel.attention.sources.loading import LoadedModel, load

    if isinstance(model, Transformer):
        return TransformerSource(model), *unknown
    if isinstance(model, torch.nn.Module):
        return HuggingFaceSource(model), *unknown
    loaded = model if isinstance(model, LoadedModel) else load(str(model), length, lambda: step("loading", 0, 1))
    return loaded.source, loaded.encode, (loaded.weights_digest, loaded.quantization), loaded.decode


def check_sizes(sequences: int, length: int, dropped: int) -> None:
    """InputError for sizes that leave nothing to measure, whatever the model."""
    if sequences < MINIMUM_SEQUENCES:
        raise InputError(
            f"{sequences} sequences are too few for an estimate with an interval: take {MINIMUM_SEQUENCES} or more."
        )
    if length < SHORTEST:
        raise InputError(f"length {length} leaves nothing to measure: take {SHORTEST} or more.")
    if not 0 <= dropped <= length - 2:
        raise InputError(
            f"dropping {dropped} positions of {length} leaves no pairs: drop 0 to {length - 2}, or take longer "
            "sequences."
        )


def check_length(source: AttentionSource, length: int) -> None:
    """InputError for a length that the model has no positions for."""
    config = getattr(getattr(source, "module", None), "config", None)
    require_positions(source.name, length, source.position_limit, rotary(config))


def wanted_layers(layers: Any) -> list[int] | None:
    """Layers as numbers, from numbers or from a text such as "0-5,9"; InputError for what is neither."""
    if layers is None or isinstance(layers, str):
        return None if layers is None else layer_numbers(layers)
    try:
        return [operator.index(layer) for layer in ([layers] if isinstance(layers, int) else layers)]
    except TypeError:
        raise InputError(f"layers are {layers!r}: give whole numbers, or a text such as '0-5,9'.") from None


def chosen_layers(source: AttentionSource, layers: Iterable[int] | None) -> list[int]:
    """The layers asked for, in order; InputError for one that the model lacks."""
    chosen = sorted(set(range(source.layers) if layers is None else layers))
    for layer in chosen:
        if not 0 <= layer < source.layers:
            raise InputError(f"'{source.name}' has no layer {layer}: its layers are 0 to {source.layers - 1}.")
    if not chosen:
        raise InputError(f"no layers are chosen: give some of 0 to {source.layers - 1}.")
    return chosen
