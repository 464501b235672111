"""Two stores into one: idempotent, the same in any order but for reported conflicts, nothing lost or overwritten."""

import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError
from poskernel.study.grid import PredictionCell, TrainingCell
from poskernel.study.merging import Merged, merge, merge_rows
from poskernel.study.store import CellRow, Made, Store
from poskernel.study.units import Key, Measurement, Metric, Status
from poskernel.tasks import TASKS

CELLS = {
    cell.id: CellRow.of(cell)
    for cell in (TrainingCell(ENCODINGS["rope"], TASKS["prev"]), PredictionCell(ENCODINGS["alibi"], TASKS["copy"]))
}
ENDED = {"done", "unlearned"}


@st.composite
def made(draw: st.DrawFn) -> Made:
    """A measurement of few possible ones, so that two stores often hold the same."""
    status = draw(st.sampled_from(list(Status)))
    ended = status in ENDED
    value = draw(st.sampled_from([0.25, 0.75, None])) if ended else None
    transient = not ended and draw(st.booleans())
    measurement = Measurement(
        draw(st.sampled_from(sorted(CELLS))), Metric.ALPHA, draw(st.sampled_from([30, 40])), draw(st.integers(-1, 1)),
        value, status, draw(st.sampled_from(["", "why"])), transient,
    )  # fmt: skip
    return Made(measurement, draw(st.sampled_from(["torch 1", "torch 2"])))


Contents = dict[Key, Made]
contents = st.lists(made(), max_size=8).map(lambda rows: {row.measurement.key: row for row in rows})


def filled(folder: Path, name: str, rows: Contents) -> Store:
    store = Store(folder / name)
    store.add_made(CELLS.values(), rows.values())
    return store


def merged(*stores: Contents) -> tuple[Contents, list[Merged]]:
    """What the first store holds once the others were merged into it, one after another."""
    with tempfile.TemporaryDirectory() as folder:
        first, *others = (filled(Path(folder), f"{number}.sqlite", rows) for number, rows in enumerate(stores))
        reports = [merge(other, first) for other in others]
        result = first.made()
        for number, other in enumerate(others, 1):
            assert other.made() == stores[number], "a source was changed"
        for store in (first, *others):
            store.close()
        return result, reports


def apart_from_versions(rows: Contents, but: set[Key]) -> dict[Key, Measurement]:
    return {key: row.measurement for key, row in rows.items() if key not in but}


def conflicts(reports: list[Merged]) -> set[Key]:
    return {conflict.kept.measurement.key for report in reports for conflict in report.conflicts}


@settings(deadline=None, max_examples=60)
@given(contents, contents)
def test_merging_loses_nothing_and_overwrites_no_ending(mine: Contents, theirs: Contents) -> None:
    result, (report,) = merged(mine, theirs)
    assert set(result) == set(mine) | set(theirs)
    for key, row in result.items():
        sides = [side[key] for side in (mine, theirs) if key in side]
        assert row in sides
        ended = [side for side in sides if side.measurement.status in ENDED]
        if ended:
            assert row == ended[0]  # the target's own where both ended, the one there is where one did
    differing = {
        key
        for key in set(mine) & set(theirs)
        if {mine[key].measurement.status, theirs[key].measurement.status} <= ENDED
        and mine[key].measurement != theirs[key].measurement
    }
    assert conflicts([report]) == differing
    counts = report.counts
    assert counts.pop("measurements") == len(theirs) == sum(counts.values())
    assert report.new == len(set(theirs) - set(mine))


@settings(deadline=None, max_examples=40)
@given(contents, contents)
def test_merging_again_changes_nothing(mine: Contents, theirs: Contents) -> None:
    once, reports = merged(mine, theirs)
    twice, again = merged(mine, theirs, theirs)
    assert once == twice
    assert again[1].new == again[1].replaced == 0
    assert conflicts(again[1:]) == conflicts(reports)
    assert merged(mine, mine)[0] == mine


@settings(deadline=None, max_examples=40)
@given(contents, contents)
def test_the_order_matters_only_where_it_is_reported(mine: Contents, theirs: Contents) -> None:
    forth, reports = merged(mine, theirs)
    back, other_reports = merged(theirs, mine)
    differing = conflicts(reports)
    assert differing == conflicts(other_reports)
    assert apart_from_versions(forth, differing) == apart_from_versions(back, differing)


@settings(deadline=None, max_examples=40)
@given(contents, contents, contents)
def test_three_stores_give_the_same_in_any_order(first: Contents, second: Contents, third: Contents) -> None:
    forth, reports = merged(first, second, third)
    back, other_reports = merged(third, second, first)
    differing = conflicts(reports) | conflicts(other_reports)
    assert apart_from_versions(forth, differing) == apart_from_versions(back, differing)


def test_a_conflict_tells_both_sides(tmp_path: Path) -> None:
    key = (next(iter(CELLS)), "alpha", 30, -1)
    low = Made(Measurement(*key, 0.25, Status.DONE, "four rows"), "torch 1")
    high = Made(Measurement(*key, 0.75, Status.DONE, ""), "torch 2")
    target = filled(tmp_path, "a.sqlite", {key: low})
    (conflict,) = merge_rows(CELLS, {key: high}, target).conflicts
    assert target.made() == {key: low}
    cell = CELLS[key[0]]
    assert conflict.row == {
        "cell": key[0], "encoding": cell.encoding, "task": cell.task, "metric": "alpha", "length": 30, "seed": None,
        "value": 0.25, "status": "done", "reason": "four rows", "versions": "torch 1",
        "other_value": 0.75, "other_status": "done", "other_reason": "", "other_versions": "torch 2",
    }  # fmt: skip


def test_a_merge_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = (next(iter(CELLS)), "alpha", 30, -1)
    target, source = filled(tmp_path, "a.sqlite", {}), filled(tmp_path, "b.sqlite", {})
    source.add_made(CELLS.values(), [Made(Measurement(*key[:2], n, 0, 0.5, Status.DONE), "t") for n in range(30, 900)])
    target._connection.execute(f"PRAGMA max_page_count = {target._pragma('page_count')}")
    with pytest.raises(Exception, match="is full"):
        merge(source, target)
    assert target.made() == {}


def test_a_store_of_another_schema_and_the_store_itself_are_refused(tmp_path: Path) -> None:
    target, other = filled(tmp_path, "a.sqlite", {}), tmp_path / "b.sqlite"
    filled(tmp_path, "b.sqlite", {}).close()
    with sqlite3.connect(other) as connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(InputError, match="schema version 9"):
        merge(Store(other, create=False), target)
    with pytest.raises(InputError, match="merged into itself"):
        merge(Store(tmp_path / "." / "a.sqlite"), target)
