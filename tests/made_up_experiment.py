"""An experiment whose truth is known: two conditions, two seeds, two metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from poskernel.experiments.experiment import (
    ConditionCell,
    Experiment,
    ExperimentUnit,
    Picture,
    Quantity,
    RegisteredPrediction,
    Scale,
    by_seed,
)
from poskernel.experiments.judging import Outcome, Side
from poskernel.study.store import CellRow, frame
from poskernel.study.units import Measurement, Status

VALUES = {"right": 0.9, "wrong": 0.1, "quickly right": 0.8, "quickly wrong": 0.2, "undefined": "there is no such thing"}


@dataclass(frozen=True)
class MadeUpCell(ConditionCell):
    kind = "made-up"
    condition: str

    @property
    def label(self) -> str:
        return self.condition

    @property
    def task_name(self) -> str:
        return "nothing"

    @property
    def train_length(self) -> int:
        return 1

    @property
    def columns(self) -> Mapping[str, Any]:
        return {"condition": self.condition.removeprefix("quickly ")}


@dataclass(frozen=True)
class MadeUpUnit(ExperimentUnit):
    cell: MadeUpCell

    @property
    def measures(self) -> Sequence[tuple[MadeUpCell, str, int]]:
        return [(self.cell, "score", 1), (self.cell, "other", 1)]

    @property
    def cost(self) -> float:
        return 0.001

    def measure(self, weights: Path | None) -> list[Measurement]:
        score = VALUES[self.cell.condition]
        drift = 0.0001 if self.cell.columns["condition"] == "right" else -0.0002
        value = score if isinstance(score, str) else score + drift * self.seed
        return self.done({(self.cell, "score", 1): value, (self.cell, "other", 1): float(self.seed)})


def build(scale: Scale) -> list[MadeUpUnit]:
    prefix = "" if scale is Scale.FULL else "quickly "
    return [MadeUpUnit(MadeUpCell(prefix + name), seed) for seed in (0, 1) for name in ("right", "wrong")]


def gain(rows: pd.DataFrame) -> Sequence[float]:
    first, second = (by_seed(rows, "score", lambda values: values.mean(), condition=c) for c in ("right", "wrong"))
    return (first - second).tolist()


def wrong(rows: pd.DataFrame) -> Sequence[float]:
    return by_seed(rows, "score", lambda values: values.mean(), condition="wrong").tolist()


def draw(table: pd.DataFrame) -> Any:
    from poskernel.report.curves import curves

    return curves(table, title="Scores", x="seed", y="value", labels=("seed", "score"), series="condition")


EXPERIMENT = Experiment(
    id="made-up",
    title="Two conditions",
    question="Is right better than wrong?",
    claim="Right is better.",
    design="Numbers that were made up.",
    measures=(Quantity("score", "a number"), Quantity("other", "another")),
    predictions=(
        RegisteredPrediction("higher", "Right beats wrong by 0.1.", gain, Side.ABOVE, 0.1, "it does not", True),
        RegisteredPrediction(
            "low", "Wrong scores below 0.3.", wrong, Side.BELOW, 0.3, "wrong scores well", informed=False,
            expected=Outcome.HELD, deciding=False,
        ),
    ),
    falsified_by="wrong is better",
    threats="It was made up.",
    build=build,
    pictures=(
        Picture("scores", "A line a condition.", "Two lines.", lambda rows: rows[rows["metric"] == "score"], draw),
    ),
)  # fmt: skip


def table(right: float = 0.9, wrong: float = 0.1, spread: float = 0.0001) -> pd.DataFrame:
    """Rows as a store gives them."""
    rows = []
    for unit in EXPERIMENT.units():
        about = CellRow.of(unit.cell)
        value = right + spread * unit.seed if unit.cell.condition == "right" else wrong - spread / 2 * unit.seed
        rows += [
            {
                "cell": unit.cell.id, "encoding": about.encoding, "task": about.task, "tier": None, "rule": None,
                "train_length": 1, "seed": unit.seed, "length": 1, "metric": metric, "value": number,
                "status": str(Status.DONE), "reason": "", "versions": "test",
            }
            for metric, number in (("score", value), ("other", 1.0))
        ]  # fmt: skip
    return frame(rows)
