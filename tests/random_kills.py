"""kill -9 at random moments of a study: of a worker, of the parent; then one resume. benchmarks/ uses it too."""

import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

import poskernel
from poskernel.study import Store

SCRIPT = Path(__file__).parent / "study" / "interrupted_study.py"


@dataclass
class Kills:
    """What was killed, and what came of it."""

    workers: int = 0
    parents: int = 0
    runs: int = 1
    """How often the study was started."""
    completed: int = 0
    """Runs that were faster than the kills and began again with an empty store."""
    stored: list[int] = field(default_factory=list)
    """Measurements in the store at each kill."""
    orphans: list[psutil.Process] = field(default_factory=list)
    """Workers of killed parents."""


def start(path: Path) -> psutil.Popen:
    """The study as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(poskernel.__file__).parent.parent)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return psutil.Popen([sys.executable, str(SCRIPT), str(path)], env=environment, **pipes)


def workers_of(process: psutil.Popen) -> list[psutil.Process]:
    """Worker processes, without Python's resource tracker."""
    try:
        return [child for child in process.children() if "spawn_main" in " ".join(child.cmdline())]
    except psutil.NoSuchProcess:
        return []


def gone(processes: list[psutil.Process], seconds: float = 20.0) -> bool:
    """Whether they have all ended by then."""
    return not psutil.wait_procs(processes, timeout=seconds)[1]


def killed_at_random(path: Path, kills: int, seed: int, longest_wait: float = 4.0) -> Kills:
    """Kill workers and parents at random, at least one of each, until there were so many kills; then resume once.

    Between two kills pass `longest_wait` seconds at most, or until there is a worker to kill.

    Raises RuntimeError where a run that nobody killed fails.
    """
    chance = random.Random(seed)
    victims = ["worker", "parent", *(chance.choice(["worker", "worker", "parent"]) for _ in range(kills - 2))]
    chance.shuffle(victims)
    done, process = Kills(), start(path)
    while victims:
        time.sleep(chance.uniform(0.0, longest_wait))
        workers = workers_of(process)
        if process.poll() is not None:
            finish(process)
            path.unlink()
            done.completed += 1
        elif victims[-1] == "worker":
            if workers:
                done.stored.append(measurements(path))
                chance.choice(workers).kill()
                done.workers += 1
                victims.pop()
            continue
        else:
            done.stored.append(measurements(path))
            process.kill()
            process.communicate()
            done.orphans += workers
            done.parents += 1
            victims.pop()
        process = start(path)
        done.runs += 1
    finish(process)
    return done


def measurements(path: Path) -> int:
    """How many measurements a store holds."""
    if not path.exists():
        return 0
    with Store(path) as store:
        return len(store.endings())


def finish(process: psutil.Popen) -> None:
    """Wait for the end of a run; RuntimeError where it failed."""
    _, errors = process.communicate(timeout=600)
    if process.returncode != 0:
        raise RuntimeError(errors)
