"""Proposition 4 on both sides, and what lifts it."""

import pytest

from poskernel.kernel import StationaryKernel
from poskernel.realizability.theorems import duality
from poskernel.realizability.theorems.check import Effort

DEFAULT = Effort.DEFAULT


def test_each_side_holds_its_own():
    check = duality.proposition_4(DEFAULT, 0)
    assert check.holds
    assert check.measured == (
        "first: clamped 1.00 with margin 1, relative 0.00; prev: best margin of any clamped W 0, fitted W 0.00 with "
        "margin "
        "-1, relative 1.00; copy: clamped 0.03, relative 0.00"
    )


@pytest.mark.parametrize("length", [30, 41, 100])
def test_at_every_length(length):
    assert duality.proposition_4(DEFAULT, 0, length=length).holds


def test_an_unrestricted_table_solves_prev():
    check = duality.proposition_4(DEFAULT, 0, table_rows=40, length=40)
    assert not check.holds and "best margin of any clamped W 2," in check.measured


def test_a_kernel_that_rises_for_ever_solves_first():
    rising = StationaryKernel(lambda offset: offset.double())
    check = duality.proposition_4(DEFAULT, 0, relative=rising)
    assert not check.holds and "first: clamped 1.00 with margin 1, relative 1.00" in check.measured


def test_untrained_rows_score_below_chance():
    check = duality.proposition_4_independent_rows(DEFAULT, 0)
    assert check.holds
    assert float(check.measured.split()[1]) == pytest.approx(0.048, abs=0.006)


def test_a_fit_that_sees_them_does_not():
    assert duality.proposition_4_independent_rows(DEFAULT, 0, sees_new_rows=True, width=48, samples=50).holds is False


def test_few_draws_are_no_refusal():
    states = [duality.proposition_4_independent_rows(DEFAULT, seed, samples=20).holds for seed in range(10)]
    assert False not in states
