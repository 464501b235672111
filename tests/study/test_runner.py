"""Planning, faults and time limits; on a scripted executor where what is tested is the runner alone."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError, RunError
from poskernel.models.training import Recipe
from poskernel.study.grid import Axes, Study
from poskernel.study.progress import Progress, Standing
from poskernel.study.planning import Retry, plan
from poskernel.study.runner import run
from poskernel.study.store import CellRow, Store
from poskernel.study.units import Measurement, PredictionUnit, Status, TrainingUnit, Unit, units_of
from poskernel.tasks import TASKS

AXES = Axes(
    encodings=(ENCODINGS["rope"], ENCODINGS["alibi"]),
    tasks=(TASKS["prev"],),
    tiers=(1,),
    seeds=(0, 1),
    lengths=(30, 40),
    existence=False,
    width=8,
    recipe=Recipe(steps=2, batch=2, evaluation_sequences=4),
)
STUDY = Study("small", "?", (AXES,))
UNITS = units_of(STUDY)  # 2 predictions, then 4 models
Answer = Callable[[Unit], list[Measurement]]


def right(unit: Unit) -> list[Measurement]:
    return [Measurement(*key, value=0.5, status=Status.DONE) for key in unit.keys]


def nan_loss(unit: Unit) -> list[Measurement]:
    return unit.failures("the loss is nan", transient=False)


class Scripted(Executor):
    """Answers at once: each unit takes its next answer from its script, then right ones."""

    def __init__(self, scripts: dict[Unit, list[Any]] | None = None) -> None:
        self.scripts = {unit: list(answers) for unit, answers in (scripts or {}).items()}
        self.asked: list[Unit] = []

    def submit(self, function: object, /, *args: Any, **kwargs: Any) -> "Future[Any]":
        (unit, _), future = args, Future()  # type: ignore[var-annotated]
        self.asked.append(unit)
        answer = self.scripts.get(unit, [right]).pop(0) if self.scripts.get(unit) else right
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer(unit))
        return future


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.sqlite") as opened:
        yield opened


def put(store: Store, unit: Unit, measurements: list[Measurement]) -> None:
    store.add([CellRow.of(cell) for cell in unit.cells], measurements)


def test_an_empty_store_lacks_everything_and_a_full_one_nothing(store: Store) -> None:
    assert [(item.unit, item.reason) for item in plan(STUDY, store)] == [(unit, "new") for unit in UNITS]
    executor = Scripted()
    summary = run(STUDY, store, executor=executor)
    assert (summary.done, summary.skipped, summary.failed) == (6, 0, 0)
    assert executor.asked == UNITS
    assert plan(STUDY, store) == []
    again = run(STUDY, store, executor=executor)
    assert (again.done, again.skipped, again.failed) == (0, 6, 0)
    assert len(executor.asked) == 6


def test_a_longer_axis_runs_what_is_missing_and_says_what(store: Store) -> None:
    run(STUDY, store, executor=Scripted())
    before = store.rows()
    longer = Study("longer", "?", (replace(AXES, lengths=(30, 40, 50)),))
    planned = plan(longer, store)
    assert [item.reason for item in planned] == ["not measured yet: alpha at 50"] * 2 + [
        "not measured yet: length_generalization at 50"
    ] * 4
    other = {unit: [lambda unit: [replace(m, value=0.9) for m in right(unit)]] for unit in units_of(longer)}
    run(longer, store, executor=Scripted(other))
    assert [row for row in store.rows() if row["length"] != 50] == before
    assert {row["value"] for row in store.rows() if row["length"] == 50} == {0.9}


def test_failures_are_tried_again_as_the_policy_says(store: Store) -> None:
    nan, killed = UNITS[2], UNITS[3]
    for unit in UNITS:
        put(store, unit, right(unit) if unit not in (nan, killed) else [])
    put(store, nan, nan_loss(nan))
    put(store, killed, killed.failures("killed", transient=True))
    assert plan(STUDY, store, Retry.NEVER) == []
    assert [(item.unit, item.reason) for item in plan(STUDY, store)] == [(killed, "failed before: killed")]
    assert [item.reason for item in plan(STUDY, store, Retry.FAILED)] == [
        "failed before: the loss is nan", "failed before: killed",
    ]  # fmt: skip
    run(STUDY, store, retry=Retry.FAILED, executor=Scripted())
    assert {row["status"] for row in store.rows()} == {"done"}


def test_a_failure_keeps_its_row_and_the_rest_goes_on(store: Store) -> None:
    summary = run(STUDY, store, executor=Scripted({UNITS[2]: [nan_loss]}))
    assert (summary.done, summary.failed) == (5, 1)
    failed = [row for row in store.rows() if row["status"] == "failed"]
    assert [(row["value"], row["reason"]) for row in failed] == [(None, "the loss is nan")] * 3


def test_a_unit_whose_worker_dies_is_tried_again_and_then_stored_as_failed(store: Store) -> None:
    death = BrokenProcessPool("died")
    executor = Scripted({UNITS[0]: [death, death], UNITS[4]: [death] * 9})
    summary = run(STUDY, store, attempts=3, executor=executor)
    assert (summary.done, summary.failed) == (5, 1)
    assert [executor.asked.count(unit) for unit in UNITS] == [3, 1, 1, 1, 3, 1]
    failed = store.rows([UNITS[4]])
    assert {row["reason"] for row in failed} == {"its worker ended 3 times without an answer (BrokenProcessPool: died)"}
    assert [item.unit for item in plan(STUDY, store)] == [UNITS[4]]  # it may go well another time


def test_a_store_that_cannot_be_written_ends_the_run(store: Store) -> None:
    store._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(InputError, match="is read-only"):
        run(STUDY, store, executor=Scripted())


def test_another_executor_gives_the_same_rows(store: Store, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        run(STUDY, store, executor=threads)
    with Store(tmp_path / "alone.sqlite") as alone:
        for unit in UNITS:
            put(alone, unit, unit.run())
        assert store.rows() == alone.rows()


def test_a_unit_that_takes_too_long_ends_as_timeout_and_the_rest_goes_on(store: Store) -> None:
    endless = replace(AXES, encodings=AXES.encodings[:1], seeds=(0,), recipe=Recipe(steps=10**8, batch=2))
    study = Study("endless", "?", (endless, replace(AXES, tiers=())))
    summary = run(study, store, workers=1, unit_seconds=15.0)
    assert (summary.done, summary.failed) == (2, 1)
    late = [row for row in store.rows() if row["status"] == "timeout"]
    assert [(row["metric"], row["reason"]) for row in late] == [
        ("length_generalization", "it ran longer than 15 s"),
        ("length_generalization", "it ran longer than 15 s"),
        ("train_accuracy", "it ran longer than 15 s"),
    ]


class Recorder(Progress):
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[Standing, str]] = []

    def show(self, standing: Standing, last: str) -> None:
        self.shown.append((standing, last))


def test_progress_counts_new_units_alone(store: Store) -> None:
    for unit in UNITS[:3]:
        put(store, unit, right(unit))
    recorder = Recorder()
    run(STUDY, store, progress=recorder, executor=Scripted({UNITS[3]: [nan_loss]}))
    assert [(s.finished, s.units, s.failed) for s, _ in recorder.shown] == [(1, 3, 1), (2, 3, 1), (3, 3, 1)]
    last = recorder.shown[-1][0]
    assert last.finished_cost == pytest.approx(last.cost)
    assert last.left == pytest.approx(0.0, abs=1e-9)
    assert recorder.shown[0][1] == UNITS[3].description


def test_no_workers_are_refused(store: Store) -> None:
    with pytest.raises(InputError, match="0 workers can do nothing"):
        run(STUDY, store, workers=0)


def test_an_error_of_the_store_is_raised_not_swallowed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise RunError("the disk is full")

    monkeypatch.setattr(Store, "add", full)
    with pytest.raises(RunError, match="the disk is full"):
        run(STUDY, store, executor=Scripted())


def test_the_units_are_what_the_tests_above_assume() -> None:
    assert [type(unit) for unit in UNITS] == [PredictionUnit] * 2 + [TrainingUnit] * 4
