"""Affine, clamped and other absolute features: each by what its columns are, not by how large they are."""

from dataclasses import dataclass

import pytest
import torch

from own_cases import Line, Own, answer, case
from own_tasks import ByKey
from poskernel.encodings import AbsoluteEncoding, Learned, Rope
from poskernel.realizability.theorems.absolute import clamped_from, is_affine
from poskernel.realizability.theorems.verdicts import Verdict
from poskernel.tasks import NO_TARGET


def every_20th(task):
    """The same targets on rows 0, 20, 40 ... alone."""

    @dataclass(frozen=True)
    class Rare(type(task)):
        name = "rare"

        def target_key(self, query, length):
            return super().target_key(query, length).masked_fill(query % 20 != 0, NO_TARGET)

    return Rare(task.key)


TRANSFERS, CANNOT, UNDECIDED = Verdict.TRANSFERS, Verdict.CANNOT, Verdict.UNDECIDED


def test_affine_features_peak_at_an_end_until_a_square_joins_them():
    found = answer(Line(), "prev")
    assert (found.verdict, found.theorem) == (CANNOT, "proposition 1")
    assert answer(Line(), "first").verdict is TRANSFERS
    assert answer(Line(square=True), "prev").theorem != "proposition 1"


def test_an_untried_end_is_left_to_deep_rows():
    """Row 0 alone is trained: it says nothing of which end later rows peak at."""
    itself, first = (ByKey(lambda query, factor=factor: factor * query) for factor in (1, 0))
    for encoding in (Line(), "alibi:free_slope=true"):
        assert answer(encoding, every_20th(itself)).verdict is TRANSFERS
        assert answer(encoding, every_20th(first)).verdict is TRANSFERS
    assert answer("alibi", every_20th(itself)).verdict is TRANSFERS
    found = answer("alibi", every_20th(first))
    assert (found.verdict, found.theorem) == (CANNOT, "proposition 1")
    assert "peaks at key 0" in found.reason and "peaks at the row itself" in found.reason


def test_affine_features_of_positions_may_turn_once():
    """Early rows peak at key 0, deep ones at themselves: a kernel of the offset cannot, one of positions can."""
    turned = ByKey(lambda query: torch.where(query < 10, 0, query))
    assert answer(Line(), turned).verdict is TRANSFERS
    assert answer("alibi:free_slope=true", turned).verdict is CANNOT
    both = ByKey(lambda query: torch.where(query % 2 == 0, 0, query))
    assert answer(Line(), both, train_length=2).verdict is CANNOT  # no row of which says that it cannot


@pytest.mark.parametrize(
    ("functions", "affine"),
    [
        (lambda offset: torch.stack([torch.ones_like(offset), offset / 3], 1), True),
        (lambda offset: torch.stack([1e9 * offset, 1e-9 * offset**2], 1), False),  # a small column that bends
        (lambda offset: (offset + 1e9).sqrt()[:, None], False),  # bends by 1e-10 of its size
        (lambda offset: offset.clamp(max=600)[:, None], False),  # bends beyond the first look
    ],
)
def test_each_column_is_measured_against_itself(functions, affine):
    assert is_affine(case(Own(functions), "prev", 100_000)) == affine


@pytest.mark.parametrize(
    ("columns", "bends"),
    [
        (lambda offset: [offset, 3 * offset, offset / 4], False),  # float64 holds all of it
        (lambda offset: [offset / 3, 0 * offset + 0.7], False),  # one column that rises, whatever its roundings
        (lambda offset: [offset / 3, offset / 7], True),  # what is left where the two cancel is rounding
        (lambda offset: [offset, offset + 2.0**-33 * (offset == 1)], True),
    ],
)
def test_lines_that_only_rounding_bends_are_told_from_those_that_bend(columns, bends):
    asked = case(Own(lambda offset: torch.stack(columns(offset), 1)), "prev", 100_000)
    assert is_affine(asked) != bends
    assert (answer(asked.encoding, "prev", 100_000).verdict is CANNOT) != bends


def test_a_bend_smaller_than_the_features_rounding_is_a_kernel():
    """d and d + 2^-33 at offset 1: their difference peaks there, and float64 holds it."""
    bent = case(Own(lambda offset: torch.stack([offset, offset + 2.0**-33 * (offset == 1)], 1)), "prev")
    assert bent.alpha_of(torch.tensor([-1.0, 1.0], dtype=torch.float64), 1000) == 1


def test_slow_cosines_are_no_straight_lines():
    assert not is_affine(case("rope:scale=1e-9", "prev")) and not is_affine(case("sinusoidal:base=1e300", "prev"))


@dataclass(frozen=True)
class ClampedLater(AbsoluteEncoding):
    """One-hot positions, clamped somewhere beyond the training length."""

    name = "clamped-later"
    rows: int

    def features(self, position, train_length):
        return torch.nn.functional.one_hot(position.clamp(max=self.rows - 1), self.rows).double()


def test_positions_are_clamped_where_all_later_ones_are_the_same():
    assert clamped_from(case("learned", "prev", 200)) == 19
    assert clamped_from(case("sinusoidal", "prev", 200)) is None
    assert clamped_from(case(ClampedLater(21), "prev", 200)) == 20
    # Features that change once more, as late as the last position looked at.
    for rows in (22, 50, 201):
        assert clamped_from(case(ClampedLater(rows), "prev", 200)) is None
    for rows in (22, 50):
        assert answer(ClampedLater(rows), "prev", 200).verdict is UNDECIDED
    assert answer(ClampedLater(20), "prev", 200).verdict is CANNOT


def test_clamped_positions_give_new_rows_what_the_last_trained_row_asks():
    kept = ByKey(lambda query: torch.where(query < 10, 0, 3))
    assert answer("learned", kept).verdict is TRANSFERS
    changed = ByKey(lambda query: torch.where(query < 20, 0, 3))
    found = answer("learned", changed)
    assert found.verdict is CANNOT and "no kernel that solves length 20" in found.reason


def test_subclasses_are_known_up_to_the_horizon_only():
    @dataclass(frozen=True)
    class Mine(Learned):
        pass

    assert answer("learned", "first").exact
    found = answer(Mine(), "first")
    assert (found.verdict, found.exact) == (TRANSFERS, False)

    @dataclass(frozen=True)
    class Bent(Rope):
        pass

    assert not answer(Bent(), "prev").exact


def test_a_subclass_of_sinusoids_is_no_sum_of_cosines():
    """Its features are others beyond the training length, so what solves it may not go on: nothing is claimed."""
    from poskernel.encodings import Sinusoidal

    @dataclass(frozen=True)
    class Breaking(Sinusoidal):
        def features(self, position, train_length):
            usual = super().features(position, train_length)
            return torch.where(position[:, None] >= train_length, usual.flip(1), usual)

    assert answer(Breaking(frequencies=2), "prev").verdict is UNDECIDED
