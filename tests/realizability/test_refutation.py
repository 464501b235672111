"""Proofs of emptiness: whole numbers that cancel, equations that withstand rounding, and nothing else."""

import math
from fractions import Fraction
from operator import mul

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from poskernel.realizability.margin_programme import best_margin
from poskernel.realizability.refutation import cancels, refuted, row_lengths, whole_numbers, withstands

FREE = np.full(2, np.inf)
EXACT = np.zeros(2)
ROUNDED = np.full(2, 1e-15)


def asked(rows, upper=FREE, resolution=EXACT):
    rows = np.array(rows, dtype=float)
    return refuted(rows, upper, best_margin(rows, upper).dual, resolution)


def test_opposite_rows_cancel_in_any_unit():
    for unit in (1e-10, 1.0, 0.3, 1e5):
        assert asked([[unit, -2 * unit], [-unit, 2 * unit]])
    assert asked([[1, 0], [0, 1], [-1, -1]])
    assert not asked([[1, 0], [0, 1], [-1, 1]])


def test_rounded_entries_that_cancel_prove_nothing():
    """Opposite as float64 has them: the least change of one entry leaves weights that solve both."""
    rows = [[1.0, -2.0], [-1.0, 2.0]]
    assert asked(rows) and not asked(rows, resolution=ROUNDED)
    moved = np.array([[1.0, -2.0], [-1.0, 2.0 + 1e-15]])
    assert (moved @ np.array([2.0, 1.0 - 1e-16]) >= 0).all()


def test_a_triangle_about_0_withstands_rounding():
    rows = np.array([[1.0, 0.1], [-0.7, 0.8], [-0.2, -0.9]])
    assert asked(rows, resolution=ROUNDED)
    assert not asked(rows, resolution=np.full(2, 1.0))  # errors as large as the entries
    flat = np.array([[1.0, 1e-13], [-1.0, 1e-13], [0.1, -1e-13]])
    assert not asked(flat, resolution=ROUNDED * 1e3)  # a thin one does not


def test_bounded_weights_need_no_cancelling_there():
    down = np.array([np.inf, 0.0])
    assert asked([[0.0, 1.0]], down) and not asked([[0.0, -1.0]], down) and not asked([[0.0, 1.0]])
    assert asked([[1.0, 0.5], [-1.0, 0.25]], down, ROUNDED)


def test_no_dual_weights_no_proof():
    assert not refuted(np.eye(2), FREE, None, EXACT) and not refuted(np.eye(2), FREE, np.zeros(2), EXACT)


def test_whole_numbers_are_found_by_column():
    whole, exact = whole_numbers(np.array([[0.3, 1.0, 0.0], [0.6, 0.7, 0.0]]))
    assert exact.tolist() == [True, False, True] and whole[:, 0].tolist() == [1, 2]


SIZES = st.one_of(
    st.integers(-3, 3).map(float), st.integers(-5000, 5000).map(float), st.sampled_from([0.1, 0.3, 0.5, 1e-3, 1 / 3])
)


@given(st.lists(SIZES, min_size=1, max_size=6), st.sampled_from([1.0, 3.0, 0.1, 2.0**60, 2.0**-60]))
@example([2000.0, 2001.0], 1.0)
@settings(deadline=None)
def test_whole_numbers_are_the_largest_unit_s_counts(entries, scale):
    column = [entry * scale for entry in entries]
    exactly = [Fraction(entry) for entry in column]
    least = min((abs(entry) for entry in exactly if entry), default=Fraction(1))
    parts = math.lcm(*((entry / least).denominator for entry in exactly))
    whole, exact = whole_numbers(np.array(column)[:, None])
    assert exact[0] == (parts <= 1000 and max(abs(entry / least * parts) for entry in exactly) < 2**53)
    if exact[0]:
        assert whole[:, 0].tolist() == [entry / least * parts for entry in exactly]


def test_a_product_that_rounds_to_an_entry_is_not_that_entry():
    """3 x float(1/3) is 1 in float64 and less than 1 in truth: weights exist that a cancelling in floats denies."""
    rows = np.array([[1.0, 1 / 3], [-3.0, -1.0]])
    assert whole_numbers(rows)[1].tolist() == [True, False] and not asked(rows)
    exact = [[Fraction(entry) for entry in row] for row in rows.tolist()]
    weights = (Fraction(1) - Fraction(1, 2**55), Fraction(-3))
    assert all(sum(map(mul, row, weights)) > 0 for row in exact)
    assert whole_numbers(np.array([[0.1, 3.0], [0.2, -9.0]]))[1].all()


@given(st.integers(0, 2**30), st.integers(1, 4), st.integers(2, 8))
@example(3276, 3, 8)  # a column of -3, 0 and 2: its unit is none of its entries
@settings(deadline=None, max_examples=60)
def test_a_proof_is_never_of_what_some_weights_solve(seed, width, count):
    """Rows in whole numbers, half of them with weights that solve them by construction."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-3, 4, (count, width)).astype(float)
    weights = rng.normal(size=width)
    if seed % 2:
        rows *= np.sign(rows @ weights)[:, None]
    rows = rows[rows.any(axis=1)]
    if not len(rows):
        return
    free, exact = np.full(width, np.inf), np.zeros(width)
    best = best_margin(rows, free)
    proved = refuted(rows, free, best.dual, exact)
    assert not (proved and best.margin > 1e-9)
    assert proved or best.margin > 1e-9  # and in whole numbers one of them is always found


@pytest.mark.parametrize("test", [cancels, withstands])
def test_each_test_alone_refuses_a_wrong_combination(test):
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    bounded = np.zeros(2, dtype=bool)
    assert test(rows, np.ones(3), bounded, EXACT)
    assert not test(rows[:2], np.ones(2), bounded, EXACT)


def test_counts_beyond_float64_are_no_counts():
    """Powers of 2 down to 2^-1070 are whole numbers of the least, too many to convert."""
    halves = 0.5 ** np.arange(1.0, 1071.0)
    assert whole_numbers(halves[:, None])[1].tolist() == [False]
    assert whole_numbers(halves[:50, None])[1].tolist() == [True]


def test_lengths_of_rows_whose_squares_are_0():
    rows = np.array([[3e-200, 4e-200], [0.0, 0.0], [5e-324, 0.0], [3.0, -4.0], [3e200, 4e200]])
    assert row_lengths(rows).tolist() == pytest.approx([5e-200, 0.0, 5e-324, 5.0, 5e200])


def test_dual_weights_that_are_no_numbers_prove_nothing():
    rows = np.array([[1.0, -2.0], [-1.0, 2.0]])
    assert refuted(rows, FREE, np.ones(2), EXACT)
    assert not refuted(rows, FREE, np.array([np.inf, 1.0]), EXACT)
    assert not refuted(rows, FREE, np.full(2, np.nan), EXACT)
    assert not refuted(1e-320 * rows, FREE, np.ones(2), np.full(2, 1e10))
