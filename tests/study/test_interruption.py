"""kill -9 of the parent and of workers, SIGINT, SIGTERM: nothing is lost, made twice or left behind.

POSKERNEL_KILLS sets how many kills the first test does (the suite: 4).
"""

import os
import random
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import poskernel
from poskernel.study.progress import Progress, Standing
from poskernel.study.runner import Terminated, plan, run
from poskernel.study.store import Store
from poskernel.study.transfer import encode
from poskernel.study.units import units_of

KILLS = int(os.environ.get("POSKERNEL_KILLS", "4"))
SCRIPT = Path(__file__).parent / "interrupted_study.py"
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


def start(path: Path) -> psutil.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(poskernel.__file__).parent.parent)}
    return psutil.Popen(
        [sys.executable, str(SCRIPT), str(path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def workers_of(process: psutil.Popen) -> list[psutil.Process]:
    """Worker processes, without Python's resource tracker."""
    try:
        return [child for child in process.children() if "spawn_main" in " ".join(child.cmdline())]
    except psutil.NoSuchProcess:
        return []


def wait_for_rows(path: Path, process: psutil.Popen, more_than: int) -> None:
    """Until the store holds more measurements than that, or the process has ended."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if path.exists() and path.stat().st_size:
            with Store(path) as store:
                if len(store.endings()) > more_than:
                    return
        time.sleep(0.05)


def gone(processes: list[psutil.Process], seconds: float = 20.0) -> bool:
    return not psutil.wait_procs(processes, timeout=seconds)[1]


def test_random_kills_change_nothing(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    path, chance = tmp_path / "store.sqlite", random.Random(7)
    process, kills, orphans = start(path), 0, []
    while kills < KILLS:
        time.sleep(chance.uniform(0.0, 4.0))
        workers = workers_of(process)
        if process.poll() is not None:
            _, errors = process.communicate()
            assert process.returncode == 0, errors
            path.unlink()  # it was faster than the kills: once more from the start
            process = start(path)
        elif workers and chance.random() < 0.6:
            chance.choice(workers).kill()
            kills += 1
        else:
            orphans += workers
            process.kill()
            process.communicate()
            kills += 1
            process = start(path)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert gone(orphans), "workers outlived their killed parent"
    with Store(path) as store:
        assert exports(store) == uninterrupted
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
