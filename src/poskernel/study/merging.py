"""Two stores into one: nothing twice, nothing lost, and nothing that ended overwritten.

For each measurement that both hold, what ended (done, unlearned) wins over what did not; of two failures the definite
one wins over one that came from outside. Two endings that differ are a conflict, which is reported: the target's stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from poskernel.errors import InputError
from poskernel.study.store import CellRow, Made, Store
from poskernel.study.units import Key, Measurement, Status

ENDED = (Status.DONE, Status.UNLEARNED)


@dataclass(frozen=True)
class Conflict:
    """Two endings of one measurement that differ."""

    cell: CellRow
    kept: Made
    other: Made

    @property
    def row(self) -> dict[str, Any]:
        """Both sides beside each other, for a table."""
        kept, other = self.kept.measurement, self.other.measurement
        return {
            "cell": kept.cell, "encoding": self.cell.encoding, "task": self.cell.task, "metric": str(kept.metric),
            "length": kept.length, "seed": kept.seed if kept.seed >= 0 else None,
            "value": kept.value, "status": str(kept.status), "reason": kept.reason, "versions": self.kept.versions,
            "other_value": other.value, "other_status": str(other.status), "other_reason": other.reason,
            "other_versions": self.other.versions,
        }  # fmt: skip


@dataclass(frozen=True)
class Merged:
    """What a merge did, in measurements of the source."""

    measurements: int
    new: int
    replaced: int
    """A failure of the target's gave way."""
    same: int
    """Both hold the same ending, perhaps made with other versions."""
    kept: int
    """Failures of the source that gave way."""
    conflicts: tuple[Conflict, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Its numbers, for a table."""
        counts = {name: getattr(self, name) for name in ("measurements", "new", "replaced", "same", "kept")}
        return {**counts, "conflicts": len(self.conflicts)}


def merge(source: Store, target: Store) -> Merged:
    """Bring every measurement of one store into another, all or none.

    Idempotent. Whatever the order of merging, the same measurements result, but for reported conflicts and for the
    versions of measurements that agree. InputError for a store that is merged into itself.
    """
    if source.path.resolve() == target.path.resolve():
        raise InputError(f"'{source.path}' would be merged into itself: name another store.")
    return merge_rows(source.cells(), source.made(), target)


def merge_rows(cells: Mapping[str, CellRow], rows: Mapping[Key, Made], target: Store) -> Merged:
    """Bring measurements and their cells into a store, as `merge` does."""
    held = target.made()
    wanted: list[Made] = []
    counts = dict.fromkeys(("new", "replaced", "same", "kept"), 0)
    conflicts = []
    for key, theirs in sorted(rows.items()):
        mine = held.get(key)
        verdict = "new" if mine is None else verdict_on(mine.measurement, theirs.measurement)
        if verdict in ("new", "replaced"):
            wanted.append(theirs)
        if verdict == "conflict":
            assert mine is not None
            conflicts.append(Conflict(cells[key[0]], mine, theirs))
        else:
            counts[verdict] += 1
    target.add_made((cells[name] for name in sorted({made.measurement.cell for made in wanted})), wanted)
    return Merged(len(rows), **counts, conflicts=tuple(conflicts))


def verdict_on(mine: Measurement, theirs: Measurement) -> str:
    """What becomes of the source's measurement where the target has one too: same, replaced, kept or conflict."""
    if mine == theirs:
        return "same"
    if mine.status in ENDED and theirs.status in ENDED:
        return "conflict"
    return "replaced" if standing(theirs) < standing(mine) else "kept"


def standing(measurement: Measurement) -> tuple[bool, bool, str, str]:
    """What goes before what where at most one has ended: smaller goes before."""
    return (
        measurement.status not in ENDED,
        measurement.transient,
        str(measurement.status),
        measurement.reason,
    )
