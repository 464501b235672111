"""Positional kernels of a model's heads as rows: what E1, E3 and the dynamics measure, of our models and of others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.estimators.estimate import HeadEstimate
from poskernel.attention.estimators.head_spectra import HeadSpectrum, head_spectra
from poskernel.attention.measures import measure_with
from poskernel.attention.measuring import Subject
from poskernel.attention.sources.capture import AttentionSource
from poskernel.encodings import Encoding, ModelShape, Rope, Sinusoidal
from poskernel.encodings.encoding import geometric_frequencies
from poskernel.experiments.experiment import Quantity
from poskernel.models.language import Text
from poskernel.models.text import Split

Values = dict[str, float | str]
"""A head's numbers by metric; a text says why there is none."""

KERNEL = (
    Quantity("r2", "share of the variance of row-centred mean logits that g explains, unbiased"),
    Quantity("r2_null", "r2 after one random order of positions, the same in all sequences"),
    Quantity("signal", "standard deviation of g over pairs of positions, nats, without its sampling noise"),
    Quantity("share", "variance of row-centred g over the within-row variance of single sequences' logits"),
)
VARIANT_NAMES = ("mean", "centred", "global", "whitened")
VARIANTS = tuple(
    Quantity(f"{kind}_{name}", f"{words} of the Gram variant '{name}'")
    for name in VARIANT_NAMES
    for kind, words in (("r2", "r2"), ("signal", "signal"))
)
SPECTRUM = (
    Quantity(
        "lines_explained",
        "share of g's variance that lines at the encoding's frequencies explain (RoPE's where it has none: a control)",
    ),
    Quantity("lines_random", "the same for random frequencies of the same number and range, mean of 200 sets"),
    Quantity("lines_p", "share of those sets (add one) that explain at least as much"),
    Quantity("alignment", "share of g's Fourier power within one resolution of a resolved frequency of the encoding"),
    Quantity("alignment_random", "the same for random frequencies"),
)
STATIONARY = "undefined: the variance of the mean logits does not stand out from their sampling noise"


@dataclass(frozen=True, eq=False)
class MeasuredHeads:
    """Rows of every head, and the profile of the strongest."""

    values: Mapping[tuple[int, int], Values]
    strongest: Float[Tensor, " offset"]
    """g of the head with the largest signal, less its mean over pairs, nats."""


def held_out_tokens(source: Text, sequences: int, length: int) -> Int[Tensor, "sequence position"]:
    """Windows of test documents, evenly spread: the same for every model."""
    return source.spread(Split.TEST, sequences, length).tokens


def line_frequencies(encoding: Encoding, shape: ModelShape) -> Float[Tensor, " line"]:
    """Frequencies (radians a position) at which an encoding could show in g.

    RoPE's and the sinusoidal table's own, at the model's width; RoPE's for every other encoding, where nothing should
    be found at them.
    """
    if isinstance(encoding, Sinusoidal):
        return geometric_frequencies(encoding.base, shape.width // 2)
    rotary = encoding if isinstance(encoding, Rope) else Rope()
    return rotary.rates(shape.width // shape.heads // 2, shape.train_length)


def measured_heads(
    subject: Subject, frequencies: Mapping[int, Float[Tensor, " line"]], variants: bool = False
) -> MeasuredHeads:
    """Kernels, null, spectra at the given frequencies of each layer and, if asked, Gram variants of every head."""
    kernels, found = measure_with(subject, ["variants"] if variants else [])
    kept = subject.length - subject.dropped
    spectra = {(each.layer, each.head): each for each in head_spectra(kernels, frequencies, kept, subject.seed)}
    values: dict[tuple[int, int], Values] = {}
    for kernel in kernels:
        name = (kernel.layer, kernel.head)
        values[name] = {**kernel_values(kernel), **spectrum_values(spectra[name])}
        if variants:
            for variant in VARIANT_NAMES:
                estimate = found[name]["variants"].estimates[variant]
                values[name][f"r2_{variant}"] = number(estimate.r2.value, STATIONARY)
                values[name][f"signal_{variant}"] = number(estimate.signal.value, STATIONARY)
    return MeasuredHeads(values, strongest(kernels, kept))


def source_subject(source: AttentionSource, tokens: Int[Tensor, "sequence position"], dropped: int) -> Subject:
    """All layers of a causal model on some sequences; everything random in the measures comes from one seed."""
    return Subject(source, tokens, range(source.layers), dropped)


def number(value: float, otherwise: str) -> float | str:
    """A finite number, or why there is none."""
    return value if math.isfinite(value) else otherwise


def kernel_values(kernel: HeadEstimate) -> Values:
    """What KERNEL lists."""
    return {
        "r2": number(kernel.r2.value, STATIONARY),
        "r2_null": STATIONARY if kernel.null is None else number(kernel.null.value, STATIONARY),
        "signal": number(kernel.signal.value, STATIONARY),
        "share": number(kernel.share.value, "undefined: the logits do not vary within rows"),
    }


def spectrum_values(spectrum: HeadSpectrum) -> Values:
    """What SPECTRUM lists."""
    why = spectrum.undefined or "undefined: g does not vary"
    lines, aligned = spectrum.lines, spectrum.alignment
    return {
        "lines_explained": why if lines is None else number(lines.explained, why),
        "lines_random": why if lines is None else number(float(lines.null.mean()), why),
        "lines_p": why if lines is None else number(lines.p, why),
        "alignment": why if aligned is None else number(aligned.share, why),
        "alignment_random": why if aligned is None else number(float(aligned.null.mean()), why),
    }


def strongest(kernels: Sequence[HeadEstimate], kept: int) -> Float[Tensor, " offset"]:
    """g of the head with the largest signal, less its mean over pairs."""
    best = max(kernels, key=lambda kernel: kernel.signal.value)
    g = best.g[-best.first_offset :]
    pairs = kept - torch.arange(len(g)).double()
    return g - (g * pairs).sum() / pairs.sum()
