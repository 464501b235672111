"""What a task asks of deep rows: does one offset, or one key, settle on almost all of them as the length grows?

Condition (i) of theorem 2 of the realizability paper and, for keys, its mirror image for clamped positions. Exact for
the built-in tasks; for any other task numerically, over lengths up to a stated horizon: evidence, not proof.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.tasks import Copy, Position, Reverse, Skip, Targets, Task

RARE = 0.1
"""Share of exceptions above which, unless it falls, a value counts as not settled."""
FALLING = -0.1
"""Power of the length at which exceptions must at least fall to count as vanishing."""
LENGTHS = 9
"""Lengths looked at, each at most half of the next."""


class Quantity(StrEnum):
    """What may settle."""

    OFFSET = "offset"
    KEY = "key"


@dataclass(frozen=True)
class Demand:
    """Whether one value is asked for on a density-one set of the scored rows, and how that is known."""

    quantity: Quantity
    value: int | None
    """The value that settles, or the most frequent one at the horizon."""
    settles: bool | None
    """None where the lengths looked at do not decide it."""
    share: float
    """Share of the scored rows at the horizon that ask for the value."""
    exact: bool
    """Known from the task's formula, for every length."""
    reason: str


def demanded(task: Task, train_length: int, horizon: int, quantity: Quantity = Quantity.OFFSET) -> Demand:
    """The offset, or the key, that almost all scored rows of long sequences ask for."""
    value, share = most_frequent(task.new_targets(train_length, horizon), quantity)
    known = by_formula(task, quantity)
    if known is not None:
        wanted, reason = known
        return Demand(quantity, wanted if wanted is not None else value, wanted is not None, share, True, reason)
    return by_counting(task, train_length, horizon, quantity)


def by_formula(task: Task, quantity: Quantity) -> tuple[int | None, str] | None:
    """What a built-in task's formula says: the value that every row asks for, None where none settles; or nothing."""
    kind = type(task)
    if kind is Skip:
        offset = task.offset  # type: ignore[attr-defined]  # mypy does not narrow by type(...)
        if quantity is Quantity.OFFSET:
            return offset, f"every row asks for offset {offset}"
        return None, "every row asks for another key"
    if kind is Position:
        key = task.position  # type: ignore[attr-defined]
        if quantity is Quantity.KEY:
            return key, f"every row asks for key {key}"
        return None, "the demanded offset is another one on every row"
    if kind is Copy and quantity is Quantity.OFFSET:
        return None, "the demanded offset is half the length and grows with it"
    if kind in (Copy, Reverse):
        return None, f"the demanded {quantity} is another one on every row of a length"
    return None


def most_frequent(targets: Targets, quantity: Quantity) -> tuple[int, float]:
    """The value that most rows ask for, and their share."""
    values, counts = chosen(targets, quantity).unique(return_counts=True)
    return int(values[counts.argmax()]), float(counts.max()) / len(targets.query)


def chosen(targets: Targets, quantity: Quantity) -> Int[Tensor, " row"]:
    """Offsets or keys of query rows."""
    return targets.offset if quantity is Quantity.OFFSET else targets.key


def by_counting(task: Task, train_length: int, horizon: int, quantity: Quantity) -> Demand:
    """Counts exceptions to the horizon's most frequent value over lengths that at least double."""
    lengths = [horizon // 2**power for power in reversed(range(LENGTHS)) if horizon // 2**power > 2 * train_length]
    rows = scored_rows(task, train_length, horizon)
    value, share = most_frequent(rows(lengths[-1]), quantity)
    counts = [chosen(rows(length), quantity) for length in lengths]
    exceptions = [float((each != value).double().mean()) if len(each) else 1.0 for each in counts]
    settles, how = vanishing(lengths, exceptions)
    rare = f"{exceptions[-1]:.2g} of the scored rows at {horizon} ask for another {quantity} than {value}"
    return Demand(quantity, value, settles, share, False, f"{rare}, {how}")


def scored_rows(task: Task, train_length: int, horizon: int) -> Callable[[int], Targets]:
    """Scored rows by length; one evaluation serves all lengths where targets do not change with it."""
    if task.depends_on_length:
        return lambda length: task.targets(length).rows(train_length, length)
    whole = task.targets(horizon)
    return lambda length: whole.rows(train_length, length)


def vanishing(lengths: Sequence[int], exceptions: Sequence[float]) -> tuple[bool | None, str]:
    """Whether a share of exceptions vanishes as the length grows, judged by its last lengths, and in words."""
    last = list(zip(lengths, exceptions, strict=True))[-4:]
    final = last[-1][1]
    if not any(share for _, share in last[-3:]):
        return True, "at no length near the horizon"
    positive = [(math.log(length), math.log(share)) for length, share in last if share > 0]
    power = slope(positive) if len(positive) > 1 else 0.0
    if final < RARE and power < FALLING:
        return True, f"a share that falls as the length to the {power:.2f}"
    if final >= RARE and power > FALLING:
        return False, "a share that does not vanish"
    return None, f"a share that goes as the length to the {power:.2f}, which decides nothing"


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Least-squares slope."""
    across, up = (torch.tensor(each, dtype=torch.float64) for each in zip(*points, strict=True))
    across = across - across.mean()
    return float((across * up).sum() / (across**2).sum())
