"""Estimates of Gram variants: against dense loops, known answers and simulations of bias and coverage."""

import math

import numpy as np
import pytest
import torch

from captures import DROPPED, LENGTH, capture_of, dense, estimate, random_capture
from poskernel.attention.estimators import moments
from poskernel.attention.estimators.moments import HeadView, PairGrid
from poskernel.attention.estimators.variant_estimates import WHOLE, VariantEstimator, variant_names
from poskernel.attention.estimators.variants import VARIANTS, variant_views
from poskernel.errors import InputError

SHORT, WIDTH = 14, 6
"""Of the simulation: positions, few so that it is quick, and width of a head."""


def variants(captures, length=LENGTH, dropped=DROPPED):
    """Variants of every head from captures of one layer, a batch each."""
    estimator = VariantEstimator({0: captures[0].heads}, length, dropped)
    for part in captures:
        estimator.consume(part)
    return [head.estimates for head in estimator.estimates()]


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
    result = variants([capture])[1]
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
    plain = estimate([capture], dropped=0)[1]
    result, undropped = variants([capture])[1], variants([capture], dropped=0)[1]
    whole = result[WHOLE]
    for name in ("r2", "r2_raw", "signal"):
        assert getattr(whole, name).value == pytest.approx(getattr(plain, name).value, rel=1e-12)
        assert getattr(whole, name).high == pytest.approx(getattr(plain, name).high, rel=1e-12)
    assert whole.r2_plugin == pytest.approx(plain.r2_plugin.value)
    assert list(undropped) == list(VARIANTS) == variant_names(0)
    assert list(result) == variant_names(DROPPED)
    for name in VARIANTS:
        assert result[f"{WHOLE}_{name}"].r2.value == pytest.approx(undropped[name].r2.value, rel=1e-12)


def test_over_several_batches_samples_pair_within_them():
    whole = telling(16, heads=1)
    parts = [capture_of(q, k, whole.scale) for q, k in zip(whole.query.split(8), whole.key.split(8), strict=True)]
    results = variants(parts)
    for name in VARIANTS:
        found = results[0][name]
        singles = [variants([part])[0][name] for part in parts]
        assert min(one.r2.value for one in singles) < found.r2.value < max(one.r2.value for one in singles), name
        assert (found.r2.n, singles[0].r2.n) == (8, 4)
        assert "within batches" in found.r2.method


def test_too_few_sequences_give_no_interval():
    with pytest.raises(
        InputError, match="3 pairs of sequences give no interval of the Gram variants: measure at least 8"
    ):
        variants([random_capture(7)])


def test_layers_not_asked_for_are_passed_over():
    estimator = VariantEstimator({3: 4}, LENGTH, DROPPED)
    estimator.consume(random_capture(8))
    assert all(sums.batches == 0 for head in estimator.sums.values() for sums in head.values())
    estimator.pool.close()


def test_position_alone_and_content_alone_are_told_apart():
    """Queries and keys that are one vector a position, and ones that share a random part at every position."""
    generator = torch.Generator().manual_seed(0)
    position = torch.randn(2, 1, 1, LENGTH, 8, generator=generator, dtype=torch.float64).expand(-1, 16, -1, -1, -1)
    (alone,), (raw,) = variants([capture_of(*position)]), estimate([capture_of(*position)], null=False)
    assert alone["mean"].r2.value == pytest.approx(raw.r2.value, rel=1e-9)
    assert alone["mean"].signal.value == pytest.approx(raw.signal.value, rel=1e-9)
    assert alone["centred"].signal_plugin == pytest.approx(0, abs=1e-9)
    assert math.isnan(alone["centred"].r2.value) or alone["centred"].signal.value < 1e-9
    # Sums of neighbouring noises correlate near, whatever the position: a stationary kernel of content alone.
    noise = torch.randn(32, 1, LENGTH + 3, 8, generator=generator, dtype=torch.float64)
    content = sum(noise[:, :, lag : lag + LENGTH] for lag in range(4))
    capture = capture_of(content, content)
    (alone,), (raw,) = variants([capture]), estimate([capture], null=False)
    assert alone["centred"].r2.value > 0.85
    assert alone["centred"].signal.value == pytest.approx(raw.signal.value, rel=0.1)
    assert abs(alone["mean"].signal.value) < 0.15 * raw.signal.value


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
    return variants([capture], SHORT, 0), truth


@pytest.mark.parametrize("name", ["mean", "centred", "global"])
def test_unbiased_variants_are_unbiased_and_their_intervals_cover(simulated, name):
    """16 sequences make 8 samples; 200 draws give a standard error of 1.5 points of coverage."""
    results, truth = simulated
    for statistic in ("r2", "r2_raw", "signal"):
        drawn = [getattr(one[name], statistic) for one in results]
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
    assert np.mean([one["centred"].r2_plugin for one in results]) < truth["centred"]["r2_raw"] - 0.1
