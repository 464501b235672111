"""Worker processes: deaths cost one piece of work, nobody is left behind, numerical libraries keep to one thread."""

import operator
import os
import signal
import time
from concurrent.futures.process import BrokenProcessPool

import psutil
import pytest
import torch

from poskernel.study.workers import THREAD_VARIABLES, WorkerPool, single_thread_environment


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children() if "resource_tracker" not in " ".join(child.cmdline())}


def test_a_pool_works_survives_deaths_and_leaves_nobody() -> None:
    before = children()
    pool = WorkerPool(2)
    assert pool.capacity == 2
    first, second = pool.submit(os.getpid), pool.submit(os.getpid)
    assert not pool.running(first)  # its process has hardly been started
    assert first.result() != second.result()
    assert pool.submit(torch.get_num_threads).result() == 1
    assert pool.submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
    assert pool.submit(signal.getsignal, signal.SIGINT).result() is signal.SIG_IGN
    dying, living = pool.submit(os._exit, 3), pool.submit(operator.add, 2, 3)
    with pytest.raises(BrokenProcessPool) as caught:
        dying.result()
    assert pool.account(dying, caught.value) == "it ended with exit code 3"
    assert living.result() == 5
    assert [pool.submit(operator.mul, 2, n).result() for n in range(3)] == [0, 2, 4]
    hanging = pool.submit(time.sleep, 600)
    while not pool.running(hanging):
        time.sleep(0.01)
    pool.kill(hanging)
    with pytest.raises(BrokenProcessPool) as caught:
        hanging.result(timeout=20)
    assert pool.account(hanging, caught.value).startswith("it was killed (SIGKILL)")
    assert pool.account(hanging, ValueError("of\nno process")) == "ValueError: of no process"
    late = pool.submit(time.sleep, 600)
    start = time.monotonic()
    pool.stop()
    assert time.monotonic() - start < 20
    with pytest.raises(BrokenProcessPool):
        late.result(timeout=20)
    assert children() == before


def test_the_environment_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with single_thread_environment():
        assert {os.environ[name] for name in THREAD_VARIABLES} == {"1"}
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


def test_a_pool_needs_a_worker() -> None:
    with pytest.raises(ValueError, match="0 workers"):
        WorkerPool(0)
