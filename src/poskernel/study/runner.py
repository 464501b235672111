"""Run what a study is missing: plan, submit, store. Finished measurements are neither lost nor made twice."""

import logging
import random
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from poskernel.errors import InputError, Terminated
from poskernel.study.batching import ONE_BY_ONE, Batching
from poskernel.study.grid import Study
from poskernel.study.inquiry import Inquiry, asked_units
from poskernel.study.planning import WHOLE, PlannedUnit, Retry, Shard, plan, reason_to_run, reason_to_start
from poskernel.study.progress import Progress, Silent, Standing
from poskernel.study.store import CellRow, Store
from poskernel.study.units import Measurement, Status, Unit
from poskernel.study.workers import WorkerPool, Workers, cores

ATTEMPTS = 3
"""How often a unit is tried whose worker dies or runs out of memory, before it is stored as failed."""
POLL_SECONDS = 0.2
"""How often a run looks at signals and at units that take too long."""
BAD = (Status.FAILED, Status.TIMEOUT)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Summary:
    """What a run did, in units."""

    done: int
    skipped: int
    """Units that were there before, or that another run on the same store did meanwhile."""
    failed: int
    """Units that ended in a failure or ran out of time."""
    seconds: float


def work(unit: Unit, weights: Path | None) -> list[Measurement]:
    """What a worker does."""
    return unit.run(weights)


@dataclass
class Flight:
    """A unit being worked on."""

    planned: PlannedUnit
    attempt: int
    lacking: bool
    """Whether the store lacked something of it when it started; otherwise it runs for its weights alone."""
    started: float | None = None
    """When its work began; None while it waits for a worker."""
    overdue: bool = False
    """Whether its work was ended because it took too long."""


@dataclass
class Run:
    """One run's state: what waits, what is being worked on, what ended."""

    store: Store
    executor: Executor
    workers: int
    retry: Retry
    weights: Path | None
    attempts: int
    unit_seconds: float | None
    waiting: deque[tuple[PlannedUnit, int]]
    flying: dict["Future[list[Measurement]]", Flight] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.units = len(self.waiting)
        self.cost = sum(planned.unit.cost for planned, _ in self.waiting)
        self.finished_cost = 0.0
        self.began = time.monotonic()

    @property
    def capacity(self) -> int:
        """How many units are worked on at once; more would only wait where a death could take them along."""
        return self.executor.capacity if isinstance(self.executor, Workers) else self.workers

    @property
    def standing(self) -> Standing:
        """How far it is."""
        ended, failed = self.ended["done"] + self.ended["failed"], self.ended["failed"]
        return Standing(self.units, ended, failed, self.cost, self.finished_cost, seconds=time.monotonic() - self.began)

    def launch(self) -> None:
        """Submit units, but those whose measurements another run on this store has made since the plan."""
        free = self.capacity - len(self.flying) if self.waiting else 0
        while self.waiting and free > 0:
            planned, attempt = self.waiting.popleft()
            endings = self.store.endings([planned.unit])
            if reason_to_start(planned.unit, endings, self.retry, self.weights) is None:
                self.leave(planned.unit)
                continue
            lacking = reason_to_run(planned.unit, endings, self.retry) is not None
            future = self.executor.submit(work, planned.unit, self.weights)
            self.flying[future] = Flight(planned, attempt, lacking)
            free -= 1

    def leave(self, unit: Unit) -> None:
        """Count a unit that another run has done as one that was there before."""
        self.units -= 1
        self.cost -= unit.cost
        self.ended["elsewhere"] += 1

    def settle(self, future: "Future[list[Measurement]]") -> tuple[Unit, list[str]] | None:
        """Store what a unit gave, or try it again; the unit if it has ended, and in words what of it failed."""
        flight = self.flying[future]
        measurements = self.outcome(future, flight)
        del self.flying[future]
        if measurements is None:
            self.waiting.append((flight.planned, flight.attempt + 1))
            return None
        unit = flight.planned.unit
        endings = self.store.endings([unit])
        if flight.lacking and reason_to_run(unit, endings, self.retry) is None:
            # Another run did the same work meanwhile. Both go through the plan in step, unless one leaves its order.
            random.shuffle(self.waiting)
        fresh = [each for each in measurements if each.key not in endings or self.retry.applies(endings[each.key])]
        self.store.add([CellRow.of(cell) for cell in unit.cells], fresh)
        self.ended["failed" if any(each.status in BAD for each in measurements) else "done"] += 1
        self.finished_cost += unit.cost
        return unit, failures(unit, measurements)

    def outcome(self, future: "Future[list[Measurement]]", flight: Flight) -> list[Measurement] | None:
        """What ended work gave, failures in words; None where it is to be tried again."""
        unit, error = flight.planned.unit, CancelledError() if future.cancelled() else future.exception()
        again = flight.attempt < self.attempts
        if error is None:
            measurements = future.result()
            starved = all(each.status is Status.FAILED and each.transient for each in measurements)
            return None if starved and again else measurements
        if flight.overdue:
            reason = f"it ran longer than {self.unit_seconds:g} s"
            return unit.failures(reason, transient=True, status=Status.TIMEOUT)
        if again:
            return None
        known = self.executor if isinstance(self.executor, Workers) else None
        account = f"{type(error).__name__}: {error}" if known is None else known.account(future, error)
        times = "once" if flight.attempt == 1 else f"{flight.attempt} times"
        return unit.failures(f"its worker ended {times} without an answer ({account})", transient=True)

    def end_overdue(self) -> None:
        """End the work of units that take too long; their futures then fail. Waiting for a worker does not count."""
        if self.unit_seconds is None:
            return
        executor, now = self.executor, time.monotonic()
        for future, flight in self.flying.items():
            if flight.started is None:
                begun = executor.running(future) if isinstance(executor, Workers) else future.running()
                flight.started = now if begun else None
            elif now - flight.started > self.unit_seconds and not flight.overdue and isinstance(executor, Workers):
                flight.overdue = True
                executor.kill(future)

    def end(self) -> None:
        """End all work."""
        for future in self.flying:
            future.cancel()
        if isinstance(self.executor, Workers):
            self.executor.stop()


def run(
    study: Study | Inquiry,
    store: Store,
    workers: int | None = None,
    progress: Progress | None = None,
    retry: Retry = Retry.INTERRUPTED,
    weights: Path | None = None,
    attempts: int = ATTEMPTS,
    unit_seconds: float | None = None,
    executor: Executor | None = None,
    shard: Shard = WHOLE,
    batching: Batching = ONE_BY_ONE,
) -> Summary:
    """Measure what a study (or a shard of it) is missing, in `workers` processes (default: one a core) or elsewhere.

    Each unit's measurements are stored as soon as it ends, together. A unit whose worker dies or has no memory is tried
    `attempts` times, one that works longer than `unit_seconds` ends as timeout; the rest goes on. SIGINT and SIGTERM
    end the work and raise KeyboardInterrupt and Terminated, with everything that had ended in the store. Another
    `executor` than the process pool should be one of `poskernel.study.executors`: work given to a plain one cannot be
    ended. `batching` trains several models at a time. A script that calls this needs the usual
    `if __name__ == "__main__"` of processes that are started afresh.
    """
    workers = cores() if workers is None else workers
    check_limits(workers, attempts, unit_seconds)
    weights = None if weights is None else weights.absolute()  # workers elsewhere have another working folder
    planned = plan(study, store, retry, weights, shard, batching)
    skipped = len(shard.part(batching.of(asked_units(study)))) - len(planned)
    began = time.monotonic()
    if not planned:
        return Summary(0, skipped, 0, 0.0)
    used = WorkerPool(min(workers, len(planned))) if executor is None else executor
    waiting = deque((item, 1) for item in planned)
    state = Run(store, used, workers, retry, weights, attempts, unit_seconds, waiting)
    try:
        with signals_noted() as stop, progress or Silent() as display:
            work_off(state, display, stop)
    except BaseException:
        state.end()
        raise
    if executor is None:
        used.shutdown()
    if weights is not None:
        warn_of_weights([part for item in planned for part in item.unit.parts], store, weights)
    return Summary(
        state.ended["done"], skipped + state.ended["elsewhere"], state.ended["failed"], time.monotonic() - began
    )


def check_limits(workers: int, attempts: int, unit_seconds: float | None) -> None:
    """InputError for limits under which nothing would be done."""
    if workers < 1:
        raise InputError(f"{workers} workers can do nothing: give at least 1.")
    if attempts < 1:
        raise InputError(f"{attempts} attempts try nothing: give at least 1.")
    if unit_seconds is not None and not unit_seconds > 0:
        raise InputError(f"a unit cannot end within {unit_seconds:g} s: give a positive number of seconds.")


def work_off(state: Run, display: Progress, stop: Callable[[], None]) -> None:
    """Keep the workers busy until every planned unit has ended; `stop` raises if a signal came."""
    while state.waiting or state.flying:
        stop()
        state.launch()
        if not state.flying and state.waiting:  # nobody is there to work at present
            time.sleep(POLL_SECONDS)
        if isinstance(state.executor, Workers):
            state.executor.refresh()
        ready, _ = wait(state.flying, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        for future in [each for each in state.flying if each in ready]:  # in the order they started
            ended = state.settle(future)
            if ended is not None:
                unit, failed = ended
                for words in failed:
                    display.tell(words)
                display.show(state.standing, unit.description)
        state.end_overdue()


def failures(unit: Unit, measurements: list[Measurement]) -> list[str]:
    """Which models or kernels of a unit gave nothing at all, each with the reason."""
    found = {each.key: each for each in measurements}
    parts = [(part.description, [found[key] for key in part.keys if key in found]) for part in unit.parts]
    return [f"{name} failed: {own[0].reason}" for name, own in parts if own and all(m.status in BAD for m in own)]


def warn_of_weights(units: list[Unit], store: Store, weights: Path) -> None:
    """Say so where models were trained but their weights are not in the folder: workers elsewhere may not share it."""
    endings = store.endings(units)
    absent = 0
    for unit in units:
        file = unit.weights_file(weights)
        trained = any(key in endings and endings[key].status not in BAD for key in unit.keys)
        absent += trained and file is not None and not file.exists()
    if absent:
        log.warning(
            "weights of %d trained models are not in '%s': give workers on other machines a folder they share with "
            "this one (or wait for a slow file system) and run again.",
            absent,
            weights,
        )


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
