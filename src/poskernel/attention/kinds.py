"""What a head's profile looks like, in one word and in one sentence: one table of thresholds, read from the top."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

LOCAL_OFFSETS = 16
"""Offsets 0 to 15 count as near, and in encoders -15 to -1."""
SINK_MASS, SINK_EXCESS = 0.5, 0.4
"""Of the attention of a sink head on its first positions, and of what even attention would put elsewhere."""


@dataclass(frozen=True)
class Profile:
    """Shape of g over the offsets that at least half of the rows hold; further ones rest on too few pairs.

    `weight` is softmax of g there: what the head would attend to if only position counted. `peak_offset` is negative
    where that is most on a key after its query. `half_width` is the number of neighbouring offsets, the peak among
    them, whose weight is at least half of the peak's; `resolved` how many offsets are looked at.
    """

    peak_offset: int
    half_width: int
    peak_weight: float
    near_weight: float
    effective_offsets: float
    resolved: int

    @property
    def flat(self) -> bool:
        """Whether the weight is spread over at least half of the offsets looked at."""
        return self.effective_offsets >= self.resolved / 2

    @classmethod
    def of(cls, g: Float[Tensor, " offset"], kept: int, first: int = 0) -> "Profile":
        """Of g at offsets first, first + 1, ... measured on sequences with `kept` positions."""
        reach = max(2, kept // 2)
        offset = torch.arange(first, first + g.shape[0])
        held = offset.abs() < reach
        offset, weight = offset[held], g[held].double().softmax(0)
        peak = int(weight.argmax())
        strong = [bool(value) for value in weight >= weight[peak] / 2]
        left, right = peak, peak
        while left > 0 and strong[left - 1]:
            left -= 1
        while right + 1 < len(strong) and strong[right + 1]:
            right += 1
        return cls(
            peak_offset=int(offset[peak]),
            half_width=right - left + 1,
            peak_weight=float(weight[peak]),
            near_weight=float(weight[offset.abs() < LOCAL_OFFSETS].sum()),
            effective_offsets=math.exp(float(torch.special.entr(weight).sum())),
            resolved=len(strong),
        )


@dataclass(frozen=True)
class Sink:
    """Mean attention on the first `positions` positions, and what evenly spread attention puts there.

    Of short sequences even attention puts much on the first positions, so half of the attention alone is no sign of a
    sink. In long ones `even` vanishes, and half is what counts.
    """

    positions: int
    mass: float
    even: float = 0.0

    @property
    def excess(self) -> float:
        """Part of what even attention leaves to other positions that this head puts here; 0 at chance, 1 at most."""
        return (self.mass - self.even) / (1 - self.even) if self.even < 1 else 0.0

    @property
    def holds(self) -> bool:
        """Whether the head is a sink head by these positions."""
        return self.mass >= SINK_MASS and self.excess >= SINK_EXCESS


@dataclass(frozen=True)
class Evidence:
    """What the table of kinds reads."""

    profile: Profile
    share: float
    sinks: tuple[Sink, ...] = ()


KINDS: dict[str, tuple[str, Callable[[Evidence], bool]]] = {
    "previous-token": (
        "position at least 30% of the logit variance, peak at offset 1 with at least 30% of the positional weight",
        lambda head: head.share >= 0.3 and head.profile.peak_offset == 1 and head.profile.peak_weight >= 0.3,
    ),
    "next-token": (
        "the same at offset -1, in encoders",
        lambda head: head.share >= 0.3 and head.profile.peak_offset == -1 and head.profile.peak_weight >= 0.3,
    ),
    "fixed-offset": (
        "position at least 30% of the logit variance, peak beyond offset 1 or -1 with at least 30% of the positional "
        "weight",
        lambda head: head.share >= 0.3 and abs(head.profile.peak_offset) > 1 and head.profile.peak_weight >= 0.3,
    ),
    "sink": (
        "at least half of its attention on the first position or on the dropped ones, and at least 40% of what evenly "
        "spread attention would put elsewhere",
        lambda head: any(sink.holds for sink in head.sinks),
    ),
    "local": (
        "position at least 20% of the logit variance, half of the positional weight on offsets below 16, either sign",
        lambda head: head.share >= 0.2 and head.profile.near_weight >= 0.5,
    ),
    "uniform": (
        "positional weight spread over at least half of the offsets, position at most 20% of the logit variance",
        lambda head: head.share < 0.2 and head.profile.flat,
    ),
    "mixed": ("none of these", lambda head: True),
}
"""Kind of a head: what it means, and its test; the first that holds is the head's. Weights are softmax of g alone."""


def head_kind(profile: Profile, share: float, *sinks: Sink) -> str:
    """Name of the head's kind; a fixed offset is named with it. `sinks` are what it puts on its first positions."""
    evidence = Evidence(profile, share, sinks)
    kind = next(name for name, (_, holds) in KINDS.items() if holds(evidence))
    return f"fixed-offset {profile.peak_offset}" if kind == "fixed-offset" else kind
