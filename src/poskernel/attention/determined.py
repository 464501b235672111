"""Which estimates say something, and what the median head says: one definition for terminal, page, notebook, docs."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from poskernel.statistics import Estimate

if TYPE_CHECKING:
    import pandas as pd

WIDEST = 1.0
"""A share or R2 is undetermined where its 95% interval is wider than this: sentences and medians leave it out."""
SHARES = re.compile(
    r"(.+_)?r2(_raw|_plugin|_plugin_centred|_null|_untrained)?|share(_untrained)?|.+_share|.+_sequential"
    r"|leakage(_.+)?|positional|symbolic|fit_(?!.*(_over_|_origin)).+"
)
"""Columns of the table of heads that hold shares or R2."""


def is_share(column: str) -> bool:
    """Whether a column of the table of heads holds shares or R2, of which 1 is all."""
    return SHARES.fullmatch(column) is not None


def undetermined(low: float | None, high: float | None) -> bool:
    """Whether the interval of a share or R2 is too wide to quote its estimate; not where there is none."""
    return low is not None and high is not None and high - low > WIDEST


def where_determined(heads: "pd.DataFrame", column: str) -> "pd.Series[Any]":
    """A column of the table of heads without the shares or R2 that say nothing: nan in their place."""
    if not is_share(column) or f"{column}_low" not in heads:
        return heads[column]
    return heads[column].mask(heads[f"{column}_high"] - heads[f"{column}_low"] > WIDEST)


def median_head(estimates: Iterable[Estimate], share: bool) -> Estimate:
    """The median over heads, with an interval for other texts; nan where no head is left.

    All heads are measured, so nothing is inferred over heads or layers: what varies is the text. Where each head's
    true value lies within its own interval, the true median lies between the medians of the ends. That is as wide as it
    has to be where the errors of all heads go together, as heads that read the same texts suggest, else wider.

    Heads without a value, and with `share` those whose value is undetermined, are left out and counted in the method.
    """
    given = list(estimates)
    defined = [each for each in given if not np.isnan(each.value)]
    kept = [each for each in defined if not (share and undetermined(each.low, each.high))]
    out = {"undefined": len(given) - len(defined), f"with an interval wider than {WIDEST:g}": len(defined) - len(kept)}
    said = "".join(f"; {count} {why} left out" for why, count in out.items() if count)
    if not kept:
        return Estimate(float("nan"), float("nan"), float("nan"), 0, f"undefined: no head has a value{said}")
    middle, low, high = (float(np.median([getattr(each, part) for each in kept])) for part in ("value", "low", "high"))
    heads = f"median of {len(kept)} heads{said}"
    method = f"{heads}; for other texts of this kind: medians of the ends of the heads' own 95% intervals"
    return Estimate(middle, low, high, len(kept), heads if np.isnan(low) else method)


def median_of_column(heads: "pd.DataFrame", column: str) -> Estimate:
    """`median_head` of a column of the table of heads, with its columns `_low` and `_high` where there are any."""
    ends = [heads.get(f"{column}_{end}", [float("nan")] * len(heads)) for end in ("low", "high")]
    estimates = [
        Estimate(float(value), float(low), float(high), 1, "")
        for value, low, high in zip(heads[column], *ends, strict=True)
    ]
    return median_head(estimates, is_share(column))
