"""What the causal mask does to softmax: the identity and the three cases, and what breaks each."""

import math

import pytest
import torch

from poskernel.realizability.theorems import boundary
from poskernel.realizability.theorems.check import Effort
from poskernel.realizability.theorems.kernels import linear_bias


@pytest.mark.parametrize("function", boundary.BOUNDARY_CHECKS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("seed", [0, 7])
def test_every_claim_holds(function, seed):
    check = function(Effort.DEFAULT, seed)
    assert check.holds, check
    assert check.name == function.__name__.replace("_", "-") and check.n > 0


def test_total_variation_by_hand():
    early, late = torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.25, 0.5])
    assert boundary.total_variation(early, late) == pytest.approx(0.5)


def test_the_identity_by_a_plain_loop():
    g = [0.3, -1.0, 2.0, 0.5]
    weights = [[math.exp(g[d]) / sum(map(math.exp, g[: t + 1])) if d <= t else 0.0 for d in range(4)] for t in (1, 3)]
    expected = sum(abs(a - b) for a, b in zip(*weights, strict=True)) / 2
    total = boundary.normalisers(torch.tensor(g, dtype=torch.float64))
    assert float(1 - total[1] / total[3]) == pytest.approx(expected)


def test_rows_with_kernels_of_their_own_break_the_identity():
    assert not boundary.causal_boundary_identity(Effort.DEFAULT, 0, shared_kernel=False, samples=20).holds


def logarithm(offset, slope):
    return -2 * torch.log1p(offset)


@pytest.mark.parametrize("kernel", [logarithm, lambda offset, slope: linear_bias(offset, 1.1 * slope)])
def test_other_kernels_fall_at_other_rates(kernel):
    assert not boundary.causal_boundary_linear(Effort.DEFAULT, 0, kernel=kernel).holds


@pytest.mark.parametrize("exponents", [(1.1,), (1.5, 6.0), (8.0,), (2.5,)])
@pytest.mark.parametrize("effort", Effort)
def test_any_summable_power_has_its_rate(exponents, effort):
    assert boundary.causal_boundary_logarithmic(effort, 0, exponents=exponents).holds


def test_a_block_by_a_plain_loop():
    profile = -2 * torch.log1p(torch.arange(40, dtype=torch.float64))
    weights = [(1 + offset) ** -2 for offset in range(40)]
    block, distance = boundary.block_weight(profile, 7)
    assert block == pytest.approx(sum(weights[8:16]))
    assert distance == pytest.approx(1 - sum(weights[:8]) / sum(weights[:16]))


@pytest.mark.parametrize("exponents", [(1.0,), (0.5, 2.0), (0.9,)])
def test_a_kernel_that_is_not_summable_has_no_limit(exponents):
    check = boundary.causal_boundary_logarithmic(Effort.DEFAULT, 0, exponents=exponents)
    assert not check.holds and "nan" not in check.measured and "no agreement" in check.measured


def test_a_falling_kernel_does_not_stay_at_a_half():
    check = boundary.causal_boundary_bounded(
        Effort.DEFAULT,
        0,
        profile=lambda seed, kernel, length: linear_bias(torch.arange(length, dtype=torch.float64), 0.01),
        samples=2,
    )
    assert not check.holds


@pytest.mark.parametrize("function", boundary.BOUNDARY_CHECKS[1:3], ids=lambda each: each.__name__)
def test_long_rows_lose_nothing_to_rounding(function):
    assert function(Effort.LONG, 0).holds
