"""What a check of a claim returns, and how hard it tries."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Effort(StrEnum):
    """How large the samples are."""

    DEFAULT = "default"
    """The whole table in under a minute."""
    LONG = "long"
    """The sources' own sizes, in under five minutes."""

    def size(self, default: int, long: int) -> int:
        """The one of two sizes that this effort asks for."""
        return long if self is Effort.LONG else default


SHOWN = {True: "yes", False: "NO", None: "unclear"}
"""How `holds` is shown."""


@dataclass(frozen=True)
class Check:
    """One claim, what was measured, and whether the measurement supports it."""

    name: str
    """Short name, for `--only`: that of its function, with dashes."""
    claim: str
    """The claim in one sentence."""
    source: str
    """Where it is made: document and number."""
    measured: str
    """What was found, with its interval where it is an estimate."""
    expected: str
    """What the claim predicts, and the source's own figure where it gives one."""
    n: int
    """Sample size: rows, kernels or draws that were looked at."""
    holds: bool | None
    """Whether the measurement is what the claim predicts; None where the draws are too few to tell."""
    note: str = ""
    """What a reader needs to judge it: parameters, a departure from the source."""


CheckFunction = Callable[[Effort, int], Check]
"""A claim's function: effort and seed to a check. Hypotheses are further parameters with defaults that satisfy them.

A function whose draws can be more or fewer also has a parameter `samples: int | None = None`: their number, by the
effort where it is None.
"""
