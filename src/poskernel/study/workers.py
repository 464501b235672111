"""Where work is done: what a run asks of an executor beside `submit`, and worker processes on this machine.

One pool a worker, so that a death costs the unit it was working on alone. Workers run torch on one thread, leave Ctrl-C
to the parent, and end themselves when the parent is gone.
"""

import multiprocessing
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Made = TypeVar("Made")

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LONGEST_ACCOUNT = 300
"""Letters of an error that a reason keeps."""


class Workers(Executor, ABC):
    """An executor whose work can be ended, and that says how much it does at once."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Pieces of work it does at once; more would only wait where a death could take them along."""

    @abstractmethod
    def kill(self, future: "Future[Any]") -> None:
        """End the work of this future, which then raises or is cancelled."""

    @abstractmethod
    def stop(self) -> None:
        """End all work now."""

    def running(self, future: "Future[Any]") -> bool:
        """Whether this work has begun; what waits in a queue has not."""
        return future.running()

    def refresh(self) -> None:
        """Settle futures whose work has ended elsewhere. A run calls this whenever it looks at them."""
        return

    def account(self, future: "Future[Any]", error: BaseException) -> str:
        """How work ended that gave no answer, in words."""
        return " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_ACCOUNT]


@dataclass
class Slot:
    """One worker process and what it is working on."""

    pool: ProcessPoolExecutor
    process: BaseProcess | None = None
    ready: "Future[Any] | None" = None
    """Done once the process has loaded what it works with."""
    pending: "Future[Any] | None" = None

    @property
    def busy(self) -> bool:
        """Whether it has work that is not done."""
        return self.pending is not None and not self.pending.done()


class WorkerPool(Workers):
    """An executor of `workers` processes, each replaced when it dies.

    The future of work whose process died raises BrokenProcessPool; all other work goes on.
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"{workers} workers can do nothing: give at least 1.")
        self._slots = [Slot(new_pool()) for _ in range(workers)]

    @property
    def capacity(self) -> int:
        """One piece of work a process."""
        return len(self._slots)

    def submit(self, function: Callable[Given, Made], /, *args: Given.args, **kwargs: Given.kwargs) -> "Future[Made]":
        """Start work in a free worker (in the first one, after what it does, if none is free)."""
        slot = next((slot for slot in self._slots if not slot.busy), self._slots[0])
        try:
            future = start(slot, function, *args, **kwargs)
        except BrokenProcessPool:  # it died since its last work
            slot.pool.shutdown(wait=False)
            slot.pool, slot.process = new_pool(), None
            future = start(slot, function, *args, **kwargs)
        slot.pending = future
        return future

    def running(self, future: "Future[Any]") -> bool:
        """Whether this work has begun: a process that still loads libraries has not."""
        slot = next((slot for slot in self._slots if slot.pending is future), None)
        return future.running() and slot is not None and slot.ready is not None and slot.ready.done()

    def kill(self, future: "Future[Any]") -> None:
        """End the process that works on this future; the future then raises BrokenProcessPool."""
        for slot in self._slots:
            if slot.pending is future and slot.process is not None:
                slot.process.kill()

    def account(self, future: "Future[Any]", error: BaseException) -> str:
        """How the process that worked on this future ended: the signal that killed it, or its exit code."""
        process = next((slot.process for slot in self._slots if slot.pending is future), None)
        if not isinstance(error, BrokenProcessPool) or process is None:
            return super().account(future, error)
        code = exit_code(process)
        if code == -signal.SIGKILL:
            return "it was killed (SIGKILL), as the system does when memory runs out"
        if code is not None and code < 0:
            return f"it was ended by {signal.Signals(-code).name}"
        return f"it ended with exit code {code}"

    def stop(self) -> None:
        """End every worker now, whatever it is working on."""
        for slot in self._slots:
            if slot.process is not None:
                slot.process.kill()
        self.shutdown()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let workers finish and end them."""
        for slot in self._slots:
            slot.pool.shutdown(wait=wait, cancel_futures=cancel_futures)


def new_pool() -> ProcessPoolExecutor:
    """A pool of one process, started afresh: a fork would copy torch's threads in an unknown state."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=prepare_worker)


def start(slot: Slot, function: Callable[Given, Made], *args: Given.args, **kwargs: Given.kwargs) -> "Future[Made]":
    """Submit to a slot. If its process is new, that first loads the module of the function, which takes seconds."""
    if slot.process is None:
        before = set(multiprocessing.active_children())
        with single_thread_environment():
            slot.ready = slot.pool.submit(callable, function)
        slot.process = next(iter(set(multiprocessing.active_children()) - before), None)
    return slot.pool.submit(function, *args, **kwargs)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def exit_code(process: BaseProcess) -> int | None:
    """Exit code of a process that has died; None if it cannot be told (the pool's own thread waits for it too)."""
    deadline = time.monotonic() + 1.0
    while process.exitcode is None and time.monotonic() < deadline:
        process.join(0.05)
    return process.exitcode


@contextmanager
def single_thread_environment() -> Iterator[None]:
    """Processes started inside use one thread in every numerical library; these read it when they load."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def prepare_worker() -> None:
    """What each worker does first."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait for the parent's end of a pipe to close, which any death of the parent does; then end this process."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
