"""Numbers with their uncertainty: arrays in, `Estimate` out.

Undefined is never a number: degenerate data give nan and a method that says why.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from poskernel.errors import InputError
from poskernel.resampling import (
    RESAMPLES,
    Array,
    Bootstrap,
    Column,
    Estimate,
    Rows,
    Statistic,
    blocks,
    require_count,
    require_level,
    stream,
)

__all__ = ["Estimate", "Precision", "Separation", "auc", "mean", "median", "precision", "spearman"]

SHUFFLES = 20_000
SHUFFLE_STREAM = 1


@dataclass(frozen=True)
class Separation:
    """How well a score separates two classes: the AUC, and the share of shuffles that do as well by chance."""

    auc: Estimate
    p: float
    positives: int
    negatives: int
    p_method: str


@dataclass(frozen=True)
class Precision:
    """Pr[outcome >= threshold | score >= tau], and the rows that break the promise."""

    estimate: Estimate
    violations: tuple[int, ...]
    """Indices into the arrays given, in their order: score >= tau and outcome < threshold."""


def auc(
    score: Column,
    positive: Column,
    *,
    seed: int,
    clusters: Column | None = None,
    interval: Literal["bca", "percentile"] = "bca",
    shuffles: int = SHUFFLES,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Separation:
    """Probability that a positive row scores above a negative one, ties counted half, with interval and p.

    `score` and `positive` (0, 1 or bool) hold one entry a row. p is one-sided (an AUC at least as high), add-one, over
    shuffles of the labels. With `clusters` (one label a row: an encoding, a task) the bootstrap draws whole clusters
    and labels are shuffled within them only. Raises InputError for unequal lengths, nan, or labels other than 0 and 1.
    """
    scores, labels = vector(score, "score"), binary(positive)
    rows = Rows.of(clusters, scores.size)
    same_length(scores, labels, "score", "positive")
    require_count(shuffles, "shuffles")
    positives, negatives = int(labels.sum()), int((1 - labels).sum())
    if not positives or not negatives:
        missing = "positive" if not positives else "negative"
        reason = f"undefined: no {missing} row among {scores.size}"
        return Separation(undefined(scores.size, reason), math.nan, positives, negatives, reason)
    estimate = Bootstrap(interval, seed, resamples, level).estimate(auc_of(scores, labels), rows)
    p, method = shuffle_p(scores, labels, rows, seed, shuffles)
    return Separation(estimate, p, positives, negatives, method)


def spearman(
    first: Column,
    second: Column,
    *,
    seed: int,
    clusters: Column | None = None,
    interval: Literal["bca", "percentile"] = "percentile",
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Estimate:
    """Spearman's rank correlation (mid-ranks for ties) with a bootstrap interval over rows, or over whole clusters.

    Raises InputError for unequal lengths or nan. Undefined (nan, with the reason) below 3 rows or for a constant array.
    """
    x, y = vector(first, "first"), vector(second, "second")
    same_length(x, y, "first", "second")
    rows = Rows.of(clusters, x.size)
    if x.size < 3:
        return undefined(x.size, f"undefined: {x.size} rows, a rank correlation needs at least 3")
    for values, name in ((x, "first"), (y, "second")):
        if values.min() == values.max():
            return undefined(x.size, f"undefined: the {name} array is constant")
    return Bootstrap(interval, seed, resamples, level).estimate(correlation_of(x, y), rows)


def mean(
    values: Column,
    *,
    seed: int = 0,
    clusters: Column | None = None,
    interval: Literal["t", "bca", "percentile"] = "t",
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Estimate:
    """Mean with Student's t interval (default; `seed` unused) or a bootstrap interval over rows or whole clusters.

    Raises InputError for nan or infinite values, and for a t interval with clusters, which it would ignore.
    """
    data = vector(values, "values")
    rows = Rows.of(clusters, data.size)
    if not np.isfinite(data).all():
        raise InputError(f"values holds {data[~np.isfinite(data)][0]}: a mean needs finite values.")
    if not data.size:
        return undefined(0, "undefined: no rows")
    if interval != "t":
        return Bootstrap(interval, seed, resamples, level).estimate(mean_of(data), rows)
    if clusters is not None:
        raise InputError("a t interval takes rows as independent: with clusters, give interval='percentile'.")
    return mean_t(data, level)


def median(
    values: Column,
    *,
    seed: int,
    clusters: Column | None = None,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Estimate:
    """Median with a percentile bootstrap interval over rows or whole clusters; InputError for nan.

    Of an even number of rows the lower of the two middle ones, so that it is always a value that was seen.
    """
    data = vector(values, "values")
    rows = Rows.of(clusters, data.size)
    if not data.size:
        return undefined(0, "undefined: no rows")
    return Bootstrap("percentile", seed, resamples, level).estimate(median_of(data), rows)


def precision(
    score: Column,
    outcome: Column,
    *,
    tau: float,
    threshold: float,
    seed: int,
    clusters: Column | None = None,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Precision:
    """Pr[outcome >= threshold | score >= tau] with a percentile bootstrap over the selected rows (or their clusters).

    n is the number of selected rows. Where no resample could differ (every row a hit, or none) and rows are
    independent, the exact binomial interval stands in. Raises InputError for unequal lengths or nan.
    """
    scores, outcomes = vector(score, "score"), vector(outcome, "outcome")
    same_length(scores, outcomes, "score", "outcome")
    rows = Rows.of(clusters, scores.size)
    selected = scores >= tau
    hits = (outcomes >= threshold)[selected].astype(float)
    violations = tuple(int(row) for row in np.flatnonzero(selected & (outcomes < threshold)))
    if not hits.size:
        return Precision(undefined(0, f"undefined: no row has a score of at least {tau:g}"), violations)
    if clusters is None and hits.min() == hits.max():
        return Precision(exact_binomial(hits, level), violations)
    share = Bootstrap("percentile", seed, resamples, level).estimate(mean_of(hits), rows.subset(selected))
    return Precision(share, violations)


def shuffle_p(scores: Array, labels: Array, rows: Rows, seed: int, shuffles: int) -> tuple[float, str]:
    """Add-one share of label shuffles whose positives rank at least as high; within clusters where rows have them."""
    stratum = rows.unit if rows.clustered else np.zeros(scores.size, dtype=np.intp)
    order = np.argsort(stratum, kind="stable")
    ranks, labels, stratum = mid_ranks(scores)(np.ones((1, scores.size)))[0][order], labels[order], stratum[order]
    observed, rng, as_high = float(ranks @ labels), stream(seed, SHUFFLE_STREAM), 0
    for size in blocks(shuffles, scores.size):
        # Sorting stratum + uniform is a uniform permutation inside each stratum. Rank sums are halves: >= is exact.
        permuted = np.argsort(rng.random((size, scores.size)) + stratum, axis=1)
        as_high += int((ranks[permuted] @ labels >= observed).sum())
    within = f" within {rows.words}" if rows.clustered else ""
    return (as_high + 1) / (shuffles + 1), f"one-sided, {shuffles} label shuffles{within}, add-one"


def mid_ranks(values: Array) -> Statistic:
    """Function from counts (resample, row) to each row's mid-rank in that resample, (resample, row)."""
    _, tie, sizes = np.unique(values, return_inverse=True, return_counts=True)
    order, starts = np.argsort(tie, kind="stable"), np.concatenate([[0], np.cumsum(sizes)[:-1]])

    def ranks(counts: Array) -> Array:
        tied = np.add.reduceat(counts[:, order], starts, axis=1)
        middle: Array = (np.cumsum(tied, axis=1) - (tied - 1) / 2)[:, tie]
        return middle

    return ranks


def auc_of(scores: Array, labels: Array) -> Statistic:
    """The AUC as a weighted statistic: the Mann-Whitney U of the positives over positives x negatives."""
    ranks = mid_ranks(scores)

    def value(counts: Array) -> Array:
        positives, negatives = counts @ labels, counts @ (1 - labels)
        u = (counts * ranks(counts)) @ labels - positives * (positives + 1) / 2
        return np.asarray(u / (positives * negatives))

    return value


def correlation_of(x: Array, y: Array) -> Statistic:
    """Spearman's correlation as a weighted statistic: Pearson's on the resample's own mid-ranks."""
    first, second = mid_ranks(x), mid_ranks(y)

    def value(counts: Array) -> Array:
        middle = (counts.sum(1, keepdims=True) + 1) / 2
        a, b = first(counts) - middle, second(counts) - middle
        # Ranks are halves: a constant resample gives exactly 0 / 0 = nan, never a rounding residue.
        return np.asarray((counts * a * b).sum(1) / np.sqrt((counts * a * a).sum(1) * (counts * b * b).sum(1)))

    return value


def mean_of(data: Array) -> Statistic:
    """The mean as a weighted statistic."""
    return lambda counts: np.asarray(counts @ data / counts.sum(1))


def median_of(data: Array) -> Statistic:
    """The lower median as a weighted statistic: where the running count reaches half."""
    order = np.argsort(data, kind="stable")

    def value(counts: Array) -> Array:
        running = np.cumsum(counts[:, order], axis=1)
        return np.asarray(data[order][(running >= running[:, -1:] / 2).argmax(axis=1)])

    return value


def mean_t(data: Array, level: float) -> Estimate:
    """Mean with Student's t interval; no interval for a single row."""
    from scipy.stats import t

    require_level(level)
    value = float(data.mean())
    if data.size < 2:
        return Estimate(value, math.nan, math.nan, data.size, "no interval: 1 row")
    half = float(t.ppf((1 + level) / 2, data.size - 1) * data.std(ddof=1) / math.sqrt(data.size))
    alike = "; all rows are equal, so the width says nothing of the uncertainty" if np.ptp(data) == 0 else ""
    return Estimate(
        value, value - half, value + half, data.size, f"{100 * level:g}% t interval, {data.size} rows{alike}"
    )


def exact_binomial(hits: Array, level: float) -> Estimate:
    """Share of hits with the Clopper-Pearson interval."""
    from scipy.stats import binomtest

    require_level(level)
    bounds = binomtest(int(hits.sum()), hits.size).proportion_ci(level, method="exact")
    method = f"{100 * level:g}% exact binomial, {hits.size} rows (all alike: a bootstrap has no spread)"
    return Estimate(float(hits.mean()), float(bounds.low), float(bounds.high), hits.size, method)


def undefined(number: int, reason: str) -> Estimate:
    """An estimate that is nan throughout, with the reason as its method."""
    return Estimate(math.nan, math.nan, math.nan, number, reason)


def vector(values: Column, name: str) -> Array:
    """One-axis float array; InputError for another shape, for what is no number, and for nan."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{name} holds something that is no number: give one number a row.") from None
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}: give one number a row.")
    if np.isnan(array).any():
        raise InputError(f"{name} is nan at row {int(np.isnan(array).argmax())}: leave undefined rows out and say so.")
    return array


def binary(values: Column) -> Array:
    """Labels as 0.0 and 1.0; InputError for anything else."""
    labels = vector(values, "positive")
    other = ~np.isin(labels, (0, 1))
    if other.any():
        raise InputError(f"positive is {labels[other][0]:g} at row {int(other.argmax())}: give labels 0 and 1.")
    return labels


def same_length(first: Array, second: Array, one: str, other: str) -> None:
    """InputError where two columns do not pair up."""
    if first.size != second.size:
        raise InputError(f"{one} has {first.size} rows and {other} {second.size}: give one entry of each a row.")
