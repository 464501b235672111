"""Intervals of the checks that draw at random, and what they let a check say: yes, no, or that it takes more draws.

A yes needs intervals that hold together with probability LEVEL; a check that looks several times shares the chance of a
miss out over its looks (Bonferroni). A no needs far wider ones, at CERTAIN, that leave no room for the claim: a sound
claim is refused at one seed in ten million, whatever the number of draws. In between the draws are too few to tell.
"""

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from poskernel.resampling import Estimate
from poskernel.statistics import mean as estimate_mean

LEVEL = 0.999
"""Probability that all intervals of one check contain what they estimate."""
CERTAIN = 1 - 1e-7
"""The same for the wide intervals that a no needs."""


@dataclass(frozen=True)
class Drawn(Estimate):
    """An estimate from draws with its interval at LEVEL, which is shown, and its wide one at CERTAIN."""

    wide_low: float = math.nan
    wide_high: float = math.nan

    def __format__(self, spec: str) -> str:
        """As any estimate: the interval at LEVEL."""
        return super().__format__(spec)


def look_level(looks: int, level: float | None = None) -> float:
    """Level of one interval where a check has that many; of those at LEVEL unless told."""
    return 1 - (1 - (LEVEL if level is None else level)) / looks


def binomial_share(hits: int, draws: int, looks: int = 1) -> Drawn:
    """Share of independent draws that hit, with its exact (Clopper-Pearson) interval; undefined without draws."""
    from scipy.stats import binomtest

    if draws == 0:
        return Drawn(math.nan, math.nan, math.nan, 0, "no draw")
    level, test = look_level(looks), binomtest(int(hits), int(draws))
    bounds, wide = (test.proportion_ci(each, method="exact") for each in (level, look_level(looks, CERTAIN)))
    return Drawn(
        hits / draws, float(bounds.low), float(bounds.high), int(draws), f"{100 * level:g}% exact binomial",
        float(wide.low), float(wide.high),
    )  # fmt: skip


def student_mean(values: Float[Tensor, " draw"], looks: int = 1) -> Drawn:
    """Mean of independent draws with Student's t interval."""
    found, wide = (
        estimate_mean(values.numpy(), seed=0, interval="t", level=level)
        for level in (look_level(looks), look_level(looks, CERTAIN))
    )
    return Drawn(found.value, found.low, found.high, found.n, found.method, wide.low, wide.high)


def scaled(estimate: Drawn, factor: float) -> Drawn:
    """The estimate of a positive multiple."""
    value, low, high, wide_low, wide_high = (
        factor * each for each in (estimate.value, estimate.low, estimate.high, estimate.wide_low, estimate.wide_high)
    )
    return Drawn(value, low, high, estimate.n, estimate.method, wide_low, wide_high)


def contains(estimate: Estimate, value: float) -> bool:
    """Whether the interval contains a value; an undefined one contains nothing."""
    return estimate.low <= value <= estimate.high


def equal(estimate: Drawn, value: float) -> bool | None:
    """Is it that positive value: yes where the interval has it, but neither 0 nor its double."""
    if estimate.wide_low > value or estimate.wide_high < value:
        return False
    return True if contains(estimate, value) and estimate.low > 0 and estimate.high < 2 * value else None


def agrees(estimate: Drawn, value: float, share: float) -> bool | None:
    """Is it that positive value to within a share of it: yes where an interval no wider than it reaches there."""
    least, most = (1 - share) * value, (1 + share) * value
    if estimate.wide_high < least or estimate.wide_low > most:
        return False
    narrow = estimate.high - estimate.low <= value
    return True if narrow and estimate.low <= most and estimate.high >= least else None


def above(estimate: Drawn, value: float, least: float = 0.0) -> bool | None:
    """Is it above a value; `least` is by how much a claim would have it, so that what is equal can be refused."""
    if estimate.wide_high <= value + least:
        return False
    return True if estimate.low > value else None


def below(estimate: Drawn, value: float, least: float = 0.0) -> bool | None:
    """Is it below a value; `least` as for `above`."""
    if estimate.wide_low >= value - least:
        return False
    return True if estimate.high < value else None


def apart(smaller: Drawn, larger: Drawn, least: float) -> bool | None:
    """Is the second larger: no where it surely is so by less than `least`."""
    if larger.wide_high - smaller.wide_low < least:
        return False
    return True if larger.low > smaller.high else None


def together(*states: bool | None) -> bool | None:
    """All of them: no if one is refused, unclear if one is, else yes."""
    return False if False in states else None if None in states else True
