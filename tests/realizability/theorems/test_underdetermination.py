"""Proposition 2 by Monte Carlo, with each of its hypotheses broken in turn."""

import re

import pytest
import torch

from poskernel.random_streams import random_stream
from poskernel.realizability.theorems import underdetermination as under
from poskernel.realizability.theorems.check import Effort

DEFAULT = Effort.DEFAULT


@pytest.mark.parametrize("seed", [0, 7])
def test_the_target_wins_at_the_rate_of_chance(seed):
    winner = under.last_row_winners(20_000, 20, 30, 16, under.gaussian_weights, random_stream(seed, "test"))
    found = under.rates(winner, 20, 30, 28, looks=2)
    assert found.at_chance and found.chance == pytest.approx(1 / 9)
    assert found.conditional.value == pytest.approx(1 / 9, abs=0.012)
    assert found.unconditional.value == pytest.approx(0.033, abs=0.005)
    assert found.among_new.value == pytest.approx(9 / 30, abs=0.015)
    assert under.proposition_2_rate(DEFAULT, seed, samples=12_000).holds


def test_winners_are_the_argmax_of_the_last_row():
    seen = []

    def select(table, train_length, stream):
        weights = under.gaussian_weights(table, train_length, stream)
        seen.append((table.clone(), weights.clone()))
        return weights

    winner = under.last_row_winners(50, 4, 7, 3, select, random_stream(0, "test"))
    ((table, weights),) = seen
    for draw in range(50):
        logits = [float(table[draw, 6] @ weights[draw] @ table[draw, key]) for key in range(7)]
        assert int(winner[draw]) == logits.index(max(logits))


def nothing(table, train_length, stream):
    return torch.zeros(table.shape[0], table.shape[2], table.shape[2], dtype=torch.float64)


def all_rows(table, train_length, stream):
    return under.min_norm_prev(table, table.shape[1], stream)


@pytest.mark.parametrize(
    "broken",
    [
        {"select": nothing},  # degenerate weights: every key ties
        {"select": all_rows},  # weights that have seen the new rows
        {"target": 0, "select": under.min_norm_first, "lengths": (30,)},  # an old key as target, fitted
        {"target": 0},  # an old key as target: it is never the winner among the new ones
    ],
)
def test_broken_hypotheses_of_the_rate_are_noticed(broken):
    assert under.proposition_2_rate(DEFAULT, 0, samples=1500, **broken).holds is False


def test_an_old_key_exceeds_the_bound():
    winner = under.last_row_winners(1500, 20, 60, 64, under.min_norm_first, random_stream(0, "test"))
    found = under.rates(winner, 20, 60, 0, looks=1)
    assert found.at_chance is False and found.unconditional.low > found.chance


def test_fitted_weights_keep_the_conditional_rate():
    check = under.proposition_2_fitted(DEFAULT, 0, samples=4000)
    assert check.holds and check.n == 12_000
    assert under.proposition_2_fitted(DEFAULT, 0, select=all_rows, samples=500).holds is False
    # One width alone shows no dependence on it.
    assert under.proposition_2_fitted(DEFAULT, 0, widths=(16,), samples=500).holds is False


@pytest.mark.parametrize(("width", "rows"), [(5, 9), (9, 5), (6, 6)])
def test_pseudo_inverse_of_full_rank(width, rows):
    table = torch.randn(3, rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(under.pseudo_inverse(table), torch.linalg.pinv(table), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("select", "key"), [(under.min_norm_prev, lambda row: row - 1), (under.min_norm_first, lambda row: 0)]
)
def test_min_norm_weights_fit_the_pattern(select, key):
    """With more features than trained rows the 0/1 pattern is met exactly."""
    table = torch.randn(2, 8, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits = table[:, :6] @ select(table, 6, random_stream(0, "test")) @ table[:, :6].mT
    wanted = torch.zeros(6, 6, dtype=torch.float64)
    for row in range(1, 6):
        wanted[row, key(row)] = 1.0
    torch.testing.assert_close(logits, wanted.expand(2, 6, 6), rtol=0, atol=1e-8)


def test_the_drawn_maximum_stands_for_the_keys_it_replaces():
    """The shortcut of `old_key_ratio` against drawing every key."""
    short = under.old_key_ratio(20_000, 6, 20, 12, under.min_norm_prev, random_stream(0, "short"))
    winner = under.last_row_winners(20_000, 6, 20, 12, under.min_norm_prev, random_stream(0, "long"))
    share = float((winner == 0).double().mean()) * 13
    assert short.low < share < short.high
    assert short.high - short.low < 0.25 * share


def test_an_old_key_beats_chance_with_many_features():
    check = under.proposition_2_hypothesis(DEFAULT, 0, samples=4000, lengths=(32, 128))
    assert check.holds
    figures = {key.strip(): float(value) for key, value in re.findall(r"([\w ]+): ([\d.]+) \[", check.measured)}
    assert figures["trained to 20"] == pytest.approx(3.6, abs=1)
    assert figures["fitted on first"] == pytest.approx(53, abs=4)
    at_128 = float(re.findall(r"([\d.]+) \[[^]]*\] at L = 128", check.measured)[0])
    assert at_128 == pytest.approx(5.4, abs=1)


def test_an_old_key_does_not_beat_chance_with_few_features():
    assert under.proposition_2_hypothesis(DEFAULT, 0, width=4, samples=30_000, values=None).holds is False


def test_the_ratios_are_those_that_were_found_before():
    """Other ratios are refused although they too are above 1 and grow."""
    for values in ((9.0, 3.6, 53.0), (5.4, 3.6, 40.0)):
        check = under.proposition_2_hypothesis(DEFAULT, 0, samples=8000, lengths=(128,), values=values)
        assert check.holds is False


def test_a_new_key_wins_as_often_as_there_are_new_keys():
    """Weights fitted on `first` give old keys more than their share, whatever they leave of the rate among new ones."""
    check = under.proposition_2_rate(DEFAULT, 0, lengths=(30,), width=40, select=under.min_norm_first, samples=6000)
    assert check.holds is False


def test_rescuing_weights_exist_with_positive_probability():
    check = under.proposition_2_existence(DEFAULT, 0, sure=(10, 24), samples=80)
    assert check.holds
    assert check.measured.rpartition(", ")[2].endswith("with 10 features at L = 24")
    assert ", 1.00 [" in check.measured


def test_two_features_rescue_nothing():
    assert under.proposition_2_existence(DEFAULT, 0, rare=((2, 25),), samples=400).holds is False


def test_rescue_is_the_question_whether_weights_exist():
    one_hot = torch.eye(6, dtype=torch.float64)
    assert under.rescuing_weights_exist(one_hot, 3)
    one_hot[4] = one_hot[5]  # the keys of row 5 and 4 are the same
    assert not under.rescuing_weights_exist(one_hot, 3)


@pytest.mark.parametrize("seed", [0, 7])
def test_antisymmetric_weights_tie_at_the_top(seed):
    assert under.proposition_2_uniqueness(DEFAULT, seed).holds
    assert under.proposition_2_uniqueness(DEFAULT, seed, antisymmetric=False, samples=500).holds is False
    assert under.proposition_2_uniqueness(DEFAULT, seed, old_key_null=False, samples=500).holds is False


def test_top_ties_need_both_and_the_top():
    rows = torch.tensor([[1.0, 0.0, 1.0], [1.0, 2.0, 1.0], [1.0, 0.0, 0.5]], dtype=torch.float64)
    assert under.top_ties(rows) == 1


def test_enough_features_must_stand_out():
    """Three features at the longer length find as few as the rare cases: no transition is seen."""
    assert under.proposition_2_existence(DEFAULT, 0, sure=(3, 25), samples=400).holds is False


def test_only_a_target_inside_the_hull_fails_with_many_features():
    """Rows of the last three positions are independent, so each must only see its target as a corner of its keys."""
    table = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    table[3:6] *= 100.0
    assert under.rescuing_weights_exist(table, 4)
    table[4] = table[[0, 1, 2, 3]].mean(0)  # the target of row 5, now among the keys it must beat
    assert not under.rescuing_weights_exist(table, 4)


DRAWING = (
    under.proposition_2_rate,
    under.proposition_2_fitted,
    under.proposition_2_hypothesis,
    under.proposition_2_uniqueness,
)


@pytest.mark.parametrize("check", DRAWING, ids=lambda check: check.__name__)
@pytest.mark.parametrize("samples", [20, 50, 200, 600])
def test_few_draws_of_a_sound_claim_are_unclear_and_never_a_no(check, samples):
    found = [check(DEFAULT, seed, samples=samples).holds for seed in range(8)]
    assert False not in found
    if samples == 20:
        assert None in found


@pytest.mark.parametrize("samples", [20, 50])
def test_few_draws_of_existence_are_unclear_and_never_a_no(samples):
    found = [under.proposition_2_existence(DEFAULT, seed, samples=samples).holds for seed in range(3)]
    assert False not in found
