"""Estimates of Gram variants: against dense loops, known answers and simulations of bias and coverage."""

import math

import numpy as np
import pytest
import torch

from captures import DROPPED, LENGTH, capture_of, dense, estimate, random_capture
from poskernel.attention.estimators import moments
from poskernel.attention.estimators.moments import HeadView, PairGrid
from poskernel.attention.estimators.variant_estimates import WHOLE, variant_names
from poskernel.attention.estimators.variants import VARIANTS, variant_views

SHORT, WIDTH = 14, 6
"""Of the simulation: positions, few so that it is quick, and width of a head."""


def telling(sequences, heads=2, **settings):
    """A capture whose keys share content with the queries nearby, so that every variant has a kernel."""
    capture = random_capture(sequences, heads=heads, keyheads=heads, **settings)
    shared = capture.query - 1
    capture.key.add_(2 * shared + shared.roll(1, 2) + shared.roll(2, 2))
    return capture


def samples_of(capture, head, name, dropped):
    """[sample, query, key] logits over all positions, of the samples and of the plug-in."""
    view = HeadView(capture, head, dropped, PairGrid.of(capture.length, dropped, capture.window, capture.causal))
    everywhere = torch.arange(view.grid.length)
    return [part.capture.logits(0, everywhere, everywhere).numpy() for part in variant_views(view, VARIANTS[name])]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("setting", [{}, {"causal": False}, {"causal": False, "window": 9}], ids=str)
def test_streamed_variants_equal_dense_loops_over_their_samples(name, setting, monkeypatch):
    monkeypatch.setattr(moments, "ROWS_PER_TILE", 16)
    capture = telling(8, **setting)
    result = estimate([capture], null=False, variants=True)[1].variants
    for dropped, place in ((DROPPED, ""), (0, f"{WHOLE}_")):
        samples, whole = samples_of(capture, 1, name, dropped)
        window, causal = setting.get("window"), setting.get("causal", True)
        expected, plug_in = (dense(logits, 0, window, causal) for logits in (samples, np.repeat(whole, 2, 0)))
        found = result[place + name]
        for statistic in ("r2", "r2_raw", "signal"):
            assert getattr(found, statistic).value == pytest.approx(expected[statistic], rel=1e-10), statistic
        for statistic in ("r2_plugin", "r2_plugin_centred", "signal_plugin"):
            assert getattr(found, statistic) == pytest.approx(plug_in[statistic], rel=1e-10), statistic
        assert found.r2.n == 4
        assert "different samples of the variant" in found.r2.method


def test_with_the_first_positions_the_numbers_are_those_of_nothing_dropped():
    capture = telling(8)
    result, plain = estimate([capture], variants=True)[1], estimate([capture], dropped=0, variants=True)[1]
    whole = result.variants[WHOLE]
    for name in ("r2", "r2_raw", "signal"):
        assert getattr(whole, name).value == pytest.approx(getattr(plain, name).value, rel=1e-12)
        assert getattr(whole, name).high == pytest.approx(getattr(plain, name).high, rel=1e-12)
    assert whole.r2_plugin == pytest.approx(plain.r2_plugin.value)
    assert list(plain.variants) == list(VARIANTS) == variant_names(0)
    assert list(result.variants) == variant_names(DROPPED)
    for name in VARIANTS:
        with_first = result.variants[f"{WHOLE}_{name}"]
        assert with_first.r2.value == pytest.approx(plain.variants[name].r2.value, rel=1e-12)


def test_over_several_batches_samples_pair_within_them():
    whole = telling(16, heads=1)
    parts = [capture_of(q, k, whole.scale) for q, k in zip(whole.query.split(8), whole.key.split(8), strict=True)]
    results = estimate(parts, null=False, variants=True)
    for name in VARIANTS:
        found = results[0].variants[name]
        singles = [estimate([part], null=False, variants=True)[0].variants[name] for part in parts]
        assert min(one.r2.value for one in singles) < found.r2.value < max(one.r2.value for one in singles), name
        assert (found.r2.n, singles[0].r2.n) == (8, 4)
        assert "within batches" in found.r2.method


def test_nothing_is_measured_unless_asked_for():
    assert not estimate([random_capture(8)], null=False)[0].variants


def test_position_alone_and_content_alone_are_told_apart():
    """Queries and keys that are one vector a position, and ones that share a random part at every position."""
    generator = torch.Generator().manual_seed(0)
    position = torch.randn(2, 1, 1, LENGTH, 8, generator=generator, dtype=torch.float64).expand(-1, 16, -1, -1, -1)
    (alone,) = estimate([capture_of(*position)], null=False, variants=True)
    assert alone.variants["mean"].r2.value == pytest.approx(alone.r2.value, rel=1e-9)
    assert alone.variants["mean"].signal.value == pytest.approx(alone.signal.value, rel=1e-9)
    assert alone.variants["centred"].signal_plugin == pytest.approx(0, abs=1e-9)
    assert math.isnan(alone.variants["centred"].r2.value) or alone.variants["centred"].signal.value < 1e-9
    # Sums of neighbouring noises correlate near, whatever the position: a stationary kernel of content alone.
    noise = torch.randn(32, 1, LENGTH + 3, 8, generator=generator, dtype=torch.float64)
    content = sum(noise[:, :, lag : lag + LENGTH] for lag in range(4))
    (alone,) = estimate([capture_of(content, content)], null=False, variants=True)
    assert alone.variants["centred"].r2.value > 0.85
    assert alone.variants["centred"].signal.value == pytest.approx(alone.signal.value, rel=0.1)
    assert abs(alone.variants["mean"].signal.value) < 0.15 * alone.signal.value


def mixed(sequences, heads, generator):
    """Queries and keys of mean vectors and of noise that the two share near each other, and the true Grams."""
    fixed = torch.Generator().manual_seed(1)
    offset = torch.arange(SHORT)[:, None] - torch.arange(SHORT)
    means = torch.randn(2, SHORT, WIDTH, generator=fixed, dtype=torch.float64)
    means[1] = means[0].roll(1, 0) + 0.5 * means[1]
    noise = torch.randn(sequences, heads, SHORT + 2, WIDTH, generator=generator, dtype=torch.float64)
    query = means[0] + (noise[:, :, 2:] + noise[:, :, 1:-1]) / 2
    key = means[1] + (noise[:, :, 2:] + 0.7 * noise[:, :, :-2]) / 2
    mean = means[0] @ means[1].T
    # q_t holds noises t and t - 1, k_s holds s and, less, s - 2.
    shared = (offset == 0).double() + (offset == 1) + 0.7 * ((offset == -2).double() + (offset == -1))
    centred = shared * WIDTH / 4
    grand = [part.mean(0) for part in means]
    removed = (means[0] @ grand[1])[:, None] + means[1] @ grand[0]
    grams = {"mean": mean, "centred": centred, "global": mean + centred - removed}
    truth = {name: dense(gram.numpy()[None].repeat(2, 0), 0) for name, gram in grams.items()}
    return capture_of(query, key), truth


@pytest.fixture(scope="module")
def simulated():
    capture, truth = mixed(16, 200, torch.Generator().manual_seed(0))
    return estimate([capture], SHORT, 0, null=False, variants=True), truth


@pytest.mark.parametrize("name", ["mean", "centred", "global"])
def test_unbiased_variants_are_unbiased_and_their_intervals_cover(simulated, name):
    """16 sequences make 8 samples; 200 draws give a standard error of 1.5 points of coverage."""
    results, truth = simulated
    for statistic in ("r2", "r2_raw", "signal"):
        drawn = [getattr(one.variants[name], statistic) for one in results]
        values, expected = np.array([one.value for one in drawn]), truth[name][statistic]
        assert not np.isnan(values).any()
        # A ratio of unbiased means is itself biased by about its variance; the plug-in by far more.
        assert abs(values.mean() - expected) < 4 * values.std() / math.sqrt(len(values)) + 0.1 * values.std()
        covered = np.mean([one.low <= expected <= one.high for one in drawn])
        print(f"{name} {statistic}: truth {expected:.3f}, mean {values.mean():.3f}, covered {covered:.3f}")
        assert covered >= 0.9, (statistic, covered)


def test_the_plug_in_is_biased(simulated):
    """Down for content, whose sampling noise counts as unexplained."""
    results, truth = simulated
    assert np.mean([one.variants["centred"].r2_plugin for one in results]) < truth["centred"]["r2_raw"] - 0.1
