"""Texts of --executor: what each opens, and one sentence for each that cannot be meant."""

import sys
from pathlib import Path
from typing import Any

import pytest

from poskernel.errors import InputError, MissingExtraError
from poskernel.study.executors import choice, opened
from poskernel.study.workers import WorkerPool, cores


class Recorded(WorkerPool):
    """Stands in for an executor, keeping what it was made with."""

    def __init__(self, *given: Any) -> None:
        super().__init__(1)
        self.given, self.closed = given, False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.closed = True


def test_processes_are_left_to_the_run(tmp_path: Path) -> None:
    with opened("processes", 3, tmp_path) as executor:
        assert executor is None


def test_dask_takes_an_address_with_colons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poskernel.study.executors.dask_cluster.DaskWorkers", Recorded)
    with pytest.raises(ZeroDivisionError), opened("dask:tcp://node:8786", 5, tmp_path) as executor:
        assert isinstance(executor, Recorded) and executor.given == ("tcp://node:8786", 5)
        assert not executor.closed
        raise ZeroDivisionError
    assert executor.closed


@pytest.mark.parametrize(
    ("text", "workers", "given"),
    [
        ("slurm", None, (32, False, {})),
        (
            "slurm:partition=cpu,minutes=90, memory=2.5",
            7,
            (7, False, {"partition": "cpu", "minutes": 90, "memory": 2.5}),
        ),
        ("slurm:local,minutes=5", None, (cores(), True, {"minutes": 5})),
    ],
)
def test_slurm_takes_settings(
    text: str, workers: int | None, given: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poskernel.study.executors.slurm.SlurmJobs", Recorded)
    with opened(text, workers, tmp_path) as executor:
        assert isinstance(executor, Recorded) and executor.given == (tmp_path / "jobs", *given)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dusk:x", "did you mean 'dask'"),
        ("dask", "add the address of a scheduler"),
        ("processes:4", "--workers"),
        ("slurm:partitoin=cpu", "did you mean 'partition'"),
        ("slurm:partition", "give a name"),
        ("slurm:minutes=long", "minutes of slurm is 'long'"),
        ("slurm:minutes=0", "minutes of slurm is '0'"),
        ("slurm:memory=nan", "memory of slurm is 'nan'"),
    ],
)
def test_what_cannot_be_meant_is_named(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught, opened(text, None, tmp_path):
        pass
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "module"), [("dask:x:1", "distributed"), ("slurm:local", "submitit")])
def test_a_missing_extra_names_the_pip_line(
    text: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    extra = text.partition(":")[0]
    with pytest.raises(MissingExtraError, match=rf"pip install 'poskernel\[{extra}\]'"), opened(text, 1, tmp_path):
        pass


def test_the_choices_are_those_the_help_names() -> None:
    assert set(choice.KINDS) == {"processes", "dask", "slurm"}
