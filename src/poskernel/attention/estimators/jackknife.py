"""Intervals from leaving out one sequence at a time, for statistics whose variance has no simple form.

Conservative where a statistic rests on pairs of sequences: their noise then counts twice (Efron and Stein 1981).
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.estimators.pairs import interval
from poskernel.statistics import Estimate, undefined


def jackknife(value: float, left_out: Float[Tensor, " sequence"], method: str) -> Estimate:
    """`value` with a 95% t interval from its values without each sequence; undefined where one of them is."""
    n = left_out.shape[0]
    if not math.isfinite(value) or not bool(torch.isfinite(left_out).all()):
        return undefined(n, "undefined: its denominator does not stand out from sampling noise")
    variance = (n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum())
    return interval(value, variance, n, f"{method}, delete-one jackknife over sequences, t")


def of_sums(
    sums: Float[Tensor, "sequence statistic"],
    statistic: Callable[[Float[Tensor, "*batch statistic"]], Float[Tensor, "*batch"]],
    method: str,
) -> Estimate:
    """A function of sums over sequences, and its interval from the sums without each sequence."""
    total = sums.sum(0)
    return jackknife(float(statistic(total)), statistic(total - sums), method)


def ratio(sums: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch"]:
    """First over second sum; nan where the second is not positive."""
    return torch.where(sums[..., 1] > 0, sums[..., 0] / sums[..., 1], math.nan)
