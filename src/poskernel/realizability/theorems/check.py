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
"""How `holds` is shown of a claim."""
DATA = "data"
"""How a search is shown, of which nothing is expected."""
DEPARTED = "yes: source's form fails, ours holds"
"""How `holds` is shown of a departure."""


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
    """What the claim predicts, within which tolerance, and the source's own figure where it gives one."""
    n: int
    """Sample size: how many of `unit` were looked at."""
    holds: bool | None
    """Whether the measurement is what the claim predicts; None where the draws are too few to tell, and of data."""
    note: str = ""
    """What a reader needs to judge it: parameters, a departure from the source."""
    unit: str = ""
    """What n counts, in the plural: rows, kernels, draws."""
    data: bool = False
    """A search of which nothing is expected: what it finds is reported, and is no claim that could hold."""

    @property
    def size(self) -> str:
        """The sample size in words."""
        return sample_size(self.n, self.unit)


def shown(holds: bool | None, data: bool = False, departs: bool = False) -> str:
    """What a table says of a claim, or of a search; `departs` where a yes is about the source's form as well."""
    return DATA if data else DEPARTED if holds and departs else SHOWN[holds]


def sample_size(n: int, unit: str = "") -> str:
    """`560,000 rows`; the number alone without a unit."""
    return f"{n:,} {unit}".strip()


CheckFunction = Callable[[Effort, int], Check]
"""A claim's function: effort and seed to a check. Hypotheses are further parameters with defaults that satisfy them.

A function whose draws can be more or fewer also has a parameter `samples: int | None = None`: their number, by the
effort where it is None.
"""
