"""What an experiment is: a question, the units that answer it, and predictions written before they run.

An experiment is one declarative value. Its units are planned, run and stored as a study's are; rows come back with what
their cells set as columns, and the same rows always give the same verdict.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from poskernel.errors import InputError
from poskernel.experiments.judging import Judgement, Outcome, Side, judge
from poskernel.study.grid import Cell
from poskernel.study.units import Key, Measurement, Status, Unit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

KEY = ["cell", "metric", "length", "seed"]


class Scale(StrEnum):
    """How much of an experiment is run."""

    FULL = "full"
    QUICK = "quick"
    """Seconds: shows that it works. Its cells are others than the full ones, so both live in one store."""


@dataclass(frozen=True)
class Quantity:
    """One metric of an experiment's rows."""

    name: str
    meaning: str
    counts: str = "length"
    """What the column `length` counts for it: length in tokens, training step, offset, position."""


class ConditionCell(Cell):
    """A cell that says, column by column, what it is: what rows of an experiment are grouped by."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, Any]:
        """Condition (and part of the model, such as layer and head) by column name."""

    @property
    def description(self) -> str:
        """What a plan calls it: by default the value of every column."""
        return " ".join(str(value) for value in self.columns.values())


@dataclass(frozen=True)
class ExperimentUnit(Unit):
    """A unit of an experiment: one model trained or measured."""

    cell: ConditionCell
    seed: int = 0

    @property
    def kind(self) -> str:
        """A model is measured."""
        return "measuring"

    @property
    def run_seed(self) -> int:
        """Seed of init, data and evaluation."""
        return self.seed

    @property
    def aspect(self) -> str:
        """What of its model it measures, where an experiment has several units of one model and seed; else nothing."""
        return ""

    @property
    def description(self) -> str:
        """The model, what is measured of it, and the seed: no other unit of its experiment is called so."""
        return ", ".join(filter(None, (self.cell.description, self.aspect, f"seed {self.seed}")))

    def done(self, values: Mapping[tuple[Cell, str, int], float | str]) -> list[Measurement]:
        """A measurement for every measure; a text in place of a number says why there is none."""
        return [measurement(key, values[measure]) for key, measure in zip(self.keys, self.measures, strict=True)]


def measurement(key: Key, value: float | str) -> Measurement:
    """A number, or a reason why there is none."""
    if isinstance(value, str):
        return Measurement(*key, value=None, status=Status.DONE, reason=value)
    return Measurement(*key, value=value, status=Status.DONE)


@dataclass(frozen=True)
class RegisteredPrediction:
    """What is expected, where the line is, and how it is worked out: all of it fixed before the run."""

    name: str
    statement: str
    """In words, with whose it is where it is a source's."""
    measure: Callable[["pd.DataFrame"], Sequence[float]]
    """One number a replicate out of the experiment's rows; nan where a replicate is missing."""
    side: Side
    threshold: float
    falsified_by: str
    informed: bool
    """Whether an outcome was known when it was written (from a throw-away run): then it is no test of foresight."""
    expected: Outcome = Outcome.HELD
    """What we expected to become of it; a source's claim that we expected to fail says so."""
    deciding: bool = True
    """Whether the experiment's own verdict depends on it."""
    step: float = 0.0
    """Least difference that the measure can show, where it counts something; replicates vary no less than that."""


@dataclass(frozen=True)
class Verdict:
    """What became of an experiment's predictions, and of its claim."""

    judgements: Mapping[str, Judgement]
    """By name of the prediction."""
    outcome: Outcome
    sentence: str


@dataclass(frozen=True)
class Picture:
    """One figure with the data it shows."""

    name: str
    caption: str
    alt: str
    data: Callable[["pd.DataFrame"], "pd.DataFrame"]
    draw: Callable[["pd.DataFrame"], "Figure"]


@dataclass(frozen=True)
class Listing:
    """One table made of the rows."""

    name: str
    caption: str
    data: Callable[["pd.DataFrame"], "pd.DataFrame"]
    formats: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A question and everything needed to run it, to judge it and to show it."""

    id: str
    title: str
    question: str
    claim: str
    """What the deciding predictions are together: the verdict speaks of it."""
    design: str
    measures: tuple[Quantity, ...]
    predictions: tuple[RegisteredPrediction, ...]
    falsified_by: str
    threats: str
    """What could make the answer wrong all the same."""
    build: Callable[[Scale], Sequence[Unit]]
    pictures: tuple[Picture, ...] = ()
    listings: tuple[Listing, ...] = ()
    scale: Scale = Scale.FULL

    def __post_init__(self) -> None:
        names = [prediction.name for prediction in self.predictions]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(
                f"experiment '{self.id}' predicts '{twice}' twice: give each prediction a name of its own."
            )
        if not any(prediction.deciding for prediction in self.predictions):
            raise InputError(f"nothing decides experiment '{self.id}': mark at least one prediction as deciding.")

    @property
    def name(self) -> str:
        """What the command line calls it."""
        return self.id

    @property
    def command(self) -> str:
        """What runs it."""
        return f"poskernel experiment run {self.id}{' --quick' if self.scale is Scale.QUICK else ''}"

    @property
    def quick(self) -> "Experiment":
        """The same in seconds."""
        return dataclasses.replace(self, scale=Scale.QUICK)

    @property
    def config(self) -> dict[str, Any]:
        """What was fixed before the run, as plain JSON values."""
        predictions = [
            {
                "name": each.name,
                "statement": each.statement,
                "side": str(each.side),
                "threshold": float(each.threshold),
                "informed": each.informed,
                "expected": str(each.expected),
                "deciding": each.deciding,
                "step": float(each.step),
                "falsified_by": each.falsified_by,
            }
            for each in self.predictions
        ]
        return {"id": self.id, "scale": str(self.scale), "question": self.question, "predictions": predictions}

    def units(self) -> Sequence[Unit]:
        """Every unit at its scale."""
        return self.build(self.scale)

    def missing(self, rows: "pd.DataFrame") -> int:
        """How many planned measurements are not among its rows."""
        return len({key for unit in self.units() for key in unit.keys}) - len(rows)

    def rows(self, table: "pd.DataFrame") -> "pd.DataFrame":
        """Its own rows of a store's table, with what each cell sets as columns; what is missing is left out.

        Raises InputError where the table holds none of them.
        """
        import pandas as pd

        wanted = [
            {"cell": cell.id, "metric": str(metric), "length": length, "seed": unit.run_seed, **columns_of(cell)}
            for unit in self.units()
            for cell, metric, length in unit.measures
        ]
        # Cells say what encoding they have in their own column; the table's serves those that have none.
        found = pd.DataFrame(wanted).drop_duplicates(KEY)
        held = table.assign(seed=table["seed"].fillna(-1).astype("int64"))[[*KEY, "value", "status", "reason"]]
        joined = found.merge(held, on=KEY, how="inner")
        if joined.empty:
            raise InputError(f"no row of experiment {self.id} is there: {self.command} makes them.")
        return joined

    def verdict(self, rows: "pd.DataFrame") -> Verdict:
        """What its rows make of its predictions."""
        found = judge(
            [each.side for each in self.predictions],
            [each.threshold for each in self.predictions],
            [list(each.measure(rows)) for each in self.predictions],
            [each.step for each in self.predictions],
        )
        judged = {each.name: judgement for each, judgement in zip(self.predictions, found, strict=True)}
        deciding = {each.name: judged[each.name] for each in self.predictions if each.deciding}
        outcome = overall([each.outcome for each in deciding.values()])
        because = "; ".join(f"{name}: {each.outcome} ({each.reason})" for name, each in deciding.items())
        return Verdict(judged, outcome, f"{outcome}, because {because}")


def columns_of(cell: Cell) -> Mapping[str, Any]:
    """What an experiment's cell sets, column by column."""
    return cell.columns if isinstance(cell, ConditionCell) else {"encoding": cell.label, "task": cell.task_name}


def overall(outcomes: Sequence[Outcome]) -> Outcome:
    """Failed where one failed, held where all held."""
    if Outcome.FAILED in outcomes:
        return Outcome.FAILED
    return Outcome.HELD if all(outcome is Outcome.HELD for outcome in outcomes) else Outcome.INCONCLUSIVE


def by_seed(
    rows: "pd.DataFrame",
    metric: str,
    combine: Callable[["pd.Series[float]"], float],
    **conditions: object,
) -> "pd.Series[float]":
    """One number a seed out of all rows of a metric under some conditions (a column's value, or a tuple of them).

    nan for a seed that lacks a number the others have, so that a failed model is not passed over in silence.
    """
    chosen = rows[rows["metric"] == metric]
    for column, wanted in conditions.items():
        values = wanted if isinstance(wanted, tuple) else (wanted,)
        chosen = chosen[chosen[column].isin(values)]
    if chosen.empty:
        return chosen["value"].astype(float)
    complete = chosen.groupby("seed").size().max()

    def one(values: "pd.Series[float]") -> float:
        return float("nan") if len(values) < complete or values.isna().any() else float(combine(values))

    return chosen.groupby("seed")["value"].agg(one)
