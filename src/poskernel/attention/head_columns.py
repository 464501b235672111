"""The flat columns that a head's measurements become in tables and documents, and what each means.

An estimate is three columns: its value, and `_low` and `_high` of its 95% interval. Undefined numbers are nan here and
null in documents. A column that lists a number a bin, line or plane lists its intervals likewise.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poskernel.attention.content.cross_terms import residual_ratio
from poskernel.attention.content.head_products import HeadProducts
from poskernel.attention.content.leakage import HeadLeakage
from poskernel.attention.estimators.decompose import TERMS, HeadSplit
from poskernel.attention.estimators.distance import HeadDistance, RowBoundary
from poskernel.attention.estimators.drift import PARTS, HeadDrift
from poskernel.attention.estimators.estimate import HeadEstimate
from poskernel.attention.estimators.head_probes import HeadProbes
from poskernel.attention.estimators.head_spectra import HeadSpectrum
from poskernel.attention.estimators.symbolic import HeadPermutation
from poskernel.attention.estimators.tokens import HeadTokens
from poskernel.attention.estimators.variant_estimates import HeadVariants
from poskernel.statistics import Estimate

Row = dict[str, Any]


@dataclass(frozen=True)
class Columns:
    """How a measure's result becomes columns, and their meanings; a word in capitals stands for names listed there."""

    values: Callable[[Any], Row]
    meanings: Mapping[str, str]


def spread(name: str, estimate: Estimate | None) -> Row:
    """An estimate as three columns; nan for None."""
    found = Estimate(math.nan, math.nan, math.nan, 0, "") if estimate is None else estimate
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def spreads(name: str, estimates: Sequence[Estimate]) -> Row:
    """Estimates as three columns that list them."""
    return {
        name: [each.value for each in estimates],
        f"{name}_low": [each.low for each in estimates],
        f"{name}_high": [each.high for each in estimates],
    }


def of_kernel(kernel: HeadEstimate) -> Row:
    """What is measured of every head."""
    return {
        "layer": kernel.layer,
        "head": kernel.head,
        **spread("r2", kernel.r2),
        **spread("r2_raw", kernel.r2_raw),
        **spread("r2_plugin", kernel.r2_plugin),
        **spread("r2_plugin_centred", kernel.r2_plugin_centred),
        **spread("r2_null", kernel.null),
        **spread("signal", kernel.signal),
        "signal_plugin": kernel.signal_plugin,
        **spread("share", kernel.share),
        "first_mass": kernel.first_mass,
        "dropped_mass": kernel.dropped_mass,
    }


def of_split(split: HeadSplit) -> Row:
    """The four terms."""
    row: Row = {}
    for term in TERMS:
        row |= spread(f"{term}_share", split.shares[term])
        row |= spread(f"{term}_sequential", split.sequential[term])
        row |= spread(f"{term}_kl_share", split.kl_shares[term])
    return row | spread("total_share", split.total) | {"divergence": split.divergence}


def of_distance(distance: HeadDistance) -> Row:
    """Attention by distance and boundaries."""
    kernel = distance.kernel
    row: Row = {
        "distance_edges": list(distance.edges),
        **spreads("distance_mass", distance.mass),
        "distance_even": distance.even.tolist(),
        **spreads("distance_mass_kept", distance.mass_kept),
        "distance_even_kept": distance.even_kept.tolist(),
        **of_boundary("boundary", distance.boundary),
        **of_boundary("boundary_kept", distance.boundary_kept),
        "log_z_slope": math.nan if kernel is None else float(kernel.slope[-1]),
        "crossover": math.nan if kernel is None or kernel.crossover is None else kernel.crossover,
    }
    return row


def of_boundary(name: str, boundary: RowBoundary | None) -> Row:
    """Rows compared with rows twice as long; empty lists where attention goes both ways."""
    none: tuple[float, ...] = ()
    found = RowBoundary((), none, none) if boundary is None else boundary
    return {
        f"{name}_keys": list(found.keys),
        f"{name}_variation": list(found.variation),
        f"{name}_noise": list(found.noise),
    }


def of_symbolic(scores: HeadPermutation) -> Row:
    """Scores under permuted keys."""
    return {
        **spread("positional", scores.positional),
        **spread("symbolic", scores.symbolic),
        "plane_frequencies": scores.frequencies.tolist(),
        **spreads("plane_positional", scores.plane_positional),
        **spreads("plane_symbolic", scores.plane_symbolic),
        "plane_energy": scores.energy.tolist(),
    }


def of_drift(drift: HeadDrift) -> Row:
    """The slope of g and what it comes from."""
    row = spread("slope", drift.slope)
    for part in PARTS:
        row |= spread(f"slope_{part.replace(' ', '_')}", drift.parts[part])
    return row | spread("drift_share", drift.drift_share)


def of_leakage(leakage: HeadLeakage) -> Row:
    """Absolute position in the logits."""
    return {
        **spread("leakage", leakage.total),
        **spread("leakage_mask", leakage.mask),
        **spread("leakage_first", leakage.first),
    }


def of_variants(variants: HeadVariants) -> Row:
    """Gram variants."""
    row: Row = {}
    for name, variant in variants.estimates.items():
        row |= {
            **spread(f"{name}_r2", variant.r2),
            **spread(f"{name}_r2_raw", variant.r2_raw),
            f"{name}_r2_plugin": variant.r2_plugin,
            f"{name}_r2_plugin_centred": variant.r2_plugin_centred,
            **spread(f"{name}_signal", variant.signal),
            f"{name}_signal_plugin": variant.signal_plugin,
        }
    return row


def of_tokens(tokens: HeadTokens) -> Row:
    """Rows of the first sequence."""
    return {
        "token_queries": [row.query for row in tokens.rows],
        "token_keys": [list(row.keys) for row in tokens.rows],
        "token_weights": [[round(weight, 6) for weight in row.weights] for row in tokens.rows],
    }


def of_spectrum(spectrum: HeadSpectrum) -> Row:
    """Lines and Fourier power."""
    lines, fourier, aligned = spectrum.lines, spectrum.fourier, spectrum.alignment
    return {
        "lines_explained": math.nan if lines is None else lines.explained,
        "lines_explained_resolved": math.nan if lines is None else lines.explained_resolved,
        "lines_random": math.nan if lines is None else float(lines.null.mean()),
        "lines_p": math.nan if lines is None else lines.p,
        "line_frequencies": [] if lines is None else lines.frequencies.tolist(),
        "line_amplitudes": [] if lines is None else lines.amplitude.tolist(),
        "line_phases": [] if lines is None else lines.phase.tolist(),
        "line_resolved": [] if lines is None else lines.resolved.tolist(),
        "fourier_peak": math.nan if fourier is None else peak_frequency(fourier.frequencies, fourier.power),
        "alignment": math.nan if aligned is None else aligned.share,
        "alignment_random": math.nan if aligned is None else float(aligned.null.mean()),
        "alignment_p": math.nan if aligned is None else aligned.p,
        "spectrum_undefined": spectrum.undefined,
    }


def peak_frequency(frequencies: Any, power: Any) -> float:
    """Frequency with the most power; nan for a kernel without any."""
    return float(frequencies[power.argmax()]) if bool(power.isfinite().all()) else math.nan


def of_probes(probes: HeadProbes) -> Row:
    """One token for ever, and a pattern twice."""
    repetition = probes.repetition
    return {
        "probe_correlation": probes.agreement.correlation,
        "probe_gain": probes.agreement.gain,
        "probe_agrees": probes.agreement.agrees,
        "toeplitz_error": probes.constant.toeplitz_error,
        "toeplitz_floor": probes.constant.floor,
        **spread("induction", repetition.induction),
        "induction_chance": repetition.induction_chance,
        **spread("matching", repetition.matching),
        "matching_chance": repetition.matching_chance,
    }


def of_untrained(other: HeadEstimate) -> Row:
    """The same head of the same architecture before training."""
    return {
        **spread("r2_untrained", other.r2),
        **spread("signal_untrained", other.signal),
        **spread("share_untrained", other.share),
    }


def of_products(products: HeadProducts) -> Row:
    """Fits by content kernel, and what two of them leave."""
    row: Row = {}
    for kernel, fits in products.fits.items():
        values = fits.row()
        row |= {f"fit_{kernel}_{name}": values[name] for name in values if name not in ("layer", "head", "kernel")}
    for fit, left in products.cross_terms.items():
        row |= {
            **spread(f"residual_{fit}", residual_ratio(products.fits[left.kernel], fit)),
            **spread(f"residual_{fit}_rank", left.effective_rank()),
            **spread(f"residual_{fit}_rank_null", left.null_rank()),
            **spread(f"residual_{fit}_rank_excess", left.excess_rank()),
        }
    return row


KERNEL = Columns(
    of_kernel,
    {
        "layer": "layer, from 0",
        "head": "query head of the layer, from 0",
        "r2": "share of the variance of the mean row-centred logits that a function of the offset explains, unbiased",
        "r2_raw": "the same without row-centring; a constant per row, which attention ignores, counts",
        "r2_plugin": "of the mean over these sequences, raw: biased down, as sampling noise counts as unexplained",
        "r2_plugin_centred": "plug-in and row-centred",
        "r2_null": "r2 after one random order of positions, the same in all sequences",
        "signal": "standard deviation of g over pairs of positions, nats, without its sampling noise",
        "signal_plugin": "with it",
        "share": "variance of row-centred g over the within-row variance of single sequences' logits",
        "first_mass": "mean attention on position 0",
        "dropped_mass": "mean attention on the dropped positions",
    },
)
SHAPE_MEANINGS = {
    "peak_offset": "offset (query less key) where softmax of g is largest",
    "half_width": "neighbouring offsets with at least half of the peak's weight",
    "kind": "one word, by the table of thresholds",
    "sentence": "the head in words",
    "g": "g at the document's offsets, nats; null at offsets that no pair of positions has",
}
HEAD_COLUMNS: dict[str, Columns] = {
    "split": Columns(
        of_split,
        {
            "TERM_share": "share of the within-row logit variance: position, key, query, interaction; not orthogonal",
            "total_share": "their sum",
            "TERM_sequential": "R2 of the terms up to this one",
            "TERM_kl_share": "share of KL(attention || uniform) that its softmax explains; below 0 if it misleads",
            "divergence": "KL(attention || uniform) of a mean row, nats",
        },
    ),
    "distance": Columns(
        of_distance,
        {
            "distance_edges": "bin i of distance holds edges[i] to edges[i + 1] - 1",
            "distance_mass": "mean attention in each bin",
            "distance_even": "the same of evenly spread attention",
            "distance_mass_kept": "without the dropped positions as queries and keys, weights adding up to 1",
            "distance_even_kept": "likewise",
            "boundary_keys": "rows with so many keys are compared with rows of twice as many",
            "boundary_variation": "total variation between their mean weights, by offset",
            "boundary_noise": "the same between two halves of the sequences at one row",
            "boundary_kept_keys": "the three without the dropped positions",
            "boundary_kept_variation": "",
            "boundary_kept_noise": "",
            "log_z_slope": "slope of log Z of g against log row at the last rows: 0 settled, 1 bounded for ever",
            "crossover": "first row from which that slope stays above 1/2; null if none",
        },
    ),
    "symbolic": Columns(
        of_symbolic,
        {
            "positional": "agreement of logits before and after key vectors change places: they stay with the place",
            "symbolic": "they move with the keys",
            "plane_frequencies": "radians a position, falling; 0: dimensions that do not turn",
            "plane_positional": "both scores of each rotary plane",
            "plane_symbolic": "",
            "plane_energy": "each plane's within-row variance over that of the logits",
        },
    ),
    "drift": Columns(
        of_drift,
        {
            "slope": "least-squares slope of g, nats a position",
            "slope_PART": "its parts: stationary, key_drift, query_drift, joint_drift, content; they add up",
            "drift_share": "the drifts' share of the slope of the position term",
        },
    ),
    "leakage": Columns(
        of_leakage,
        {
            "leakage": "share of within-row logit variance that is a function of absolute positions",
            "leakage_mask": "what is left of it without position 0",
            "leakage_first": "what position 0 brings",
        },
    ),
    "variants": Columns(
        of_variants,
        {
            "VARIANT_r2": "as r2; VARIANT: mean, centred, global, whitened; whole, whole_mean, ...: nothing dropped",
            "VARIANT_r2_raw": "raw",
            "VARIANT_r2_plugin": "plug-in",
            "VARIANT_r2_plugin_centred": "plug-in and row-centred",
            "VARIANT_signal": "as signal; without unit for whitened",
            "VARIANT_signal_plugin": "",
        },
    ),
    "tokens": Columns(
        of_tokens,
        {
            "token_queries": "query positions in the first sequence, whose tokens the document lists as words",
            "token_keys": "for each, the key positions with most of its attention",
            "token_weights": "their attention weights",
        },
    ),
    "spectrum": Columns(
        of_spectrum,
        {
            "lines_explained": "share of g's variance that lines at the head's own frequencies explain",
            "lines_explained_resolved": "by those whose wavelength fits into the offsets",
            "lines_random": "mean over random frequency sets of the same number and range",
            "lines_p": "share of random sets (add one) that explain as much",
            "line_frequencies": "radians a position",
            "line_amplitudes": "nats; of lines that the length does not tell apart the least that make their sum",
            "line_phases": "radians",
            "line_resolved": "whether the wavelength fits into the offsets",
            "fourier_peak": "frequency with the most power, radians a position",
            "alignment": "share of the Fourier power within one resolution of the head's frequencies",
            "alignment_random": "mean over random sets",
            "alignment_p": "share of random sets (add one) with as much",
            "spectrum_undefined": "why parts of it are null",
        },
    ),
    "probes": Columns(
        of_probes,
        {
            "probe_correlation": "of g on one repeated token with g on text, over pairs",
            "probe_gain": "slope of the text's g on the probe's",
            "probe_agrees": "correlation at least 0.9 and gain within a factor of 2",
            "toeplitz_error": "largest distance of the probe's logits from a function of the offset, nats",
            "toeplitz_floor": "what rounding can make of it; rotary heads stay below",
            "induction": "attention after earlier occurrences of the row's token, on a repeated random pattern",
            "induction_chance": "the same of evenly spread attention",
            "matching": "attention on earlier occurrences",
            "matching_chance": "likewise",
        },
    ),
    "untrained": Columns(
        of_untrained,
        {
            "r2_untrained": "r2 of the same head with weights drawn anew",
            "signal_untrained": "signal",
            "share_untrained": "share",
        },
    ),
    "products": Columns(
        of_products,
        {
            "fit_CONTENT_FIT": "held-out R2; CONTENT: match, cosine, token, input; FIT: position, content, "
            "sum, additive, product, fixed, both, free, saturated",
            "fit_CONTENT_product_over_sum": "gain of the product over the sum",
            "fit_CONTENT_both_over_additive": "gain of the product beside the additive form",
            "fit_CONTENT_saturated_over_free": "gain of all joint bins over the free sum",
            "fit_CONTENT_origin": "origin c1 of the content kernel in the product",
            "residual_FIT": "|residual| / |logits| on held-out row-centred logits; additive and product, token content",
            "residual_FIT_rank": "effective rank of the residual",
            "residual_FIT_rank_null": "with keys of another sequence",
            "residual_FIT_rank_excess": "rank less that of the null: below 0 where content structures the residual",
        },
    ),
}
"""Columns of each measure, by its name."""
