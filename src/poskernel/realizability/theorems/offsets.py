"""Tasks that demand an offset by rule, and fast exact answers about kernels of the offset alone."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.kernel import StationaryKernel
from poskernel.realizability.alignment import STRICTNESS
from poskernel.tasks import NO_TARGET, OffsetRegime, Targets, Task


@dataclass(frozen=True)
class OffsetTask(Task):
    """Row i demands the offset that a rule gives, the same at every length; a row that cannot reach it is no query."""

    regime = OffsetRegime.FIXED_RELATIVE
    label: str
    rule: Callable[[Int[Tensor, " query"]], Int[Tensor, " query"]]

    @property
    def name(self) -> str:
        """Its label."""
        return self.label

    def target_key(self, query: Int[Tensor, " query"], length: int) -> Int[Tensor, " query"]:
        """Query - rule(query)."""
        offset = self.rule(query)
        return torch.where(offset <= query, query - offset, NO_TARGET)


def tent(peak: int) -> StationaryKernel:
    """kappa(d) = -abs(d - peak): a strict global maximum at the peak."""
    return StationaryKernel(lambda offset: -(offset - peak).abs().double())


def prefix_winners(profile: Float[Tensor, "kernel offset"]) -> Int[Tensor, "kernel offset"]:
    """Offset of the strict maximum of kappa(0), ..., kappa(i) at every row i, -1 where there is none."""
    best, where = profile.cummax(1)
    start = profile.new_full((profile.shape[0], 1), float("-inf"))
    # Whatever loses to the running maximum, or is displaced by it, is a runner-up from then on.
    second = torch.cat([start, torch.minimum(profile[:, 1:], best[:, :-1])], dim=1).cummax(1).values
    return torch.where(best - second > STRICTNESS * profile.abs().cummax(1).values, where, -1)


def right_rows(profile: Float[Tensor, "kernel offset"], targets: Targets) -> Int[Tensor, " kernel"]:
    """How many of the query rows each kernel gets right."""
    return (prefix_winners(profile)[:, targets.query] == targets.offset).sum(1)


def copy_alphas(profile: Float[Tensor, " offset"], train_length: int) -> Float[Tensor, " length"]:
    """Alpha of copy at the lengths 0, 1, ..., number of offsets, all in one pass; nan up to train_length.

    At length L the offset h = ceil(L/2) is demanded of the rows from max(h, train_length) on. Once beaten or tied an
    offset never is the strict maximum of a longer window again, so it is right from row h on for a number of rows.
    """
    winner = prefix_winners(profile[None])[0]
    span = torch.bincount(winner[winner >= 0], minlength=len(profile) + 1)
    length = torch.arange(len(profile) + 1)
    half = (length + 1) // 2
    first = half.clamp(min=train_length)
    right = (torch.minimum(half + span[half], length) - first).clamp(min=0)
    return torch.where(length > train_length, right / (length - first), float("nan"))


def solved_lengths(alphas: Float[Tensor, " length"]) -> list[int]:
    """Lengths whose alpha is 1."""
    return (alphas == 1).nonzero()[:, 0].tolist()


def compatible_rows(targets: Targets) -> list[int]:
    """A largest set of query rows, by index, that one relative kernel can get right; at most 16 rows are searched.

    Of two rows with different offsets the later sees the earlier one's offset, so both can be right only if the
    earlier does not see the later one's; and then values that rise from row to row make all of them right.
    """
    query, offset = targets.query.tolist(), targets.offset.tolist()
    count = len(query)
    if count > 16:
        raise ValueError(f"{count} query rows have too many subsets: give at most 16.")
    clashes = [
        sum(1 << late for late in range(count) if query[late] > query[early] and offset[late] <= query[early]
            and offset[late] != offset[early])
        for early in range(count)
    ]  # fmt: skip
    fitting = [
        chosen for chosen in range(1 << count)
        if all(not chosen & clashes[index] for index in range(count) if chosen >> index & 1)
    ]  # fmt: skip
    best = max(fitting, key=lambda chosen: (chosen.bit_count(), -chosen))
    return [index for index in range(count) if best >> index & 1]


def rising_profile(targets: Targets, rows: list[int], length: int) -> Float[Tensor, " offset"]:
    """The profile that gets those compatible rows right: later rows' offsets higher, all others 0."""
    profile = torch.zeros(length, dtype=torch.float64)
    for value, row in enumerate(rows, start=1):
        profile[targets.offset[row]] = value
    return profile
