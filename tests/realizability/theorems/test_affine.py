"""Proposition 1 on random kernels and in whole numbers; with i squared it fails."""

import torch

from poskernel.realizability.theorems.affine import (
    flat_spread,
    interior_peaks,
    power_features,
    proposition_1,
    strict_argmax,
    unresolved_interiors,
)
from poskernel.realizability.theorems.check import Effort


def test_affine_features_have_no_interior_peak():
    check = proposition_1(Effort.DEFAULT, 0)
    assert check.holds and check.n == 560_000
    assert check.measured.startswith("0 of 560,000 rows have one; the constraints of 0 interior keys")


def test_squares_give_interior_peaks():
    """566 in 200 W when it was first counted; kernels vary, so other draws have a few hundred more or less."""
    check = proposition_1(Effort.DEFAULT, 0, degree=2, samples=200)
    assert not check.holds
    assert 200 < int(check.measured.split()[0]) < 1100


def test_one_interior_peak_is_seen():
    """Row 4 of phi(4) W phi(j)' = 4 j - j^2 peaks at key 2; the rows below it at their own key or in a tie."""
    weights = torch.zeros(1, 3, 3, dtype=torch.float64)
    weights[0, 0, 2], weights[0, 0, 1] = -1.0, 4.0
    assert interior_peaks(weights, 5) == 2  # rows 3 and 4: 4 j - j^2 = 0, 3, 4, 3, 0
    assert interior_peaks(-weights, 5) == 0


def test_only_straight_lines_cancel():
    assert unresolved_interiors(12, 1) == 0
    assert unresolved_interiors(12, 2) == 11 * 10 // 2


def test_strict_argmax_refuses_ties():
    inf = float("inf")
    rows = torch.tensor([[1.0, 2.0, -inf], [2.0, 2.0, 1.0], [1e9, 1e9 + 0.1, 0.0]], dtype=torch.float64)
    assert strict_argmax(rows).tolist() == [1, -1, -1]


def test_a_row_of_slope_0_is_flat_on_straight_lines_and_on_nothing_else():
    stream = torch.Generator().manual_seed(0)
    straight, bent = (torch.randn(9, width, width, dtype=torch.float64, generator=stream) for width in (2, 3))
    assert flat_spread(straight, 12) < 1e-9
    assert flat_spread(bent, 12) > 0.1
    bent[:, :, 2] = 0.0
    assert flat_spread(bent, 12) < 1e-9
    assert power_features(3, 2).tolist() == [[1, 0, 0], [1, 1, 1], [1, 2, 4]]
