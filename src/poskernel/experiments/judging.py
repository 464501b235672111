"""From numbers to a verdict: one number a replicate against a threshold that was written before the run.

A prediction is judged by a two-sided one-sample t test of its replicates (independent trainings or texts) against its
threshold; over all predictions of an experiment the p values are corrected by Holm's method (Scandinavian Journal of
Statistics 6, 1979). Where the corrected p is below LEVEL the side decides: held or failed. Otherwise, and wherever a
replicate is missing, nothing is decided.

Two things were settled before any full run, so that what is registered can be decided. A measure that counts (a share
of rows or heads) has a step; replicates that all show the same count, such as 1.00, say that the spread is small beside
the step, not that there is none. The test then takes the step for their standard deviation, at least: without it five
equal shares had no t test, and a sign test of five never gets below 1/16. And five replicates are planned everywhere:
after Holm's correction over some 20 predictions three (two degrees of freedom) would have to lie more than 10 standard
deviations from a line, five have to lie 3 (`least_effect`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from poskernel import statistics
from poskernel.resampling import Estimate

LEVEL = 0.05
REPLICATES = 5
"""Least number of replicates that a full run is planned with."""


class Outcome(StrEnum):
    """What became of a prediction."""

    HELD = "held"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class Side(StrEnum):
    """Where a prediction says the number lies."""

    ABOVE = "above"
    BELOW = "below"

    def of(self, value: float, threshold: float) -> bool:
        """Whether a number lies there."""
        return value > threshold if self is Side.ABOVE else value < threshold


@dataclass(frozen=True)
class Judgement:
    """A prediction's number, how sure it is to lie on its side of the threshold, and what follows."""

    estimate: Estimate
    """Mean over the replicates with its t interval."""
    p: float
    """Two-sided, before the correction."""
    adjusted: float
    """Corrected over the experiment's predictions."""
    outcome: Outcome
    reason: str
    """In words."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p values of a family, each as a bound on the chance of any false rejection.

    One that is undefined (nan) counts as 1: it still belongs to the family.
    """
    p = np.nan_to_num(np.asarray(p_values, dtype=float), nan=1.0)
    order, number = np.argsort(p, kind="stable"), len(p)
    stepped = np.maximum.accumulate(p[order] * (number - np.arange(number))).clip(max=1.0)
    adjusted = np.empty(number)
    adjusted[order] = stepped
    return adjusted.tolist()


def least_effect(replicates: int, predictions: int) -> float:
    """Distance of a mean from its line, in standard deviations, that the strictest step of Holm's procedure decides."""
    from scipy.stats import t

    return float(t.isf(LEVEL / predictions / 2, replicates - 1)) / math.sqrt(replicates)


def p_value(replicates: Sequence[float], threshold: float, step: float = 0.0) -> float:
    """Two-sided p of a mean that equals the threshold; nan where fewer than two replicates say anything.

    Their standard deviation counts as no less than `step`, the least difference that the measure can show. Replicates
    without any spread, of a measure without a step, have no t test: the sign test takes its place, which says less.
    """
    from scipy.stats import binomtest, t, ttest_1samp

    values = np.asarray(replicates, dtype=float)
    if values.size < 2 or np.isnan(values).any():
        return math.nan
    if np.std(values, ddof=1) < step:
        distance = abs(float(values.mean()) - threshold) / (step / math.sqrt(values.size))
        return float(2 * t.sf(distance, values.size - 1))
    if np.ptp(values) <= 1e-12 * max(1.0, float(np.abs(values).max())):
        differs = int(values.size) if not math.isclose(float(values[0]), threshold) else 0
        return float(binomtest(differs, differs).pvalue) if differs else 1.0
    return float(ttest_1samp(values, threshold).pvalue)


def judge(
    sides: Sequence[Side],
    thresholds: Sequence[float],
    replicates: Sequence[Sequence[float]],
    steps: Sequence[float] | None = None,
) -> list[Judgement]:
    """Each prediction of a family: its side, its threshold and its replicates (nan where one is missing).

    `steps` are the least differences that the measures can show; 0 where they are not given.
    """
    steps = [0.0] * len(sides) if steps is None else steps
    tested = zip(replicates, thresholds, steps, strict=True)
    p_values = [p_value(values, threshold, step) for values, threshold, step in tested]
    family = zip(sides, thresholds, replicates, p_values, holm(p_values), strict=True)
    return [judgement(*member) for member in family]


def judgement(side: Side, threshold: float, replicates: Sequence[float], p: float, adjusted: float) -> Judgement:
    """One prediction of a family whose p values are corrected."""
    there = [value for value in replicates if not math.isnan(value)]
    estimate = statistics.mean(there)
    lacking = len(replicates) - len(there)
    if lacking:
        reason = f"{lacking} of {len(replicates)} replicates gave no number"
        return Judgement(estimate, p, adjusted, Outcome.INCONCLUSIVE, reason)
    if len(there) < 2:
        return Judgement(estimate, p, adjusted, Outcome.INCONCLUSIVE, f"{len(there)} replicates cannot decide it")
    # A threshold is exact to the last digit; a p of 1e-9 says nothing that 0.001 does not.
    shown = f"p = {adjusted:.2g} after Holm's correction" if adjusted >= 0.001 else "p < 0.001 after Holm's correction"
    where = f"{estimate:z.3f} {'above' if estimate.value > threshold else 'below'} {threshold:g}, {shown}"
    if adjusted >= LEVEL:
        return Judgement(estimate, p, adjusted, Outcome.INCONCLUSIVE, f"{where}: not told apart from the threshold")
    held = side.of(estimate.value, threshold)
    return Judgement(estimate, p, adjusted, Outcome.HELD if held else Outcome.FAILED, where)
