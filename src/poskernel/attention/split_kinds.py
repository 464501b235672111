"""Kinds of heads that a profile cannot show, from the four-term split and from repeated patterns: one more table.

They join the kinds of the profile (`kinds.KINDS`) in one order: induction first, as on text its heads look like local
or mixed ones; then the kinds whose profile is clear (previous-token, fixed-offset, sink, local); then what drives the
logits of the rest by the split; and where no term does, the profile's last words, uniform and mixed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from poskernel.attention.estimators.decompose import TERMS, HeadSplit
from poskernel.attention.estimators.probes import HeadRepetition

UNCLEAR = ("uniform", "mixed")
"""Kinds of the profile that the split may replace."""


@dataclass(frozen=True)
class SplitEvidence:
    """What the table reads: shares of within-row logit variance, attention on repeated patterns (None: not probed)."""

    position: float
    key: float
    query: float
    interaction: float
    induction: float | None = None

    @classmethod
    def of(cls, split: HeadSplit | None, repetition: HeadRepetition | None = None) -> "SplitEvidence":
        """From what was measured of a head; shares are nan without the split."""
        shares = dict.fromkeys(TERMS, math.nan)
        if split is not None:
            shares = {name: share.value for name, share in split.shares.items()}
        return cls(**shares, induction=None if repetition is None else repetition.induction.value)

    def led_by(self, share: float) -> bool:
        """Whether a share is the largest of the four and at least 35%; never for undefined ones."""
        return share >= 0.35 and share == max(self.position, self.key, self.query, self.interaction)


SPLIT_KINDS: dict[str, tuple[str, Callable[[SplitEvidence], bool]]] = {
    "key-driven": (
        "the key's content is the largest share of the logit variance, at least 35%",
        lambda head: head.led_by(head.key),
    ),
    "query-driven": (
        "the query's content against the mean keys is the largest share of the logit variance, at least 35%",
        lambda head: head.led_by(head.query),
    ),
    "matching": (
        "query's and key's content together are the largest share of the logit variance, at least 35%",
        lambda head: head.led_by(head.interaction),
    ),
}
"""Kind of a head whose profile is unclear: what it means, and its test; the first that holds is the head's."""
INDUCTION = (
    "on repeated random tokens at least 30% of its attention after earlier occurrences of its own token",
    lambda head: head.induction is not None and head.induction >= 0.3,
)


def split_kind(profile_kind: str, evidence: SplitEvidence) -> str:
    """A head's kind from that of its profile and from its split."""
    if INDUCTION[1](evidence):
        return "induction"
    if profile_kind not in UNCLEAR:
        return profile_kind
    return next((name for name, (_, holds) in SPLIT_KINDS.items() if holds(evidence)), profile_kind)
