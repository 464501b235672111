"""The heads of a model as an interactive map: any statistic by layer and head, and all that is known of one head.

Made here is what the page sends: a column a statistic, a record a head. g is sent as whole numbers of steps above its
least value (a thousandth of its range: less than a pixel of the curve). `templates/heads.js` draws it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from poskernel.errors import InputError
from poskernel.report.head_details import details

STEPS = 1000
NEEDED = ("layer", "head", "kind", "sentence", "g")


@dataclass(frozen=True)
class HeadStatistic:
    """A column of the table of heads that the map can show."""

    name: str
    """Of the column; columns `NAME_low` and `NAME_high`, where there are any, are its interval."""
    label: str
    """In the menu."""
    group: str
    """Heading in the menu that it stands under."""
    meaning: str
    widest: float | None = None
    """Values with a wider interval are shown as undetermined, without a colour; None where none is too wide."""


def head_map(
    heads: pd.DataFrame,
    statistics: Sequence[HeadStatistic],
    offsets: Sequence[int],
    *,
    kinds: Mapping[str, str],
    words: Sequence[str] = (),
    band: str = "95% interval",
    first: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """What the page needs of all heads, ready for `page.HeadsPanel`.

    `heads` has one row a head: layer, head, kind, sentence (the head in words), g (array over `offsets`, nats), where
    known g_low and g_high (the `band` around it; nan at offsets that a head does not have), a column for each of the
    statistics, and lists for the details that `head_details` names. `kinds` says what each kind means, in the order of
    the legend; a kind may be followed by more words, as in "fixed-offset 3". `words` are the tokens that attended rows
    speak of. `first` is the head that is shown at first (default: the first row). Undefined statistics become null.
    Raises InputError for arrays of the wrong length, repeated heads, offsets that do not rise, kinds that are not in
    the table and statistics that are no numbers.
    """
    if len(offsets) < 2 or list(offsets) != sorted(set(offsets)):
        raise InputError(f"offsets {list(offsets)[:8]} do not rise: give each offset once, in order.")
    lacking = [name for name in (*NEEDED, *(each.name for each in statistics)) if name not in heads.columns]
    if lacking:
        raise InputError(f"the table of heads has no column '{lacking[0]}': it has {', '.join(heads.columns)}.")
    if heads.empty or heads.duplicated(["layer", "head"]).any():
        raise InputError(f"the table of heads has {len(heads)} rows, some twice or none: give one row a head.")
    records = heads.to_dict("records")
    places = [(int(record["layer"]), int(record["head"])) for record in records]
    return {
        "band": band,
        "offsets": [int(offset) for offset in offsets],
        "kinds": [{"name": name, "meaning": meaning} for name, meaning in kinds.items()],
        "words": list(words),
        "first": 0 if first is None else places.index(first),
        "statistics": [statistic_column(heads, each) for each in statistics],
        "heads": [
            {
                "layer": layer,
                "head": head,
                "kind": kind_number(record["kind"], list(kinds)),
                "sentence": str(record["sentence"]),
                **curve_steps(record, len(offsets)),
                **details(record, len(words)),
            }
            for record, (layer, head) in zip(records, places, strict=True)
        ],
    }


def statistic_column(heads: pd.DataFrame, statistic: HeadStatistic) -> dict[str, Any]:
    """A statistic of all heads, in their order, with its interval where there is one and the ends of its colours.

    `form` says what the values are: number, whole (they count something) or truth (1 for yes). `wide` lists the heads
    whose interval is too wide; they have no colour. `clipped` says that other values lie beyond the ends.
    """
    name = statistic.name
    ends = {end: f"{name}_{end}" for end in ("low", "high") if f"{name}_{end}" in heads.columns}
    form = form_of(heads[name], bool(ends))
    values = [rounded(value, name, form == "whole") for value in heads[name]]
    intervals = {end: [rounded(value, column) for value in heads[column]] for end, column in ends.items()}
    wide = too_wide(intervals, statistic.widest)
    shown = [value for number, value in enumerate(values) if number not in wide]
    low, high = (0.0, 1.0) if form == "truth" else colour_limits(pd.Series(shown, dtype=float))
    if form == "whole":
        low, high = math.floor(low), math.ceil(high)
    return {
        "name": name,
        "label": statistic.label,
        "group": statistic.group,
        "meaning": statistic.meaning,
        "form": form,
        "ends": [low, high],
        "clipped": any(value is not None and not low <= value <= high for value in shown),
        "wide": wide,
        "values": values,
        **intervals,
    }


def form_of(values: "pd.Series[Any]", estimated: bool) -> str:
    """Whether a column holds numbers, whole numbers that count something, or yes and no."""
    if pd.api.types.is_bool_dtype(values):
        return "truth"
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=float)
    finite = numbers[np.isfinite(numbers)]
    return "whole" if not estimated and len(finite) and (finite == np.rint(finite)).all() else "number"


def too_wide(intervals: Mapping[str, Sequence[int | float | None]], widest: float | None) -> list[int]:
    """Places of the heads whose interval is wider than that."""
    if widest is None or len(intervals) < 2:
        return []
    ends = zip(intervals["low"], intervals["high"], strict=True)
    return [i for i, (low, high) in enumerate(ends) if low is not None and high is not None and high - low > widest]


def colour_limits(values: "pd.Series[Any]") -> tuple[float, float]:
    """2nd and 98th percentile of the finite values: one head far off would leave all others one colour."""
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=float)
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return 0.0, 1.0
    low, high = (float(f"{bound:.4g}") for bound in np.quantile(finite, [0.02, 0.98]))
    return low, high


def kind_number(kind: object, kinds: Sequence[str]) -> int:
    """Place of a head's kind in the legend."""
    for number, name in enumerate(kinds):
        if kind == name or str(kind).startswith(f"{name} "):
            return number
    raise InputError(f"the kind '{kind}' is not in the legend: it has {', '.join(kinds)}.")


def curve_steps(record: Mapping[Any, Any], number: int) -> dict[str, Any]:
    """g of one head in steps, its band in steps below and above; null where g is nan."""
    place = f"layer {record['layer']} head {record['head']}"
    g = np.asarray(record["g"], dtype=float)
    low, high = (np.asarray(record.get(name, g), dtype=float) for name in ("g_low", "g_high"))
    for name, array in (("g", g), ("g_low", low), ("g_high", high)):
        if array.shape != (number,) or np.isinf(array).any():
            raise InputError(f"{name} of {place} is not {number} finite numbers or nan: give one at each offset.")
        if (np.isnan(array) != np.isnan(g)).any() or np.isnan(array).all():
            raise InputError(f"{name} of {place} is nan where g is not, or everywhere: give a band wherever g is.")
    step = float(f"{(np.nanmax(g) - np.nanmin(g) or 1.0) / STEPS:.3g}")
    base = float(f"{np.nanmin(g):.6g}")
    steps = {"g": np.rint((g - base) / step), "below": np.rint((g - low) / step)}
    above = np.rint((high - g) / step)
    if np.nanmax(np.abs(above - steps["below"])) > 1:
        steps["above"] = above  # left out where the band is symmetric, as it mostly is
    return {"base": base, "step": step} | {
        name: [None if np.isnan(value) else int(value) for value in array] for name, array in steps.items()
    }


def rounded(value: object, name: str, whole: bool = False) -> int | float | None:
    """Four significant digits, all of a whole number; null where undefined; InputError for what is no number."""
    if value is None or value is pd.NA:
        return None
    if isinstance(value, str):
        raise InputError(f"the statistic {name} is '{value}', which has no place on a colour scale: give numbers.")
    number = float(value)  # type: ignore[arg-type]  # what is no number raises here
    if not math.isfinite(number):
        return None
    return int(number) if whole else float(f"{number:.4g}")
