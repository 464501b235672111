"""Does a head's peak stay where it is: profiles of many heads at once, scanned to any length in flat memory.

A head's row t attends to offsets 0 to t (or to its window). Its peak p is right there while g(p) is the strict maximum
over them, so the first offset at which g reaches g(p) again is the last row but one that is right: one scan finds
the verdict at every length.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from poskernel.realizability.alignment import STRICTNESS

OFFSETS_PER_BLOCK = 4096
"""Offsets of all heads that are held at a time."""
NEVER = 1 << 40
"""Stands for an offset or a length that was not reached."""


@dataclass(frozen=True, eq=False)
class Waves:
    """Far kernels of several heads that turn alike: g(d) = level + Re sum_k c_k e^{i rate_k d}, in nats."""

    coefficients: Complex[Tensor, "head plane"]
    level: Float[Tensor, " head"]
    rates: Float[Tensor, " plane"]

    def at(self, offset: Int[Tensor, " offset"]) -> Float[Tensor, "head offset"]:
        """Every head at the same offsets: one product of matrices."""
        phase = self.rates[:, None] * offset.double()
        values = self.coefficients.real @ phase.cos() - self.coefficients.imag @ phase.sin()
        return values + self.level[:, None]

    def blocks(self, first: int, stop: int) -> Iterator[tuple[int, Float[Tensor, "head offset"]]]:
        """(first offset, values) over offsets first to stop - 1."""
        for start in range(first, stop, OFFSETS_PER_BLOCK):
            yield start, self.at(torch.arange(start, min(start + OFFSETS_PER_BLOCK, stop)))


@dataclass(frozen=True, eq=False)
class Peaks:
    """Strict maxima of profiles: where, how high, and whether they are strict."""

    offset: Int[Tensor, "*batch"]
    value: Float[Tensor, "*batch"]
    strict: Bool[Tensor, "*batch"]


def peaks_of(profile: Float[Tensor, "*batch offset"]) -> Peaks:
    """The peak of every profile over all its offsets."""
    top = profile.topk(min(2, profile.shape[-1]), -1)
    size = profile.abs().amax(-1)
    alone = profile.shape[-1] == 1
    strict = torch.ones_like(size, dtype=torch.bool) if alone else top.values[..., 0] - top.values[..., 1] > (
        STRICTNESS * size)  # fmt: skip
    return Peaks(top.indices[..., 0], top.values[..., 0], strict)


@dataclass(frozen=True, eq=False)
class Scan:
    """What lies beyond the measured length, for every head and each of several heights."""

    overtaken: Int[Tensor, "height head"]
    """First offset at which g reaches the height, NEVER where it does not."""
    highest: Int[Tensor, "head span"]
    """Offset of the maximum of each span."""
    spans: Int[Tensor, " edge"]
    """First offset of each span, and where the last one stops."""
    log_mass: Float[Tensor, " head"]
    """Log of the sum of e^g over all offsets of the scan."""
    mean: Float[Tensor, " head"]
    """Mean of g under the softmax of those offsets."""


def log_spans(first: int, stop: int, number: int) -> Int[Tensor, " edge"]:
    """Edges of at most `number` spans of nearly equal ratio from first to stop, whole numbers, none empty."""
    if stop <= first:
        return torch.tensor([first])
    edges = torch.logspace(math.log10(max(first, 1)), math.log10(stop), number + 1, dtype=torch.float64).round().long()
    edges[0], edges[-1] = first, stop
    return edges.unique()


def scan(waves: Waves, heights: Float[Tensor, "height head"], first: int, stop: int, number: int) -> Scan:
    """Pass once over offsets first to stop - 1: memory does not grow with them."""
    heads = heights.shape[1]
    spans = log_spans(first, stop, number)
    overtaken = torch.full(heights.shape, NEVER)
    best = torch.full((heads, len(spans) - 1), -torch.inf, dtype=torch.float64)
    highest = torch.zeros(heads, len(spans) - 1, dtype=torch.long)
    log_mass = torch.full((heads,), -torch.inf, dtype=torch.float64)
    mean = torch.zeros(heads, dtype=torch.float64)
    for start, values in waves.blocks(first, stop):
        top = values.amax(1)
        # Each head and height is looked at once, in the block where it is first reached.
        for height, head in ((top >= heights) & (overtaken == NEVER)).nonzero().tolist():
            overtaken[height, head] = start + int((values[head] >= heights[height, head]).nonzero()[0])
        weight = (values - top[:, None]).exp()
        total = top + weight.sum(1).log()
        joined = torch.logaddexp(log_mass, total)
        here = (weight * values).sum(1) / weight.sum(1)
        mean = mean * (log_mass - joined).exp() + here * (total - joined).exp()
        log_mass = joined
        touched = (spans[:-1] < start + values.shape[1]) & (spans[1:] > start)
        for span in touched.nonzero().flatten().tolist():
            low, high = max(int(spans[span]), start) - start, int(spans[span + 1]) - start
            found = values[:, low:high].max(1)
            better = found.values > best[:, span]
            best[better, span] = found.values[better]
            highest[better, span] = (start + low + found.indices)[better]
    return Scan(overtaken, highest, spans, log_mass, mean)


def half_spans(profile: Float[Tensor, "head offset"], peak: Int[Tensor, " head"]) -> Int[Tensor, "head 2"]:
    """First and last offset around each peak whose softmax weight is at least half of the peak's, without a gap."""
    strong = profile >= profile.gather(1, peak[:, None]) - math.log(2)
    offset = torch.arange(profile.shape[1])
    weak_before = torch.where(~strong & (offset < peak[:, None]), offset, -1).amax(1)
    weak_after = torch.where(~strong & (offset > peak[:, None]), offset, profile.shape[1]).amin(1)
    return torch.stack([weak_before + 1, weak_after - 1], 1)


def kept_share(lost: Int[Tensor, " head"], length: int) -> float:
    """Share of heads whose peak is right at every row below a length, given the first length at which each is lost."""
    return float((lost > length).double().mean()) if len(lost) else float("nan")


def limit_of(lost: Int[Tensor, " head"], measured: int, length: int, fall: float) -> int | None:
    """First length up to `length` at which the share falls by `fall` below its value at the measured length."""
    if not len(lost):
        return None
    left = lost[lost > measured]
    needed = math.ceil(fall * len(lost) - 1e-9)
    if needed > len(left):
        return None
    found = int(left.sort().values[max(needed, 1) - 1])
    return found if found <= length else None
