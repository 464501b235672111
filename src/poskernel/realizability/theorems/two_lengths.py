"""Tasks that ask another key of the same row at another length: one kernel of positions cannot serve both.

A kernel that does not change with the sequence has one strict argmax a row, so of two lengths that ask a row for
different keys at least one misses it. This holds for whatever encoding, linear or not, stationary or not.
"""

from collections.abc import Sequence

from poskernel.realizability.theorems.case import Case
from poskernel.realizability.theorems.check import Check, Effort
from poskernel.realizability.theorems.demand import lengths_to, vanishing
from poskernel.realizability.theorems.verdicts import TWO_LENGTHS, Answer, Verdict
from poskernel.tasks import Copy, Reverse, Task

NEAR = (1, 2)
"""How much shorter the other length is: by one and by two, since copy and reverse go by half the length, rounded."""


def most_together(task: Task, train_length: int, length: int) -> float:
    """The most that alpha at a length and at a slightly shorter one can add up to, over every kernel; 2 where nothing
    clashes, or no shorter length has a row to score."""
    rows = task.targets(length).rows(train_length, length)
    asked = dict(zip(rows.query.tolist(), rows.key.tolist(), strict=True))
    most = 2.0
    for shorter in (length - less for less in NEAR if length - less > train_length):
        other = task.targets(shorter).rows(train_length, shorter)
        pairs = zip(other.query.tolist(), other.key.tolist(), strict=True)
        clashes = sum(asked.get(query, key) != key for query, key in pairs)
        # A row that clashes counts once, and at best in the length with fewer rows.
        most = min(most, 2 - clashes / max(len(rows.query), len(other.query), 1))
    return most


def clash(case: Case) -> Answer | None:
    """The verdict where the task's own targets exclude every kernel; None where they do not."""
    task, lengths = case.task, lengths_to(case.horizon, case.train_length)
    exact = type(task) in (Copy, Reverse)
    missed = [1 - most_together(task, case.train_length, length) / 2 for length in lengths[-1 if exact else 0 :]]
    if not exact and vanishing(lengths, missed)[0] is not False:
        return None
    reason = (
        "a row is asked for other keys at other lengths, and a kernel that does not change with the length has one "
        f"strict argmax a row: alpha at {case.horizon} and at a length 1 or 2 shorter add up to at most "
        f"{2 - 2 * missed[-1]:.3f}, whatever the kernel"
    )
    return Answer(Verdict.CANNOT, TWO_LENGTHS, reason, exact, case.demand())


def no_kernel_for_every_length(
    effort: Effort,
    seed: int,
    *,
    tasks: Sequence[Task] = (Copy(), Reverse()),
    lengths: Sequence[int] = (60, 200, 1000, 10_000),
    train_length: int = 20,
) -> Check:
    """Under copy and reverse the alphas of one kernel at two neighbouring lengths add up to 1 in the limit.

    A task whose targets do not depend on the length leaves 2.
    """
    bounds = {task.name: [most_together(task, train_length, length) for length in lengths] for task in tasks}
    return Check(
        name="no-kernel-for-every-length",
        claim="Copy and reverse ask a row for other keys at other lengths, so alpha of one kernel of positions, "
        "whatever its encoding, cannot tend to 1: at neighbouring lengths it adds up to 1 in the limit.",
        source="ours, beside the realizability paper's conjecture 1",
        measured="; ".join(
            f"{name}: at most {', '.join(f'{each:.3f}' for each in row)}" for name, row in bounds.items()
        ),
        expected=f"at most 1 + 6 / (L - {train_length}) at L = {', '.join(f'{each:,}' for each in lengths)}",
        n=len(tasks) * len(lengths),
        unit="pairs of lengths",
        holds=all(
            bound <= 1 + 6 / (length - train_length)
            for row in bounds.values()
            for bound, length in zip(row, lengths, strict=True)
        ),
        note="Alpha at a length and at the better of the two lengths below it, counted from the targets alone. "
        "Conjecture 1 is about which kernel is selected for one longer length, where a joint kernel can exist.",
    )
