"""What a task asks of deep rows: does one offset, or one key, settle on almost all of them as the length grows?

Condition (i) of theorem 2 of the realizability paper and, for keys, its mirror image for clamped positions. Exact for
the built-in tasks; for any other task numerically, over lengths up to a stated horizon: evidence, not proof.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.tasks import Copy, Position, Reverse, Skip, Targets, Task

RARE = 0.1
"""Share of exceptions above which it may rise, or go up and down, to count as not vanishing."""
FALLING = -0.1
"""Power of the length at which exceptions must at least fall to count as vanishing."""
FLAT = 0.02
"""Power of the length up to which a share counts as constant; 1/sqrt(log) falls by 0.04 at a length of 1e5."""
FEW_ROWS = 100
"""Lengths below are looked at only if there are not as many others as a fit takes."""
FITTED = 5
"""Lengths with exceptions that it takes to tell a share that falls from one that stays."""
CONSTANT = 0.15
"""Part of the exceptions at the last length that may stay for ever, within two standard errors, and be overlooked."""
POWERS = torch.arange(0.055, 4.0, 0.01, dtype=torch.float64)
"""Powers that are tried, 1 not among them."""
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
        key = task.position  # type: ignore[attr-defined]  # mypy does not narrow by type(...)
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
    lengths = lengths_to(horizon, train_length)
    rows = scored_rows(task, train_length, horizon)
    value, share = most_frequent(rows(lengths[-1]), quantity)
    counts = [chosen(rows(length), quantity) for length in lengths]
    exceptions = [float((each != value).double().mean()) if len(each) else 1.0 for each in counts]
    settles, how = vanishing(lengths, exceptions, 1 if task.depends_on_length else train_length)
    rare = f"{share_text(exceptions[-1])} of the scored rows up to {horizon} ask for another {quantity} than {value}"
    if not exceptions[-1]:
        rare = f"all scored rows up to {horizon} ask for {quantity} {value}"
    return Demand(quantity, value, settles, share, False, f"{rare}{how and ', '}{how}")


def lengths_to(horizon: int, train_length: int) -> list[int]:
    """The lengths looked at: the horizon, its half and so on, rising, as far as they show more than training does.

    Short ones are left out where there are enough others: one row more or less is much of a share there.
    """
    least = max(2 * train_length + 1, min(FEW_ROWS, horizon // 2 ** (FITTED - 1)))
    return [horizon // 2**power for power in reversed(range(LENGTHS)) if horizon // 2**power >= least]


def share_text(share: float) -> str:
    """A share in per cent, never rounded to all or none where it is neither."""
    text = f"{100 * share:.2g}%" if share < 0.995 else f"{100 * share:.6g}%"
    return "nearly 100%" if text == "100%" and share < 1 else text


def scored_rows(task: Task, train_length: int, horizon: int) -> Callable[[int], Targets]:
    """Scored rows by length; one evaluation serves all lengths where targets do not change with it."""
    if task.depends_on_length:
        return lambda length: task.targets(length).rows(train_length, length)
    whole = task.targets(horizon)
    return lambda length: whole.rows(train_length, length)


def vanishing(lengths: Sequence[int], exceptions: Sequence[float], first: int = 1) -> tuple[bool | None, str]:
    """Whether a share of exceptions vanishes as the length grows, judged by all its lengths, and in words.

    Vanishes: below RARE, never rising, falling faster than the length to the power FALLING, over all lengths and over
    the last four alone, and no more slowly in the end than a power: what a fit leaves for a constant part is at most
    CONSTANT of the last share. Does not: it rises, or is constant to within the power FLAT, and its last value is no
    low that it has not had before; below RARE only if it is constant. Else None, as with fewer than three exceptions
    among the last four. `first` is the first row that counts.
    """
    counted = list(zip(lengths, exceptions, strict=True))
    final = exceptions[-1]
    if not any(exceptions[-3:]):
        return True, ""
    if sum(share > 0 for share in exceptions[-4:]) < 3:
        few = sum(share > 0 for share in exceptions[-4:])
        return None, f"exceptions at {few} of the last {len(exceptions[-4:])} lengths, too few to see where they tend"
    positive = [(math.log(length), math.log(share)) for length, share in counted if share > 0]
    power, never_rises = slope(positive), all(late <= early for early, late in pairwise(exceptions))
    last = slope([point for point in positive if point[0] >= math.log(lengths[-4:][0])])
    if final < RARE and never_rises and max(power, last) < FALLING:
        return falls_for_good([pair for pair in counted if pair[1] > 0], first, last)
    lowest = final < (1 - FLAT) * min(share for share in exceptions[:-1] if share > 0)
    if not lowest and abs(power) <= FLAT:
        return False, "a share that stays the same as the length grows"
    if not lowest and final >= RARE and power > 0:
        return False, "a share that does not vanish"
    if final < RARE and last < FALLING:
        return None, "a share that rises and falls with the length, from which no limit can be told"
    return None, f"a share that goes like the length to the power {last:.2f}, from which no limit can be told"


def falls_for_good(counted: Sequence[tuple[int, float]], first: int, power: float) -> tuple[bool | None, str]:
    """Whether a falling share, by length, leaves no room for a part that stays; in words too."""
    if len(counted) < FITTED:
        return None, f"exceptions at {len(counted)} lengths, too few to tell a share that falls from one that stays"
    part, error = constant_part(counted, first)
    if part + 2 * error <= CONSTANT:
        return True, f"a share that falls like the length to the power {power:.2f}"
    most = share_text(min(1.0, part + 2 * error))
    return None, (
        f"a share that falls by now like the length to the power {power:.2f}, of which up to {most} may be a constant "
        "one, so that no limit can be told"
    )


def constant_part(counted: Sequence[tuple[int, float]], first: int) -> tuple[float, float]:
    """The part of the last share that stays for ever, and its standard error, by a fit to shares at rising lengths.

    Row q is an exception at rate a + c q^-p, so that at length n the share is its mean over rows `first` to n. Least
    squares over a, c and p, each share weighted as the number of exceptions behind it lets its logarithm be known. What
    rows below `first` would have shown is no reason for a share to fall more slowly at the first lengths.
    """
    length, share = (torch.tensor(each, dtype=torch.float64) for each in zip(*counted, strict=True))
    start = max(first, 1)
    rows, weight = length - start, (length - start) / share
    falling = torch.expm1((1 - POWERS[:, None]) * (length / start).log()) / (1 - POWERS[:, None]) / rows
    falling = falling / falling[:, -1:]
    mean = (weight * share).sum() / weight.sum()
    about = falling - ((weight * falling).sum(1) / weight.sum())[:, None]
    slopes = (weight * about * (share - mean)).sum(1) / (weight * about**2).sum(1)
    left = (weight * (share - mean - slopes[:, None] * about) ** 2).sum(1)
    best = int(left.argmin())
    constant = mean - slopes[best] * (1 - about[best, -1])  # falling ends at 1
    near = slice(max(best - 1, 0), best + 2)
    others = torch.stack([falling[best], falling[near][-1] - falling[near][0]], 1) * weight.sqrt()[:, None]
    across = torch.linalg.qr(others).Q
    own = weight.sqrt() - across @ (across.T @ weight.sqrt())
    error = (left[best] / max(1, len(share) - 3) / (own**2).sum()).sqrt()
    return float(constant / share[-1]), float(error / share[-1])


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Least-squares slope."""
    across, up = (torch.tensor(each, dtype=torch.float64) for each in zip(*points, strict=True))
    across = across - across.mean()
    return float((across * up).sum() / (across**2).sum())
