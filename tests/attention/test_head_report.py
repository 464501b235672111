"""Rows, documents and words of a measured head."""

import math
from dataclasses import replace

import pytest
import torch

from captures import DROPPED, LENGTH, estimate, random_capture
from poskernel.attention.head_report import HeadReport, listed, listed_offsets, without_nan
from poskernel.statistics import Estimate

KEPT = LENGTH - DROPPED


@pytest.fixture(scope="module")
def estimates():
    return estimate([random_capture(5, window=9)], null=False)


def test_undefined_numbers_are_null():
    assert without_nan({"a": [math.nan, 1.0, (math.inf, "b")], "c": None}) == {"a": [None, 1.0, [None, "b"]], "c": None}


def test_listed_offsets():
    assert listed_offsets(10) == tuple(range(10))
    offsets = listed_offsets(8192)
    assert offsets[:65] == tuple(range(65))
    assert offsets[-1] == 8191
    assert len(offsets) <= 65 + 192
    assert len(offsets) > 65 + 150


@pytest.mark.parametrize("horizon", [2, 10, 65, 66, 500])
def test_listed_offsets_of_encoders_are_the_same_in_both_directions(horizon):
    ahead, signed = listed_offsets(horizon), listed_offsets(horizon, causal=False)
    assert signed == tuple(sorted({*ahead, *(-offset for offset in ahead)}))
    assert listed_offsets(horizon) == ahead


def test_a_curve_is_undefined_where_its_window_ends():
    curve = torch.tensor([0.5, -1 / 3, 2.0])
    shown = listed(curve, -1, [-2, -1, 0, 1, 2])
    assert shown[1:4] == [0.5, -0.333333, 2.0]
    assert math.isnan(shown[0])
    assert math.isnan(shown[4])


def test_a_row_lists_g_within_its_band(estimates):
    report = HeadReport.of(estimates[1], KEPT)
    row = report.row([0, 1, 8, 9, 34])
    for index, offset in enumerate((0, 1, 8)):
        assert row["g"][index] == pytest.approx(float(estimates[1].g[offset]), abs=1e-6)
        assert row["g_low"][index] < row["g"][index] < row["g_high"][index]
    assert all(math.isnan(value) for name in ("g", "g_low", "g_high") for value in row[name][3:])


def test_the_untrained_head_stands_beside_it(estimates):
    alone, beside = (HeadReport.of(estimates[0], KEPT, other).row([0]) for other in (None, estimates[1]))
    for name in ("r2", "signal", "share"):
        assert math.isnan(alone[f"{name}_untrained"])
        assert beside[f"{name}_untrained"] == getattr(estimates[1], name).value
        assert beside[name] == alone[name]


def test_words_do_not_quote_an_r2_that_says_nothing(estimates):
    wide = replace(estimates[0], r2=Estimate(0.5, -0.1, 1.1, 5, ""))
    assert "R2 undetermined" in HeadReport.of(wide, KEPT).sentence
    none = replace(estimates[0], r2=Estimate(math.nan, math.nan, math.nan, 5, ""))
    assert "R2 undefined" in HeadReport.of(none, KEPT).sentence
    good = replace(estimates[0], r2=Estimate(0.5, 0.4, 0.6, 5, ""))
    assert "R2 0.50 (0.40 to 0.60)" in HeadReport.of(good, KEPT).sentence
    assert HeadReport.of(good, KEPT).sentence in repr(HeadReport.of(good, KEPT))
    assert "<p>Layer 0, head 0" in HeadReport.of(good, KEPT)._repr_html_()
