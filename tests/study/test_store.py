"""The store: whole units or nothing, no doubles, no overwriting, and one sentence for every way it can fail."""

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError, RunError
from poskernel.study import store as store_module
from poskernel.study.grid import PredictionCell, TrainingCell
from poskernel.study.store import COLUMNS, SCHEMA_VERSION, CellRow, Store, software_versions
from poskernel.study.units import NO_SEED, Measurement, Metric, PredictionUnit, Status, TrainingUnit
from poskernel.tasks import TASKS

TRAINED = TrainingCell(ENCODINGS["rope"], TASKS["prev"])
PREDICTED = PredictionCell(ENCODINGS["rope"], TASKS["prev"])
CELLS = [CellRow.of(TRAINED), CellRow.of(PREDICTED)]


def trained(
    value: float | None, length: int = 30, seed: int = 0, status: Status = Status.DONE, **rest: object
) -> Measurement:
    return Measurement(TRAINED.id, Metric.LENGTH_GENERALIZATION, length, seed, value, status, **rest)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "folder" / "results.sqlite") as opened:
        yield opened


def test_what_goes_in_comes_out_sorted_with_the_cells_columns(store: Store) -> None:
    predicted = Measurement(PREDICTED.id, Metric.ALPHA, 30, NO_SEED, 0.1 + 0.2, Status.DONE, "why")
    store.add(
        CELLS, [trained(0.5, seed=1), predicted, trained(1 / 3, seed=0), trained(None, length=40, status=Status.FAILED)]
    )
    rows = store.rows()
    assert [(row["metric"], row["length"], row["seed"], row["value"]) for row in rows] == [
        ("length_generalization", 30, 0, 1 / 3),
        ("length_generalization", 30, 1, 0.5),
        ("length_generalization", 40, 0, None),
        ("alpha", 30, None, 0.1 + 0.2),
    ]
    shared = {"encoding": "rope", "task": "prev", "train_length": 20, "versions": software_versions()}
    assert rows[0] == {
        **shared, "cell": TRAINED.id, "tier": 1, "rule": None, "seed": 0, "length": 30,
        "metric": "length_generalization", "value": 1 / 3, "status": "done", "reason": "",
    }  # fmt: skip
    assert rows[-1] == {
        **shared, "cell": PREDICTED.id, "tier": None, "rule": "adam", "seed": None, "length": 30,
        "metric": "alpha", "value": 0.1 + 0.2, "status": "done", "reason": "why",
    }  # fmt: skip


def test_the_frame_has_one_type_a_column_whatever_it_holds(store: Store) -> None:
    empty = store.to_frame()
    store.add(
        CELLS, [trained(None, status=Status.FAILED), Measurement(PREDICTED.id, "alpha", 30, NO_SEED, 1.0, Status.DONE)]
    )
    full = store.to_frame()
    assert list(full.columns) == list(empty.columns) == list(COLUMNS)
    assert (full.dtypes == empty.dtypes).all()
    assert full["seed"].isna().tolist() == [False, True]
    assert full["value"].isna().tolist() == [True, False]


def test_rows_of_units_are_theirs_alone(store: Store) -> None:
    store.add(CELLS, [trained(0.1), trained(0.2, length=40), trained(0.3, seed=1)])
    assert [row["value"] for row in store.rows([TrainingUnit(TRAINED, (40,), seed=0)])] == [0.2]
    assert store.rows([PredictionUnit(PREDICTED, (30,))]) == []


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=8))
def test_the_first_measurement_that_ended_stays(
    tmp_path_factory: pytest.TempPathFactory, writes: Sequence[tuple]
) -> None:
    with Store(tmp_path_factory.mktemp("store") / "s.sqlite") as store:
        expected: dict[int, Measurement] = {}
        for ended, value, seed in writes:
            written = trained(
                value if ended else None, seed=seed, status=Status.DONE if ended else Status.FAILED, reason=str(value)
            )
            store.add(CELLS, [written])
            if seed not in expected or expected[seed].status is Status.FAILED:
                expected[seed] = written
        found = {row["seed"]: (row["value"], row["status"], row["reason"]) for row in store.rows()}
        assert found == {seed: (m.value, m.status, m.reason) for seed, m in expected.items()}


def test_a_unit_is_stored_whole_or_not_at_all(store: Store) -> None:
    def interrupted() -> Iterator[Measurement]:
        yield trained(0.5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add(CELLS, interrupted())
    of_no_cell = Measurement("unknown", Metric.ALPHA, 30, 0, 0.5, Status.DONE)
    with pytest.raises(RunError):
        store.add(CELLS, [trained(0.1), of_no_cell])
    assert store.rows() == []
    assert store.cells() == {}


def test_a_measurement_needs_its_cell(store: Store) -> None:
    with pytest.raises(RunError, match="FOREIGN KEY"):
        store.add([], [trained(0.5)])


def test_endings_tell_how_each_measurement_ended(store: Store) -> None:
    store.add(CELLS, [trained(None, status=Status.TIMEOUT, reason="too long", transient=True)])
    ending = store.endings()[trained(None).key]
    assert (ending.status, ending.reason, ending.transient) == (Status.TIMEOUT, "too long", True)


def test_two_connections_write_side_by_side(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as first, Store(tmp_path / "s.sqlite") as second:
        for seed in range(20):
            (first, second)[seed % 2].add(CELLS, [trained(seed / 20, seed=seed)])
            second.add(CELLS, [trained(0.0, seed=seed)])  # the other one's answer comes too late
        assert [row["value"] for row in first.rows()] == [seed / 20 for seed in range(20)]


def test_a_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no store at '.*missing.sqlite': run a study or an"):
        Store(tmp_path / "missing.sqlite", create=False)
    assert list(tmp_path.iterdir()) == []


def test_another_schema_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(
        InputError, match=rf"has schema version 7, this version of poskernel reads {SCHEMA_VERSION}: export it"
    ):
        Store(path)


def test_files_that_are_no_store_are_refused_and_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "notes.txt", tmp_path / "other.sqlite"
    text.write_text("these are my notes, not a database\n" * 100)
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    for path, message in ((text, "is no SQLite file"), (other, "is an SQLite file but no store of this package")):
        before = path.read_bytes()
        with pytest.raises(InputError, match=message):
            Store(path)
        assert path.read_bytes() == before


def test_paths_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=re.escape(f"the store '{tmp_path}' cannot be opened")):
        Store(tmp_path)
    with pytest.raises(InputError, match="cannot be opened"):
        Store(tmp_path / "file" / "s.sqlite")


def test_a_full_disk_keeps_what_was_stored(store: Store) -> None:
    store.add(CELLS, [trained(0.5)])
    pages = store._pragma("page_count")
    store._connection.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own way to run out of room
    many = [trained(0.1, seed=seed, reason="x" * 1000) for seed in range(1, 200)]
    with pytest.raises(RunError, match=r"the disk of the store '.*' is full: free space and run again"):
        store.add(CELLS, many)
    assert [row["value"] for row in store.rows()] == [0.5]


def test_a_locked_store_says_so_and_loses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "WAIT_SECONDS", 0.1)
    other = sqlite3.connect(store.path, isolation_level=None)
    with Store(store.path) as waiting:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RunError, match="was locked by another process"):
            waiting.add(CELLS, [trained(0.5)])
        other.execute("ROLLBACK")
        waiting.add(CELLS, [trained(0.5)])
    other.close()
    assert len(store.rows()) == 1


def test_a_read_only_store_says_so(store: Store) -> None:
    store._connection.execute(
        "PRAGMA query_only = ON"
    )  # what a file without write permission answers; root ignores those
    with pytest.raises(InputError, match=r"the store '.*' is read-only: make it writable"):
        store.add(CELLS, [trained(0.5)])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(InputError, match="cannot be opened"):
        Store(tmp_path / "closed" / "s.sqlite")
