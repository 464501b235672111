"""The jackknife against its textbook cases."""

import math

import pytest
import torch

from poskernel.attention.estimators.jackknife import jackknife, of_sums, ratio
from poskernel.statistics import mean


def test_the_jackknife_of_a_mean_is_its_t_interval():
    values = torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours = jackknife(float(values.mean()), (values.sum() - values) / 11, "mean")
    exact = mean(values.numpy())
    assert (ours.value, ours.low, ours.high, ours.n) == pytest.approx((exact.value, exact.low, exact.high, 12))
    assert ours.method == "mean, delete-one jackknife over sequences, t"


def test_ratio_of_sums_covers():
    generator, covered = torch.Generator().manual_seed(1), 0
    for _ in range(300):
        below = torch.rand(16, generator=generator, dtype=torch.float64) + 0.5
        above = 0.3 * below + 0.1 * torch.randn(16, generator=generator, dtype=torch.float64)
        estimate = of_sums(torch.stack([above, below], -1), ratio, "ratio")
        covered += estimate.low <= 0.3 <= estimate.high
    assert covered / 300 == pytest.approx(0.95, abs=0.03)


def test_a_ratio_over_nothing_is_undefined():
    sums = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    estimate = of_sums(sums, ratio, "ratio")  # without the second sequence the denominator is 0
    assert math.isnan(estimate.value)
    assert "undefined" in estimate.method
    assert torch.isnan(ratio(torch.tensor([1.0, -1.0])))
