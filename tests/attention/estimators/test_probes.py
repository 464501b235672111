"""Probes: Toeplitz to rounding for rotary heads on one token and not otherwise; planted induction; tiny real code."""

import math

import numpy as np
import pytest
import torch

from captures import capture_of, dense_logits, random_capture
from poskernel.attention.estimators.probes import (
    HeadProbe,
    ProbeEstimator,
    RepetitionEstimator,
    agreement,
    constant_tokens,
    repeated_tokens,
)
from poskernel.errors import InputError
from rotary_captures import rotary_capture


def probed(capture, dtype=torch.float64):
    estimator = ProbeEstimator({0: capture.heads}, dtype)
    estimator.consume(capture)
    return estimator.estimates()


def constant(dtype=torch.float64, length=24, sequences=2):
    level = torch.randn(2, sequences, 1, 1, 8, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return rotary_capture(*level.expand(-1, -1, -1, length, -1).contiguous())


@pytest.mark.parametrize("settings", [{}, {"window": 6}, {"causal": False}, {"causal": False, "window": 5}])
def test_probe_equals_loops(settings, monkeypatch):
    monkeypatch.setattr("poskernel.attention.estimators.row_tiles.ENTRIES", 40 * 6)
    capture = random_capture(3, **settings)
    found, logits = probed(capture)[2], dense_logits(capture, 2)
    allowed = capture.allowed(2)[0]
    pairs = [(t, s) for t in range(40) for s in range(40) if allowed[t, s]]
    offsets = sorted({t - s for t, s in pairs})
    g = np.array([[np.mean([logits[x, t, s] for t, s in pairs if t - s == d]) for d in offsets] for x in range(3)])
    assert found.offsets.tolist() == offsets
    assert found.counts.tolist() == [sum(t - s == d for t, s in pairs) for d in offsets]
    np.testing.assert_allclose(found.g, g.mean(0))
    np.testing.assert_allclose(found.spread, g.std(0, ddof=1))
    error = max(abs(logits[x, t, s] - g[x, offsets.index(t - s)]) for x in range(3) for t, s in pairs)
    assert found.toeplitz_error == pytest.approx(error)
    assert not found.is_toeplitz


def test_one_token_under_a_rotation_is_toeplitz_and_drifting_keys_are_not():
    capture = constant()
    found = probed(capture)[0]
    assert found.is_toeplitz
    assert found.toeplitz_error < 1e-12
    assert float(found.g.std()) > 0.1
    drifting = capture.unrotated_key + 1e-3 * torch.arange(24)[:, None]
    assert not probed(rotary_capture(capture.unrotated_query, drifting))[0].is_toeplitz


def test_the_floor_follows_the_precision():
    floors = {dtype: probed(constant(), dtype)[0].floor for dtype in (torch.float32, torch.float16, torch.bfloat16)}
    assert floors[torch.float32] < floors[torch.float16] < floors[torch.bfloat16]
    rounded = constant(torch.float32)
    assert probed(rounded, torch.float32)[0].is_toeplitz
    halves = rotary_capture(*(part.bfloat16().float() for part in (rounded.unrotated_query, rounded.unrotated_key)))
    coarse = capture_of(halves.query.bfloat16().float(), halves.key.bfloat16().float(), halves.scale)
    assert probed(coarse, torch.bfloat16)[0].is_toeplitz
    assert not probed(coarse, torch.float32)[0].is_toeplitz


def probe_of(g, first=0):
    count = len(g)
    offsets = torch.arange(first, first + count)
    counts = (count + min(first, 0) - offsets.abs()).double()
    return HeadProbe(0, 0, offsets, torch.as_tensor(g, dtype=torch.float64), counts, torch.zeros(count), 0.0, 1.0)


def test_agreement_is_the_weighted_correlation_of_resolved_offsets():
    generator = torch.Generator().manual_seed(1)
    first, second = torch.randn(2, 30, generator=generator, dtype=torch.float64)
    found = agreement(probe_of(first), second)
    kept = np.arange(16)  # offsets that at least 15 of 30 rows hold
    weights = 30 - kept
    a, b = (part.numpy()[kept] - np.average(part.numpy()[kept], weights=weights) for part in (first, second))
    shared = np.average(a * b, weights=weights)
    assert found.correlation == pytest.approx(
        shared / np.sqrt(np.average(a**2, weights=weights) * np.average(b**2, weights=weights))
    )
    assert found.gain == pytest.approx(shared / np.average(a**2, weights=weights))
    assert not found.agrees
    larger = agreement(probe_of(first), 5 + 1.9 * first)
    assert (larger.correlation, larger.gain, larger.agrees) == (pytest.approx(1), pytest.approx(1.9), True)
    assert not agreement(probe_of(first), 2.1 * first).agrees
    assert not agreement(probe_of(first), 0.4 * first).agrees
    assert not agreement(probe_of(first), -first).agrees
    both_ways = torch.cat([torch.randn(29, generator=generator, dtype=torch.float64), first])
    assert agreement(probe_of(both_ways, first=-29), 1.5 * first[:20]).agrees


def test_a_flat_kernel_agrees_with_nothing():
    found = agreement(probe_of(torch.full((30,), 3.0)), torch.randn(30))
    assert math.isnan(found.correlation)
    assert not found.agrees


def test_a_planted_induction_head_is_found():
    """Keys carry the token before them, so queries find what followed their own; matching keys carry their own."""
    tokens = torch.randperm(10, generator=torch.Generator().manual_seed(0)).repeat(3)
    one_hot = 8.0 * torch.eye(10, dtype=torch.float64)[tokens]
    before = torch.roll(one_hot, 1, 0)
    before[0] = 0
    query = one_hot[None, None].expand(2, 3, -1, -1)
    key = torch.stack([before, one_hot, torch.zeros_like(before)])[None].expand(2, -1, -1, -1)
    estimator = RepetitionEstimator({0: 3}, 10)
    for _ in range(2):
        estimator.consume(capture_of(query, key))
    induction, matching, even = estimator.estimates()
    assert induction.induction.value == pytest.approx(1, abs=1e-6)
    assert induction.matching.value == pytest.approx(0, abs=1e-6)
    # The row's own token matches as well, and is no earlier occurrence: 1 of 2 in the second repeat, 2 of 3 after it.
    assert matching.matching.value == pytest.approx((1 / 2 + 2 / 3) / 2, abs=1e-6)
    assert even.induction.value == pytest.approx(even.induction_chance)
    assert even.matching.value == pytest.approx(even.matching_chance)
    expected = np.mean(
        [sum((t - s + 1) % 10 == 0 and t - s >= 9 for s in range(1, t + 1)) / (t + 1) for t in range(10, 30)]
    )
    assert even.induction_chance == pytest.approx(expected)
    assert induction.induction.n == 4


def test_sinks_take_their_part_of_the_attention():
    query = torch.zeros(2, 1, 12, 4, dtype=torch.float64)
    masses = []
    for sinks in (None, torch.tensor([2.0], dtype=torch.float64)):
        estimator = RepetitionEstimator({0: 1}, 6)
        estimator.consume(capture_of(query, query, sinks=sinks))
        masses.append(estimator.estimates()[0].induction.value)
    expected = np.mean([1 / (t + 1 + math.exp(2)) for t in range(6, 12)])
    assert masses == [pytest.approx(np.mean([1 / (t + 1) for t in range(6, 12)])), pytest.approx(expected)]


def test_a_tiny_llama_is_toeplitz_on_one_token_in_every_layer_and_not_on_text(tiny_llama):
    from poskernel.attention.sources.loading import load

    source = load(str(tiny_llama)).source
    found = {}
    for name, tokens in (
        ("constant", constant_tokens(source, 3, 30)),
        ("repeated", repeated_tokens(source, 3, 15)),
    ):
        estimator = ProbeEstimator(dict.fromkeys(range(2), 4), source.dtype)
        with source.capturing():
            source.forward(tokens, estimator.consume)
        found[name] = estimator.estimates()
    assert len(found["constant"]) == 8
    assert all(probe.is_toeplitz for probe in found["constant"])
    assert not any(probe.is_toeplitz for probe in found["repeated"])


def test_tokens_of_probes(tiny_llama):
    from poskernel.attention.sources.loading import load

    source = load(str(tiny_llama)).source
    tokens = constant_tokens(source, 4, 9, seed=1)
    assert tokens.shape == (4, 9)
    assert (tokens == tokens[:, :1]).all()
    assert len(tokens[:, 0].unique()) > 1
    pattern = repeated_tokens(source, 4, 9, repeats=3, seed=1)
    assert torch.equal(pattern[:, :9], pattern[:, 9:18])
    assert pattern.shape == (4, 27)


def test_refusals():
    with pytest.raises(InputError, match="a pattern of 2 tokens tells no occurrence"):
        RepetitionEstimator({0: 1}, 2)
    with pytest.raises(InputError, match="40 positions hold a pattern of 21 less than twice"):
        RepetitionEstimator({0: 4}, 21).consume(random_capture(2))
    with pytest.raises(InputError, match="layer 3 was not captured"):
        RepetitionEstimator({3: 1}, 5).estimates()
    estimator = ProbeEstimator({0: 4}, torch.float32)
    estimator.consume(random_capture(2))
    with pytest.raises(InputError, match="layer 0 came twice"):
        estimator.consume(random_capture(2))
