"""Numbers with their uncertainty: arrays in, `Estimate` out.

Every resample is a row of counts (how often each row of the data was drawn), so one weighted statistic serves plain
and cluster bootstraps, and the jackknife. Ranks of a resample are cumulative counts: no resample is ever sorted.
Undefined is never a number: degenerate data give nan and a method that says why.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poskernel.errors import InputError

Array = NDArray[np.float64]
Column = ArrayLike | Sequence[Any]
"""One entry a row: an array, a series, a list or a tuple."""
Statistic = Callable[[Array], Array]
"""Counts (resample, row) to one value a resample; nan where the statistic is undefined on that resample."""

RESAMPLES = 10_000
SHUFFLES = 20_000
CELLS_PER_BLOCK = 2_000_000
"""Entries of the count matrix held at a time: 16 MB, whatever the number of resamples."""
BOOTSTRAP_STREAM, SHUFFLE_STREAM = 0, 1


@dataclass(frozen=True)
class Estimate:
    """A number with the interval around it; nan where undefined, with the method saying why."""

    value: float
    low: float
    high: float
    n: int
    method: str

    def __format__(self, spec: str) -> str:
        """'0.90 [0.73, 0.95]'; the format specification applies to each of the three numbers."""
        number = spec or "z.2f"
        if math.isnan(self.value):
            return "undefined"
        if math.isnan(self.low) or math.isnan(self.high):
            return f"{self.value:{number}} [no interval]"
        return f"{self.value:{number}} [{self.low:{number}}, {self.high:{number}}]"

    def __str__(self) -> str:
        return format(self)


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


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of the data and the units that are drawn together: each row alone, or its whole cluster."""

    unit: NDArray[np.intp]
    """Index of each row's unit, 0 to units - 1."""
    clustered: bool

    @classmethod
    def of(cls, clusters: Column | None, number: int) -> "Rows":
        """Each row its own unit, or one unit a distinct cluster label."""
        if clusters is None:
            return cls(np.arange(number), clustered=False)
        labels = np.asarray(clusters)
        if labels.shape != (number,):
            raise InputError(f"clusters has shape {labels.shape}: give one label for each of the {number} rows.")
        return cls(np.unique(labels, return_inverse=True)[1], clustered=True)

    def subset(self, chosen: NDArray[np.bool_]) -> "Rows":
        """The chosen rows, units renumbered."""
        return Rows(np.unique(self.unit[chosen], return_inverse=True)[1], self.clustered)

    @property
    def units(self) -> int:
        """Number of units."""
        return int(self.unit.max(initial=-1)) + 1

    @property
    def words(self) -> str:
        """What is drawn, in words."""
        return f"{self.units} {'clusters' if self.clustered else 'rows'}"

    def draws(self, resamples: int, seed: int) -> Iterator[Array]:
        """Counts (resample, row) of units drawn with replacement, in blocks of bounded size."""
        rng = stream(seed, BOOTSTRAP_STREAM)
        for size in blocks(resamples, self.unit.size):
            drawn = rng.integers(self.units, size=(size, self.units)) + np.arange(size)[:, None] * self.units
            counts = np.bincount(drawn.ravel(), minlength=size * self.units).reshape(size, self.units)
            yield counts[:, self.unit].astype(float)

    def left_out(self) -> Iterator[Array]:
        """Counts (unit, row) with one unit left out in each: the jackknife, in blocks of bounded size."""
        start = 0
        for size in blocks(self.units, self.unit.size):
            yield (np.arange(start, start + size)[:, None] != self.unit).astype(float)
            start += size


@dataclass(frozen=True)
class Bootstrap:
    """How an interval is resampled; the method of its estimates names what was drawn and every fallback."""

    interval: str
    seed: int
    resamples: int
    level: float

    def __post_init__(self) -> None:
        require_count(self.resamples, "resamples")
        require_level(self.level)
        if self.interval not in {"bca", "percentile"}:
            raise InputError(f"unknown interval '{self.interval}': choose bca or percentile.")

    def estimate(self, statistic: Statistic, rows: Rows) -> Estimate:
        """A weighted statistic of the rows with its interval."""
        number = rows.unit.size
        value = float(statistic(np.ones((1, number)))[0])
        if rows.units < 2:
            return Estimate(value, math.nan, math.nan, number, f"no interval: {rows.words}, nothing to resample")
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = np.concatenate([statistic(counts) for counts in rows.draws(self.resamples, self.seed)])
        kept = drawn[~np.isnan(drawn)]
        if 2 * kept.size < drawn.size:
            return Estimate(
                value, math.nan, math.nan, number, f"no interval: undefined on most resamples of {rows.words}"
            )
        name, tails = "percentile", np.array([(1 - self.level) / 2, (1 + self.level) / 2])
        if self.interval == "bca":
            adjusted = bca_tails(statistic, rows, value, kept, tails)
            name, tails = ("percentile (BCa undefined)", tails) if adjusted is None else ("BCa", adjusted)
        low, high = (float(bound) for bound in np.quantile(kept, tails))
        lost = f", {drawn.size - kept.size} undefined ones left out" if kept.size < drawn.size else ""
        flat = "; no resample differs, so the width says nothing of the uncertainty" if np.ptp(kept) == 0 else ""
        method = f"{100 * self.level:g}% {name} bootstrap, {self.resamples} resamples of {rows.words}{lost}{flat}"
        return Estimate(value, low, high, number, method)


def bca_tails(statistic: Statistic, rows: Rows, value: float, drawn: Array, tails: Array) -> Array | None:
    """Bias-corrected and accelerated tail probabilities (Efron 1987); None where they are undefined.

    Undefined: all resamples on one side of the value, as under perfect separation, or a jackknife without spread or
    with a leave-one-out sample on which the statistic is undefined.
    """
    from scipy.stats import norm

    with np.errstate(invalid="ignore", divide="ignore"):
        left_out = np.concatenate([statistic(counts) for counts in rows.left_out()])
        deviation = left_out.mean() - left_out
        acceleration = (deviation**3).sum() / (6 * (deviation**2).sum() ** 1.5)
        # Ties with the value count half on each side, as for any discrete statistic.
        bias = norm.ppf(((drawn < value).mean() + (drawn <= value).mean()) / 2)
        shifted = bias + norm.ppf(tails)
        adjusted: Array = norm.cdf(bias + shifted / (1 - acceleration * shifted))
    return adjusted if np.isfinite(adjusted).all() and np.ptp(drawn) > 0 else None


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


def require_count(number: int, name: str) -> None:
    """InputError for a number of resamples or shuffles below 1."""
    if number < 1:
        raise InputError(f"{number} {name}: give at least 1.")


def require_level(level: float) -> None:
    """InputError for a confidence level outside (0, 1)."""
    if not 0 < level < 1:
        raise InputError(f"a confidence level of {level:g} is outside (0, 1): give for instance 0.95.")


def blocks(total: int, row: int) -> Iterator[int]:
    """Sizes that sum to total, each at most CELLS_PER_BLOCK entries of the given row length."""
    size = max(1, CELLS_PER_BLOCK // max(row, 1))
    for start in range(0, total, size):
        yield min(size, total - start)


def stream(seed: int, purpose: int) -> np.random.Generator:
    """Random generator of (seed, purpose): bootstrap and shuffles share no draws."""
    if seed < 0:
        raise InputError(f"seed {seed} is negative: give 0 or more.")
    return np.random.default_rng([seed, purpose])
