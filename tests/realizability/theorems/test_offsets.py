"""Fast answers about kernels of the offset, against loops over rows and over all kernels' orders."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.kernel import tabulated
from poskernel.realizability.alignment import alpha, row_margins
from poskernel.realizability.theorems.offsets import (
    OffsetTask,
    compatible_rows,
    copy_alphas,
    prefix_winners,
    right_rows,
    rising_profile,
    solved_lengths,
    tent,
)
from poskernel.tasks import Copy, Reverse, Skip, Targets

PROFILES = st.lists(st.integers(-3, 3), min_size=12, max_size=24)


def as_profile(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def slow_winner(values: list[int], row: int) -> int:
    seen = values[: row + 1]
    return seen.index(max(seen)) if seen.count(max(seen)) == 1 else -1


@given(PROFILES)
def test_prefix_winners_are_the_strict_maxima(values):
    assert prefix_winners(as_profile(values)[None])[0].tolist() == [
        slow_winner(values, row) for row in range(len(values))
    ]


def test_prefix_winners_keep_kernels_apart():
    both = prefix_winners(torch.tensor([[1.0, 2.0, 0.0], [3.0, 2.0, 1.0]], dtype=torch.float64))
    assert both.tolist() == [[0, 1, 1], [0, 0, 0]]


def test_a_margin_in_the_rounding_is_a_tie():
    profile = torch.tensor([[1.0, 1.0 + 1e-12, 1.0 + 1e-6]], dtype=torch.float64)
    assert prefix_winners(profile)[0].tolist() == [0, -1, 2]


@settings(max_examples=40, deadline=None)
@given(PROFILES, st.integers(2, 11))
def test_copy_alphas_are_alpha_at_every_length(values, train_length):
    profile = as_profile(values)
    fast = copy_alphas(profile, train_length)
    assert len(fast) == len(values) + 1
    assert fast[: train_length + 1].isnan().all()
    for length in range(train_length + 1, len(values) + 1):
        assert fast[length] == alpha(tabulated(profile), Copy(), train_length, length)


def test_solved_lengths_are_those_with_alpha_one():
    assert solved_lengths(torch.tensor([float("nan"), 1.0, 0.5, 1.0], dtype=torch.float64)) == [1, 3]


@settings(max_examples=30, deadline=None)
@given(PROFILES)
def test_right_rows_count_what_row_margins_finds(values):
    targets = Reverse().targets(len(values))
    profile = as_profile(values)
    assert int(right_rows(profile[None], targets)[0]) == int(row_margins(tabulated(profile), targets).right.sum())


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4, unique_by=lambda row: row[0]))
def test_compatible_rows_are_the_most_that_any_order_of_offsets_gets_right(rows):
    rows = sorted((query, min(query, offset)) for query, offset in rows)
    query = torch.tensor([row for row, _ in rows])
    targets = Targets(query, query - torch.tensor([offset for _, offset in rows]))
    orders = torch.tensor(list(itertools.permutations(range(5))), dtype=torch.float64)
    best = compatible_rows(targets)
    assert len(best) == int(right_rows(orders, targets).max())
    reached = row_margins(tabulated(rising_profile(targets, best, 5)), targets).right
    assert reached[best].all()


def test_too_many_rows_are_refused():
    with pytest.raises(ValueError, match="39 query rows"):
        compatible_rows(Skip(1).targets(40))


def test_an_offset_task_demands_its_rule_where_the_row_reaches_it():
    task = OffsetTask("threes", lambda row: torch.full_like(row, 3))
    targets = task.targets(6)
    assert task.name == "threes"
    assert targets.query.tolist() == [3, 4, 5] and targets.key.tolist() == [0, 1, 2]


def test_a_tent_peaks_at_its_offset():
    assert tent(2).profile(5).tolist() == [-2.0, -1.0, 0.0, -1.0, -2.0]
