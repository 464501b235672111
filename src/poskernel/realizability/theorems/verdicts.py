"""What is answered of one's own case: a verdict, the statement that gives it, and what supports it."""

from dataclasses import dataclass
from enum import StrEnum

from jaxtyping import Float
from torch import Tensor

from poskernel.realizability.theorems.demand import RARE, Demand, share_text

SOLVABLE = "existence at the training length"
"""What fails where no kernel solves the training length: every statement supposes it."""
NO_PEAK = "no global peak"
"""What theorem 2 leaves: kernels of the offset whose peaks rise for ever."""
TWO_LENGTHS = "targets at two lengths"
"""What fails where the task asks a row for other keys at other lengths."""
SEARCH = "a kernel that was found"
"""What shows a transfer where no statement does."""
PAGES = {
    "theorem 2": "theorem-2",
    "proposition 1": "proposition-1",
    "proposition 2": "proposition-2-rate",
    "proposition 3": "proposition-3a",
    "proposition 4": "proposition-4",
    NO_PEAK: "theorem-2-no-global-peak",
    SOLVABLE: "existence-at-the-training-length",
    TWO_LENGTHS: "no-kernel-for-every-length",
    SEARCH: "a-kernel-that-was-found",
    "none": "your-own-encoding-and-task",
}
"""Where docs/theory.md explains each statement, by the heading's address."""
CLAIMS = {
    "theorem 2": "theorem-2",
    "proposition 1": "proposition-1",
    "proposition 2": "proposition-2",
    "proposition 3": "proposition-3",
    "proposition 4": "proposition-4",
    NO_PEAK: "theorem-2-no-global-peak",
    TWO_LENGTHS: "no-kernel-for-every-length",
}
"""What the names of each statement's checks begin with."""


class Verdict(StrEnum):
    """Does some kernel of the family that solves the training length have alpha tending to 1?"""

    TRANSFERS = "transfers"
    CANNOT = "cannot"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Answer:
    """A verdict, where it comes from, and what supports it."""

    verdict: Verdict
    theorem: str
    """Statement of the realizability paper that gives it; "none" where none applies."""
    reason: str
    exact: bool
    """For every length; otherwise as far as the horizon, or float64, shows."""
    demand: Demand | None = None
    weights: Float[Tensor, "..."] | None = None
    """Weights, each at most 1 in size, of a kernel that transfers; None where float64 cannot show that it does."""
    margin: float | None = None
    """Its least margin over the training length's rows and the offsets up to the horizon, nats."""
    until: int | None = None
    """Length up to which it was counted, where that is short of the horizon."""


def undecided(reason: str, demand: Demand | None = None, theorem: str = "none") -> Answer:
    """No statement decides it."""
    return Answer(Verdict.UNDECIDED, theorem, reason, False, demand)


def unsettled_text(demand: Demand) -> str:
    """The demand in words, where no offset settles or that is open."""
    if demand.settles is False and not demand.exact and demand.share < RARE:
        # Hardly any row asks for the most frequent offset: naming it would say nothing.
        return f"no offset settles: none is asked of more than {share_text(demand.share)} of the scored rows"
    return f"{'no offset settles' if demand.settles is False else 'whether an offset settles is open'}: {demand.reason}"
