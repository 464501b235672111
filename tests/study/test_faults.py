"""Real faults in real processes: a loss that is not finite, no memory, a hang, a killed worker; the rest goes on."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from poskernel.models.training import Recipe
from poskernel.study import Retry, Store, Study, plan, run, units_of
from small_study import ENDLESS, SMALL, exports, exports_of_the_pool

TINY = {"batch": 2, "evaluation_sequences": 4}
EXPLODING = Recipe(steps=200, learning_rate=1e30, **TINY)
BEYOND_MEMORY = Recipe(steps=2, batch=10**14)
"""16 petabytes of tokens: more than any process can address, whatever the machine promises."""


def endless(recipe: Recipe) -> Study:
    (axes,) = ENDLESS.axes
    return replace(ENDLESS, axes=(replace(axes, recipe=recipe),))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.sqlite") as opened:
        yield opened


def workers() -> list[psutil.Process]:
    """Worker processes of this process."""
    return [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]


def killing(kills: int) -> Callable[[], int]:
    """Kill that many workers, each while it works; the function given waits for the end and counts the dead."""
    dead: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 120
        while len(dead) < kills and time.monotonic() < deadline:
            time.sleep(0.05)
            for worker in workers():
                if worker.pid not in dead:
                    time.sleep(0.5)
                    worker.kill()
                    dead.append(worker.pid)
                    break

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()

    def wait() -> int:
        thread.join(120)
        return len(dead)

    return wait


def test_hangs_exploding_losses_and_no_memory_are_stored_and_the_rest_goes_on(store: Store) -> None:
    (small,), parts = SMALL.axes, [endless(recipe).axes[0] for recipe in (EXPLODING, BEYOND_MEMORY)]
    study = Study("faulty", "?", (*ENDLESS.axes, *parts, small))
    summary = run(study, store, workers=2, unit_seconds=25.0)
    assert (summary.done, summary.skipped, summary.failed) == (3, 0, 3)
    assert not psutil.wait_procs(workers(), timeout=20)[1]
    hang, loss, memory = ({row["status"]: row["reason"] for row in store.rows(units_of(part))} for part in (
        ENDLESS, endless(EXPLODING), endless(BEYOND_MEMORY)
    ))  # fmt: skip
    assert hang == {"timeout": "it ran longer than 25 s"}
    assert set(loss) == {"failed"} and loss["failed"].startswith("training broke off: the loss is ")
    assert set(memory) == {"failed"} and memory["failed"].startswith("out of memory: ")
    assert exports(store) == exports_of_the_pool()
    planned = {retry: {item.unit.cell.recipe.batch for item in plan(study, store, retry)} for retry in Retry}  # type: ignore[attr-defined]
    assert planned == {Retry.NEVER: set(), Retry.INTERRUPTED: {2, 10**14}, Retry.FAILED: {2, 10**14}}
    assert len(plan(study, store)) == 2  # the exploding one is definite


def test_a_killed_worker_is_a_reason_that_says_so(store: Store) -> None:
    dead = killing(2)
    summary = run(ENDLESS, store, workers=1, attempts=2)
    assert (dead(), summary.done, summary.failed) == (2, 0, 1)
    assert {(row["status"], row["reason"]) for row in store.rows()} == {
        ("failed", "its worker ended 2 times without an answer (it was killed (SIGKILL), as the system does when "
         "memory runs out)")
    }  # fmt: skip
    assert [item.reason.partition(":")[0] for item in plan(ENDLESS, store)] == ["failed before"]
    assert plan(ENDLESS, store, Retry.NEVER) == []


def test_a_unit_whose_worker_is_killed_once_gives_what_it_would_have_given(store: Store) -> None:
    dead = killing(1)
    summary = run(SMALL, store, workers=1, attempts=2)
    assert (dead(), summary.done, summary.failed) == (1, 3, 0)
    assert exports(store) == exports_of_the_pool()
