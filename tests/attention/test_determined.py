"""What is determined, and the median head's interval for other texts."""

import math

import numpy as np
import pandas as pd
import pytest

from poskernel.attention.determined import is_share, median_head, median_of_column, undetermined
from poskernel.statistics import Estimate


def around(value, reach=0.1):
    return Estimate(value, value - reach, value + reach, 16, "")


def test_shares_are_known_by_name():
    shares = ["r2", "r2_null", "whole_mean_r2_raw", "mean_r2_plugin_centred", "r2_untrained", "share", "key_kl_share"]
    assert all(map(is_share, [*shares, "query_sequential", "leakage_first", "fit_token_sum", "positional"]))
    others = ["signal", "signal_untrained", "peak_offset", "slope", "fit_token_origin", "fit_token_product_over_sum"]
    assert not any(map(is_share, [*others, "crossover", "residual_product_rank", "first_mass", "divergence"]))


def test_an_interval_wider_than_one_determines_nothing():
    assert undetermined(-0.1, 1.0) and not undetermined(0.0, 1.0)
    assert not undetermined(math.nan, math.nan) and not undetermined(None, 2.0)


def test_the_median_leaves_out_what_says_nothing_and_counts_it():
    heads = [around(0.2), around(0.4), around(0.9), around(5.0, 0.6), Estimate(math.nan, math.nan, math.nan, 16, "")]
    middle = median_head(heads, share=True)
    assert (middle.value, middle.low, middle.high, middle.n) == pytest.approx((0.4, 0.3, 0.5, 3))
    assert "median of 3 heads; 1 undefined left out; 1 with an interval wider than 1 left out" in middle.method
    anything = median_head(heads, share=False)
    assert anything.n == 4 and anything.value == pytest.approx(0.65)
    none = median_head(heads[3:], share=True)
    assert math.isnan(none.value) and none.n == 0 and "no head has a value" in none.method


def test_without_intervals_there_is_none():
    middle = median_of_column(pd.DataFrame({"signal_plugin": [1.0, 2.0, 4.0, 3.0]}), "signal_plugin")
    assert (middle.value, math.isnan(middle.low), middle.method) == (2.5, True, "median of 4 heads")


@pytest.mark.parametrize("common", [0.0, 0.5, 1.0])
def test_the_interval_covers_the_true_median_whether_errors_go_together_or_not(common):
    """270 heads; errors that all share, that none share, and half of each: at least 95% minus what 400 draws allow."""
    random, hits = np.random.default_rng(0), 0
    truth = random.uniform(0.5, 1.0, 270)
    for _ in range(400):
        error = 0.05 * (np.sqrt(common) * random.normal() + np.sqrt(1 - common) * random.normal(size=270))
        heads = pd.DataFrame({"r2": truth + error})
        middle = median_of_column(heads.assign(r2_low=heads.r2 - 0.098, r2_high=heads.r2 + 0.098), "r2")
        hits += middle.low <= np.median(truth) <= middle.high
    assert hits >= 400 * 0.92
