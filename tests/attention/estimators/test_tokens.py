"""Attended tokens: the largest weights of the rebuilt patterns, of the first sequence alone."""

import dataclasses

import pytest
import torch

from planted_source import PositionSource, stream
from poskernel.attention.estimators.tokens import KEYS, ROWS, TokenEstimator, shown_rows
from poskernel.errors import InputError


def estimated(change=lambda capture: capture, causal=True, dropped=4):
    """Estimates of two batches, and the captures of the first."""
    source, estimator, captures = PositionSource(causal), TokenEstimator({0: 3, 1: 3}, 60, dropped), []

    def consume(capture):
        captures.append(change(capture))
        estimator.consume(captures[-1])

    for batch in stream(480).view(2, 4, 60):
        source.forward(batch, consume)
    return estimator.estimates(), captures[:2]


def with_inputs(capture):
    """Everything else that a capture of a batch may hold."""
    return dataclasses.replace(
        capture, unrotated_query=capture.query, unrotated_key=capture.key, inputs=torch.zeros(4, 60, 8)
    )


def windowed(capture):
    return dataclasses.replace(capture, window=9)


def with_sinks(capture):
    return dataclasses.replace(capture, sinks=torch.tensor([0.0, 2.0, 40.0]))


def masked(capture):
    """Chunks of 16 positions: neither a direction nor a window."""
    chunk = torch.arange(60) // 16
    mask = (chunk[:, None] == chunk) & (torch.arange(60)[:, None] >= torch.arange(60))
    return dataclasses.replace(capture, mask=mask.expand(4, 1, 60, 60))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("change", [lambda capture: capture, windowed, with_sinks, with_inputs, masked])
def test_rows_hold_the_largest_weights_of_the_pattern(change, causal):
    found, captures = estimated(change, causal)
    assert [(each.layer, each.head) for each in found] == [(layer, head) for layer in range(2) for head in range(3)]
    for each in found:
        pattern = captures[each.layer].pattern(each.head)[0]
        assert [row.query for row in each.rows] == shown_rows(60, 4).tolist()
        for row in each.rows:
            best = pattern[row.query].sort(descending=True)
            shown = min(KEYS, int((captures[each.layer].allowed(each.head)[0, row.query]).sum()))
            assert row.weights == pytest.approx(best.values[:shown].tolist(), abs=1e-6)
            assert pattern[row.query, list(row.keys)].tolist() == pytest.approx(row.weights, abs=1e-6)
            assert list(row.weights) == sorted(row.weights, reverse=True)


def test_planted_previous_token_head_attends_to_the_token_before():
    found, _ = estimated()
    assert all(row.keys[0] == row.query - 1 for row in found[0].rows)
    assert all(row.keys[0] == row.query - 5 for row in found[1].rows if row.query >= 5)


def test_later_batches_change_nothing():
    estimator, source = TokenEstimator({1: 3}, 60, 4), PositionSource()
    source.forward(stream(240).view(4, 60), estimator.consume)
    before = estimator.estimates()
    source.forward(stream(240).flip(0).view(4, 60), estimator.consume)
    assert all(one is other for one, other in zip(before, estimator.estimates(), strict=True))


def test_rows_are_spread_evenly_and_never_twice():
    assert shown_rows(8192, 16).tolist() == [16, 2060, 4104, 6147, 8191]
    assert shown_rows(4, 2).tolist() == [2, 3]
    assert shown_rows(3, 0).tolist() == [1, 2]
    assert len(shown_rows(512, 16)) == ROWS


def test_a_layer_that_never_came_is_said():
    with pytest.raises(InputError, match="layer 7 was not captured"):
        TokenEstimator({7: 3}, 60, 4).estimates()
