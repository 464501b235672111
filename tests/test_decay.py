"""Decay fits recover their own form, and crossings are where the curve says."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.decay import FORMS, crossing, decay_fits, first_crossing
from poskernel.errors import InputError

DEPTH = np.arange(30.0)
CURVES = {
    "constant": (lambda x: 0.3 + 0 * x, (0.3,)),
    "linear": (lambda x: 0.9 - 0.02 * x, (0.9, -0.02)),
    "exponential": (lambda x: 0.8 * np.exp(-0.2 * x), (0.8, 0.2)),
    "power": (lambda x: 0.8 * (1 + x) ** -0.7, (0.8, 0.7)),
}


@pytest.mark.parametrize("form", CURVES)
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_the_form_that_made_the_curve_is_chosen(form, noise):
    curve, coefficients = CURVES[form]
    values = curve(DEPTH) + noise * np.random.default_rng(1).standard_normal(DEPTH.size)
    best = decay_fits(DEPTH, values)[0]
    assert best.form == form
    assert best.coefficients == pytest.approx(coefficients, rel=1e-4 if not noise else 0.2, abs=1e-4 + noise)
    assert best.residual == pytest.approx(float(((values - best.at(DEPTH)) ** 2).sum()))


def test_every_form_is_least_squares_and_its_criterion_is_aicc():
    from scipy.optimize import curve_fit

    values = 0.6 * np.exp(-0.1 * DEPTH) + 0.05 * np.sin(DEPTH)
    fits = decay_fits(DEPTH, values)
    assert {fit.form for fit in fits} == set(FORMS)
    assert [fit.aic for fit in fits] == sorted(fit.aic for fit in fits)
    for fit in fits:
        function, count = FORMS[fit.form]
        found, _ = curve_fit(function, DEPTH, values, p0=[0.5] + [0.1] * (count - 1))
        assert fit.residual == pytest.approx(float(((values - function(DEPTH, *found)) ** 2).sum()), rel=1e-5)
        k, n = count + 1, DEPTH.size
        expected = n * math.log(fit.residual / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1)
        assert fit.aic == pytest.approx(expected)


def test_growth_and_fast_decay_are_fitted_as_well():
    fast = decay_fits(DEPTH, np.exp(-3 * DEPTH))[0]
    assert (fast.form, fast.coefficients) == ("exponential", pytest.approx((1, 3), rel=1e-4))
    assert decay_fits(DEPTH, 0.1 * np.exp(0.05 * DEPTH))[0].coefficients == pytest.approx((0.1, -0.05), rel=1e-4)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.55, 1.0), st.floats(0.0, 0.45), st.floats(0.1, 9))
def test_a_line_crosses_where_it_does(start, end, stretch):
    x = stretch * np.arange(11)
    found = crossing(x, np.linspace(start, end, 11), resamples=10)
    assert found.value == pytest.approx(10 * stretch * (start - 0.5) / (start - end))


def test_heads_of_a_layer_are_averaged_and_resampled():
    rng = np.random.default_rng(0)
    layer = np.repeat(np.arange(10.0), 9)
    heads = 1 - 0.1 * layer + 0.2 * rng.standard_normal(layer.size)
    found = crossing(layer, heads, resamples=500)
    means = heads.reshape(10, 9).mean(1)
    assert found.value == first_crossing(np.arange(10.0), means, 0.5)
    assert found.low <= found.value <= found.high
    assert 0.1 < found.high - found.low < 3
    clustered = crossing(layer, heads, clusters=np.tile(np.arange(9), 10), resamples=500)
    assert "9 clusters" in clustered.method


def test_a_crossing_that_is_not_there_is_undefined_and_says_why():
    assert "starts at or below 0.5" in crossing([0, 1, 2], [0.4, 0.6, 0.1]).method
    assert "never falls to 0.5" in crossing([0, 1, 2], [0.9, 0.8, 0.7]).method
    assert math.isnan(crossing([0, 1, 2], [0.9, 0.8, 0.7]).value)
    assert math.isnan(crossing([], []).value)
    assert first_crossing(np.arange(3.0), np.array([1.0, math.nan, 0.0]), 0.5) == 1


def test_bad_input():
    with pytest.raises(InputError, match="4 points are too few"):
        decay_fits([0, 1, 2, 3], [1, 1, 1, 1])
    with pytest.raises(InputError, match="x holds 2 distinct places"):
        decay_fits([0, 1, 0, 1, 0], [1, 1, 1, 1, 1])
    with pytest.raises(InputError, match="x holds -1"):
        decay_fits([-1, 0, 1, 2, 3], [1, 1, 1, 1, 2])
    with pytest.raises(InputError, match="x has 2 rows and y 3"):
        crossing([0, 1], [1, 2, 3])
