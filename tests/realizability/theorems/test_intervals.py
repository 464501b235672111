"""Intervals: what they are, and that they cover what they promise."""

import math

import pytest
import torch
from scipy.stats import beta

from poskernel.realizability.theorems import intervals
from poskernel.realizability.theorems.intervals import (
    LEVEL,
    binomial_share,
    contains,
    look_level,
    scaled,
    student_mean,
)


def test_the_looks_of_one_check_share_the_chance_of_a_miss():
    assert look_level(1) == pytest.approx(LEVEL)
    assert 4 * (1 - look_level(4)) == pytest.approx(1 - LEVEL)


def test_a_share_has_the_exact_binomial_interval():
    found, tail = binomial_share(30, 100), (1 - LEVEL) / 2
    assert found.value == 0.3 and found.n == 100
    assert found.low == pytest.approx(beta.ppf(tail, 30, 71))
    assert found.high == pytest.approx(beta.ppf(1 - tail, 31, 70))
    assert binomial_share(30, 100, looks=5).low < found.low


def test_a_share_covers_the_truth_about_as_often_as_promised(monkeypatch):
    """At 90%, so that misses are frequent enough to count."""
    monkeypatch.setattr(intervals, "LEVEL", 0.9)
    hits = torch.binomial(torch.full((400,), 50.0), torch.tensor(0.2), generator=torch.Generator().manual_seed(0))
    covered = sum(contains(binomial_share(int(each), 50), 0.2) for each in hits.tolist())
    assert 0.88 <= covered / 400 < 1


def test_no_draw_gives_no_share_and_contains_nothing():
    found = binomial_share(0, 0)
    assert math.isnan(found.value) and found.n == 0
    assert not contains(found, 0.0)


def test_a_multiple_scales_value_and_bounds():
    share = binomial_share(3, 50)
    found = scaled(share, 7.0)
    assert (found.value, found.low, found.high) == (7 * share.value, 7 * share.low, 7 * share.high)


def test_a_mean_has_a_t_interval():
    found = student_mean(torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64))
    assert found.value == 2.5
    half = 12.924 * math.sqrt(5 / 3) / 2  # Student's t with 3 degrees of freedom at 99.95%
    assert found.high - 2.5 == pytest.approx(half, rel=1e-3)
