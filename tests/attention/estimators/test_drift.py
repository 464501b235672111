"""Slopes of g and their parts: loops, models whose slope is known to be drift or none, and what is refused."""

import itertools
import math

import numpy as np
import pytest
import torch

from captures import capture_of, random_capture
from poskernel.attention.estimators.drift import PARTS, DriftEstimator, drift_share
from poskernel.errors import InputError
from rotary_captures import noisy, rotary_capture, turn

DROPPED = 2


def drift(captures, dropped=DROPPED):
    estimator = DriftEstimator({0: captures[0].heads}, captures[0].length, dropped)
    for part in captures:
        estimator.consume(part)
    return estimator.estimates()


def slope_of(gram, causal=True, window=None):
    """Least-squares slope of the logits over the pairs on distance, by numpy's own line fit."""
    length = len(gram)
    pairs = [
        (t, s) for t, s in itertools.product(range(DROPPED, length), repeat=2)
        if (t >= s or not causal) and abs(t - s) < (window or length)
    ]  # fmt: skip
    distance = np.array([abs(t - s) for t, s in pairs])
    return np.polyfit(distance, [gram[t, s] for t, s in pairs], 1)[0]


@pytest.mark.parametrize("settings", [{}, {"window": 6}, {"causal": False}, {"bias": True}], ids=str)
def test_slope_and_parts_equal_loops(settings, monkeypatch):
    monkeypatch.setattr("poskernel.attention.estimators.row_tiles.ENTRIES", 24 * 5)
    if settings.get("bias"):
        settings = {"bias": torch.randn(1, 1, 24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(9))}
    capture = noisy(4, torch.Generator().manual_seed(0), heads=2, **settings)
    result = drift([capture])[1]
    u, v = capture.unrotated_query[:, 1], capture.unrotated_key[:, 0]
    levels = [part[:, DROPPED:].mean(1, keepdim=True).expand_as(part) for part in (u, v)]
    bias = capture.bias[0, 0] if capture.bias is not None else 0

    def mean_slope(query, key, pairs):
        grams = [(capture.scale * turn(query[x]) @ turn(key[y]).T + bias).numpy() for x, y in pairs]
        return np.mean([slope_of(gram, capture.causal, capture.window) for gram in grams])

    different = list(itertools.permutations(range(4), 2))
    full, level = mean_slope(u, v, different), mean_slope(*levels, different)
    key, query = mean_slope(levels[0], v, different) - level, mean_slope(u, levels[1], different) - level
    own = mean_slope(u, v, [(x, x) for x in range(4)])
    expected = [level, key, query, full - level - key - query, own - full]
    assert [result.parts[name].value for name in PARTS] == pytest.approx(expected, rel=1e-8, abs=1e-11)
    assert result.slope.value == pytest.approx(own, rel=1e-8)
    assert result.drift_share.value == pytest.approx((full - level) / full, rel=1e-8)


def test_keys_that_drift_give_g_a_slope_that_is_no_kernel():
    """Without a rotation nothing but drift can slope; a constant mean under a bias slopes without drift."""
    position = torch.arange(30, dtype=torch.float64)
    noise = torch.randn(8, 1, 30, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    query, key = 0.1 * noise + 1, 0.1 * noise.flip(0) - 0.05 * position[:, None]
    drifting = drift([capture_of(query, key)])[0]
    assert drifting.slope.value == pytest.approx(0.2 * 0.5, rel=0.2)  # rows see keys up to themselves: half of it
    assert drifting.parts["key drift"].value == pytest.approx(drifting.slope.value, rel=0.1)
    assert drifting.drift_share.value == pytest.approx(1, abs=0.05)
    bias = -0.1 * (position[:, None] - position)[None, None]
    biased = drift([capture_of(query, 0.1 * noise.flip(0), bias=bias)])[0]
    assert biased.parts["stationary"].value == pytest.approx(-0.1, rel=0.01)
    assert biased.drift_share.low <= 0 <= biased.drift_share.high + 0.05
    assert abs(biased.drift_share.value) < 0.05


def test_a_rotation_slopes_without_drift():
    generator = torch.Generator().manual_seed(2)
    level = torch.ones(8, dtype=torch.float64)
    capture = rotary_capture(*(level + 0.05 * torch.randn(8, 1, 40, 8, generator=generator).double() for _ in range(2)))
    result = drift([capture])[0]
    assert abs(result.slope.value) > 0.01
    assert abs(result.drift_share.value) < 0.1
    assert result.parts["stationary"].low <= result.slope.value <= result.parts["stationary"].high


def test_intervals_cover_the_drift_of_known_means():
    generator, covered = torch.Generator().manual_seed(3), 0
    exact = drift([noisy(3, generator, noise=0.0)])[0].drift_share.value
    for _ in range(100):
        share = drift([noisy(6, generator, noise=0.3), noisy(6, generator, noise=0.3)])[0].drift_share
        covered += share.low <= exact <= share.high
        assert share.n == 12
    assert covered >= 88


def test_soft_caps_are_undefined_and_bad_input_is_refused():
    capped = drift([random_capture(4, softcap=2.0)])[0]
    assert math.isnan(capped.slope.value)
    assert "soft-capped" in capped.parts["content"].method
    with pytest.raises(InputError, match="a batch of 2 sequences is too small"):
        drift([random_capture(2)])
    with pytest.raises(InputError, match="the bias of layer 0 depends on the text"):
        drift([random_capture(4, bias=torch.randn(4, 1, 40, 40, dtype=torch.float64))])
    with pytest.raises(InputError, match="are not known, as it is strange"):
        drift([random_capture(4, unreadable="it is strange")])
    with pytest.raises(InputError, match="layer 2 was not captured"):
        DriftEstimator({2: 1}, 10, 1).estimates()
    assert torch.isnan(drift_share(torch.zeros(5)))
