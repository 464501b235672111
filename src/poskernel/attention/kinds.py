"""What a head's profile looks like, in one word and in one sentence: one table of thresholds, read from the top."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

LOCAL_OFFSETS = 16
"""Offsets 0 to 15 count as near, and in encoders -15 to -1."""


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
class Evidence:
    """What the table of kinds reads."""

    profile: Profile
    share: float
    sink: float


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
    "sink": ("at least half of its attention on the first positions", lambda head: head.sink >= 0.5),
    "local": (
        "position at least 20% of the logit variance, half of the positional weight on offsets below 16, either sign",
        lambda head: head.share >= 0.2 and head.profile.near_weight >= 0.5,
    ),
    "uniform": (
        "positional weight spread over at least half of the offsets, position at most 20% of the logit variance",
        lambda head: head.share < 0.2 and head.profile.effective_offsets >= head.profile.resolved / 2,
    ),
    "mixed": ("none of these", lambda head: True),
}
"""Kind of a head: what it means, and its test; the first that holds is the head's. Weights are softmax of g alone."""


def head_kind(profile: Profile, share: float, sink: float) -> str:
    """Name of the head's kind; a fixed offset is named with it."""
    evidence = Evidence(profile, share, sink)
    kind = next(name for name, (_, holds) in KINDS.items() if holds(evidence))
    return f"fixed-offset {profile.peak_offset}" if kind == "fixed-offset" else kind
