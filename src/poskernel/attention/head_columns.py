"""The flat columns that a head's measurements become in tables and documents; `head_meanings` says what each means.

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
from poskernel.attention.head_meanings import MEANINGS
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
        "first_even": kernel.first_even,
        "dropped_even": kernel.dropped_even,
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
        "lines_rest": math.nan if lines is None else lines.rest_share,
        "line_directions": math.nan if lines is None else lines.directions,
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


KERNEL = Columns(of_kernel, MEANINGS["kernel"])
SHAPE_MEANINGS = MEANINGS["shape"]
VALUES: dict[str, Callable[[Any], Row]] = {
    "split": of_split,
    "distance": of_distance,
    "symbolic": of_symbolic,
    "drift": of_drift,
    "leakage": of_leakage,
    "variants": of_variants,
    "tokens": of_tokens,
    "spectrum": of_spectrum,
    "probes": of_probes,
    "untrained": of_untrained,
    "products": of_products,
}
HEAD_COLUMNS = {name: Columns(values, MEANINGS[name]) for name, values in VALUES.items()}
"""Columns of each measure, by its name."""
