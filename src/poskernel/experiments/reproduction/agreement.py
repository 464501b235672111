"""How well alpha predicts trained models: every statistic the realizability paper gives, and those by cluster.

Cell level: means over lengths and seeds. Learnable cells: mean accuracy in distribution above 0.8 unless said. Cells
that share an encoding or a task are not independent: the same statistics with whole clusters drawn, and labels shuffled
within clusters only, say how much of the agreement is left when that is taken into account.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poskernel.encodings import ENCODINGS, AbsoluteEncoding, Nope, RelativeEncoding
from poskernel.experiments.comparison import BINARY_ALPHA, GENERALIZES, KEEPS_PROMISE, PRECISION_TAUS, Comparison
from poskernel.statistics import Estimate, auc, precision, spearman
from poskernel.study.units import LEARNABLE
from poskernel.tasks import TASKS, OffsetRegime

if TYPE_CHECKING:
    import pandas as pd

NON_TRIVIAL = 0.05
"""A cell whose alpha is not above this is a trivial negative."""
CUTOFFS = (0.5, 0.7, 0.8, 0.9)
CLUSTERS = {"encoding": "whole encodings drawn", "task": "whole tasks drawn"}


@dataclass(frozen=True)
class Statistic:
    """A named statistic; `p` where a permutation belongs to it."""

    name: str
    estimate: Estimate
    p: float = math.nan
    method: str = ""


def statistics_of(found: Comparison, seed: int) -> dict[str, Statistic]:
    """Every statistic of one tier, by name."""
    cells = found.cells.dropna(subset=["alpha", "accuracy"])
    learned = learnable(cells)
    made = [*separations(cells, seed), *correlations(cells, learned, seed)]
    made += [*interior_correlations(found.rows, seed), *precisions(found.rows, seed), *baselines(cells, learned, seed)]
    return {each.name: each for each in made}


def learnable(cells: "pd.DataFrame", cutoff: float = LEARNABLE) -> "pd.DataFrame":
    """The cells whose models learned their task."""
    return cells[cells["train_accuracy"] > cutoff]


def separations(cells: "pd.DataFrame", seed: int) -> list[Statistic]:
    """AUC of cell alpha against 'cell LG >= 0.5': all cells, the non-trivial ones, and by cluster."""
    subsets = {"AUC, all cells": cells, "AUC, non-trivial cells": non_trivial(cells)}
    made = []
    for name, chosen in subsets.items():
        one = auc(chosen["alpha"], chosen["accuracy"] >= GENERALIZES, seed=seed)
        made.append(Statistic(name, one.auc, one.p, one.p_method))
    for cluster, words in CLUSTERS.items():
        one = auc(cells["alpha"], cells["accuracy"] >= GENERALIZES, seed=seed, clusters=cells[cluster])
        made.append(Statistic(f"AUC, all cells, {words}", one.auc, one.p, one.p_method))
    return made


def non_trivial(cells: "pd.DataFrame") -> "pd.DataFrame":
    """Cells with an alpha above 0.05, and those that generalize whatever their alpha."""
    return cells[(cells["alpha"] > NON_TRIVIAL) | (cells["accuracy"] >= GENERALIZES)]


def correlations(cells: "pd.DataFrame", learned: "pd.DataFrame", seed: int) -> list[Statistic]:
    """Spearman over cells: all, learnable at four cut-offs, binarised, non-trivial, and by cluster."""
    made = [Statistic("Spearman, all cells", spearman(cells["alpha"], cells["accuracy"], seed=seed))]
    for cutoff in CUTOFFS:
        chosen = learnable(cells, cutoff)
        name = f"Spearman, learnable cells (above {cutoff:g})"
        made.append(Statistic(name, spearman(chosen["alpha"], chosen["accuracy"], seed=seed)))
    binary = (learned["alpha"] >= BINARY_ALPHA).astype(float)
    made.append(Statistic("Spearman, learnable, alpha binarised", spearman(binary, learned["accuracy"], seed=seed)))
    hard = learned[learned["alpha"] > NON_TRIVIAL]
    made.append(Statistic("Spearman, learnable, non-trivial", spearman(hard["alpha"], hard["accuracy"], seed=seed)))
    for cluster, words in CLUSTERS.items():
        for scope, chosen in (("all cells", cells), ("learnable cells", learned)):
            found = spearman(chosen["alpha"], chosen["accuracy"], seed=seed, clusters=chosen[cluster])
            made.append(Statistic(f"Spearman, {scope}, {words}", found))
    return made


def interior_correlations(rows: "pd.DataFrame", seed: int) -> list[Statistic]:
    """Spearman in the one family with alphas between 0 and 1, sinusoidal bounded offsets, at three levels."""
    bounded = rows["task"].map(lambda task: regime(task) is OffsetRegime.FIXED_RELATIVE).astype(bool)
    family = rows[(rows["encoding"] == "sinusoidal") & bounded].dropna(subset=["alpha", "accuracy"])
    levels = {
        "cells": family.groupby("task")[["alpha", "accuracy"]].mean(),
        "cells and lengths": family.groupby(["task", "length"])[["alpha", "accuracy"]].mean(),
        "rows": family,
    }
    return [
        Statistic(
            f"Spearman, sinusoidal bounded offsets, {name}", spearman(level["alpha"], level["accuracy"], seed=seed)
        )
        for name, level in levels.items()
    ]


def precisions(rows: "pd.DataFrame", seed: int) -> list[Statistic]:
    """Pr[LG >= 0.7 | alpha >= tau] over rows (cell, length, seed), plain and with whole cells drawn."""
    valued, made = rows.dropna(subset=["alpha", "accuracy"]), []
    label = valued["encoding"] + " " + valued["task"]
    for tau in PRECISION_TAUS:
        for words, clusters in (("", None), (", whole cells drawn", label)):
            found = precision(
                valued["alpha"], valued["accuracy"], tau=tau, threshold=KEEPS_PROMISE, seed=seed, clusters=clusters
            )
            note = f"{len(found.violations)} of {found.estimate.n} rows fall short"
            made.append(Statistic(f"precision at alpha of {tau:g}{words}", found.estimate, method=note))
    return made


def violations(rows: "pd.DataFrame", tau: float) -> "pd.DataFrame":
    """The rows that break the promise of alpha >= tau, one line a cell and length."""
    broken = rows[(rows["alpha"] >= tau) & (rows["accuracy"] < KEEPS_PROMISE)]
    grouped = broken.groupby(["encoding", "task", "length"], sort=False)
    told = grouped.agg(alpha=("alpha", "first"), seeds=("seed", "size"), worst=("accuracy", "min"))
    return told.reset_index()


def baselines(cells: "pd.DataFrame", learned: "pd.DataFrame", seed: int) -> list[Statistic]:
    """Two rules that need no alpha: 'is the offset bounded?', blind to the encoding, and the hand-made taxonomy."""
    made = []
    for name, rule in (("blind rule (bounded offset)", blind_rule), ("hand taxonomy", taxonomy_rule)):
        for scope, chosen in (("learnable cells", learned), ("all cells", cells)):
            answers = [float(rule(*cell)) for cell in zip(chosen["encoding"], chosen["task"], strict=True)]
            made.append(Statistic(f"{name}: Spearman, {scope}", spearman(answers, chosen["accuracy"], seed=seed)))
    return made


def regime(task: str) -> OffsetRegime:
    """Offset regime of a task."""
    return TASKS[task].regime


def blind_rule(encoding: str, task: str) -> bool:
    """Whether the demanded offset is bounded."""
    return regime(task) is OffsetRegime.FIXED_RELATIVE


def encoding_class(encoding: str) -> str:
    """Relative, absolute or none: what the hand taxonomy asks."""
    kind = ENCODINGS[encoding.split(":", maxsplit=1)[0]]
    if isinstance(kind, Nope):
        return "none"
    if isinstance(kind, RelativeEncoding):
        return "relative"
    return "absolute" if isinstance(kind, AbsoluteEncoding) else "other"


def taxonomy_rule(encoding: str, task: str) -> bool:
    """Relative encoding and bounded offset, or absolute encoding and fixed position."""
    match (encoding_class(encoding), regime(task)):
        case ("relative", OffsetRegime.FIXED_RELATIVE) | ("absolute", OffsetRegime.FIXED_ABSOLUTE):
            return True
    return False


def statistics_table(statistics: dict[str, Statistic]) -> "pd.DataFrame":
    """One line a statistic: name, value with interval, n, permutation p, how it was made."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "statistic": each.name,
                "value": each.estimate,
                "n": each.estimate.n,
                "p": each.p,
                "how": "; ".join(filter(None, (each.estimate.method, each.method))),
            }
            for each in statistics.values()
        ]
    )
