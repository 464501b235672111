"""From rows of the spectral interventions to one number a replicate (a seed, or a text)."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from poskernel.attention.interventions.bands import Band
from poskernel.experiments.head_rows import LOST
from poskernel.experiments.spectral.band_changes import DAMPED, NONE, at_matched, gained, random_for
from poskernel.experiments.spectral.band_units import ALL, FILTERED, ONE
from poskernel.experiments.spectral.word_filters import CLASS_DISTANCE, CLASS_LOSS, CLASSES, LOW_PASS

if TYPE_CHECKING:
    import pandas as pd

LEAST = 0.01
"""Nats: a predicted change below this has no direction worth counting."""
RESOLVED = (gained(Band.SHORT, DAMPED), gained(Band.MIDDLE, DAMPED))
"""Low-pass and high-pass."""
HIGH_PASS = gained(Band.MIDDLE, DAMPED)
UNRESOLVED = (gained(Band.UNRESOLVED, DAMPED),)
MEANS = tuple(FILTERED)
Where = dict[str, object]
Measured = Callable[["pd.DataFrame"], Sequence[float]]
SMALL: Where = {"encoding": "rope", "state": "trained"}
LARGE: Where = {"model": "SmolLM2-135M", "state": "trained"}
ABSOLUTE: Where = {"encoding": "sinusoidal"}


def chosen(rows: "pd.DataFrame", where: Where) -> "pd.DataFrame":
    """Rows by column: a value, or a tuple of them; none where a column is not there."""
    for column, wanted in where.items():
        if column not in rows:
            return rows.iloc[:0]
        rows = rows[rows[column].isin(wanted if isinstance(wanted, tuple) else (wanted,))]
    return rows


def per_head(rows: "pd.DataFrame", where: Where, changes: Sequence[str], scope: str = ONE) -> "pd.DataFrame":
    """A line a seed, change and head with `said` and `found`: the change predicted for one layer, and the one measured.

    A seed that lost measurements has nan lines; a head without planes in the band has none.
    """
    keys = ["seed", "change", "layer", "head"]
    parts = {
        name: chosen(rows, {"metric": metric, "scope": at, "change": tuple(changes), **where})
        for name, metric, at in (("said", "predicted_change", ONE), ("found", "distance_change", scope))
    }
    tables = {name: part[[*keys, "value", "status"]].rename(columns={"value": name}) for name, part in parts.items()}
    both = tables["said"].merge(tables["found"], on=keys, how="outer", suffixes=("", "_found"))
    lost = both["status"].isin(LOST) | both["status_found"].isin(LOST)
    there = both["said"].notna() & both["found"].notna()
    return both.loc[lost | there, [*keys, "said", "found"]]


def by_seed(table: "pd.DataFrame", combine: Callable[["pd.DataFrame"], float]) -> "pd.Series[float]":
    """One number a seed out of its lines; nan where a line of it is."""
    import pandas as pd

    found = {seed: math.nan if lines["found"].isna().any() else combine(lines) for seed, lines in table.groupby("seed")}
    return pd.Series(found, dtype=float)


def rank_correlation(lines: "pd.DataFrame") -> float:
    """Spearman's between said and found; nan where one of them does not vary."""
    from scipy.stats import spearmanr

    if len(lines) < 3 or lines["said"].nunique() < 2 or lines["found"].nunique() < 2:
        return math.nan
    return float(spearmanr(lines["said"], lines["found"]).statistic)


def right_directions(lines: "pd.DataFrame") -> float:
    """Share of lines, of those for which a change is said, whose change has the sign that was said."""
    counted = lines[lines["said"].abs() >= LEAST]
    return float((counted["said"] * counted["found"] > 0).mean()) if len(counted) else math.nan


def directions(where: Where) -> Measured:
    """Of both resolved bands damped, one layer at a time."""
    return lambda rows: by_seed(per_head(rows, where, RESOLVED), right_directions).tolist()


def agreement(where: Where, changes: Sequence[str] = RESOLVED) -> Measured:
    """Rank correlation over heads and changes, one layer at a time."""
    return lambda rows: by_seed(per_head(rows, where, changes), rank_correlation).tolist()


def lost_together(where: Where) -> Measured:
    """Rank correlation with one layer changed less that with all."""

    def measured(rows: "pd.DataFrame") -> Sequence[float]:
        one, together = (by_seed(per_head(rows, where, RESOLVED, scope), rank_correlation) for scope in (ONE, ALL))
        return (one - together).tolist()

    return measured


def lost_unresolved(where: Where) -> Measured:
    """Rank correlation for resolved bands less that for the unresolved one."""

    def measured(rows: "pd.DataFrame") -> Sequence[float]:
        first, second = (by_seed(per_head(rows, where, each), rank_correlation) for each in (RESOLVED, UNRESOLVED))
        return (first - second).tolist()

    return measured


def kernels_alone(rows: "pd.DataFrame") -> Sequence[float]:
    """Rank correlation of what kernels without content say with what is measured, small models."""
    import pandas as pd

    alone = rows[rows["metric"] == "kernel_change"].assign(metric="predicted_change")
    found = rows[rows["metric"] == "distance_change"]
    return by_seed(per_head(pd.concat([alone, found]), SMALL, RESOLVED), rank_correlation).tolist()


def over_random(rows: "pd.DataFrame") -> Sequence[float]:
    """Mean over heads that have a control: change of distance by damped short planes less that by their controls."""
    lines = chosen(rows, {"metric": "over_random", "change": LOW_PASS, **SMALL})
    kept = lines[lines["status"].isin(LOST) | lines["value"].notna()]
    return by_seed(kept.rename(columns={"value": "found"}), lambda each: float(each["found"].mean())).tolist()


def untrained_move(rows: "pd.DataFrame") -> Sequence[float]:
    """Mean size of the change by damped short planes before training."""
    where: Where = {"encoding": "rope", "state": "untrained"}
    return by_seed(per_head(rows, where, [LOW_PASS]), lambda lines: float(lines["found"].abs().mean())).tolist()


def scored(rows: "pd.DataFrame", where: Where, metric: str, change: str, stretch: int = 1) -> "pd.Series[float]":
    """Loss or accuracy of models under a change of all layers, a seed each, at so many training lengths."""
    lines = chosen(rows, {"metric": metric, "scope": ALL, "change": change, **where})
    lines = lines[lines["length"] == stretch * lines["length"].min()]
    return lines.set_index("seed")["value"].astype(float).sort_index()


def loss_rise(rows: "pd.DataFrame", change: str, stretch: int = 1, against: str = NONE) -> "pd.Series[float]":
    """Of small rotary language models, against the loss without it (or under another change)."""
    where: Where = {"encoding": "rope", "objective": "next"}
    first, second = (scored(rows, where, "loss", name, stretch) for name in (change, against))
    return first - second


def extrapolation_cost(change: str) -> Measured:
    """Rise of the loss at four training lengths less its rise at one."""
    return lambda rows: (loss_rise(rows, change, 4) - loss_rise(rows, change, 1)).tolist()


def band_over_random(rows: "pd.DataFrame") -> Sequence[float]:
    """Loss with short planes damped less loss with random planes of equal energy damped, in the same heads."""
    return loss_rise(rows, at_matched(Band.SHORT), against=random_for(Band.SHORT)).tolist()


def accuracy_fall(rows: "pd.DataFrame", task: str, change: str) -> "pd.Series[float]":
    """Of the models of a generated task, at the training length."""
    before, after = (scored(rows, {"source": task}, "accuracy", name) for name in (NONE, change))
    return before - after


def local_over_global(change: str, sign: int = 1) -> Measured:
    """Fall of the accuracy of reordering less that of bracket matching; the other way round with sign -1."""

    def measured(rows: "pd.DataFrame") -> Sequence[float]:
        local, matching = (accuracy_fall(rows, task, change) for task in ("reordering", "dyck"))
        return (sign * (local - matching)).tolist()

    return measured


def of_class(rows: "pd.DataFrame", words: str, metric: str, change: str | None = None) -> "pd.Series[float]":
    """A number of a word class, a seed each."""
    where: Where = {"metric": metric, "words": words}
    lines = chosen(rows, where if change is None else {**where, "change": change})
    return lines.set_index("seed")["value"].astype(float).sort_index()


def class_distances(rows: "pd.DataFrame") -> "list[pd.Series[float]]":
    """Of function and content words."""
    return [of_class(rows, each.name.lower(), CLASS_DISTANCE.name) for each in CLASSES]


def classes_differ(rows: "pd.DataFrame") -> Sequence[float]:
    """How far apart the distances of the two classes are."""
    first, second = class_distances(rows)
    return (first - second).abs().tolist()


def nearer_needs_more(rows: "pd.DataFrame") -> Sequence[float]:
    """Rise of the loss of the class that looks less far, its own queries filtered, less that of the other class."""
    rises = [
        of_class(rows, each.name.lower(), CLASS_LOSS.name, LOW_PASS)
        - of_class(rows, each.name.lower(), CLASS_LOSS.name, NONE)
        for each in CLASSES
    ]
    first, second = class_distances(rows)
    return ((rises[0] - rises[1]) * (1 - 2 * (first > second))).tolist()


def class_over_random(rows: "pd.DataFrame") -> Sequence[float]:
    """Loss of both classes with short planes of their queries damped less that with random planes, mean."""
    per = [
        of_class(rows, each.name.lower(), CLASS_LOSS.name, at_matched(Band.SHORT))
        - of_class(rows, each.name.lower(), CLASS_LOSS.name, random_for(Band.SHORT))
        for each in CLASSES
    ]
    return ((per[0] + per[1]) / len(per)).tolist()
