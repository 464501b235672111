"""Rows of experiments on language models: made up under some truth, or measured by a quick run."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from poskernel.experiments.catalogue import EXPERIMENTS
from poskernel.experiments.experiment import Experiment, columns_of
from poskernel.study.store import CellRow

Truth = Callable[[Mapping[str, object], str, int], float | None]
"""Columns of a cell, metric and `length` to a value; None where the number does not exist."""


@lru_cache
def design(name: str, metrics: tuple[str, ...]) -> list[dict[str, object]]:
    """Every measurement of some metrics that an experiment plans; columns and digests are worked out once a cell."""
    known: dict[object, dict[str, object]] = {}
    rows = []
    for unit in EXPERIMENTS[name].units():
        for cell, metric, length in unit.measures:
            if metric not in metrics:
                continue
            if cell not in known:
                known[cell] = {**columns_of(cell), "cell": cell.id}
            rows.append({**known[cell], "metric": str(metric), "length": length, "seed": unit.run_seed})
    return rows


def made_up_rows(name: str, truth: Truth, metrics: tuple[str, ...], spread: float = 0.004) -> pd.DataFrame:
    """Rows of an experiment, each off by a little noise."""
    noise, rows = np.random.default_rng(0), []
    for row in design(name, metrics):
        value = truth(row, str(row["metric"]), row["length"])
        number = np.nan if value is None else value + noise.uniform(-spread, spread)
        rows.append({**row, "value": number, "status": "done", "reason": ""})
    return pd.DataFrame(rows)


def outcomes(name: str, rows: pd.DataFrame) -> dict[str, str]:
    """What became of each prediction."""
    return {each: str(judged.outcome) for each, judged in EXPERIMENTS[name].verdict(rows).judgements.items()}


def expected_outcomes(name: str) -> dict[str, str]:
    """What was expected of each."""
    return {each.name: str(each.expected) for each in EXPERIMENTS[name].predictions}


def quick_rows(experiment: Experiment, weights: Path) -> pd.DataFrame:
    """The rows that a quick run gives, by way of a table as the store has it."""
    table = []
    for unit in experiment.quick.units():
        measured = {m.key: m for m in unit.run(weights)}
        for key, (cell, _, _) in zip(unit.keys, unit.measures, strict=True):
            m = measured[key]
            table.append({
                "cell": m.cell, "metric": m.metric, "length": m.length, "seed": m.seed, "value": m.value,
                "status": str(m.status), "reason": m.reason, "encoding": CellRow.of(cell).encoding,
            })  # fmt: skip
    rows = experiment.quick.rows(pd.DataFrame(table).astype({"value": float}))
    assert len(rows) == len(table)
    return rows
