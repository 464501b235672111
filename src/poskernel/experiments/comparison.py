"""Predicted against trained: the statistics and pictures that compare alpha with length generalization.

Thresholds are the realizability paper's and were fixed before any run: a cell generalizes where its LG is at least
0.5, a row keeps its promise where LG is at least 0.7, a model has learned its task where its accuracy in distribution
exceeds 0.8.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poskernel.errors import InputError, RunError
from poskernel.experiments.study_rows import CELL, SETTING
from poskernel.statistics import Estimate, Precision, Separation, auc, precision, spearman
from poskernel.study.units import LEARNABLE

if TYPE_CHECKING:
    import pandas as pd

GENERALIZES = 0.5
BINARY_ALPHA = 0.5
"""Alpha from which it predicts generalization, where a yes or no is asked."""
KEEPS_PROMISE = 0.7
PRECISION_TAUS = (0.5, 0.7, 0.9)


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


def compare(rows: "pd.DataFrame", seed: int = 0) -> Comparison:
    """Compare predictions with trained models: `rows` from `StudyRows.joined`, one model an encoding and task.

    Raises RunError where nothing trained is among them, InputError where they mix models of several settings.
    """
    valued = rows.dropna(subset=["accuracy"])
    if valued.empty:
        raise RunError("there is no trained measurement to compare with: run the study first.")
    require_one_setting(rows)
    cells = cell_means(rows)
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


def require_one_setting(rows: "pd.DataFrame") -> None:
    """InputError where the rows hold models that differ in more than encoding and task."""
    mixed = [name for name in SETTING if rows[name].nunique() > 1]
    if mixed:
        values = ", ".join(map(str, sorted(rows[mixed[0]].unique())))
        raise InputError(f"the rows mix models of {mixed[0]} {values}: choose one of them.")


def cell_means(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Means over lengths and seeds; a cell counts as unlearned where its mean accuracy in distribution is too low."""
    grouped = rows.groupby(CELL, sort=False)
    cells = grouped[["alpha", "accuracy"]].mean()
    seeds = rows.drop_duplicates([*CELL, "seed"]).groupby(CELL, sort=False)
    cells["train_accuracy"], cells["seeds"] = seeds["train_accuracy"].mean(), seeds.size()
    cells["status"] = ["done" if accuracy > LEARNABLE else "unlearned" for accuracy in cells["train_accuracy"]]
    return cells.reset_index()


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
