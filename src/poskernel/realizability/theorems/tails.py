"""What is proved of every kernel of a built-in encoding far out: which deep rows can change their winner.

Theorem 2 speaks of kernels with one strict global peak. A family may hold others: two highest offsets, or a supremum
that no offset reaches. Here stands, for each encoding, why those do no better, or what they still could do.
"""

from dataclasses import dataclass

from poskernel.encodings import (
    T5,
    Encoding,
    KerpleLog,
    KerplePower,
    LinearInterpolation,
    Llama3,
    Ntk,
    PartialRope,
    ProportionalRope,
    Rope,
    Shaw,
    XPos,
    Yarn,
)


@dataclass(frozen=True)
class Tail:
    """A statement about every kernel of a family."""

    settles: bool
    """All deep rows of a kernel take one offset, or none (a tie), for ever."""
    why: str
    falls: bool = False
    """Every kernel falls strictly from offset 0 on, or is constant."""


BUCKETS = Tail(True, "its kernels are constant from some offset on, so all deep rows take one offset or tie")
"""Beyond the last bucket all offsets tie: the winner is the best of finitely many, or there is none."""
FALLING = Tail(True, "its kernels fall from offset 0 on, so every row takes offset 0 or ties", True)
DAMPED = Tail(
    True, "its kernels tend to 0 through positive values, so the highest is reached and deep rows stay with it"
)
"""The slowest decaying pair dominates and turns by no whole share of a circle, so it is positive again and again.

A positive value far above what follows it is the maximum or has one before it: there are finitely many highest offsets,
one (then deep rows take it) or more (then they tie).
"""
ROTARY = Tail(
    False,
    "its kernels are almost periodic, so rows at which a new offset comes to win have density 0",
)
"""A sum of cosines comes back arbitrarily near to every value.

Where its supremum is reached, once or more often, deep rows take one offset or tie. Where it is not, new winners appear
for ever, each higher than all before, so above supremum - epsilon from some row on. The share of such offsets tends to
the measure, on the torus that the phases fill, of a level set of a function that is analytic and not constant: 0. The
torus is connected because frequencies, as numbers of the computer, are rational, and no multiple of one is one of
2 pi. So a rotary kernel can follow a task whose offset changes at rare rows, but no task that asks for a new offset on
a positive share of the rows.
"""

TAILS: dict[type[Encoding], Tail] = {
    **dict.fromkeys((Rope, LinearInterpolation, Ntk, Yarn, Llama3, PartialRope, ProportionalRope), ROTARY),
    XPos: DAMPED,
    **dict.fromkeys((T5, Shaw), BUCKETS),
    **dict.fromkeys((KerpleLog, KerplePower), FALLING),
}
"""By exact class: a subclass may have another basis. Those that are affine or change with the length are elsewhere."""


def tail_of(encoding: Encoding) -> Tail | None:
    """What is proved of an encoding's kernels; None for one of somebody's own."""
    return TAILS.get(type(encoding))
