"""analyze: a model in, an atlas of its heads out."""

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.capture import AttentionSource
from poskernel.attention.estimate import HeadEstimate, KernelEstimator
from poskernel.attention.kinds import Profile, head_kind
from poskernel.attention.pairs import MINIMUM_SEQUENCES
from poskernel.attention.self_test import self_test
from poskernel.attention.windows import SHORTEST, windows
from poskernel.errors import InputError
from poskernel.kernel import PositionalKernel
from poskernel.statistics import Estimate

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "poskernel.analyze/1"
WIDEST = 1.0
"""An R2 with a wider interval says nothing, and sentences do not quote it."""
BATCH = 16
"""Sequences that pass through the model at once."""
NEAR_OFFSETS, FAR_OFFSETS = 65, 192
"""g is listed at offsets 0 to 64 and at 192 further ones, log-spaced."""

Progress = Callable[[str, int, int], None]
"""Called as progress(what, done, total)."""


@dataclass(frozen=True, eq=False)
class HeadReport:
    """One head: its kernel, its estimates, its shape, and a sentence that says it in words."""

    estimate: HeadEstimate
    profile: Profile
    kind: str
    sentence: str

    @property
    def kernel(self) -> PositionalKernel:
        """g(offset) as a positional kernel."""
        return self.estimate.kernel

    @classmethod
    def of(cls, estimate: HeadEstimate, kept: int) -> "HeadReport":
        """From what was measured on sequences with `kept` positions."""
        profile = Profile.of(estimate.g, kept)
        sink = max(estimate.first_mass, estimate.dropped_mass)
        kind = head_kind(profile, estimate.share.value, sink)
        return cls(estimate, profile, kind, describe(estimate, profile, kind))

    def row(self, offsets: Sequence[int]) -> dict[str, Any]:
        """The head as one flat row; g and its band at the given offsets. Undefined numbers are nan."""
        estimate, shown = self.estimate, [offset for offset in offsets if offset < self.estimate.g.shape[0]]
        absent = [math.nan] * (len(offsets) - len(shown))
        g, reach = estimate.g[shown], student_reach(estimate.r2.n) * estimate.g_error[shown]
        return {
            "layer": estimate.layer,
            "head": estimate.head,
            "r2": estimate.r2.value,
            "r2_low": estimate.r2.low,
            "r2_high": estimate.r2.high,
            **spread("r2_raw", estimate.r2_raw),
            **spread("r2_plugin", estimate.r2_plugin),
            **spread("r2_plugin_centred", estimate.r2_plugin_centred),
            "r2_null": math.nan if estimate.null is None else estimate.null.value,
            **spread("signal", estimate.signal),
            "signal_plugin": estimate.signal_plugin,
            **spread("share", estimate.share),
            "first_mass": estimate.first_mass,
            "dropped_mass": estimate.dropped_mass,
            "peak_offset": self.profile.peak_offset,
            "half_width": self.profile.half_width,
            "kind": self.kind,
            "sentence": self.sentence,
            "g": shortened(g) + absent,
            "g_low": shortened(g - reach) + absent,
            "g_high": shortened(g + reach) + absent,
        }

    def _repr_html_(self) -> str:
        return f"<p>Layer {self.estimate.layer}, head {self.estimate.head}: {html.escape(self.sentence)}</p>"

    def __repr__(self) -> str:
        return f"layer {self.estimate.layer} head {self.estimate.head}: {self.sentence}"


def spread(name: str, estimate: Estimate) -> dict[str, float]:
    """An estimate as three columns."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def shortened(curve: Float[Tensor, " offset"]) -> list[float]:
    """A curve for reading: six digits after the point, far below its error, keep a document of 1000 heads small."""
    return [round(value, 6) for value in curve.tolist()]


def student_reach(n: int) -> float:
    """Standard errors on either side of a mean over n sequences in its 95% interval."""
    from scipy.stats import t

    return float(t.ppf(0.975, n - 1))


def describe(estimate: HeadEstimate, profile: Profile, kind: str) -> str:
    """A head in words."""
    words = f"{kind} head: positional kernel peaks at offset {profile.peak_offset}, half-width {profile.half_width}"
    if not math.isnan(estimate.share.value):
        words += f", position {estimate.share.value:.0%} of its logit variance"
    r2 = estimate.r2
    if math.isnan(r2.value):
        words += ", R2 undefined"
    elif r2.high - r2.low > WIDEST:
        words += ", R2 undetermined (its interval is wider than 1: take more sequences)"
    else:
        words += f", R2 {r2.value:.2f} ({r2.low:.2f} to {r2.high:.2f})"
    return f"{words}; {estimate.first_mass:.0%} of its attention on the first token"


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


def without_nan(value: Any) -> Any:
    """The same value with None for every number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    return value


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
) -> Atlas:
    """Measure the positional kernel of every head of a model, or of the given layers.

    `model` is a name (folder, .gguf file, package:NAME, hub id), a live Hugging Face module (then give `text` as token
    ids, [sequence, position], or as a string if it came with its tokenizer through `load`), or any AttentionSource.
    `text` defaults to the help topics that CPython ships, joined in sorted order of their keys. Sequences are the first
    `sequences` consecutive windows of `length` tokens of the text; no token is added to them (no BOS): the first token
    takes its place, and the first `dropped` positions are left out of every estimate as queries and as keys.

    `device` is auto (an accelerator where there is one), cpu, cuda or mps; estimates are made on the CPU.

    Raises InputError for input that cannot be measured, RunError for activations that are not finite numbers.
    """
    place = present_device(device)
    check_sizes(sequences, length, dropped)
    source, encode, origin = opened(model)
    source.to(place)
    step = progress or (lambda what, done, total: None)
    step("self-test", 0, 1)
    check_length(source, length)
    test = self_test(source)
    if not test.causal:
        raise InputError(
            f"'{source.name}' attends in both directions (an encoder), and kernels of signed offsets are not "
            "measured yet: give a decoder."
        )
    chosen = chosen_layers(source, layers)
    tokens, text_digest = windows(source.name, encode, text, sequences, length)
    estimates = measure(source, tokens, chosen, dropped, seed, null, step)
    reports = {(estimate.layer, estimate.head): HeadReport.of(estimate, length - dropped) for estimate in estimates}
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
        encoder_or_decoder="decoder",
        pattern_error=test.pattern_error,
    )
    return Atlas(setting, reports, listed_offsets(length - dropped))


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
    from poskernel.attention.huggingface import HuggingFaceSource
    from poskernel.attention.loading import LoadedModel, load

    if isinstance(model, torch.nn.Module):
        return HuggingFaceSource(model), None, (None, None)
    loaded = model if isinstance(model, LoadedModel) else load(str(model))
    return loaded.source, loaded.encode, (loaded.weights_digest, loaded.quantization)


def measure(
    source: AttentionSource,
    tokens: Int[Tensor, "sequence position"],
    layers: Sequence[int],
    dropped: int,
    seed: int,
    null: bool,
    step: Progress,
) -> list[HeadEstimate]:
    """Estimates of every head of the layers; the tokens pass through the model in batches of nearly equal size."""
    count = math.ceil(tokens.shape[0] / BATCH)
    batches = tokens.tensor_split(count)
    estimator = KernelEstimator(
        dict.fromkeys(layers, source.heads),
        tokens.shape[1],
        tokens.shape[0],
        len(batches[0]),
        dropped=dropped,
        null=null,
        seed=seed,
    )
    for index, batch in enumerate(batches):

        def consume(capture: Any, index: int = index) -> None:
            estimator.consume(capture)
            step("layers", index * source.layers + capture.layer + 1, count * source.layers)

        source.forward(batch, consume)
    return estimator.estimates()


def check_sizes(sequences: int, length: int, dropped: int) -> None:
    """InputError for sizes that leave nothing to measure, whatever the model."""
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


def listed_offsets(horizon: int) -> tuple[int, ...]:
    """Offsets that documents list g at: 0 to 64, then 192 log-spaced to the last (fewer where they would repeat)."""
    if horizon <= NEAR_OFFSETS:
        return tuple(range(horizon))
    far = (
        torch.logspace(math.log10(NEAR_OFFSETS), math.log10(horizon - 1), FAR_OFFSETS, dtype=torch.float64)
        .round()
        .int()
    )
    return tuple(sorted({*range(NEAR_OFFSETS), *far.tolist()}))
