"""Content alphas: which tasks one rule of token matching solves, and what the graded version asks of the encoding."""

from dataclasses import dataclass

import pytest
import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.encodings import ENCODINGS, STUDY_ENCODINGS
from poskernel.errors import InputError
from poskernel.random_streams import random_stream
from poskernel.realizability import content_alphas, matching_shift, predict
from poskernel.tasks import NO_TARGET, POSITIONAL_TASKS, TASKS, ContentTask, latest_match


@dataclass(frozen=True)
class AfterMatch(ContentTask):
    """Attend `shift` positions after the latest earlier occurrence, where that is a causal key."""

    shift: int = 0
    name = "after-match"

    def sequence_targets(self, tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
        match, position = latest_match(tokens), torch.arange(tokens.shape[1])
        key = match + self.shift
        return torch.where((match >= 0) & (key >= 0) & (key <= position), key, NO_TARGET)


@dataclass(frozen=True)
class Drifting(ContentTask):
    """A rule whose shift depends on the length: no length-stationary one."""

    name = "drifting"

    def sequence_targets(self, tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
        shift = 1 if tokens.shape[1] < 40 else 0
        return AfterMatch(shift).sequence_targets(tokens)


def obvious_shift(task: ContentTask, lengths: list[int], vocabulary: int, sequences: int) -> int | None:
    """The same question with loops over rows."""
    shifts = set()
    for length in lengths:
        tokens = torch.randint(vocabulary, (sequences, length), generator=random_stream(0, f"evaluation/{length}"))
        targets = task.sequence_targets(tokens)
        for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
            for i, key in enumerate(wanted):
                if key < 0:
                    continue
                earlier = [j for j in range(i) if row[j] == row[i]]
                if not earlier:
                    return None
                shifts.add(key - earlier[-1])
    return shifts.pop() if len(shifts) == 1 else None


def test_induction_is_a_match_and_one_step_on() -> None:
    assert matching_shift(TASKS["induction"], [20, 30, 60]) == 1


@pytest.mark.parametrize("shift", [0, 1, 2, -1])
def test_any_fixed_shift_is_found_as_the_loops_find_it(shift: int) -> None:
    task = AfterMatch(shift)
    assert matching_shift(task, [12, 20], vocabulary=5, sequences=8) == shift == obvious_shift(task, [12, 20], 5, 8)


def test_a_rule_that_changes_with_the_length_is_none() -> None:
    assert matching_shift(Drifting(), [20, 30]) == 1
    assert matching_shift(Drifting(), [20, 60]) is None


@pytest.mark.parametrize("task", POSITIONAL_TASKS.values(), ids=POSITIONAL_TASKS)
def test_no_positional_task_is_solved_by_matching(task: ContentTask) -> None:
    assert matching_shift(task, [20, 30]) is None


@pytest.mark.parametrize("encoding", STUDY_ENCODINGS, ids=lambda encoding: encoding.name)
def test_the_graded_alpha_is_what_prev_leaves_of_the_content_alpha(encoding: object) -> None:
    rows = content_alphas(encoding, TASKS["induction"], 20, (30, 60))  # type: ignore[arg-type]
    previous = {row.length: row.alpha for row in predict(encoding, "prev", 20, (30, 60), existence=False).rows}  # type: ignore[arg-type]
    assert [(row.length, row.alpha, row.content, row.plus) for row in rows] == [(30, None, 1, 1), (60, None, 1, 1)]
    assert [row.graded for row in rows] == [previous[30], previous[60]]


def test_a_positional_task_keeps_its_alpha() -> None:
    (row,) = content_alphas(ENCODINGS["rope"], TASKS["first"], 20, (30,))
    assert row.alpha == row.plus == row.graded == pytest.approx(0.8)
    assert row.content == 0


def test_lengths_are_checked() -> None:
    with pytest.raises(InputError, match="length 20 is not beyond"):
        content_alphas(ENCODINGS["rope"], TASKS["induction"], 20, (20,))
