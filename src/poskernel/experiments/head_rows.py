"""From rows of single heads to one number a model, and from models to one number a seed."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("layer", "head")
"""Columns that say which part of a model a row speaks of: a model's number is taken over them."""
ROW = ("cell", "metric", "value", "status", "reason", *PARTS)
"""Columns that do not tell models apart."""
LOST = ("failed", "timeout")

Statistic = Callable[["pd.Series[float]"], float]


def mean(values: "pd.Series[float]") -> float:
    """Mean over the heads, or over models."""
    return float(values.mean())


def median(values: "pd.Series[float]") -> float:
    """Median over the heads."""
    return float(values.median())


def least(values: "pd.Series[float]") -> float:
    """The worst of some models."""
    return float(values.min())


def greatest(values: "pd.Series[float]") -> float:
    """The largest of some models."""
    return float(values.max())


def of_models(
    rows: "pd.DataFrame",
    metric: str,
    statistic: Statistic,
    where: Mapping[str, object],
    undefined: float = math.nan,
) -> "pd.DataFrame":
    """One row a model (its columns, `seed` and `length` kept) with a statistic over its heads as `value`.

    `where` chooses rows by column (a value, or a tuple of them). A head whose number does not exist counts as
    `undefined`; a model that failed, or lacks rows that others have, gives nan, so that it is not passed over.
    """
    chosen = rows[rows["metric"] == metric]
    for column, wanted in where.items():
        chosen = chosen[chosen[column].isin(wanted if isinstance(wanted, tuple) else (wanted,))]
    keys = [column for column in chosen.columns if column not in ROW]
    if chosen.empty:
        return chosen[[*keys, "value"]]
    lost = chosen["status"].isin(LOST)
    filled = chosen.assign(
        value=chosen["value"].astype(float).where(lost, chosen["value"].astype(float).fillna(undefined))
    )
    groups = filled.groupby(keys, sort=False, dropna=False)["value"]
    complete = groups.size().max()

    def one(values: "pd.Series[float]") -> float:
        return math.nan if len(values) < complete or values.isna().any() else float(statistic(values))

    return groups.agg(one).reset_index()


def by_seed(models: "pd.DataFrame", combine: Statistic = mean) -> "pd.Series[float]":
    """One number a seed out of all its models; nan where one of them has none, or is missing."""
    if models.empty:
        return models["value"].astype(float)
    groups = models.groupby("seed")["value"]
    complete = groups.size().max()
    return groups.agg(lambda v: math.nan if len(v) < complete or v.isna().any() else float(combine(v)))


def difference(first: "pd.DataFrame", second: "pd.DataFrame", combine: Statistic = mean) -> Sequence[float]:
    """The first models' number less the second's, a seed each."""
    return (by_seed(first, combine) - by_seed(second, combine)).tolist()


def paired(first: "pd.DataFrame", second: "pd.DataFrame", keys: Sequence[str]) -> "pd.DataFrame":
    """First less second, model by model: `keys` and the seed say which belong together; a lone one gives nan."""
    both = first.merge(second, on=[*keys, "seed"], how="outer", suffixes=("", "_other"))
    return both.assign(value=both["value"] - both["value_other"])


def lines_gained(rows: "pd.DataFrame", where: Mapping[str, object], keys: Sequence[str]) -> "pd.DataFrame":
    """Share of what random frequencies leave unexplained of g that the encoding's own explain, means over heads.

    0 where they explain no more than random ones of the same number and range, 1 where they explain everything. A head
    whose g does not vary counts as one of which neither explains anything.
    """
    own, random = (
        of_models(rows, metric, mean, where, undefined=0.0) for metric in ("lines_explained", "lines_random")
    )
    both = paired(own, random, keys)
    return both.assign(value=both["value"] / (1 - both["value_other"]))
