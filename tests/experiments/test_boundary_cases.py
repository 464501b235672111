"""The exact cases of E6: laws hold for their own kernels and are seen to break for others."""

import math

import pytest
import torch

from poskernel.experiments.boundary_cases import CASES, CaseCell, CaseUnit, drawn_kernel, identity_error, rate


def test_kernels_are_of_their_kind_and_the_seeds_own() -> None:
    g, slope = drawn_kernel("linear", 64, 0)
    assert 1 / 32 <= slope <= 1 / 4 and g[1:].diff().tolist() == pytest.approx([-slope] * 62)
    g, exponent = drawn_kernel("logarithmic", 64, 0)
    assert 1.5 <= exponent <= 3 and float(g[7]) == pytest.approx(-exponent * math.log(8))
    g, law = drawn_kernel("bounded", 4096, 0)
    assert math.isnan(law) and float(g.abs().max()) < 10
    assert all(not torch.equal(drawn_kernel(case, 64, 0)[0], drawn_kernel(case, 64, 1)[0]) for case in CASES)


def test_total_variation_is_one_less_the_ratio_of_normalisers_by_plain_loops() -> None:
    g = torch.randn(64, generator=torch.Generator().manual_seed(0)).double()
    z = [sum(math.exp(float(g[d])) for d in range(t + 1)) for t in range(64)]
    for t in (3, 10, 31):
        direct = sum(abs((math.exp(float(g[d])) / z[t] if d <= t else 0) - math.exp(float(g[d])) / z[2 * t + 1])
                     for d in range(2 * t + 2)) / 2  # fmt: skip
        assert direct == pytest.approx(1 - z[t] / z[2 * t + 1])
    assert identity_error(g, (3, 10, 31)) < 1e-12


def test_a_law_is_that_of_its_own_kernel_alone() -> None:
    offsets = 1 << 14
    linear, slope = drawn_kernel("linear", offsets, 1)
    power, exponent = drawn_kernel("logarithmic", offsets, 1)
    assert rate("linear", linear, slope) == pytest.approx(1, abs=0.05)
    assert rate("logarithmic", power, exponent) == pytest.approx(1, abs=0.1)
    assert abs(rate("linear", power, slope) - 1) > 0.3
    assert abs(rate("logarithmic", drawn_kernel("bounded", offsets, 1)[0], exponent) - 1) > 0.3


@pytest.mark.parametrize("case", CASES)
def test_a_unit_gives_what_it_plans(case: str) -> None:
    unit = CaseUnit(CaseCell(case, 1 << 14), 2)
    values = {m.metric: m.value for m in unit.run()}
    assert [m.key for m in unit.run()] == list(unit.keys)
    assert values.pop("identity_error") < 1e-9
    (law,) = values.values()
    assert law == pytest.approx(1, abs=0.1)
