"""Intervals: what they are, and that they cover what they promise."""

import math

import pytest
import torch
from scipy.stats import beta

from poskernel.realizability.theorems import intervals
from poskernel.realizability.theorems.intervals import (
    LEVEL,
    Drawn,
    above,
    agrees,
    apart,
    below,
    binomial_share,
    contains,
    equal,
    look_level,
    scaled,
    student_mean,
    together,
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


def share(hits, draws):
    return binomial_share(hits, draws)


def test_wide_intervals_hold_the_others():
    for found in (share(3, 50), scaled(share(3, 50), 2.0), student_mean(torch.tensor([1.0, 2.0, 4.0]).double())):
        assert found.wide_low <= found.low <= found.value <= found.high <= found.wide_high
        assert found.wide_high > found.high
        assert f"{found:.2f}".count(",") == 1  # the narrow one is shown


def test_enough_draws_say_yes_or_no_and_few_say_neither():
    assert equal(share(1000, 4000), 0.25) is True and equal(share(1000, 4000), 0.35) is False
    assert equal(share(5, 20), 0.25) is None and equal(share(0, 0), 0.25) is None
    assert above(share(900, 1000), 0.5) is True and above(share(100, 1000), 0.5) is False
    assert below(share(100, 1000), 0.5) is True and below(share(900, 1000), 0.5) is False
    assert above(share(11, 20), 0.5) is None is below(share(11, 20), 0.5) and above(share(0, 0), 0.5) is None
    assert apart(share(100, 1000), share(900, 1000), 0.1) is True
    assert apart(share(500, 1000), share(500, 1000), 0.3) is False and apart(share(9, 20), share(11, 20), 0.3) is None


def test_what_is_claimed_to_be_more_can_be_refused_where_it_is_nothing():
    assert above(share(0, 1000), 0.0, least=0.05) is False and above(share(0, 20), 0.0, least=0.05) is None
    assert below(share(1000, 1000), 1.0, least=0.05) is False and below(share(20, 20), 1.0, least=0.05) is None


def test_all_have_to_hold_together():
    assert together(True, True) is True and together(True, None) is None and together(None, False, True) is False


def test_no_number_of_draws_refuses_what_is_true():
    """Every outcome of up to 60 draws that has any chance to speak of."""
    from scipy.stats import binom

    for draws in (1, 2, 5, 11, 24, 60):
        refused = [hits for hits in range(draws + 1) if equal(share(hits, draws), 0.25) is False]
        assert sum(binom.pmf(hits, draws, 0.25) for hits in refused) <= 1e-7


def test_agreement_is_to_within_a_share():
    wide, narrow = drawn(4.0, 1.0, 7.0), drawn(5.0, 4.9, 5.1)
    assert agrees(narrow, 5.4, 0.1) and agrees(narrow, 7.0, 0.1) is False
    assert agrees(wide, 4.0, 0.1) is None and agrees(drawn(5.0, 4.9, 5.1, 4.0, 6.0), 6.0, 0.1) is None


def drawn(value, low, high, wide_low=None, wide_high=None):
    return Drawn(value, low, high, 100, "made up", wide_low or low, wide_high or high)
