"""How a benchmark's rows are measured apart and written: docs/benchmarks/NAME.json, which the documentation shows."""

import json
import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "benchmarks"


def median_seconds(action: Callable[[], object], runs: int = 5) -> float:
    """Median wall time of some runs, after one that is not counted."""
    action()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def apart(action: Callable[[], Any]) -> tuple[Any, float, float, float]:
    """An action in a process of its own.

    Result, wall seconds, extra peak memory, and what the process held before (MB).
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (action,))


def _measured(action: Callable[[], Any]) -> tuple[Any, float, float, float]:
    import poskernel.realizability  # noqa: F401  # what is loaded anyway is not the action's memory

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    result = action()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return result, seconds, (peak - before) / 1024, before / 1024


def machine() -> str:
    """Processor, cores and versions, as far as they matter to a time."""
    import torch

    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"


def write(name: str, title: str, command: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows and write them with the command and the machine that made them."""
    page = {
        "title": title,
        "command": command,
        "machine": machine(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "rows": rows,
    }
    for row in rows:
        print("  ".join(f"{key}: {value}" for key, value in row.items()))
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(page, indent=2) + "\n")
