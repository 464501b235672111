"""Which rows any kernel of the offset can get right, against every order of the offsets."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from own_tasks import ByKey, ByOffset, is_odd, usual_except
from poskernel.kernel import tabulated
from poskernel.realizability.alignment import row_margins
from poskernel.realizability.theorems.following import (
    followed_pairs,
    missed_shares,
    most_followed,
    unfollowable,
)
from poskernel.realizability.theorems.offsets import right_rows
from poskernel.tasks import POSITIONAL_TASKS, Copy, OffsetRegime, Position, Reverse, Targets, Task

LENGTH = 6
ORDERS = torch.tensor(list(itertools.permutations(range(LENGTH))), dtype=torch.float64)


def rows_of(offsets, first):
    query = torch.arange(first, first + len(offsets))
    return Targets(query, query - torch.minimum(torch.tensor(offsets), query))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, LENGTH - 1), min_size=4, max_size=4), st.integers(0, 1))
def test_the_most_rows_are_those_of_the_best_order_that_solves_the_training_row(offsets, kept):
    trained, rows = rows_of([kept], 1), rows_of(offsets, 2)
    solves = ORDERS[right_rows(ORDERS, trained) == 1]
    found = most_followed(rows, None, trained)
    assert found.most[-1] == int(right_rows(solves, rows).max())
    for length in range(3, LENGTH):
        assert found.most[length] == int(right_rows(solves, rows.rows(0, length)).max())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, LENGTH - 1), min_size=4, max_size=4))
def test_the_pairs_are_the_order_that_gets_those_rows_right(offsets):
    trained, rows = rows_of([1], 1), rows_of(offsets, 2)
    found = most_followed(rows, None, trained)
    higher, lower = followed_pairs(found.winners)
    ordered = ORDERS[(ORDERS[:, higher] > ORDERS[:, lower]).all(1)]
    assert len(ordered)
    assert int(right_rows(ordered, rows).min()) >= found.most[-1]


def test_a_row_counts_by_its_weight():
    rows = Targets(torch.tensor([2, 2, 3]), torch.tensor([1, 0, 1]))  # offsets 1, 2, 2
    trained = Targets(torch.tensor([1]), torch.tensor([0]))
    assert most_followed(rows, [5.0, 1.0, 1.0], trained).most[-1] == 5.0
    assert most_followed(rows, [1.0, 1.0, 1.0], trained).most[-1] == 2.0


def test_without_new_winners_a_rising_kernel_gets_nothing():
    targets, trained = POSITIONAL_TASKS["first"].new_targets(5, 50), POSITIONAL_TASKS["first"].targets(5)
    assert most_followed(targets, None, trained).most[-1] == 45
    assert most_followed(targets, None, trained, new_winners=False).most[-1] == 0


@pytest.mark.parametrize("task", [Copy(), Reverse(), Position(2), Position(5)], ids=lambda task: task.name)
@pytest.mark.parametrize("train_length", [4, 7])
def test_what_no_kernel_follows_by_formula_none_follows_by_count(task, train_length):
    assert unfollowable(task)
    trained = task.targets(train_length).rows(train_length - 1, train_length)
    lengths = [60, 400]
    if task.depends_on_length:
        shares = missed_shares(task, train_length, lengths)
    else:
        rows = task.new_targets(train_length, lengths[-1])
        shares = [1 - most_followed(rows, None, trained).most[-1] / len(rows.query)]
    assert min(shares) > 0.2


def test_the_logarithm_of_reverse():
    """As many rows as the distance to the end can be halved, and one more."""
    for length in (50, 500, 5000):
        rows = Reverse().targets(length)
        first = Targets(torch.tensor([0]), torch.tensor([0]))
        assert most_followed(rows, None, first).most[-1] <= torch.tensor(float(length)).log2() + 1


@pytest.mark.parametrize("name", ["prev", "skip5", "first"])
def test_what_a_kernel_follows_is_not_excluded(name):
    assert unfollowable(POSITIONAL_TASKS[name]) is None
    assert missed_shares(POSITIONAL_TASKS[name], 20, [100, 500]) == [0, 0]


def test_a_subclass_may_ask_for_something_else():
    class Mine(Copy):
        pass

    assert unfollowable(Mine()) is None
    assert min(missed_shares(Mine(), 20, [200, 1000])) > 0.2


class Doubling(Task):
    """Asks for the whole binary logarithm of the length: the same on neighbouring lengths, not on half the length."""

    regime = OffsetRegime.GROWING
    depends_on_length = True
    name = "doubling"

    def target_key(self, query, length):
        return query - (length.bit_length() - 3)


def test_an_offset_that_changes_rarely_with_the_length_is_noticed():
    class Constant(Doubling):
        def target_key(self, query, length):
            return query - 1

    assert min(missed_shares(Doubling(), 4, [100, 1000])) > 0.2
    assert missed_shares(Constant(), 4, [100, 1000]) == pytest.approx([0, 0])


def test_dense_exceptions_are_missed_and_a_rising_offset_is_not():
    odd = usual_except(lambda query: is_odd(query) & (query >= 20))
    assert missed_shares(odd, 20, [1000])[0] == pytest.approx(0.5, abs=0.01)
    assert missed_shares(ByKey(lambda query: 0 * query), 20, [1000]) == [0]
    own = ByOffset(lambda query: torch.where(query < 30, 1, 30))
    assert missed_shares(own, 20, [1000]) == [0]
    profile = torch.zeros(1000, dtype=torch.float64)
    profile[1], profile[30] = 1.0, 2.0
    assert row_margins(tabulated(profile), own.new_targets(20, 1000)).share == 1


def test_training_decides_what_can_follow():
    """Offset 2 on new rows, where training has put 1 above it."""
    own = ByOffset(lambda query: torch.where(query < 20, 1, 2))
    assert missed_shares(own, 20, [100, 1000]) == [1, 1]
