"""analyze: a model in, an atlas of its heads out."""

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.attention.estimators.estimate import HeadEstimate, KernelEstimator
from poskernel.attention.estimators.pairs import MINIMUM_SEQUENCES
from poskernel.attention.estimators.variant_estimates import SAMPLES
from poskernel.attention.head_report import HeadReport, listed_offsets, without_nan
from poskernel.attention.sources.capture import AttentionSource
from poskernel.attention.sources.self_test import self_test
from poskernel.attention.sources.untrained import untrained_source
from poskernel.attention.sources.windows import SHORTEST, windows
from poskernel.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "poskernel.analyze/1"
BATCH = 16
"""Sequences that pass through the model at once."""
Progress = Callable[[str, int, int], None]
"""Called as progress(what, done, total)."""


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
    pattern_error: float
    """Largest difference between rebuilt and own attention weights in the self-test."""


@dataclass(frozen=True, eq=False)
class Atlas:
    """Every head measured, and the setting it was measured in."""

    setting: Setting
    heads: Mapping[tuple[int, int], HeadReport]
    offsets: tuple[int, ...]

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

    def document(self) -> dict[str, Any]:
        """The JSON document of `analyze`; undefined numbers are None, never nan."""
        setting = {name: getattr(self.setting, name) for name in self.setting.__dataclass_fields__}
        rows = [report.row(self.offsets) for report in self.heads.values()]
        document = {"schema": SCHEMA, **setting, "offsets": list(self.offsets), "heads": rows}
        return {name: without_nan(value) for name, value in document.items()}

    def _repr_html_(self) -> str:
        columns = ["layer", "head", "kind", "r2", "signal", "share", "peak_offset", "first_mass", "sentence"]
        table: str = self.to_frame()[columns].to_html(
            index=False, max_rows=20, float_format="{:.3f}".format, escape=True
        )
        return f"<p>{html.escape(repr(self))}</p>{table}"

    def __repr__(self) -> str:
        setting = self.setting
        values = [
            report.estimate.r2.value for report in self.heads.values() if not math.isnan(report.estimate.r2.value)
        ]
        median = f", median R2 {sorted(values)[len(values) // 2]:.2f}" if values else ""
        size = f"{len(self.heads)} heads on {setting.sequences} x {setting.length} tokens"
        return f"Atlas of {setting.model}: {size}{median}"


def analyze(
    model: Any,
    text: str | Tensor | None = None,
    sequences: int = 16,
    length: int = 512,
    layers: Iterable[int] | None = None,
    dropped: int = 16,
    seed: int = 0,
    null: bool = True,
    progress: Progress | None = None,
    device: str = "auto",
    variants: bool = False,
    untrained: bool = False,
) -> Atlas:
    """Measure the positional kernel of every head of a model, or of the given layers.

    `model` is a name (folder, .gguf file, package:NAME, hub id), a live Hugging Face module (then give `text` as token
    ids, [sequence, position], or as a string if it came with its tokenizer through `load`), or any AttentionSource.
    `text` defaults to the help topics that CPython ships, joined in sorted order of their keys. Sequences are the first
    `sequences` consecutive windows of `length` tokens of the text; no token is added to them (no BOS): the first token
    takes its place, and the first `dropped` positions are left out of every estimate as queries and as keys.

    Of an encoder g is measured at signed offsets, negative ones for keys after their query. `variants` also measures
    the Gram variants, and everything again with the first positions; `untrained` the R2, signal and share of the same
    architecture with weights drawn anew from `seed`, on the same text.

    `device` is auto (an accelerator where there is one), cpu, cuda or mps; estimates are made on the CPU.

    Raises InputError for input that cannot be measured, RunError for activations that are not finite numbers.
    """
    place = present_device(device)
    check_sizes(sequences, length, dropped, variants)
    source, encode, origin = opened(model)
    source.to(place)
    step = progress or (lambda what, done, total: None)
    step("self-test", 0, 1)
    check_length(source, length)
    test = self_test(source)
    chosen = chosen_layers(source, layers)
    tokens, text_digest = windows(source.name, encode, text, sequences, length)
    wanted = Wanted(chosen, dropped, seed, null, test.causal, variants)
    estimates = measure(source, tokens, wanted, step)
    others = measure_untrained(source, tokens, wanted, place, step) if untrained else {}
    reports = [HeadReport.of(each, length - dropped, others.get((each.layer, each.head))) for each in estimates]
    setting = Setting(
        model=source.name,
        weights_digest=origin[0],
        quantization=origin[1],
        dtype=str(source.dtype).removeprefix("torch."),
        text_digest=text_digest,
        sequences=sequences,
        length=length,
        dropped=dropped,
        seed=seed,
        encoder_or_decoder="decoder" if test.causal else "encoder",
        pattern_error=test.pattern_error,
    )
    heads = {(report.estimate.layer, report.estimate.head): report for report in reports}
    return Atlas(setting, heads, listed_offsets(length - dropped, test.causal))


def present_device(device: str) -> str:
    """The device that a name stands for; InputError for an accelerator that is not there."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if there[name])
    if device not in there:
        raise InputError(f"device '{device}' is unknown: give auto, {', '.join(there)}.")
    if not there[device]:
        raise InputError(f"there is no {device} device here: give --device cpu.")
    return device


def opened(model: Any) -> tuple[AttentionSource, Callable[[str], list[int]] | None, tuple[str | None, str | None]]:
    """(source, tokenizer, (weights digest, quantization)) of whatever stands for a model."""
    if isinstance(model, AttentionSource):
        return model, None, (None, None)
    from poskernel.attention.sources.huggingface import HuggingFaceSource
    from poskernel.attention.sources.loading import LoadedModel, load

    if isinstance(model, torch.nn.Module):
        return HuggingFaceSource(model), None, (None, None)
    loaded = model if isinstance(model, LoadedModel) else load(str(model))
    return loaded.source, loaded.encode, (loaded.weights_digest, loaded.quantization)


@dataclass(frozen=True)
class Wanted:
    """What is measured of a source: layers, positions left out, the shared permutation's seed, and the extras."""

    layers: Sequence[int]
    dropped: int = 16
    seed: int = 0
    null: bool = True
    causal: bool = True
    variants: bool = False


def measure(
    source: AttentionSource, tokens: Int[Tensor, "sequence position"], wanted: Wanted, step: Progress
) -> list[HeadEstimate]:
    """Estimates of every head of the layers; the tokens pass through the model in batches of nearly equal size."""
    batches = even_batches(tokens)
    estimator = KernelEstimator(
        dict.fromkeys(wanted.layers, source.heads),
        tokens.shape[1],
        tokens.shape[0],
        len(batches[0]),
        dropped=wanted.dropped,
        null=wanted.null,
        seed=wanted.seed,
        causal=wanted.causal,
        variants=wanted.variants,
    )
    for index, batch in enumerate(batches):

        def consume(capture: Any, index: int = index) -> None:
            estimator.consume(capture)
            step("layers", index * source.layers + capture.layer + 1, len(batches) * source.layers)

        source.forward(batch, consume)
    return estimator.estimates()


def even_batches(tokens: Int[Tensor, "sequence position"]) -> list[Int[Tensor, "batch position"]]:
    """Batches of nearly equal size, even but for the last: variants pair the sequences of a batch."""
    count, pairs = math.ceil(tokens.shape[0] / BATCH), tokens.shape[0] // 2
    stops = [2 * sum(pairs // count + (j < pairs % count) for j in range(i)) for i in range(1, count)]
    return list(tokens.tensor_split(stops))


def measure_untrained(
    source: AttentionSource, tokens: Int[Tensor, "sequence position"], wanted: Wanted, place: str, step: Progress
) -> dict[tuple[int, int], HeadEstimate]:
    """The same architecture with new weights, which passes the same self-test: its estimates by layer and head."""
    other = untrained_source(source, wanted.seed)
    other.to(place)
    self_test(other)
    plain = replace(wanted, null=False, variants=False)
    found = measure(other, tokens, plain, lambda what, done, total: step(f"untrained {what}", done, total))
    return {(estimate.layer, estimate.head): estimate for estimate in found}


def check_sizes(sequences: int, length: int, dropped: int, variants: bool = False) -> None:
    """InputError for sizes that leave nothing to measure, whatever the model."""
    if variants and MINIMUM_SEQUENCES <= sequences < 2 * SAMPLES:
        raise InputError(
            f"{sequences} sequences are too few for Gram variants, which need two a sample: give --sequences "
            f"{2 * SAMPLES} or more."
        )
    if sequences < MINIMUM_SEQUENCES:
        raise InputError(
            f"{sequences} sequences are too few for an estimate with an interval: give --sequences "
            f"{MINIMUM_SEQUENCES} or more."
        )
    if length < SHORTEST:
        raise InputError(f"length {length} leaves nothing to measure: give --length {SHORTEST} or more.")
    if not 0 <= dropped <= length - 2:
        raise InputError(
            f"dropping {dropped} positions of {length} leaves no pairs: give --dropped 0 to {length - 2}, or longer "
            "sequences."
        )


def check_length(source: AttentionSource, length: int) -> None:
    """InputError for a length that the model has no positions for."""
    if source.position_limit is not None and length > source.position_limit:
        raise InputError(
            f"length {length} is beyond the {source.position_limit} positions of '{source.name}': "
            f"give --length {source.position_limit} or less."
        )


def chosen_layers(source: AttentionSource, layers: Iterable[int] | None) -> list[int]:
    """The layers asked for, in order; InputError for one that the model lacks."""
    chosen = sorted(set(range(source.layers) if layers is None else layers))
    for layer in chosen:
        if not 0 <= layer < source.layers:
            raise InputError(f"'{source.name}' has no layer {layer}: its layers are 0 to {source.layers - 1}.")
    if not chosen:
        raise InputError(f"no layers are chosen: give some of 0 to {source.layers - 1}.")
    return chosen
