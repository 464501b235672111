"""What targets at two lengths leave any kernel: by a plain loop, and which tasks they exclude."""

from dataclasses import dataclass

import pytest
import torch

from own_cases import answer, case
from poskernel.realizability.theorems.check import Effort
from poskernel.realizability.theorems.two_lengths import clash, most_together, no_kernel_for_every_length
from poskernel.realizability.theorems.verdicts import TWO_LENGTHS, Verdict
from poskernel.tasks import NO_TARGET, Copy, OffsetRegime, Reverse, Skip, Task


def most_by_loops(task, train_length, length, shorter):
    """Each row takes the key that pays most: over the two lengths, a share of 1/n or 1/n' each time it is right."""
    asked = {}
    for each in (length, shorter):
        targets = task.targets(each).rows(train_length, each)
        for query, key in zip(targets.query.tolist(), targets.key.tolist(), strict=True):
            pays = asked.setdefault(query, {})
            pays[key] = pays.get(key, 0.0) + 1 / len(targets.query)
    return sum(max(pays.values()) for pays in asked.values())


@pytest.mark.parametrize("task", [Copy(), Reverse(), Skip(1)])
@pytest.mark.parametrize("length", [40, 41, 60, 77])
def test_the_most_that_two_alphas_add_up_to_by_a_plain_loop(task, length):
    wanted = min(most_by_loops(task, 20, length, length - less) for less in (1, 2))
    assert most_together(task, 20, length) == pytest.approx(wanted)


def test_copy_and_reverse_leave_one_and_others_two():
    check = no_kernel_for_every_length(Effort.DEFAULT, 0, lengths=(60, 1000))
    assert check.holds and "1.067, 1.004" in check.measured
    assert no_kernel_for_every_length(Effort.DEFAULT, 0, lengths=(60,), tasks=(Copy(), Skip(1))).holds is False


@pytest.mark.parametrize("encoding", ["sinusoidal", "fire", "kerple-log", "learned", "rope"])
@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_no_encoding_with_one_kernel_carries_copy_or_reverse(encoding, task):
    found = answer(encoding, task)
    assert found.verdict is Verdict.CANNOT and found.exact
    assert found.theorem in (TWO_LENGTHS, "proposition 4") or case(encoding, task).relative


@dataclass(frozen=True)
class Last(Task):
    """The key a quarter of the length back, on the rows that have one: or on the last row of a length alone."""

    regime = OffsetRegime.GROWING
    depends_on_length = True
    alone: bool
    name = "last"

    def target_key(self, query, length):
        key = query - length // 4
        return key.masked_fill((key < 0) | (self.alone & (query < length - 1)), NO_TARGET)


def test_a_task_of_ones_own_is_counted_and_one_that_asks_no_row_twice_is_left_open():
    found = clash(case("sinusoidal", Last(alone=False)))
    assert found.verdict is Verdict.CANNOT and not found.exact
    assert clash(case("sinusoidal", Last(alone=True))) is None
    assert torch.equal(Last(alone=True).targets(8).query, torch.tensor([7]))
