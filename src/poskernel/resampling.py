"""Estimates and the resampling behind them: rows or whole clusters drawn with replacement, the jackknife, BCa.

Every resample is a row of counts (how often each row of the data was drawn), so one weighted statistic serves plain
and cluster bootstraps, and the jackknife. Ranks of a resample are cumulative counts: no resample is ever sorted.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poskernel.errors import InputError

Array = NDArray[np.float64]
Column = ArrayLike | Sequence[Any]
"""One entry a row: an array, a series, a list or a tuple."""
Statistic = Callable[[Array], Array]
"""Counts (resample, row) to one value a resample; nan where the statistic is undefined on that resample."""

RESAMPLES = 10_000
CELLS_PER_BLOCK = 2_000_000
"""Entries of the count matrix held at a time: 16 MB, whatever the number of resamples."""
BOOTSTRAP_STREAM = 0


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
