"""Run what a study is missing: plan, submit, store. Finished measurements are neither lost nor made twice."""

import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from poskernel.errors import InputError, Terminated
from poskernel.study.grid import Study
from poskernel.study.progress import Progress, Silent, Standing
from poskernel.study.store import CellRow, Ending, Store
from poskernel.study.units import Key, Measurement, PredictionUnit, Status, Unit, units_of
from poskernel.study.workers import WorkerPool

if TYPE_CHECKING:
    import pandas as pd

ATTEMPTS = 3
"""How often a unit is tried whose worker dies, before it is stored as failed."""
POLL_SECONDS = 0.2
"""How often a run looks at signals and at units that take too long."""


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
class PlannedUnit:
    """A unit that will run, and why."""

    unit: Unit
    reason: str


@dataclass(frozen=True)
class Summary:
    """What a run did, in units."""

    done: int
    skipped: int
    """Units that were there before."""
    failed: int
    """Units that ended in a failure or ran out of time."""
    seconds: float


def plan(
    study: Study, store: Store, retry: Retry = Retry.INTERRUPTED, weights: Path | None = None
) -> list[PlannedUnit]:
    """The units that a run would work on, each with the reason, in the order they start.

    With a `weights` folder, units whose trained weights are not there count as missing too.
    """
    endings = store.endings()
    planned = []
    for unit in units_of(study):
        reason = reason_to_run(unit, endings, retry)
        file = None if weights is None else unit.weights_file(weights)
        if reason is None and file is not None and not file.exists():
            reason = "its weights are not kept"
        if reason is not None:
            planned.append(PlannedUnit(unit, reason))
    return planned


def reason_to_run(unit: Unit, endings: Mapping[Key, Ending], retry: Retry) -> str | None:
    """Why a unit runs; None if all it measures is there."""
    held = {key: endings[key] for key in unit.keys if key in endings}
    again = next((ending for ending in held.values() if retry.applies(ending)), None)
    if not held:
        return "new"
    if again is not None:
        return f"{again.status} before: {again.reason}"
    missing = [f"{key[1]} at {key[2]}" for key in unit.keys if key not in held]
    return f"not measured yet: {', '.join(missing)}" if missing else None


def work(unit: Unit, weights: Path | None) -> list[Measurement]:
    """What a worker does."""
    return unit.run(weights)


@dataclass
class Flight:
    """A unit being worked on."""

    planned: PlannedUnit
    attempt: int
    started: float


@dataclass
class Run:
    """One run's state: what waits, what is being worked on, what ended."""

    store: Store
    executor: Executor
    capacity: int
    weights: Path | None
    attempts: int
    unit_seconds: float | None
    waiting: deque[tuple[PlannedUnit, int]]
    flying: dict["Future[list[Measurement]]", Flight] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)

    def launch(self) -> None:
        """Submit as many units as are worked on at once; more would only wait where a death could take them along."""
        while self.waiting and len(self.flying) < self.capacity:
            planned, attempt = self.waiting.popleft()
            future = self.executor.submit(work, planned.unit, self.weights)
            self.flying[future] = Flight(planned, attempt, time.monotonic())

    def settle(self, future: "Future[list[Measurement]]") -> Unit | None:
        """Store what a unit gave, or try it again; the unit if it has ended."""
        flight = self.flying.pop(future)
        unit, error = flight.planned.unit, future.exception()
        if error is None:
            measurements = future.result()
        elif self.overdue(flight):
            reason = f"it ran longer than {self.unit_seconds:g} s"
            measurements = unit.failures(reason, transient=True, status=Status.TIMEOUT)
        elif flight.attempt < self.attempts:
            self.waiting.append((flight.planned, flight.attempt + 1))
            return None
        else:
            reason = f"its worker ended {flight.attempt} times without an answer ({type(error).__name__}: {error})"
            measurements = unit.failures(reason, transient=True)
        self.store.add([CellRow.of(cell) for cell in unit.cells], measurements)
        bad = any(measurement.status in (Status.FAILED, Status.TIMEOUT) for measurement in measurements)
        self.ended["failed" if bad else "done"] += 1
        return unit

    def overdue(self, flight: Flight) -> bool:
        """Whether a unit takes longer than it may."""
        return self.unit_seconds is not None and time.monotonic() - flight.started > self.unit_seconds

    def end_overdue(self) -> None:
        """End the workers of units that take too long; their futures then fail."""
        for future, flight in self.flying.items():
            if self.overdue(flight) and isinstance(self.executor, WorkerPool):
                self.executor.kill(future)


def run(
    study: Study,
    store: Store,
    workers: int | None = None,
    progress: Progress | None = None,
    retry: Retry = Retry.INTERRUPTED,
    weights: Path | None = None,
    attempts: int = ATTEMPTS,
    unit_seconds: float | None = None,
    executor: Executor | None = None,
) -> Summary:
    """Measure what a study is missing, in `workers` processes (default: one a core) or on another executor.

    Each unit's measurements are stored as soon as it ends, together. A unit whose worker dies is tried `attempts`
    times, one that takes longer than `unit_seconds` ends as timeout; the rest goes on. SIGINT and SIGTERM end the
    workers and raise KeyboardInterrupt and Terminated, with everything that had ended in the store. A script that calls
    this needs the usual `if __name__ == "__main__"` of processes that are started afresh.
    """
    workers = cores() if workers is None else workers
    if workers < 1:
        raise InputError(f"{workers} workers can do nothing: give at least 1.")
    planned = plan(study, store, retry, weights)
    skipped = len(units_of(study)) - len(planned)
    began = time.monotonic()
    if not planned:
        return Summary(0, skipped, 0, 0.0)
    own = WorkerPool(min(workers, len(planned))) if executor is None else None
    used = executor if own is None else own
    assert used is not None
    state = Run(store, used, workers, weights, attempts, unit_seconds, deque((item, 1) for item in planned))
    try:
        with signals_noted() as stop, progress or Silent() as display:
            work_off(state, planned, display, stop)
    except BaseException:
        for future in state.flying:
            future.cancel()
        if own is not None:
            own.stop()
        raise
    if own is not None:
        own.shutdown()
    return Summary(state.ended["done"], skipped, state.ended["failed"], time.monotonic() - began)


def work_off(state: Run, planned: list[PlannedUnit], display: Progress, stop: Callable[[], None]) -> None:
    """Keep the workers busy until every planned unit has ended; `stop` raises if a signal came."""
    began, finished_cost = time.monotonic(), 0.0
    cost = sum(item.unit.cost for item in planned)
    while state.waiting or state.flying:
        stop()
        state.launch()
        ready, _ = wait(state.flying, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        for future in ready:
            unit = state.settle(future)
            if unit is not None:
                finished_cost += unit.cost
                seconds = time.monotonic() - began
                ended, failed = sum(state.ended.values()), state.ended["failed"]
                display.show(Standing(len(planned), ended, failed, cost, finished_cost, seconds), unit.description)
        state.end_overdue()


@contextmanager
def signals_noted() -> Iterator[Callable[[], None]]:
    """SIGINT and SIGTERM are noted instead of raised anywhere; the function given raises once one has come.

    A second signal raises at once. Outside the main thread signals are left alone.
    """
    came: list[int] = []

    def raise_noted() -> None:
        if came:
            raise Terminated if came[0] == signal.SIGTERM else KeyboardInterrupt

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            raise_noted()

    if threading.current_thread() is not threading.main_thread():
        yield raise_noted
        return
    before: dict[int, Any] = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield raise_noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def status(study: Study, store: Store) -> "pd.DataFrame":
    """How many measurements of each kind and tier are there: columns kind, tier, wanted, each status, missing."""
    import pandas as pd

    endings = store.endings()
    counts: dict[tuple[str, int | None], Counter[str]] = {}
    for unit in units_of(study):
        kind = "prediction" if isinstance(unit, PredictionUnit) else "training"
        count = counts.setdefault((kind, unit.cell.tier), Counter())
        for key in unit.keys:
            count["wanted"] += 1
            count[str(endings[key].status) if key in endings else "missing"] += 1
    columns = ("wanted", *(str(status) for status in Status), "missing")
    rows = [
        {"kind": kind, "tier": tier, **{column: count[column] for column in columns}}
        for (kind, tier), count in counts.items()
    ]
    return pd.DataFrame(rows, columns=["kind", "tier", *columns]).astype({"tier": "Int64"})
