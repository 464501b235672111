"""kill -9 of the parent and of workers, SIGINT, SIGTERM: nothing is lost, made twice or left behind.

POSKERNEL_KILLS sets how many kills the first test does (the suite: 4).
"""

import os
import runpy
import signal
import time
from pathlib import Path

import psutil
import pytest

from poskernel.errors import Terminated
from poskernel.study.planning import plan
from poskernel.study.progress import Progress, Standing
from poskernel.study.runner import run
from poskernel.study.store import Store
from poskernel.study.transfer import encode
from poskernel.study.units import units_of
from random_kills import SCRIPT, gone, killed_at_random, start

KILLS = int(os.environ.get("POSKERNEL_KILLS", "4"))
STUDY = runpy.run_path(str(SCRIPT))["STUDY"]


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, bytes]:
    """Exports of a store whose units ran one after another in this process."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.sqlite") as store:
        from poskernel.study.store import CellRow

        for unit in units_of(STUDY):
            store.add([CellRow.of(cell) for cell in unit.cells], unit.run())
        return exports(store)


def exports(store: Store) -> dict[str, bytes]:
    return {form: encode(store.rows(units_of(STUDY)), form) for form in ("csv", "json", "parquet")}


def wait_for_rows(path: Path, process: psutil.Popen, more_than: int) -> None:
    """Until the store holds more measurements than that, or the process has ended."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if path.exists() and path.stat().st_size:
            with Store(path) as store:
                if len(store.endings()) > more_than:
                    return
        time.sleep(0.05)


def test_random_kills_change_nothing(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    path = tmp_path / "store.sqlite"
    kills = killed_at_random(path, KILLS, seed=7)
    assert kills.workers + kills.parents == KILLS
    assert kills.workers and kills.parents
    assert gone(kills.orphans), "workers outlived their killed parent"
    with Store(path) as store:
        assert exports(store) == uninterrupted  # no row lost, none twice, none different
        assert plan(STUDY, store) == []


def test_what_is_stored_before_a_kill_is_not_made_again(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    path = tmp_path / "store.sqlite"
    process = start(path)
    wait_for_rows(path, process, more_than=9)
    process.kill()
    process.communicate()
    units = units_of(STUDY)
    with Store(path) as store:
        ended = [unit for unit in units if set(unit.keys) <= set(store.endings())]
        begun = [unit for unit in units if set(unit.keys) & set(store.endings())]
        left = [item.unit for item in plan(STUDY, store)]
    assert ended == begun  # whole units only
    assert 0 < len(ended) < len(units)
    assert left == [unit for unit in units if unit not in ended]
    again = start(path)
    output, errors = again.communicate(timeout=240)
    assert [int(number) for number in output.split()] == [len(left), len(ended), 0], errors
    with Store(path) as store:
        assert exports(store) == uninterrupted


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_signals_end_the_run_and_keep_what_ended(
    tmp_path: Path, number: signal.Signals, error: type[KeyboardInterrupt]
) -> None:
    class SignalAfterFirst(Progress):
        """Sends the signal to this process once the first unit has ended."""

        def show(self, standing: Standing, last: str) -> None:
            children.extend(psutil.Process().children())
            os.kill(os.getpid(), number)

    children: list[psutil.Process] = []
    before = signal.getsignal(number)
    with Store(tmp_path / "store.sqlite") as store:
        with pytest.raises(error) as caught:
            run(STUDY, store, workers=2, progress=SignalAfterFirst())
        assert type(caught.value) is error
        assert 0 < len(store.endings()) < sum(len(unit.keys) for unit in units_of(STUDY))
    workers = [
        child for child in children if child.is_running() and "resource_tracker" not in " ".join(child.cmdline())
    ]
    assert gone(workers)
    assert signal.getsignal(number) is before
