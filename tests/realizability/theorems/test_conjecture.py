"""Probes of the conjecture, each with a case in which it fails."""

import pytest
import torch

from poskernel.encodings import Learned, Nope, Rope, Sinusoidal
from poskernel.realizability.theorems import conjecture
from poskernel.realizability.theorems.check import Effort
from poskernel.tasks import TASKS, Copy, Reverse

DEFAULT = Effort.DEFAULT


def test_the_block_determines_the_weights_up_to_four_frequencies():
    check = conjecture.saturation_lemma(DEFAULT, 0)
    assert check.holds and check.n == 4
    assert "3: 2.58e-07 for 2.58e-07, W off by " in check.measured


@pytest.mark.parametrize("frequencies", [5, 10, 16])
def test_beyond_it_cannot_be_told_or_is_false(frequencies):
    assert not conjecture.saturation_lemma(DEFAULT, 0, frequencies=(frequencies,)).holds


def test_equal_argmax_opposite_transfer():
    check = conjecture.equal_argmax_opposite_transfer(DEFAULT, 0)
    assert check.holds and check.measured.startswith("features of rank 6 of 6; least margins at 60: 0.52 and -0.58")


def test_a_clamped_table_has_no_such_pair():
    check = conjecture.equal_argmax_opposite_transfer(DEFAULT, 0, encoding=Learned(), task=TASKS["first"], length=24)
    assert not check.holds


def test_one_kernel_solves_both_lengths():
    """The paper's witness needs 24 frequencies; the default check has it, with margin 2.01."""
    check = conjecture.joint_cone_witness(DEFAULT, 0, frequencies=8, witness=(0.73, 11))
    assert check.holds and "features of rank 11 of 16 at 12" in check.measured
    for witness in ((0.75, 11), (0.73, 12)):
        assert not conjecture.joint_cone_witness(DEFAULT, 0, frequencies=8, witness=witness).holds


def test_the_paper_s_witness():
    check = conjecture.joint_cone_witness(DEFAULT, 0)
    assert check.holds
    assert check.measured == "margin 2.01 by substitution, at most 2.01; features of rank 12 of 48 at 12"


def test_clashing_targets_leave_no_kernel():
    assert not conjecture.joint_cone_witness(DEFAULT, 0, task=Copy(), length=20, frequencies=8).holds


def test_features_are_ill_conditioned():
    check = conjecture.feature_conditioning(DEFAULT, 0)
    assert check.holds
    assert "3: 1.2e+04" in check.measured and "5: 1.2e+12" in check.measured
    assert "16: singular, rank 15 of 20" in check.measured


def test_numbers_of_frequencies_the_paper_does_not_speak_of_are_shown_and_not_judged():
    check = conjecture.feature_conditioning(DEFAULT, 0, frequencies=(2, 4))
    assert check.holds is None and "4: 5.7e+07" in check.measured
    assert conjecture.feature_conditioning(DEFAULT, 0, frequencies=(2, 5)).holds


def test_close_frequencies_condition_them_better():
    assert not conjecture.feature_conditioning(DEFAULT, 0, base=10.0).holds
    assert not conjecture.feature_conditioning(DEFAULT, 0, train_length=19).holds


def test_the_search_finds_rope_copy():
    """Existence says yes with margins .62 and .11, the fit selects neither."""
    found, answers = conjecture.open_cases((Rope(),), (Copy(), Reverse()), 20, (60, 80), ("adam",))
    assert [(case.task, case.length) for case in found] == [("copy", 60), ("copy", 80)]
    assert [case.margin for case in found] == pytest.approx([0.62, 0.11], abs=5e-3)
    assert all(case.alphas == {"adam": 0.0} and 0.5 < case.residual < 1 for case in found)
    assert answers == {"yes": 2, "no": 2}


def test_the_search_reports_nothing_where_nothing_exists():
    check = conjecture.open_case_search(DEFAULT, 0, encodings=(Nope(), Learned()))
    assert check.measured == "none found"
    assert check.data and check.holds is None  # what is found is data, and so is that nothing is


def test_a_selection_that_transfers_is_no_case():
    found, answers = conjecture.open_cases((Rope(),), (TASKS["prev"],), 20, (60,), ("adam",))
    assert not found and answers == {"yes": 1}


def test_a_pattern_inside_the_span_has_no_residual():
    one_hot, targets = Learned().family(20, 20), TASKS["first"].targets(20)
    assert conjecture.pattern_residual(one_hot, targets) == pytest.approx(0.0, abs=1e-9)
    assert conjecture.pattern_residual(Nope().family(20, 20), TASKS["prev"].targets(20)) > 0.9


def test_rules_that_do_not_solve_the_training_length_are_left_out():
    family = Sinusoidal(frequencies=8).family(20, 20)
    chosen = conjecture.realizing_selections(family, TASKS["prev"], 20, ("adam", "optimum"))
    assert set(chosen) <= {"adam", "optimum"} and all(isinstance(each, torch.Tensor) for each in chosen.values())
    assert conjecture.realizing_selections(Nope().family(20, 20), TASKS["prev"], 20, ("adam",)) == {}
