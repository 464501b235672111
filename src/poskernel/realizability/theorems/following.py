"""Which rows any kernel of the offset can get right, whatever its family: an exact count, one pass over the rows.

Row i takes the strict maximum of kappa(0), ..., kappa(i). So an offset that wins row i has won every row since it came
into sight at row `offset`, and of two right rows the later one asks for the same offset or for one that the earlier row
does not see. A largest set of such rows is a longest path, and values that rise from winner to winner make all of it
right. Unlike theorem 2 this needs no global peak. Appendix A.5 of the realizability paper has two instances, reverse
and parity; the rest is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.tasks import Copy, Position, Reverse, Targets, Task


@dataclass(frozen=True)
class Followed:
    """A largest set of rows that one kernel of the offset gets right together with the training length."""

    most: list[float]
    """By length: the largest weight of rows below it."""
    winners: list[tuple[int, int]]
    """Offsets of the largest set in the order they come to win, each with the last row it serves."""


def most_followed(
    rows: Targets, weight: Sequence[float] | None, trained: Targets, new_winners: bool = True
) -> Followed:
    """The heaviest rows, of those given (query in rising order, repeats allowed), that any kernel gets right.

    Every row of `trained` has to be right as well, and lies before all others. Without `new_winners` a row that asks
    for the offset that has just come into sight counts as wrong.
    """
    last, kept = (int(trained.query[-1]), int(trained.offset[-1])) if len(trained.query) else (-1, -1)
    asked: dict[int, list[tuple[int, float]]] = {}
    weights = [1.0] * len(rows.query) if weight is None else weight
    for query, offset, each in zip(rows.query.tolist(), rows.offset.tolist(), weights, strict=True):
        if (offset == kept or offset > last) and (new_winners or offset < query):
            asked.setdefault(query, []).append((offset, each))
    most, came, served = [0.0], [], dict[int, float]()
    for row in range(int(rows.query[-1]) + 1 if len(rows.query) else 0):
        best, winner = most[-1], -1
        for offset, each in asked.get(row, ()):
            served[offset] = served.get(offset, 0.0) + each
            if most[offset] + served[offset] > best:
                best, winner = most[offset] + served[offset], offset
        most.append(best)
        came.append(winner)
    return Followed(most, winners_of(came))


def winners_of(came: Sequence[int]) -> list[tuple[int, int]]:
    """The path back: offset and last row of every group of rows."""
    found, row = [], len(came) - 1
    while row >= 0:
        if came[row] < 0:
            row -= 1
        else:
            found.append((came[row], row))
            row = came[row] - 1
    return found[::-1]


def missed_shares(task: Task, train_length: int, lengths: Sequence[int], new_winners: bool = True) -> list[float]:
    """Least share of the scored rows that any kernel of the offset gets wrong, the training length right, by length.

    Where targets change with the length, one kernel faces several: the share is the mean over half the length, the
    length and the two after it.
    """
    trained = task.targets(train_length)
    if not task.depends_on_length:
        scored = task.targets(lengths[-1]).rows(train_length, lengths[-1])
        most = most_followed(scored, None, trained, new_winners).most
        counts = torch.searchsorted(scored.query, torch.tensor(lengths)).tolist()
        pairs = zip(lengths, counts, strict=True)
        return [1 - most[min(length, len(most) - 1)] / count if count else 1.0 for length, count in pairs]
    return [missed_together(task, trained, train_length, length, new_winners) for length in lengths]


def missed_together(task: Task, trained: Targets, train_length: int, length: int, new_winners: bool) -> float:
    """Least mean share of wrong rows over neighbouring lengths, one kernel for all of them."""
    near = [each for each in (length // 2, length, length + 1, length + 2) if each > train_length]
    parts = [task.targets(each).rows(train_length, each) for each in near]
    parts = [each for each in parts if len(each.query)]
    if not parts:
        return 1.0
    query, key = (torch.cat([getattr(each, name) for each in parts]) for name in ("query", "key"))
    weight = torch.cat(
        [torch.full((len(each.query),), 1 / len(each.query) / len(parts), dtype=torch.float64) for each in parts]
    )
    order = query.argsort(stable=True)
    followed = most_followed(Targets(query[order], key[order]), weight[order].tolist(), trained, new_winners)
    return 1 - followed.most[-1]


def followed_pairs(winners: Sequence[tuple[int, int]]) -> tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]:
    """(higher, lower): pairs of offsets whose order makes those winners win their rows, as few as say it.

    Each winner beats the one before it, and what has come into sight since.
    """
    higher, lower = list[int](), list[int]()
    before, seen = -1, -1
    for offset, row in winners:
        rivals = [each for each in range(seen + 1, row + 1) if each != offset] + ([before] if before >= 0 else [])
        lower += rivals
        higher += [offset] * len(rivals)
        before, seen = offset, row
    return torch.tensor(higher, dtype=torch.long), torch.tensor(lower, dtype=torch.long)


def unfollowable(task: Task) -> str | None:
    """Why no kernel of the offset at all follows a built-in task, from its formula; None where one may."""
    kind = type(task)
    if kind is Copy:
        # Lengths 2h and 2h + 2: a kernel that is right at h on two rows has beaten h + 1 for good.
        return "of the rows of two neighbouring even lengths no kernel of the offset gets more than half right"
    if kind is Reverse:
        # Row h + x asks for 2x + 1, which must exceed the row before: the distance to the end halves each time.
        return "no kernel of the offset gets more of its rows right than a logarithm of the length"
    if kind is Position and task.position > 0:  # type: ignore[attr-defined]  # mypy does not narrow by type(...)
        # Row i prefers i - k to i - k + 1, and row i + 1 the other way round.
        return "no kernel of the offset gets two rows in succession right"
    return None
