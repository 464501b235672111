"""The pieces of the streamed moments, each against an obvious loop in float64."""

import math

import numpy as np
import pytest
import torch

from captures import DROPPED, LENGTH, dense, dense_logits, pairs_of, random_capture
from poskernel.attention.estimators import moments
from poskernel.attention.estimators.moments import (
    FORMS,
    EarlyLogits,
    GramSum,
    HeadView,
    PairGrid,
    Workspace,
    add_diagonals,
    diagonal_means,
    log_sums,
    measure_head,
)

ATOL = 1e-10
WINDOWS = [None, 1, 7, 39, 40, 64]


both_directions = pytest.mark.parametrize("causal", [True, False], ids=["causal", "signed"])


def vectors(length=LENGTH, batch=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(batch, length, 5, generator=generator, dtype=torch.float64) + 1 for _ in range(2))


@pytest.mark.parametrize("window", WINDOWS)
@both_directions
def test_the_grid_counts_its_pairs(window, causal):
    grid, pairs = PairGrid.of(LENGTH + DROPPED, DROPPED, window, causal), pairs_of(LENGTH, window, causal)
    assert grid.length == LENGTH
    assert grid.pairs == len(pairs)
    assert grid.row_counts.tolist() == [sum(t == row for t, _ in pairs) for row in range(LENGTH)]
    assert grid.offset_counts.tolist() == [sum(t - s == d for t, s in pairs) for d in grid.offsets.tolist()]
    assert grid.offsets.tolist() == sorted({t - s for t, s in pairs})
    assert grid.first_offset == min(t - s for t, s in pairs)
    for start, stop in ((0, 3), (11, 27), (LENGTH - 1, LENGTH)):
        first, last = grid.keys(start, stop)
        seen = {(t, s) for t, s in pairs if start <= t < stop}
        assert (first, last) == (min(s for _, s in seen), 1 + max(s for _, s in seen))
        hidden, border = grid.hidden(start, stop), grid.border(start)
        assert {(start + t, first + s) for t, s in (~hidden).nonzero().tolist()} == seen
        # Whatever is hidden lies within the border.
        assert hidden.sum() == hidden[:, border].sum()


@pytest.mark.parametrize("window", WINDOWS)
@both_directions
def test_sums_along_rows_and_offsets_equal_loops(window, causal):
    grid, pairs = PairGrid.of(LENGTH, 0, window, causal), pairs_of(LENGTH, window, causal)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2, LENGTH, dtype=torch.float64, generator=generator)
    profile = torch.randn(2, len(grid.offsets), dtype=torch.float64, generator=generator)
    sums = np.zeros((2, len(grid.offsets)))
    means = np.zeros((2, LENGTH))
    for x in range(2):
        for t, s in pairs:
            sums[x, t - s - grid.first_offset] += float(rows[x, t])
            means[x, t] += float(profile[x, t - s - grid.first_offset]) / sum(row == t for row, _ in pairs)
    np.testing.assert_allclose(grid.rows_to_offsets(rows), sums, atol=ATOL)
    np.testing.assert_allclose(grid.row_means(profile), means, atol=ATOL)


# Lengths on either side of a power of two: too short a transform would wrap round.
@pytest.mark.parametrize("length", [2, 31, 32, 33, LENGTH])
@pytest.mark.parametrize("window", [None, 1, 2, 7])
@both_directions
def test_diagonal_means_equal_loops(length, window, causal):
    grid = PairGrid.of(length, 0, window, causal)
    query, key = vectors(length)
    logits = torch.einsum("xti,xsi->xts", query, key).numpy()
    sums = np.zeros((3, len(grid.offsets)))
    for x in range(3):
        for t, s in pairs_of(length, window, causal):
            sums[x, t - s - grid.first_offset] += logits[x, t, s]
    counts = [length - abs(d) for d in grid.offsets.tolist()]
    np.testing.assert_allclose(diagonal_means(query, key, grid), sums / counts, atol=ATOL)


@pytest.mark.parametrize("window", [None, 1, 5, 12])
@pytest.mark.parametrize(("start", "stop"), [(0, 6), (6, 7), (9, 16), (14, 16)])
@both_directions
def test_diagonals_of_a_tile_equal_loops(window, start, stop, causal):
    grid, workspace = PairGrid.of(16, 0, window, causal), Workspace()
    first, last = grid.keys(start, stop)
    generator = torch.Generator().manual_seed(0)
    tile = torch.randn(2, stop - start, last - first, dtype=torch.float64, generator=generator)
    tile.masked_fill_(grid.hidden(start, stop), 0)
    # What earlier tiles left behind must not show.
    workspace.scratch(tile, grid, 20, 30).fill_(math.nan)
    sums = torch.ones(2, len(grid.offsets), dtype=torch.float64)
    add_diagonals(sums, tile, start - first, grid, workspace)
    expected = np.ones((2, len(grid.offsets)))
    for x, row, column in np.ndindex(*tile.shape):
        offset = start + row - first - column
        if float(tile[x, row, column]):
            expected[x, offset - grid.first_offset] += float(tile[x, row, column])
    np.testing.assert_allclose(sums, expected, atol=ATOL)


@pytest.mark.parametrize("window", [None, 9, 20])
@pytest.mark.parametrize("softcap", [None, 2.0])
@both_directions
def test_the_gram_sum_is_the_square_of_the_summed_logits(window, softcap, causal, monkeypatch):
    monkeypatch.setattr(moments, "ROWS_PER_TILE", 16)
    captures = [random_capture(3, seed=seed, window=window, softcap=softcap, causal=causal) for seed in (1, 2)]
    grid = PairGrid.of(LENGTH, DROPPED, window, causal)
    gram = GramSum(torch.zeros(GramSum.size(grid), dtype=torch.float64))
    for capture in captures:
        measure_head(HeadView(capture, 2, DROPPED, grid), gram)
    total = sum(dense_logits(capture, 2)[:, DROPPED:, DROPPED:].sum(0) for capture in captures)
    square = 0.0
    for row in range(grid.length):
        seen = [total[row, s] for t, s in pairs_of(grid.length, window, causal) if t == row]
        square += sum((value - np.mean(seen)) ** 2 for value in seen)
    assert gram.square() == pytest.approx(square, rel=ATOL)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("window", [None, 7])
@both_directions
def test_the_gram_sum_has_room_for_every_tile_and_no_more(length, window, causal, monkeypatch):
    monkeypatch.setattr(moments, "ROWS_PER_TILE", 16)
    grid = PairGrid.of(length, 0, window, causal)
    gram, place = GramSum(torch.zeros(GramSum.size(grid))), 0
    for start in range(0, length, 16):
        stop = min(start + 16, length)
        first, last = grid.keys(start, stop)
        place = gram.add(place, torch.ones(2, stop - start, last - first))
    assert place == gram.values.numel()
    assert gram.values.eq(2).all()


@pytest.mark.parametrize("dropped", [0, DROPPED])
@pytest.mark.parametrize("window", [None, 4, 9])
@pytest.mark.parametrize("sinks", [False, True])
@both_directions
def test_attention_masses_equal_loops(dropped, window, sinks, causal):
    sink = torch.linspace(-1, 2, 4, dtype=torch.float64)
    capture = random_capture(3, window=window, sinks=sink if sinks else None, causal=causal)
    view = HeadView(capture, 2, dropped, PairGrid.of(LENGTH, dropped, window, causal))
    logits, start, stop = dense_logits(capture, 2), 3, 12
    first, last = view.grid.keys(start, stop)
    # Whatever is taken from a row's logits must be taken from its dropped keys and its sink as well.
    shift = torch.randn(3, stop - start, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tile = torch.tensor(logits[:, dropped + start : dropped + stop, dropped + first : dropped + last])
    tile = (tile - shift[..., None]).masked_fill(view.grid.hidden(start, stop), 0)
    expected = np.zeros((2, 3))
    seen = set(pairs_of(LENGTH, window, causal))
    for x in range(3):
        for t in range(dropped + start, dropped + stop):
            weight = [math.exp(logits[x, t, s]) if (t, s) in seen else 0 for s in range(LENGTH)]
            total = sum(weight) + (math.exp(float(sink[2])) if sinks else 0)
            expected[0, x] += weight[0] / total
            expected[1, x] += sum(weight[:dropped]) / total
    found = EarlyLogits.of(view).masses(log_sums(tile, start, view.grid, Workspace()), shift, start)
    np.testing.assert_allclose(found, expected, rtol=ATOL, atol=ATOL)


def test_logits_far_above_their_mean_do_not_overflow():
    tile = torch.tensor([[[900.0, -900.0, 0.0], [1.0, 0.0, -1.0]]])
    seen = tile.masked_fill(torch.tensor([[False, False, True], [False, False, False]]), -math.inf)
    torch.testing.assert_close(log_sums(tile, 1, PairGrid(3, 3), Workspace()), seen.logsumexp(-1))


def test_a_workspace_keeps_its_memory_and_never_mixes_types():
    workspace, like = Workspace(), torch.zeros(2, 3)
    first = workspace.take("tile", like, 100, (2, 3, 4))
    again = workspace.take("tile", like, 100, (10, 10))
    assert (first.shape, again.shape) == ((2, 3, 4), (10, 10))
    assert first.data_ptr() == again.data_ptr() != workspace.take("scratch", like, 100, (2,)).data_ptr()
    assert workspace.take("tile", like, 100, (101,)).shape == (101,)
    assert workspace.take("tile", like.double(), 100, (2,)).dtype == torch.float64


@both_directions
def test_one_workspace_serves_heads_of_every_size(causal, monkeypatch):
    monkeypatch.setattr(moments, "ROWS_PER_TILE", 16)
    workspace = Workspace()
    for length, window in ((LENGTH, None), (20, 5), (33, None), (LENGTH, 9)):
        capture = random_capture(3, length=length, window=window, causal=causal)
        view = HeadView(capture, 1, DROPPED, PairGrid.of(length, DROPPED, window, causal))
        (own, masses), (fresh, expected) = measure_head(view, workspace=workspace), measure_head(view)
        torch.testing.assert_close(own.forms(), fresh.forms(), rtol=0, atol=0)
        torch.testing.assert_close(masses, expected, rtol=0, atol=0)


@pytest.mark.parametrize("window", [None, 9])
@both_directions
def test_forms_of_two_sequences_equal_loops(window, causal):
    capture = random_capture(2, window=window, causal=causal)
    grid = PairGrid.of(LENGTH, DROPPED, window, causal)
    forms = dict(zip(FORMS, measure_head(HeadView(capture, 1, DROPPED, grid))[0].forms(), strict=True))
    reference = dense(dense_logits(capture, 1), DROPPED, window, causal)
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


@pytest.mark.parametrize("window", [None, 9])
@both_directions
def test_forms_with_the_sum_of_earlier_batches_are_the_sums_of_their_forms(window, causal):
    whole, grid = random_capture(7, window=window, causal=causal), PairGrid.of(LENGTH, DROPPED, window, causal)
    parts = [
        type(whole)(0, q, k, whole.scale, whole.positions, causal, window=window)
        for q, k in zip(whole.query.split([4, 3]), whole.key.split([4, 3]), strict=True)
    ]
    gram = GramSum(torch.zeros(GramSum.size(grid), dtype=torch.float64))
    first, second = (measure_head(HeadView(part, 1, DROPPED, grid), gram)[0] for part in parts)
    expected = measure_head(HeadView(whole, 1, DROPPED, grid))[0].forms()[:, 4:, :4].sum(2)
    torch.testing.assert_close(second.forms_with(first.profile.sum(0), first.row_mean.sum(0)), expected)
