"""The streamed estimates against dense loops, known answers and simulations."""

import math

import numpy as np
import pytest
import torch

from captures import DROPPED, LENGTH, capture_of, dense, dense_logits, estimate, planted, random_capture
from poskernel.attention.estimators import moments
from poskernel.attention.estimators.estimate import KernelEstimator
from poskernel.errors import InputError, RunError


def dense_masses(capture, head, dropped):
    """Mean attention on position 0 and on the dropped positions, over the kept queries."""
    pattern = capture.pattern(head)[:, dropped:].double()
    return float(pattern[..., 0].mean()), float(pattern[..., :dropped].sum(-1).mean())


def assert_agrees(result, capture, reference, tolerance):
    for name, expected in reference.items():
        found = getattr(result, name)
        found = found.value if hasattr(found, "value") else found
        np.testing.assert_allclose(np.asarray(found), expected, rtol=tolerance, atol=tolerance * 1e-1, err_msg=name)
    masses = dense_masses(capture, result.head, DROPPED)
    np.testing.assert_allclose((result.first_mass, result.dropped_mass), masses, rtol=10 * tolerance, atol=1e-9)


both_directions = pytest.mark.parametrize("causal", [True, False], ids=["causal", "signed"])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@both_directions
def test_streamed_estimates_equal_dense_loops(dtype, tolerance, causal, monkeypatch):
    monkeypatch.setattr(moments, "ROWS_PER_TILE", 16)
    exact = random_capture(5)
    capture = capture_of(exact.query.to(dtype), exact.key.to(dtype), exact.scale, causal=causal)
    for result in estimate([capture], null=False)[::2]:
        expected = dense(dense_logits(exact, result.head), DROPPED, causal=causal)
        assert_agrees(result, capture, expected, tolerance)
        assert result.first_offset == (0 if causal else 1 - (LENGTH - DROPPED))


@pytest.mark.parametrize("setting", ["window", "softcap", "bias", "bias and window"])
@both_directions
def test_windows_caps_and_biases_equal_dense_loops(setting, causal, monkeypatch):
    monkeypatch.setattr(moments, "ROWS_PER_TILE", 16)
    offset = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    bias = -0.1 * torch.arange(1, 5)[:, None, None] * (offset + 0.2 * offset.clamp(max=0)).abs().double()
    settings = {
        "window": {"window": 9},
        "softcap": {"softcap": 2.0},
        "bias": {"bias": bias[None]},
        "bias and window": {"bias": bias[None], "window": 20},
    }[setting]
    capture = random_capture(4, causal=causal, **settings)
    result = estimate([capture], null=False)[2]
    expected = dense(dense_logits(capture, 2), DROPPED, settings.get("window"), causal)
    assert_agrees(result, capture, expected, 1e-10)


def test_extra_softmax_sinks_take_attention_from_the_dropped_positions():
    capture = random_capture(4, sinks=torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64))
    for result in estimate([capture], null=False):
        masses = dense_masses(capture, result.head, DROPPED)
        np.testing.assert_allclose((result.first_mass, result.dropped_mass), masses, rtol=1e-9)


def test_nothing_dropped_reports_attention_on_the_first_position():
    capture = random_capture(4)
    result = estimate([capture], dropped=0, null=False)[1]
    assert result.first_mass == pytest.approx(dense_masses(capture, 1, 0)[0], rel=1e-9)
    assert result.dropped_mass == 0


@pytest.mark.parametrize("window", [None, 9])
@both_directions
def test_batches_join_to_all_pairs(window, causal):
    whole = random_capture(9, window=window, causal=causal)
    parts = [
        capture_of(q, k, whole.scale, window=window, causal=causal)
        for q, k in zip(whole.query.split([5, 4]), whole.key.split([5, 4]), strict=True)
    ]
    for one, several in zip(estimate([whole]), estimate(parts), strict=True):
        for name in ("r2", "r2_raw", "r2_plugin", "r2_plugin_centred", "signal", "share"):
            assert getattr(several, name).value == pytest.approx(getattr(one, name).value, rel=1e-10), name
        torch.testing.assert_close(several.g, one.g)
        assert several.first_mass == pytest.approx(one.first_mass)
        assert "all pairs" in several.r2.method


@pytest.mark.parametrize("sequences", [17, 33])
def test_double_precision_is_kept_across_batches(sequences):
    whole = random_capture(sequences, heads=2, length=24)
    queries, keys = whole.query.split(16), whole.key.split(16)
    parts = [capture_of(query, key, whole.scale) for query, key in zip(queries, keys, strict=True)]
    result = estimate(parts, length=24, null=False)[1]
    assert "all pairs" in result.r2.method
    assert_agrees(result, whole, dense(dense_logits(whole, 1), DROPPED), 1e-10)


def test_sums_of_double_precision_need_twice_the_room(monkeypatch):
    size = moments.GramSum.size(moments.PairGrid.of(LENGTH, DROPPED, None))
    monkeypatch.setattr("poskernel.attention.estimators.estimate.GRAM_BYTES", 4 * size)
    for dtype, kept in ((torch.float32, True), (torch.float64, False)):
        (sums,) = KernelEstimator({0: 1}, LENGTH, 8, 4, dropped=DROPPED, dtype=dtype).sums.values()
        assert (sums.gram is not None) == kept


def test_without_room_pairs_stay_within_batches(monkeypatch):
    monkeypatch.setattr("poskernel.attention.estimators.estimate.GRAM_BYTES", 0)
    whole = random_capture(10)
    parts = [capture_of(q, k, whole.scale) for q, k in zip(whole.query.split(5), whole.key.split(5), strict=True)]
    results = estimate(parts, null=False)
    expected = [dense(dense_logits(part, 0), DROPPED) for part in parts]
    assert "pairs within batches" in results[0].r2.method
    np.testing.assert_allclose(results[0].g, np.mean([one["g"] for one in expected], 0), rtol=1e-9)
    assert min(one["r2"] for one in expected) < results[0].r2.value < max(one["r2"] for one in expected)


def rotate(vectors, frequencies):
    """Rotary embedding of [..., position, width] vectors, by complex multiplication."""
    planes = torch.view_as_complex(vectors.unflatten(-1, (-1, 2)).contiguous())
    phase = torch.arange(vectors.shape[-2], dtype=torch.float64)[:, None] * frequencies
    return torch.view_as_real(planes * torch.polar(torch.ones_like(phase), phase)).flatten(-2)


@both_directions
def test_constant_token_under_rotary_is_exactly_stationary_with_the_closed_form(causal):
    generator = torch.Generator().manual_seed(3)
    frequencies = 100.0 ** -(torch.arange(4, dtype=torch.float64) / 4)
    mean = torch.randn(2, 8, generator=generator, dtype=torch.float64)
    query, key = (rotate(vector.expand(6, 1, LENGTH, 8), frequencies) for vector in mean)
    (result,) = estimate([capture_of(query, key, 0.5, causal=causal)])
    q, k = (torch.view_as_complex(vector.view(4, 2)) for vector in mean)
    kept = LENGTH - DROPPED
    offset = torch.arange(0 if causal else 1 - kept, kept, dtype=torch.float64)[:, None]
    expected = 0.5 * (q * k.conj() * torch.polar(torch.ones(1, 4, dtype=torch.float64), offset * frequencies)).real.sum(
        -1
    )
    torch.testing.assert_close(result.g, expected)
    torch.testing.assert_close(result.kernel.g(20), expected[-kept:][:20])
    grid = torch.arange(kept)
    logits, seen = result.kernel.logits(grid, grid), grid[:, None] >= grid if causal else torch.ones(kept, kept).bool()
    torch.testing.assert_close(logits[seen], expected[grid[:, None] - grid - int(offset[0])][seen])
    for name in ("r2", "r2_raw", "r2_plugin", "r2_plugin_centred", "share"):
        assert getattr(result, name).value == pytest.approx(1, abs=1e-9), name
    assert result.null.value < 0.5


def test_content_alone_is_not_clipped_and_its_signal_is_within_its_interval_of_zero():
    generator = torch.Generator().manual_seed(0)
    capture = capture_of(*(torch.randn(16, 30, LENGTH, 8, generator=generator) for _ in range(2)), 8**-0.5)
    results = estimate([capture], null=False)
    shares = [result.share.value for result in results]
    assert min(shares) < 0 < max(shares)
    covered = [result.signal.low <= 0 <= result.signal.high for result in results]
    assert np.mean(covered) > 0.8
    # The plug-in signal cannot tell: noise alone has one.
    assert min(result.signal_plugin for result in results) > 0


def test_unbiased_r2_is_unbiased_where_plug_in_is_biased_down():
    capture, truth = planted(16, 120, 1.0, torch.Generator().manual_seed(0))
    results = estimate([capture], null=False)
    for name in ("r2", "r2_raw"):
        values = np.array([getattr(result, name).value for result in results])
        assert abs(values.mean() - truth[name]) < 4 * values.std() / math.sqrt(len(values)) + 0.003, name
        assert values.max() > truth[name]
    plug_in = np.array([result.r2_plugin.value for result in results])
    assert plug_in.mean() < truth["r2_raw"] - 0.1


def test_shared_permutation_destroys_a_kernel_and_follows_the_seed():
    capture, _ = planted(8, 3, 0.1, torch.Generator().manual_seed(2), stationary=1.0)
    nulls = [result.null.value for result in estimate([capture], seed=1)]
    assert max(nulls) < 0.5 < 0.95 < min(result.r2.value for result in estimate([capture], seed=1))
    assert nulls == [result.null.value for result in estimate([capture], seed=1)]
    assert nulls != [result.null.value for result in estimate([capture], seed=2)]
    assert estimate([capture], null=False)[0].null is None


def test_head_without_variance_has_no_r2():
    flat = capture_of(torch.ones(4, 1, LENGTH, 2), torch.ones(4, 1, LENGTH, 2))
    result = estimate([flat])[0]
    assert math.isnan(result.r2.value)
    assert result.r2.method.startswith("undefined")


def test_refusals():
    with pytest.raises(InputError, match="3 sequences give no interval: measure at least 4"):
        KernelEstimator({0: 1}, 40, 3, 3)
    with pytest.raises(InputError, match="dropping 39 positions of 40 leaves no pairs"):
        KernelEstimator({0: 1}, 40, 4, 4, dropped=39)
    with pytest.raises(InputError, match="layer 0 attends to both directions, unlike the model's other layers"):
        estimate([random_capture(4, causal=False)], causal=True)
    with pytest.raises(InputError, match="layer 0 attends to the past alone, unlike"):
        estimate([random_capture(4)], causal=False)
    with pytest.raises(InputError, match=r"queries in torch.float64, more precise than the model's torch.float32"):
        estimate([random_capture(4)], dtype=torch.float32)
    chunks = (torch.arange(LENGTH)[:, None] // 8 == torch.arange(LENGTH) // 8).tril()[None, None]
    with pytest.raises(InputError, match="neither causal nor a sliding window"):
        estimate([random_capture(4, mask=chunks)])
    broken = random_capture(4)
    broken.query[0, 0, 20, 0] = float("nan")
    with pytest.raises(RunError, match="layer 0 head 0 gave logits that are not finite"):
        estimate([broken], null=False)
