"""The pieces of the streamed moments, each against an obvious loop in float64."""

import math

import numpy as np
import pytest
import torch

from captures import DROPPED, LENGTH, dense, dense_logits, random_capture
from poskernel.attention import moments
from poskernel.attention.moments import (
    FORMS,
    GramSum,
    HeadView,
    PairGrid,
    add_diagonals,
    attention_masses,
    diagonal_means,
    key_sums,
    measure_head,
)

ATOL = 1e-10
WINDOWS = [None, 1, 7, 39, 40, 64]


def pairs_of(length, window):
    return [(t, s) for t in range(length) for s in range(t + 1) if window is None or t - s < window]


def vectors(length=LENGTH, batch=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(batch, length, 5, generator=generator, dtype=torch.float64) + 1 for _ in range(2))


@pytest.mark.parametrize("window", WINDOWS)
def test_the_grid_counts_its_pairs(window):
    grid, pairs = PairGrid.of(LENGTH + DROPPED, DROPPED, window), pairs_of(LENGTH, window)
    assert grid.length == LENGTH
    assert grid.pairs == len(pairs)
    assert grid.row_counts.tolist() == [sum(t == row for t, _ in pairs) for row in range(LENGTH)]
    assert grid.offset_counts.tolist() == [sum(t - s == offset for t, s in pairs) for offset in range(grid.window)]
    assert {t - s for t, s in pairs} == set(range(grid.window))


@pytest.mark.parametrize("window", WINDOWS)
def test_sums_along_rows_and_offsets_equal_loops(window):
    grid, pairs = PairGrid.of(LENGTH, 0, window), pairs_of(LENGTH, window)
    rows = torch.randn(2, LENGTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    profile = rows[:, : grid.window].flip(-1)
    sums = np.zeros((2, grid.window))
    means = np.zeros((2, LENGTH))
    for x in range(2):
        for t, s in pairs:
            sums[x, t - s] += float(rows[x, t])
            means[x, t] += float(profile[x, t - s]) / sum(row == t for row, _ in pairs)
    np.testing.assert_allclose(grid.rows_to_offsets(rows), sums, atol=ATOL)
    np.testing.assert_allclose(grid.row_means(profile), means, atol=ATOL)


# Lengths on either side of a power of two: too short a transform would wrap round.
@pytest.mark.parametrize("length", [2, 31, 32, 33, LENGTH])
@pytest.mark.parametrize("window", [None, 1, 2, 7])
def test_diagonal_means_and_key_sums_equal_loops(length, window):
    grid = PairGrid.of(length, 0, window)
    query, key = vectors(length)
    sums, totals = np.zeros((3, grid.window)), np.zeros((3, length))
    for x in range(3):
        for t, s in pairs_of(length, window):
            logit = sum(float(query[x, t, i]) * float(key[x, s, i]) for i in range(5))
            sums[x, t - s] += logit
            totals[x, t] += logit
    np.testing.assert_allclose(
        diagonal_means(query, key, grid), sums / [length - d for d in range(grid.window)], atol=ATOL
    )
    np.testing.assert_allclose(key_sums(query, key, grid), totals, atol=ATOL)


@pytest.mark.parametrize("shift", [0, 3])
def test_diagonals_of_a_tile_equal_loops(shift):
    tile = torch.randn(2, 6, 6 + shift, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sums, expected = torch.ones(2, 5, dtype=torch.float64), np.ones((2, 5))
    add_diagonals(sums, tile, shift)
    for x, row, column in np.ndindex(2, 6, 6 + shift):
        if 0 <= row + shift - column < 5:
            expected[x, row + shift - column] += float(tile[x, row, column])
    np.testing.assert_allclose(sums, expected, atol=ATOL)


@pytest.mark.parametrize("window", [None, 9, 20])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_the_gram_sum_is_the_square_of_the_summed_logits(window, softcap, monkeypatch):
    monkeypatch.setattr(moments, "ROWS_PER_TILE", 16)
    captures = [random_capture(3, seed=seed, window=window, softcap=softcap) for seed in (1, 2)]
    grid = PairGrid.of(LENGTH, DROPPED, window)
    gram = GramSum(torch.zeros(GramSum.size(grid.length), dtype=torch.float64))
    for capture in captures:
        measure_head(HeadView(capture, 2, DROPPED, grid), gram)
    total = sum(dense_logits(capture, 2)[:, DROPPED:, DROPPED:].sum(0) for capture in captures)
    square = 0.0
    for row in range(grid.length):
        seen = [total[row, s] for t, s in pairs_of(grid.length, window) if t == row]
        square += sum((value - np.mean(seen)) ** 2 for value in seen)
    assert gram.square() == pytest.approx(square, rel=ATOL)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 40])
def test_the_gram_sum_has_room_for_every_tile_and_no_more(length, monkeypatch):
    monkeypatch.setattr(moments, "ROWS_PER_TILE", 16)
    gram, place = GramSum(torch.zeros(GramSum.size(length))), 0
    for start in range(0, length, 16):
        stop = min(start + 16, length)
        place = gram.add(place, torch.ones(2, stop - start, stop))
    assert place == gram.values.numel()
    assert gram.values.eq(2).all()


@pytest.mark.parametrize("dropped", [0, DROPPED])
@pytest.mark.parametrize("window", [None, 4, 9])
@pytest.mark.parametrize("sinks", [False, True])
def test_attention_masses_equal_loops(dropped, window, sinks):
    sink = torch.linspace(-1, 2, 4, dtype=torch.float64)
    capture = random_capture(3, window=window, sinks=sink if sinks else None)
    view = HeadView(capture, 2, dropped, PairGrid.of(LENGTH, dropped, window))
    logits, start, stop, first = dense_logits(capture, 2), 3, 12, 0
    # Whatever is taken from a row's logits must be taken from its dropped keys and its sink as well.
    shift = torch.randn(3, stop - start, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tile = torch.tensor(logits[:, dropped + start : dropped + stop, dropped : dropped + stop]) - shift[..., None]
    tile.masked_fill_(view.hidden(start, stop, first), -math.inf)
    expected = np.zeros((2, 3))
    for x in range(3):
        for t in range(dropped + start, dropped + stop):
            weight = [math.exp(logits[x, t, s]) if window is None or t - s < window else 0 for s in range(t + 1)]
            total = sum(weight) + (math.exp(float(sink[2])) if sinks else 0)
            expected[0, x] += weight[0] / total
            expected[1, x] += sum(weight[:dropped]) / total
    np.testing.assert_allclose(attention_masses(view, tile, shift, start), expected, rtol=ATOL, atol=ATOL)


@pytest.mark.parametrize("window", [None, 9])
def test_forms_of_two_sequences_equal_loops(window):
    capture, grid = random_capture(2, window=window), PairGrid.of(LENGTH, DROPPED, window)
    forms = dict(zip(FORMS, measure_head(HeadView(capture, 1, DROPPED, grid))[0].forms(), strict=True))
    reference = dense(dense_logits(capture, 1), DROPPED, window)
    n, x, y = 2, 0, 1
    for name, value in forms.items():
        assert value[x, y] == pytest.approx(float(value[y, x]), rel=1e-9), name
    assert forms["row_explained"][x, y] / forms["row_variance"][x, y] == pytest.approx(reference["r2"], rel=1e-9)
    assert forms["explained"][x, y] / forms["variance"][x, y] == pytest.approx(reference["r2_raw"], rel=1e-9)
    signal = float(forms["explained"][x, y]) / grid.pairs
    assert math.copysign(math.sqrt(abs(signal)), signal) == pytest.approx(reference["signal"], rel=1e-9)
    single = float(forms["row_variance"].diagonal().sum()) / n
    assert float(forms["row_signal"][x, y]) / single == pytest.approx(reference["share"], rel=1e-9)


def test_another_order_of_positions_is_measured_as_if_the_sequences_had_it():
    capture, grid = random_capture(3), PairGrid.of(LENGTH, DROPPED, None)
    order = torch.randperm(grid.length, generator=torch.Generator().manual_seed(0))
    whole = torch.cat([torch.arange(DROPPED), DROPPED + order])
    moved = type(capture)(
        0, capture.query[:, :, whole], capture.key[:, :, whole], capture.scale, capture.positions, True
    )
    shuffled = measure_head(HeadView(capture, 1, DROPPED, grid, order), weigh=False)[0].forms()
    torch.testing.assert_close(shuffled, measure_head(HeadView(moved, 1, DROPPED, grid))[0].forms())
    assert not torch.allclose(shuffled, measure_head(HeadView(capture, 1, DROPPED, grid))[0].forms())
