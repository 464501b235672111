"""What a run does with answers, deaths, limits and other runs; on scripted executors (real faults: test_faults.py)."""

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
from poskernel.study.planning import Retry, Shard, plan
from poskernel.study.progress import Progress, Standing
from poskernel.study.runner import run
from poskernel.study.store import CellRow, Store
from poskernel.study.units import Measurement, PredictionUnit, Status, TrainingUnit, Unit, units_of
from poskernel.study.workers import Workers
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


class Recorder(Progress):
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[Standing, str]] = []
        self.told: list[str] = []

    def show(self, standing: Standing, last: str) -> None:
        self.shown.append((standing, last))

    def tell(self, message: str) -> None:
        self.told.append(message)


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
    assert recorder.told == [f"{UNITS[3].description} failed: the loss is nan"]


def test_kept_weights_are_rebuilt_without_touching_rows(store: Store, tmp_path: Path) -> None:
    for unit in UNITS[:-1]:
        put(store, unit, right(unit))
    put(store, UNITS[-1], nan_loss(UNITS[-1]))
    before, weights = store.rows(), tmp_path / "weights"
    assert [item.reason for item in plan(STUDY, store, weights=weights)] == ["its weights are not kept"] * 4
    with ThreadPoolExecutor(1) as threads:
        summary = run(STUDY, store, weights=weights, executor=threads)
        assert (summary.done, summary.skipped) == (4, 2)
        files = {file: file.read_bytes() for file in weights.iterdir()}
        assert set(files) == {unit.weights_file(weights) for unit in UNITS[2:]}
        next(iter(files)).unlink()
        assert run(STUDY, store, weights=weights, executor=threads).done == 1
    assert {file: file.read_bytes() for file in weights.iterdir()} == files
    assert store.rows() == before  # not even the failed one, though its training went well this time
    assert plan(STUDY, store, weights=weights) == []


def test_weights_that_workers_elsewhere_did_not_leave_here_are_missed_aloud(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(STUDY, store, weights=tmp_path / "weights", executor=Scripted({UNITS[2]: [nan_loss]}))
    assert "weights of 3 trained models are not in" in caplog.text
    assert "folder they share" in caplog.text


def test_a_second_run_leaves_what_the_first_has_done(store: Store, tmp_path: Path) -> None:
    def meanwhile(unit: Unit) -> list[Measurement]:
        with Store(store.path) as other:
            for done in UNITS[1:4]:
                put(other, done, right(done))
        return right(unit)

    executor, recorder = Scripted({UNITS[0]: [meanwhile]}), Recorder()
    summary = run(STUDY, store, workers=1, executor=executor, progress=recorder)
    assert executor.asked == [UNITS[0], UNITS[4], UNITS[5]]
    assert (summary.done, summary.skipped, summary.failed) == (3, 3, 0)
    assert [(s.finished, s.units) for s, _ in recorder.shown] == [(1, 6), (2, 3), (3, 3)]
    assert recorder.shown[-1][0].left == pytest.approx(0.0, abs=1e-9)


def test_two_runs_in_step_part_ways(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poskernel.study.runner.random.shuffle", lambda waiting: waiting.reverse())

    def meanwhile(unit: Unit) -> list[Measurement]:
        with Store(store.path) as other:
            put(other, unit, [replace(m, value=0.25) for m in right(unit)])
        return right(unit)

    executor = Scripted({UNITS[1]: [meanwhile]})
    run(STUDY, store, workers=1, executor=executor)
    assert executor.asked == [*UNITS[:2], *reversed(UNITS[2:])]
    assert {row["value"] for row in store.rows([UNITS[1]])} == {0.25}  # what came first stays


def test_a_unit_without_memory_is_tried_again(store: Store) -> None:
    def starved(unit: Unit) -> list[Measurement]:
        return unit.failures("out of memory: none left", transient=True)

    executor = Scripted({UNITS[2]: [starved, starved], UNITS[3]: [starved] * 9})
    summary = run(STUDY, store, attempts=3, executor=executor)
    assert (summary.done, summary.failed) == (5, 1)
    assert [executor.asked.count(unit) for unit in UNITS] == [1, 1, 3, 3, 1, 1]
    assert {row["reason"] for row in store.rows([UNITS[3]])} == {"out of memory: none left"}


def test_shards_together_do_everything_once(store: Store) -> None:
    executor = Scripted()
    summaries = [run(STUDY, store, executor=executor, shard=Shard(number, 4)) for number in (3, 1, 4, 2)]
    assert sorted(map(UNITS.index, executor.asked)) == list(range(6))
    assert [(s.done, s.skipped) for s in summaries] == [(1, 0), (2, 0), (1, 0), (2, 0)]
    assert plan(STUDY, store) == []


class Elsewhere(Workers):
    """Workers that are told what to say: two at once, begun when asked, ended on demand."""

    capacity = 2

    def __init__(self) -> None:
        self.futures: dict[Future[Any], Unit] = {}
        self.begun: set[Unit] = set()
        self.ended: list[Unit] = []
        self.refreshed = self.stopped = 0

    def submit(self, function: object, /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        self.futures[future] = args[0]
        assert len(self.futures) <= 2
        return future

    def running(self, future: "Future[Any]") -> bool:
        return self.futures[future] in self.begun

    def refresh(self) -> None:
        self.refreshed += 1
        for future, unit in list(self.futures.items()):
            if unit != UNITS[0] and not (unit == UNITS[1] and self.refreshed < 6):
                del self.futures[future]
                future.set_result(right(unit))

    def kill(self, future: "Future[Any]") -> None:
        self.ended.append(self.futures.pop(future))
        future.cancel()
        future.set_running_or_notify_cancel()

    def stop(self) -> None:
        self.stopped += 1


def test_waiting_for_a_worker_is_no_work_and_cancelled_work_is_a_timeout(store: Store) -> None:
    workers = Elsewhere()
    workers.begun.add(UNITS[0])  # it never ends; the second waits longer than a unit may work, and is never begun
    summary = run(STUDY, store, unit_seconds=0.1, executor=workers)
    assert workers.ended == [UNITS[0]]
    assert (summary.done, summary.failed) == (5, 1)
    assert {row["reason"] for row in store.rows([UNITS[0]])} == {"it ran longer than 0.1 s"}
    assert (workers.futures, workers.stopped) == ({}, 0)


def test_an_end_by_force_stops_work_elsewhere(store: Store) -> None:
    class Interrupting(Recorder):
        def show(self, standing: Standing, last: str) -> None:
            raise KeyboardInterrupt

    workers = Elsewhere()
    with pytest.raises(KeyboardInterrupt):
        run(STUDY, store, executor=workers, progress=Interrupting())
    assert workers.stopped == 1


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"workers": 0}, "0 workers can do nothing"),
        ({"attempts": 0}, "0 attempts try nothing"),
        ({"unit_seconds": 0.0}, "within 0 s"),
        ({"unit_seconds": float("nan")}, "within nan s"),
    ],
)
def test_limits_under_which_nothing_is_done_are_refused(store: Store, limits: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        run(STUDY, store, **limits)


def test_an_error_of_the_store_is_raised_not_swallowed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise RunError("the disk is full")

    monkeypatch.setattr(Store, "add", full)
    with pytest.raises(RunError, match="the disk is full"):
        run(STUDY, store, executor=Scripted())


def test_the_units_are_what_the_tests_above_assume() -> None:
    assert [type(unit) for unit in UNITS] == [PredictionUnit] * 2 + [TrainingUnit] * 4
