"""Workers that would give other rows are named, with what makes them differ."""

import pytest

from poskernel.errors import InputError
from poskernel.study.executors.likeness import check_alike, worker_facts
from poskernel.study.workers import THREAD_VARIABLES, single_thread_environment

WANTED = worker_facts(wanted=True)


def test_facts_are_versions_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    with single_thread_environment():
        assert worker_facts() == WANTED
    for name in THREAD_VARIABLES:
        with single_thread_environment():
            monkeypatch.setenv(name, "4")
            assert worker_facts() == WANTED.replace(f"{name}=1", f"{name}=4")
            monkeypatch.delenv(name)
            assert f"{name}=None" in worker_facts()
    assert "torch " in WANTED and "poskernel " in WANTED


def test_workers_like_those_of_the_pool_are_taken() -> None:
    check_alike("the cluster", {"a": 1, "b": 1}, {"a": WANTED, "b": WANTED})


@pytest.mark.parametrize(
    ("threads", "facts", "words"),
    [
        (2, WANTED, "2 threads"),
        (1, WANTED.replace("torch ", "torch 9."), "torch 9."),
        (1, WANTED.replace("OMP_NUM_THREADS=1", "OMP_NUM_THREADS=None"), "OMP_NUM_THREADS=None"),
        (1, ModuleNotFoundError("No module named 'poskernel'"), "No module named 'poskernel'"),
    ],
)
def test_a_worker_that_differs_is_refused(threads: int, facts: object, words: str) -> None:
    with pytest.raises(InputError, match="would not give the rows of this machine") as caught:
        check_alike("the cluster at 'x'", {"a": 1, "b": threads}, {"a": WANTED, "b": facts})
    assert words in str(caught.value)
    assert "--nthreads 1" in str(caught.value)


def test_a_worker_without_an_answer_is_refused() -> None:
    with pytest.raises(InputError, match="None"):
        check_alike("the cluster", {"a": 1}, {})
