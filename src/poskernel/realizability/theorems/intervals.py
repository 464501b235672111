"""Intervals of the checks that draw at random: wide enough that a sound claim passes at any seed.

A check's verdict uses intervals that hold together with probability LEVEL: a check that looks several times shares the
chance of a miss out over its looks (Bonferroni). So a true claim fails at one seed in a thousand, not in twenty.
"""

import math

from jaxtyping import Float
from torch import Tensor

from poskernel.resampling import Estimate
from poskernel.statistics import mean as estimate_mean

LEVEL = 0.999
"""Probability that all intervals of one check contain what they estimate."""


def look_level(looks: int) -> float:
    """Level of one interval where a check has that many."""
    return 1 - (1 - LEVEL) / looks


def binomial_share(hits: int, draws: int, looks: int = 1) -> Estimate:
    """Share of independent draws that hit, with its exact (Clopper-Pearson) interval; undefined without draws."""
    from scipy.stats import binomtest

    if draws == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, "no draw")
    level = look_level(looks)
    bounds = binomtest(int(hits), int(draws)).proportion_ci(level, method="exact")
    return Estimate(hits / draws, float(bounds.low), float(bounds.high), int(draws), f"{100 * level:g}% exact binomial")


def student_mean(values: Float[Tensor, " draw"], looks: int = 1) -> Estimate:
    """Mean of independent draws with Student's t interval."""
    return estimate_mean(values.numpy(), seed=0, interval="t", level=look_level(looks))


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """The estimate of a positive multiple."""
    return Estimate(factor * estimate.value, factor * estimate.low, factor * estimate.high, estimate.n, estimate.method)


def contains(estimate: Estimate, value: float) -> bool:
    """Whether the interval contains a value; an undefined one contains nothing."""
    return estimate.low <= value <= estimate.high
