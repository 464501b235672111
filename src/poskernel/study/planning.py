"""What a run would do: which units, and why; which part of them on this machine; what is there already."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from poskernel.errors import InputError
from poskernel.study.batching import ONE_BY_ONE, Batching
from poskernel.study.grid import Study
from poskernel.study.inquiry import Inquiry, asked_units
from poskernel.study.store import Ending, Store
from poskernel.study.units import Key, Status, Unit

if TYPE_CHECKING:
    import pandas as pd

Item = TypeVar("Item")


class Retry(StrEnum):
    """Which stored failures a run tries again."""

    NEVER = "never"
    INTERRUPTED = "interrupted"
    """Those that came from outside: a killed worker, no memory, no time."""
    FAILED = "failed"
    """All of them."""

    def applies(self, ending: Ending) -> bool:
        """Whether a measurement that ended so is tried again."""
        if self is Retry.NEVER or ending.status in (Status.DONE, Status.UNLEARNED):
            return False
        return self is Retry.FAILED or ending.transient


@dataclass(frozen=True)
class Shard:
    """One of several parts of a study, so that as many machines do a part each.

    The split depends on the study alone, not on what a store holds: units are dealt out in the order of the plan, which
    keeps units of one size together, so that parts differ by one unit of each size at most.
    """

    number: int = 1
    """1 to `of`."""
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise InputError(
                f"shard {self.number}/{self.of} does not exist: give one of 1/{self.of} to {self.of}/{self.of}."
            )

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """`2/4` as the second of four; InputError for what is none."""
        number, slash, of = text.partition("/")
        if not (slash and number.isdecimal() and of.isdecimal() and int(of)):
            raise InputError(f"--shard is '{text}': give a part and their number, such as 1/4.")
        return cls(int(number), int(of))

    def part(self, items: Sequence[Item]) -> list[Item]:
        """Its part of some items."""
        return list(items[self.number - 1 :: self.of])


WHOLE = Shard()


@dataclass(frozen=True)
class PlannedUnit:
    """A unit that will run, and why."""

    unit: Unit
    reason: str


def plan(
    study: Study | Inquiry,
    store: Store,
    retry: Retry = Retry.INTERRUPTED,
    weights: Path | None = None,
    shard: Shard = WHOLE,
    batching: Batching = ONE_BY_ONE,
) -> list[PlannedUnit]:
    """The units that a run would work on, each with the reason, in the order they start.

    With a `weights` folder, units whose trained weights are not there count as missing too. Batches of models are those
    of the whole study, whatever is there already: a batch that lacks one measurement is worked on as a whole.
    """
    endings, units = store.endings(), shard.part(batching.of(asked_units(study)))
    found = [(unit, reason_to_start(unit, endings, retry, weights)) for unit in units]
    return [PlannedUnit(unit, reason) for unit, reason in found if reason is not None]


def reason_to_start(unit: Unit, endings: Mapping[Key, Ending], retry: Retry, weights: Path | None) -> str | None:
    """Why a unit is worked on: for its measurements, or for its weights alone; None if all is there."""
    reason = reason_to_run(unit, endings, retry)
    files = [] if weights is None else [part.weights_file(weights) for part in unit.parts]
    if reason is None and any(file is not None and not file.exists() for file in files):
        return "its weights are not kept"
    return reason


def reason_to_run(unit: Unit, endings: Mapping[Key, Ending], retry: Retry) -> str | None:
    """Why a unit runs; None if all it measures is there."""
    if len(unit.parts) > 1:
        reasons = [reason_to_run(part, endings, retry) for part in unit.parts]
        found = [reason for reason in reasons if reason is not None]
        if not found or set(reasons) == {"new"}:
            return found[0] if found else None
        return f"{len(found)} of {len(reasons)} models: {'; '.join(dict.fromkeys(found))}"
    held = {key: endings[key] for key in unit.keys if key in endings}
    again = next((ending for ending in held.values() if retry.applies(ending)), None)
    if not held:
        return "new"
    if again is not None:
        return f"{again.status} before: {again.reason}"
    missing = [f"{key[1]} at {key[2]}" for key in unit.keys if key not in held]
    return f"not measured yet: {', '.join(missing)}" if missing else None


def status(study: Study | Inquiry, store: Store) -> "pd.DataFrame":
    """How many measurements of each kind and tier are there: columns kind, tier, wanted, each status, missing."""
    import pandas as pd

    endings = store.endings()
    counts: dict[tuple[str, int | None], Counter[str]] = {}
    for unit in asked_units(study):
        count = counts.setdefault((unit.kind, unit.cell.tier), Counter())
        for key in unit.keys:
            count["wanted"] += 1
            count[str(endings[key].status) if key in endings else "missing"] += 1
    columns = ("wanted", *(str(status) for status in Status), "missing")
    rows = [
        {"kind": kind, "tier": tier, **{column: count[column] for column in columns}}
        for (kind, tier), count in counts.items()
    ]
    return pd.DataFrame(rows, columns=["kind", "tier", *columns]).astype({"tier": "Int64"})
