"""Theorem 2: each hypothesis at work, and each broken in turn."""

import pytest
import torch

from poskernel.encodings import Alibi, Rope
from poskernel.kernel import tabulated
from poskernel.realizability.alignment import alpha
from poskernel.realizability.theorems import relative
from poskernel.realizability.theorems.check import Effort
from poskernel.realizability.theorems.offsets import OffsetTask
from poskernel.tasks import TASKS, Copy

DEFAULT = Effort.DEFAULT


def test_deep_rows_take_the_peak_under_both_tie_rules():
    check = relative.theorem_2_deep_rows(DEFAULT, 0)
    assert check.holds and 70_000 < check.n < 110_000
    assert check.measured.startswith("0 of")


def test_deep_rows_by_the_package_s_own_margins(monkeypatch):
    """Margins that call every row wrong break the claim, whatever its own count of winners says."""
    assert relative.package_misses(torch.tensor([0.0, 2.0, 1.0, 1.5], dtype=torch.float64), 1) == 0
    assert relative.package_misses(torch.tensor([0.0, 2.0, 1.0, 2.0], dtype=torch.float64), 1) == 1
    monkeypatch.setattr(relative, "tabulated", lambda profile: tabulated(-profile))
    assert not relative.theorem_2_deep_rows(DEFAULT, 0, samples=50).holds


def test_two_equal_peaks_break_it():
    assert not relative.theorem_2_deep_rows(DEFAULT, 0, peaks=2, samples=50).holds


def test_density_gives_the_paper_s_values():
    check = relative.theorem_2_density(DEFAULT, 0)
    assert check.holds
    assert "squares 0.944 0.987 0.996" in check.measured
    assert "parity 0.500 0.500 0.500" in check.measured
    assert "copy 1.000 0.000 0.000 (peak at 100)" in check.measured  # what length 200 asks for


def test_another_value_than_the_paper_s_is_noticed(monkeypatch):
    monkeypatch.setattr(relative, "PAPER_SQUARES", {200: 0.95})
    assert not relative.theorem_2_density(DEFAULT, 0).holds


@pytest.mark.parametrize("task", relative.VARIED, ids=lambda task: task.name)
def test_offsets_that_do_not_settle_do_not_tend_to_one(task):
    assert not relative.theorem_2_density(DEFAULT, 0, dense=(task,), varied=(), lengths=(200, 2000)).holds


@pytest.mark.parametrize("task", [*relative.DENSE, TASKS["prev"]], ids=lambda task: task.name)
def test_offsets_that_settle_do_tend_to_one(task):
    assert not relative.theorem_2_density(DEFAULT, 0, dense=(), varied=(task,), lengths=(200, 5000)).holds


def test_the_exceptional_rows_are_the_ones_they_are_called():
    row = torch.arange(5000)
    squares, cubes, powers = ({n**2 for n in range(80)}, {n**3 for n in range(20)}, {2**n for n in range(13)})
    assert set(row[relative.is_square(row)].tolist()) == {n for n in squares if n < 5000}
    assert set(row[relative.is_cube(row)].tolist()) == {n for n in cubes if n < 5000}
    assert set(row[relative.is_power_of_two(row)].tolist()) == powers
    assert relative.whole_log2(row[1:]).tolist() == [n.bit_length() - 1 for n in range(1, 5000)]


def test_attainability_is_a_matter_of_the_family():
    check = relative.theorem_2_attainability(DEFAULT, 0)
    assert check.holds and check.n == 5
    assert not relative.theorem_2_attainability(DEFAULT, 0, attainable=((Alibi(), TASKS["prev"]),)).holds
    assert not relative.theorem_2_attainability(DEFAULT, 0, unattainable=((Rope(), TASKS["prev"]),)).holds


def test_clipped_rows_keep_alpha_below_one():
    check = relative.theorem_2_clipped_rows(DEFAULT, 0)
    assert check.holds
    assert check.measured == "alpha 0.50000 at L = 40, 0.87500 at L = 100, 0.98980 at L = 1,000, 0.99995 at L = 200,000"


def test_a_kernel_that_serves_the_clipped_rows_reaches_one():
    check = relative.theorem_2_clipped_rows(DEFAULT, 0, clipped_value=-0.5, lengths=(40, 100))
    assert not check.holds and check.measured == "alpha 1.00000 at L = 40, 1.00000 at L = 100"


def test_the_ladder_follows_copy_and_a_short_one_does_not():
    check = relative.theorem_2_no_global_peak(DEFAULT, 0)
    assert check.holds
    assert "39, 40, 159, 160, 639, 640, 2559, 2560, 10239, 10240, 40959, 40960;" in check.measured
    assert not relative.theorem_2_no_global_peak(DEFAULT, 0, rungs=2, length=2000).holds


def test_the_ladder_by_the_slow_alpha():
    kernel = tabulated(relative.ladder(700))
    solved = [length for length in range(21, 701) if alpha(kernel, Copy(), 20, length) == 1]
    assert solved == [39, 40, 159, 160, 639, 640]


def test_lucky_lengths_are_those_of_the_two_peaks():
    check = relative.theorem_2_lucky_lengths(DEFAULT, 0)
    assert check.holds and check.measured.startswith("alpha = 1 at 39, 40, 199, 200; at most 0 beyond 200")


def test_a_far_peak_that_is_lower_is_no_lucky_length():
    check = relative.theorem_2_lucky_lengths(DEFAULT, 0, drop=-10.0, length=500)
    assert not check.holds and check.measured.startswith("alpha = 1 at 39, 40;")


def test_shallow_rows_follow_no_formula():
    check = relative.theorem_2_shallow_rows(DEFAULT, 0)
    assert check.holds and "row 2 takes offset 1, row 3 takes offset 3" in check.measured


def test_a_rising_kernel_follows_the_formula():
    assert not relative.theorem_2_shallow_rows(DEFAULT, 0, profile=(1.0, 2.0, 3.0, 4.0, 0.0)).holds


def test_parity_is_an_offset_task():
    assert isinstance(relative.PARITY, OffsetTask)
    targets = relative.PARITY.targets(6)
    assert targets.query.tolist() == [2, 3, 4, 5] and targets.offset.tolist() == [1, 2, 1, 2]
