"""How far a run is: a bar on a terminal, plain lines elsewhere, nothing when asked to be quiet. All on stderr."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO

PLAIN_SECONDS = 10.0
"""Least time between two plain lines."""


@dataclass(frozen=True)
class Standing:
    """How far a run is. Costs are in units of one tier-1 training; what was there before the run counts in neither."""

    units: int
    finished: int
    failed: int
    cost: float
    finished_cost: float
    seconds: float

    @property
    def left(self) -> float | None:
        """Seconds left, at the pace of this run's own units; None before the first has ended."""
        return None if self.finished_cost == 0 else self.seconds * (self.cost - self.finished_cost) / self.finished_cost

    @property
    def sentence(self) -> str:
        """`12 of 70 units, 1 failed, 2:31 left`."""
        failed = f", {self.failed} failed" if self.failed else ""
        left = "" if self.left is None else f", {clock_text(self.left)} left"
        return f"{self.finished} of {self.units} units{failed}{left}"


class Progress(ABC):
    """Shows standings; a context manager around the run."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @abstractmethod
    def show(self, standing: Standing, last: str) -> None:
        """Show how far the run is after the unit `last` ended."""

    def tell(self, message: str) -> None:
        """Say something that stays, such as which unit failed and why; nothing where nothing is shown."""
        return None


class Silent(Progress):
    """Shows nothing."""

    def show(self, standing: Standing, last: str) -> None:
        """Nothing."""


@dataclass
class PlainLines(Progress):
    """A line now and then, and one at the end."""

    stream: IO[str] = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    last_shown: float = float("-inf")

    def show(self, standing: Standing, last: str) -> None:
        """One line, unless one was shown just before."""
        now = self.clock()
        if standing.finished == standing.units or now - self.last_shown >= PLAIN_SECONDS:
            self.last_shown = now
            print(f"{standing.sentence} (last: {last})", file=self.stream, flush=True)

    def tell(self, message: str) -> None:
        """A line of its own."""
        print(message, file=self.stream, flush=True)


class Bar(Progress):
    """A rich progress bar."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = (BarColumn(), TextColumn("{task.description}"))
        self._progress = RichProgress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task("starting workers", total=None)

    def __enter__(self) -> Progress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, standing: Standing, last: str) -> None:
        """Move the bar by cost; say units and time left."""
        description = f"{standing.sentence}  {last}"
        self._progress.update(
            self._task, completed=standing.finished_cost, total=standing.cost, description=description
        )

    def tell(self, message: str) -> None:
        """A line above the bar."""
        self._progress.console.print(message, markup=False, highlight=False)


def progress_for(quiet: bool = False) -> Progress:
    """The progress display that fits where stderr goes."""
    if quiet:
        return Silent()
    return Bar() if sys.stderr.isatty() else PlainLines()


def clock_text(seconds: float) -> str:
    """`2:31`, `1:02:31`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
