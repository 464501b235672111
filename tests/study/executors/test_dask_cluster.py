"""A real local Dask cluster: the rows of the process pool, time limits, deaths, and clusters that cannot be used."""

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from poskernel.errors import InputError, RunError
from poskernel.study import Store, run
from poskernel.study.executors.dask_cluster import DaskWorkers
from small_study import ENDLESS, SMALL, exports, exports_of_the_pool

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A scheduler with two workers of one thread."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(processes=True, silence_logs=50, **options) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def workers(address: str) -> Iterator[DaskWorkers]:
    """A connection of its own."""
    executor = DaskWorkers(address)
    yield executor
    executor.shutdown()


def until_begun(workers: DaskWorkers, future: object) -> None:
    deadline = time.monotonic() + 60
    while not workers.running(future):  # type: ignore[arg-type]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_rows_are_those_of_the_process_pool(workers: DaskWorkers, tmp_path: Path) -> None:
    with Store(tmp_path / "dask.sqlite") as store:
        summary = run(SMALL, store, executor=workers, weights=tmp_path / "weights")
        assert (summary.done, summary.failed) == (3, 0)
        assert exports(store) == exports_of_the_pool()
    assert len(list((tmp_path / "weights").iterdir())) == 2


def test_work_that_takes_too_long_is_ended_and_its_worker_works_on(workers: DaskWorkers, tmp_path: Path) -> None:
    with Store(tmp_path / "dask.sqlite") as store:
        summary = run(ENDLESS, store, executor=workers, unit_seconds=2.0)
        assert (summary.done, summary.failed) == (0, 1)
        late = {row["reason"] for row in store.rows() if row["status"] == "timeout"}
    assert late == {"it ran longer than 2 s"}
    pids = {workers.submit(os.getpid).result(timeout=60) for _ in range(4)}
    assert pids and os.getpid() not in pids


def test_stopping_takes_all_work_back(workers: DaskWorkers) -> None:
    begun, waiting = workers.submit(time.sleep, 600), [workers.submit(time.sleep, 600) for _ in range(3)]
    until_begun(workers, begun)
    workers.stop()
    for future in (begun, *waiting):
        with pytest.raises(CancelledError):
            future.result(timeout=30)
    assert workers.submit(os.getpid).result(timeout=60)


def test_no_more_workers_are_used_than_asked_for(address: str) -> None:
    one, all_there = DaskWorkers(address, 1), DaskWorkers(address, 99)
    assert (one.capacity, all_there.capacity) == (1, 2)
    one.shutdown()
    all_there.shutdown()
    with pytest.raises(RunError, match="has gone"):
        one.submit(os.getpid)


def test_nobody_at_the_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poskernel.study.executors.dask_cluster.CONNECT_SECONDS", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(InputError, match=f"no Dask scheduler answers at '{closed}'"):
        DaskWorkers(closed)
    with pytest.raises(InputError, match="no Dask scheduler answers at 'nonsense:x'"):
        DaskWorkers("nonsense:x")


def test_workers_with_several_threads_and_clusters_without_workers_are_refused() -> None:
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0", protocol="tcp"
    ) as cluster:
        with pytest.raises(InputError, match="2 threads"):
            DaskWorkers(cluster.scheduler_address)
        cluster.scale(0)
        cluster.sync(cluster._correct_state)
        deadline = time.monotonic() + 30
        while cluster.scheduler.workers and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(InputError, match="has no workers"):
            DaskWorkers(cluster.scheduler_address)
