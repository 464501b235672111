"""Predicted against trained: the statistics and pictures that compare alpha with length generalization.

Thresholds are the realizability paper's and were fixed before any run: a cell generalizes where its LG is at least
0.5, a row keeps its promise where LG is at least 0.7, a model has learned its task where its accuracy in distribution
exceeds 0.8.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poskernel.errors import RunError
from poskernel.statistics import Estimate, Precision, Separation, auc, precision, spearman
from poskernel.study.units import LEARNABLE, Metric

if TYPE_CHECKING:
    import pandas as pd

GENERALIZES = 0.5
KEEPS_PROMISE = 0.7
PRECISION_TAUS = (0.5, 0.7, 0.9)
CELL = ["encoding", "task"]


@dataclass(frozen=True, eq=False)
class Comparison:
    """One tier's cells and rows, with how well alpha predicts LG in them."""

    rows: "pd.DataFrame"
    """One line a cell, length and seed: encoding, task, length, seed, alpha, exists, accuracy, status, reason."""
    cells: "pd.DataFrame"
    """One line a cell, means over lengths and seeds: alpha, accuracy, train_accuracy, status."""
    separation: Separation
    """AUC of cell alpha against 'cell LG >= 0.5'."""
    correlation: Estimate
    """Spearman over all cells."""
    learnable_correlation: Estimate
    """Spearman over the cells whose models learned their task."""
    precisions: dict[float, Precision]
    """Pr[LG >= 0.7 | alpha >= tau] over rows, by tau."""

    @property
    def certain_above_hopeless(self) -> bool | None:
        """Whether every cell with alpha 1 has LG above every cell with alpha 0; None where one kind is missing."""
        sure = self.cells.loc[self.cells["alpha"] == 1, "accuracy"]
        hopeless = self.cells.loc[self.cells["alpha"] == 0, "accuracy"]
        return bool(sure.min() > hopeless.max()) if len(sure) and len(hopeless) else None


def compare(table: "pd.DataFrame", tier: int, seed: int = 0) -> Comparison:
    """Join predictions and trained measurements of a study's tidy table; RunError where no trained value is there."""
    rows = joined_rows(table, tier)
    valued = rows.dropna(subset=["accuracy"])
    if valued.empty:
        raise RunError(f"tier {tier} has no trained measurement to compare with: run the study first.")
    cells = cell_means(rows, table, tier)
    complete = cells.dropna(subset=["alpha", "accuracy"])
    scored = valued.dropna(subset=["alpha"])
    learned = complete[complete["train_accuracy"] > LEARNABLE]
    return Comparison(
        rows,
        cells,
        auc(complete["alpha"], complete["accuracy"] >= GENERALIZES, seed=seed),
        spearman(complete["alpha"], complete["accuracy"], seed=seed),
        spearman(learned["alpha"], learned["accuracy"], seed=seed),
        {
            tau: precision(scored["alpha"], scored["accuracy"], tau=tau, threshold=KEEPS_PROMISE, seed=seed)
            for tau in PRECISION_TAUS
        },
    )


def joined_rows(table: "pd.DataFrame", tier: int) -> "pd.DataFrame":
    """LG of every cell, length and seed of a tier beside alpha and existence."""
    trained = table[(table["metric"] == Metric.LENGTH_GENERALIZATION) & (table["tier"] == tier)]
    trained = trained[[*CELL, "length", "seed", "value", "status", "reason"]].rename(columns={"value": "accuracy"})
    alphas = table[(table["metric"] == Metric.ALPHA) & (table["rule"] == "adam")]
    alphas = alphas[[*CELL, "length", "value"]].rename(columns={"value": "alpha"})
    exists = table[table["metric"] == Metric.EXISTS][[*CELL, "length", "reason"]].rename(columns={"reason": "exists"})
    joined = trained.merge(alphas, on=[*CELL, "length"], how="left").merge(exists, on=[*CELL, "length"], how="left")
    return in_study_order(joined)


def cell_means(rows: "pd.DataFrame", table: "pd.DataFrame", tier: int) -> "pd.DataFrame":
    """Means over lengths and seeds; a cell counts as unlearned where its mean accuracy in distribution is too low."""
    means = rows.groupby(CELL, sort=False)[["alpha", "accuracy"]].mean().reset_index()
    trained = table[(table["metric"] == Metric.TRAIN_ACCURACY) & (table["tier"] == tier)]
    learned = trained.groupby(CELL)["value"].mean().rename("train_accuracy").reset_index()
    cells = means.merge(learned, on=CELL, how="left")
    cells["status"] = ["done" if accuracy > LEARNABLE else "unlearned" for accuracy in cells["train_accuracy"]]
    return cells


def in_study_order(table: "pd.DataFrame") -> "pd.DataFrame":
    """Encodings and tasks in the order of the registries, not of the alphabet."""
    from poskernel.encodings import ENCODINGS
    from poskernel.tasks import TASKS

    def place(names: Sequence[str], column: "pd.Series[str]") -> "pd.Series[int]":
        return column.map(lambda name: names.index(name.split(":")[0]) if name.split(":")[0] in names else len(names))

    keys = {"encoding": list(ENCODINGS), "task": list(TASKS)}
    order = table.assign(**{f"_{name}": place(names, table[name]) for name, names in keys.items()})
    order = order.sort_values(["_encoding", "encoding", "_task", "task", "length", "seed"], kind="stable")
    return order.drop(columns=["_encoding", "_task"]).reset_index(drop=True)


def at_length(rows: "pd.DataFrame", length: int) -> "pd.DataFrame":
    """One line a cell at one length, means over seeds, for heat maps: alpha and accuracy with the reason of a gap."""
    chosen = rows[rows["length"] == length]
    means = chosen.groupby(CELL, sort=False).agg(
        alpha=("alpha", "mean"), accuracy=("accuracy", "mean"), accuracy_reason=("reason", "first")
    )
    return means.reset_index()


def along_lengths(rows: "pd.DataFrame") -> "pd.DataFrame":
    """One line a cell and length; with several seeds also the spread of the accuracy."""
    grouped = rows.groupby([*CELL, "length"], sort=False)
    means = grouped[["alpha", "accuracy"]].mean()
    if rows["seed"].nunique() > 1:
        means["accuracy_low"], means["accuracy_high"] = grouped["accuracy"].min(), grouped["accuracy"].max()
    return means.reset_index()
