"""Reverse and parity: what no relative kernel can order."""

import pytest

from poskernel.realizability.theorems import orders
from poskernel.realizability.theorems.check import Effort
from poskernel.tasks import TASKS, Copy, Reverse

DEFAULT = Effort.DEFAULT


def test_no_relative_kernel_solves_reverse():
    check = orders.reverse_is_unsolvable(DEFAULT, 0)
    assert check.holds and check.n == 20_000
    assert "4 at most in exact terms, 4 reached; offsets in the order they must beat: 1 > 3 > 1" in check.measured


@pytest.mark.parametrize(("length", "most"), [(5, 1), (6, 2), (11, 2), (16, 4), (21, 3)])
def test_nor_at_other_lengths(length, most):
    given = {"task": Reverse(), "train_length": length, "samples": 200}
    assert orders.reverse_is_unsolvable(DEFAULT, 0, at_most=most, **given).holds
    assert not orders.reverse_is_unsolvable(DEFAULT, 0, at_most=most + 1, **given).holds


def test_at_length_four_one_does():
    """Rows 2 and 3 demand offsets 1 and 3, and row 2 does not see offset 3."""
    assert not orders.reverse_is_unsolvable(DEFAULT, 0, train_length=4, samples=200).holds


def test_copy_at_one_length_is_solved():
    check = orders.reverse_is_unsolvable(DEFAULT, 0, task=Copy(), samples=200)
    assert not check.holds and "no cycle" in check.measured


def test_offsets_by_turns_stay_at_half():
    check = orders.parity_stays_at_half(DEFAULT, 0)
    assert check.holds
    assert check.measured.startswith("0.500 at L = 60, 0.512 at L = 61 at most")


def test_a_constant_offset_does_not():
    assert not orders.parity_stays_at_half(DEFAULT, 0, task=TASKS["prev"], samples=100).holds
