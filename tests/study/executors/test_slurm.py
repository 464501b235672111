"""Jobs through submitit's local mode: the rows of the process pool, deaths, cancelled jobs; what Slurm is given."""

import os
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
import pytest

from poskernel.errors import InputError, RunError
from poskernel.study import Store, run
from poskernel.study.executors import slurm
from poskernel.study.executors.slurm import SlurmJobs
from small_study import ENDLESS, SMALL, exports, exports_of_the_pool

pytest.importorskip("submitit")


@pytest.fixture
def jobs(tmp_path: Path) -> SlurmJobs:
    return SlurmJobs(tmp_path / "jobs", 2, local=True, settings={"minutes": 5})


def settled(jobs: SlurmJobs, *futures: "Future[Any]") -> None:
    deadline = time.monotonic() + 90
    while not all(future.done() for future in futures):
        assert time.monotonic() < deadline
        jobs.refresh()
        time.sleep(0.05)


def processes() -> list[psutil.Process]:
    """Jobs of this process, and what they started."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "submitit" in " ".join(child.cmdline())]


def test_the_rows_are_those_of_the_process_pool(jobs: SlurmJobs, tmp_path: Path) -> None:
    with Store(tmp_path / "slurm.sqlite") as store:
        summary = run(SMALL, store, executor=jobs, weights=tmp_path / "weights")
        assert (summary.done, summary.failed) == (3, 0)
        assert exports(store) == exports_of_the_pool()
    assert len(list((tmp_path / "weights").iterdir())) == 2
    assert list((tmp_path / "jobs").iterdir()) == []


def test_work_that_takes_too_long_is_ended_with_its_processes(jobs: SlurmJobs, tmp_path: Path) -> None:
    with Store(tmp_path / "slurm.sqlite") as store:
        summary = run(ENDLESS, store, executor=jobs, unit_seconds=2.0)
        assert (summary.done, summary.failed) == (0, 1)
        assert {row["reason"] for row in store.rows() if row["status"] == "timeout"} == {"it ran longer than 2 s"}
    assert not psutil.wait_procs(processes(), timeout=20)[1]


def test_answers_errors_deaths_and_cancelled_jobs(jobs: SlurmJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "LOST_SECONDS", 0.5)
    right, wrong = jobs.submit(os.getenv, "OMP_NUM_THREADS"), jobs.submit(int, "x")
    dying, endless, other = jobs.submit(os._exit, 3), jobs.submit(time.sleep, 600), jobs.submit(time.sleep, 600)
    assert jobs.running(endless) and jobs.capacity == 2
    settled(jobs, right, wrong, dying)
    assert right.result() == "1"
    assert "invalid literal for int" in str(wrong.exception())
    assert "gave no result, state FINISHED: see" in str(dying.exception())
    jobs.kill(endless)
    settled(jobs, endless)
    assert "gave no result" in str(endless.exception())
    jobs.stop()
    assert isinstance(other.exception(), RunError)
    assert not jobs.running(other)
    assert not psutil.wait_procs(processes(), timeout=20)[1]


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, sbatch: str) -> None:
    """A machine with Slurm's commands: sbatch does what is said, nothing runs, nobody knows the state of a job."""
    for name, script in {
        "srun": "exit 0",
        "scancel": 'echo "$@" >>"$0.asked"',
        "sacct": "exit 0",
        "sbatch": sbatch,
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_slurm_is_asked_for_what_the_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    fake_slurm(tmp_path / "bin", monkeypatch, f'cp "$1" {tmp_path}/script; echo "Submitted batch job 42"')
    settings = {"partition": "cpu", "account": "physics", "minutes": 90, "memory": 2.5}
    jobs = SlurmJobs(tmp_path / "jobs", 5, local=False, settings=settings)
    future = jobs.submit(os.getpid)
    script = (tmp_path / "script").read_text()
    for line in (
        "#SBATCH --partition=cpu", "#SBATCH --account=physics", "#SBATCH --time=90", "#SBATCH --mem=2560MB",
        "#SBATCH --cpus-per-task=1", "#SBATCH --job-name=poskernel", "export OMP_NUM_THREADS=1",
    ):  # fmt: skip
        assert line in script.splitlines()
    jobs.refresh()
    assert not future.done() and not jobs.running(future)
    monkeypatch.setattr(slurm, "STOP_SECONDS", 0.0)
    jobs.stop()
    assert (tmp_path / "bin" / "scancel.asked").read_text() == "42\n"


def test_a_machine_without_slurm_and_a_slurm_that_refuses_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="there is no Slurm here"):
        SlurmJobs(tmp_path / "jobs", 1, local=False, settings={})
    monkeypatch.undo()
    fake_slurm(tmp_path, monkeypatch, 'echo "sbatch: error: invalid partition specified: cpuu" >&2; exit 1')
    jobs = SlurmJobs(tmp_path / "jobs", 1, local=False, settings={"partition": "cpuu"})
    with pytest.raises(RunError, match=r"Slurm takes no job .*invalid partition specified: cpuu"):
        jobs.submit(os.getpid)
