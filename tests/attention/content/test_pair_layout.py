"""Layouts of pairs against loops over positions."""

import numpy as np
import pytest
import torch

from captures import capture_of
from poskernel.attention.content.pair_layout import EXACT, PairLayout
from poskernel.errors import InputError

LENGTH, DROPPED = 20, 3
SHAPES = [(causal, window) for causal in (True, False) for window in (None, 2, 5, 40)]


def pairs(causal, window, length=LENGTH - DROPPED):
    return [
        (t, s)
        for t in range(length)
        for s in range(length)
        if t != s and (s < t or not causal) and abs(t - s) < (window or length)
    ]


@pytest.mark.parametrize(("causal", "window"), SHAPES)
def test_both_layouts_hold_the_same_pairs(causal, window):
    layout, expected = PairLayout.of(LENGTH, DROPPED, causal, window), pairs(causal, window)
    assert {tuple(pair) for pair in layout.mask.nonzero().tolist()} == set(expected)
    rows, columns = layout.valid.nonzero(as_tuple=True)
    assert sorted(zip(rows.tolist(), layout.key[rows, columns].tolist(), strict=True)) == sorted(expected)
    assert ((rows - layout.key[rows, columns]) == layout.offsets[columns]).all()
    assert (layout.valid.sum(0) > 0).all()


@pytest.mark.parametrize(("causal", "window"), SHAPES)
def test_centring_and_sums_equal_loops(causal, window):
    layout, held = PairLayout.of(LENGTH, DROPPED, causal, window), pairs(causal, window)
    values = torch.randn(2, layout.length, layout.length, dtype=torch.float64)
    expected = np.zeros(values.shape)
    for x in range(2):
        for t in range(layout.length):
            row = [s for query, s in held if query == t]
            for s in row:
                expected[x, t, s] = float(values[x, t, s]) - np.mean([float(values[x, t, other]) for other in row])
    centred = layout.centred(values)
    np.testing.assert_allclose(centred, expected, atol=1e-12)
    sums = [sum(expected[0, t, s] for t, s in held if t - s == offset) for offset in layout.offsets.tolist()]
    np.testing.assert_allclose(layout.by_offset(centred)[0].sum(0), sums, atol=1e-12)
    keyed = layout.of_key(values[:, 0])
    for t, column in layout.valid.nonzero().tolist():
        assert keyed[1, t, column] == values[1, 0, t - int(layout.offsets[column])]


@pytest.mark.parametrize(("causal", "window"), SHAPES)
def test_the_normal_matrix_of_offsets_equals_centred_indicators(causal, window):
    layout = PairLayout.of(LENGTH, DROPPED, causal, window)
    offset = torch.arange(layout.length)[:, None] - torch.arange(layout.length)
    indicators = [layout.centred((offset == d).double()).flatten() for d in layout.offsets]
    features = torch.stack(indicators, 1)
    torch.testing.assert_close(layout.offset_normal(), features.T @ features)


def test_bins_partition_the_offsets_and_are_exact_near_by():
    layout = PairLayout.of(200, 0, False, None)
    for bins in (layout.fine_bins(), layout.octaves()):
        assert (bins.sum(1) == 1).all()
        assert (bins.sum(0) > 0).all()
        for column in bins.T:
            held = layout.offsets[column > 0]
            assert (held > 0).all() or (held < 0).all()
            assert held.max() - held.min() == len(held) - 1
    near = layout.fine_bins()[layout.offsets.abs() <= EXACT]
    assert (near.sum(0) <= 1).all()
    causal = PairLayout.of(200, 0, True, None)
    assert [int(size) for size in causal.octaves().sum(0)] == [1, 2, 4, 8, 16, 32, 64, 72]


def test_what_has_no_pairs_is_refused():
    with pytest.raises(InputError, match="window 1 leave no pair"):
        PairLayout.of(20, 3, True, 1)
    with pytest.raises(InputError, match="length 4 without its first 3 positions"):
        PairLayout.of(4, 3, True, None)
    vectors = torch.randn(1, 1, 6, 4)
    holes = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    with pytest.raises(InputError, match="neither causal nor a sliding window"):
        PairLayout.of_capture(capture_of(vectors, vectors, mask=holes), 0)
