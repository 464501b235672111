"""A value of the paper, what was measured here, and whether they agree: by a rule written before the first comparison.

`agrees` if one of these holds, `differs` if none does, `not measured` where there is no number:

1. the difference is at most the tolerance of its kind, or half a unit of the paper's last printed digit;
2. the paper's value lies in our 95% interval, widened by that half unit;
3. our value lies in the paper's interval, likewise widened. Where the paper gives mean and SD over 5 seeds, its
   interval is the mean plus or minus 2 SD / sqrt(5).

Tolerances: an alpha is computed, not sampled, so rounding alone is allowed; a count or a yes has to be the same.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from poskernel.errors import RunError
from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.statistics import Estimate

SAME = 1e-9
PAPER_SEEDS = 5


class Kind(StrEnum):
    """What a value is: decides how near is near enough where neither side has an interval."""

    ALPHA = "alpha"
    ACCURACY = "accuracy"
    CORRELATION = "rank correlation"
    SEPARATION = "AUC"
    PRECISION = "precision"
    COUNT = "count"
    CLAIM = "claim"


TOLERANCE = {
    Kind.ALPHA: 0.0,
    Kind.ACCURACY: 0.05,
    Kind.CORRELATION: 0.05,
    Kind.SEPARATION: 0.01,
    Kind.PRECISION: 0.02,
    Kind.COUNT: 0.0,
    Kind.CLAIM: 0.0,
}


class Verdict(StrEnum):
    """What a comparison came to."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_MEASURED = "not measured"


NOT_EXPLAINED = "not explained by the rows"


def no_explanation(_evidence: Evidence) -> str:
    """What is said where nothing in the rows says why."""
    return NOT_EXPLAINED


@dataclass(frozen=True, eq=False)
class Headline:
    """One value as printed, where it is printed, and how ours is had from the rows."""

    name: str
    value: float | int
    """The paper's; 1 for a claim that something holds."""
    where: str
    kind: Kind
    measure: Callable[[Evidence], Estimate]
    study: str
    tier: int | None = None
    """Study and tier whose models it needs; None for a prediction."""
    low: float = math.nan
    high: float = math.nan
    sd: float = math.nan
    """Over the paper's 5 seeds."""
    places: int = 2
    """Decimal places printed."""
    explain: Callable[[Evidence], str] = no_explanation
    """Why it differs, from the rows."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The paper's interval: given, or from its SD; nan where there is neither."""
        half = 2 * self.sd / math.sqrt(PAPER_SEEDS)
        return (self.low, self.high) if math.isnan(self.sd) else (self.value - half, self.value + half)

    @property
    def printed(self) -> str:
        """The value as the paper prints it."""
        if self.kind is Kind.CLAIM:
            return "yes"
        if self.kind is Kind.COUNT:
            return f"{self.value:.0f}"
        text = f"{self.value:.{self.places}f}"
        if not math.isnan(self.sd):
            return f"{text} ± {self.sd:.2f}"
        return text if math.isnan(self.low) else f"{text} [{self.low:.2f}, {self.high:.2f}]"

    def ours(self, evidence: Evidence) -> Estimate:
        """What the rows give; nan with the reason where they lack it."""
        try:
            return self.measure(evidence)
        except RunError as error:
            return Estimate(math.nan, math.nan, math.nan, 0, str(error))

    def shown(self, ours: Estimate) -> str:
        """Our value in the form of the paper's."""
        if math.isnan(ours.value):
            return "–"
        if self.kind is Kind.CLAIM:
            return "yes" if ours.value else "no"
        if self.kind is Kind.COUNT:
            return f"{ours.value:.0f}"
        return f"{ours:z.{self.places}f}" if not math.isnan(ours.low) else f"{ours.value:.{self.places}f}"


def verdict(paper: Headline, ours: Estimate) -> Verdict:
    """The verdict by the rule that stands at the head of this module."""
    if math.isnan(ours.value):
        return Verdict.NOT_MEASURED
    exact = paper.kind in (Kind.COUNT, Kind.CLAIM)
    half = 0.0 if exact else 0.5 * 10**-paper.places
    low, high = paper.bounds
    agrees = (
        abs(ours.value - paper.value) <= max(TOLERANCE[paper.kind], half) + SAME
        or ours.low - half - SAME <= paper.value <= ours.high + half + SAME
        or low - half - SAME <= ours.value <= high + half + SAME
    )
    return Verdict.AGREES if agrees else Verdict.DIFFERS
