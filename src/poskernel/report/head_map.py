"""The heads of a pretrained model as an interactive chart: a layer x head map beside the g(offset) curve of one head.

The data hold one row a head. g is sent as whole numbers of steps above its least value (a thousandth of its range:
less than a pixel of the curve), flattened only after the head is chosen: 270 heads of 257 offsets take about 0.6 MB.
"""

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from poskernel.errors import InputError, MissingExtraError

try:
    import altair as alt
except ImportError as missing:
    raise MissingExtraError("a head map", "report") from missing

STEPS = 1000
CELL = {"width": 30, "height": 15}
"""Pixels of one cell of the map."""
CURVE = {"width": 470, "height": 300}
CHOSEN, POINTED = "#0072B2", "#D55E00"
UNDEFINED = "#c8ccd1"
LETTERS_PER_LINE = 74


def head_map(
    heads: pd.DataFrame,
    statistics: Mapping[str, str],
    offsets: Sequence[int],
    *,
    band: str = "95% interval",
) -> dict[str, Any]:
    """Vega-Lite specification of the map and the curve.

    `heads` has one row a head: layer, head, sentence (the head in words), g (array over `offsets`, nats), where known
    g_low and g_high (the `band` around it; nan at offsets that a head does not have), and each column that `statistics` maps to its name in the menu. Clicking a
    cell chooses its head, as do two sliders (for the keyboard); the head under the pointer is drawn in a second colour.
    Undefined statistics show as grey cells. Raises InputError for arrays of the wrong length, repeated heads,
    offsets that do not rise, and statistics that are no numbers.
    """
    if len(offsets) < 2 or list(offsets) != sorted(set(offsets)):
        raise InputError(f"offsets {list(offsets)[:8]} do not rise: give each offset once, in order.")
    values = compact(heads, list(statistics), len(offsets))
    layers, numbers = int(heads["layer"].max()) + 1, int(heads["head"].max()) + 1
    chart = alt.hconcat(
        statistic_map(statistics, {name: colour_limits(heads[name]) for name in statistics}, layers, numbers),
        alt.vconcat(curve(offsets, band), sentence(), spacing=14),
        spacing=40,
    )
    styled = (
        chart.resolve_scale(color="independent")
        .configure(font="system-ui, sans-serif", background="white")
        .configure_view(stroke=None)
        .configure_scale(invalid={"color": {"value": UNDEFINED}})
        .configure_axis(labelFontSize=11, titleFontSize=12, titleFontWeight="normal", gridColor="#eaeef2")
        .configure_title(fontSize=13, anchor="start", subtitleFontSize=11, subtitleColor="#57606a")
    )
    specification: dict[str, Any] = styled.to_dict()
    specification["datasets"] = {"heads": values}
    return specification


def colour_limits(values: "pd.Series[Any]") -> tuple[float, float]:
    """2nd and 98th percentile of the finite values: one head far off would leave all others one colour."""
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=float)
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return 0.0, 1.0
    low, high = (float(f"{bound:.4g}") for bound in np.quantile(finite, [0.02, 0.98]))
    return low, high


def compact(heads: pd.DataFrame, statistics: Sequence[str], number: int) -> list[dict[str, Any]]:
    """One record a head, small: statistics to 4 digits, g in steps, its band in steps below and above."""
    lacking = [name for name in ("layer", "head", "sentence", "g", *statistics) if name not in heads.columns]
    if lacking:
        raise InputError(f"the table of heads has no column '{lacking[0]}': it has {', '.join(heads.columns)}.")
    if heads.empty or heads.duplicated(["layer", "head"]).any():
        raise InputError(f"the table of heads has {len(heads)} rows, some twice or none: give one row a head.")
    return [compact_head(record, statistics, number) for record in heads.to_dict("records")]


def compact_head(record: Mapping[Any, Any], statistics: Sequence[str], number: int) -> dict[str, Any]:
    """The record of one head; a statistic that is not finite becomes null, and so does g where it is nan."""
    place = {"layer": int(record["layer"]), "head": int(record["head"])}
    g = np.asarray(record["g"], dtype=float)
    low, high = (np.asarray(record.get(name, g), dtype=float) for name in ("g_low", "g_high"))
    for name, array in (("g", g), ("g_low", low), ("g_high", high)):
        if array.shape != (number,) or np.isinf(array).any():
            raise InputError(f"{name} of {place} is not {number} finite numbers or nan: give one at each offset.")
        if (np.isnan(array) != np.isnan(g)).any() or np.isnan(array).all():
            raise InputError(f"{name} of {place} is nan where g is not, or everywhere: give a band wherever g is.")
    step = float(f"{(np.nanmax(g) - np.nanmin(g) or 1.0) / STEPS:.3g}")
    base = float(f"{np.nanmin(g):.6g}")
    numbers = {name: rounded(record[name], name) for name in statistics}
    words = textwrap.fill(str(record["sentence"]), LETTERS_PER_LINE)
    steps = {"g": np.rint((g - base) / step), "below": np.rint((g - low) / step)}
    above = np.rint((high - g) / step)
    if np.nanmax(np.abs(above - steps["below"])) > 1:
        steps["above"] = above  # left out where the band is symmetric, as it mostly is
    return {**place, **numbers, "sentence": words, "base": base, "step": step} | {
        name: [None if np.isnan(value) else int(value) for value in array] for name, array in steps.items()
    }


def rounded(value: object, name: str) -> float | None:
    """Four significant digits; null where undefined; InputError for what is no number."""
    if value is None or value is pd.NA:
        return None
    if isinstance(value, str):
        raise InputError(f"the statistic {name} is '{value}', which has no place on a colour scale: give numbers.")
    number = float(value)  # type: ignore[arg-type]  # what is no number raises here
    return float(f"{number:.4g}") if math.isfinite(number) else None


def statistic_map(
    statistics: Mapping[str, str], limits: Mapping[str, tuple[float, float]], layers: int, numbers: int
) -> Any:
    """The heat map; it owns the menu, the sliders and the two selections. Colours end at each statistic's limits."""
    menu = alt.param(
        name="statistic",
        value=next(iter(statistics)),
        bind=alt.binding_select(options=list(statistics), labels=list(statistics.values()), name="Colour shows "),
    )
    sliders: Any = {  # Vega shows inputs last first
        "head": alt.binding_range(min=0, max=numbers - 1, step=1, name="Head "),
        "layer": alt.binding_range(min=0, max=layers - 1, step=1, name="Layer "),
    }
    first: Any = [{"layer": 0, "head": 0}]
    chosen = alt.selection_point(
        name="chosen", fields=list(sliders), value=first, on="rect:click", clear=False, toggle=False, bind=sliders
    )
    pointed = alt.selection_point(
        name="pointed", fields=["layer", "head"], on="rect:pointerover", clear="rect:pointerout", empty=False
    )
    place = alt.Chart(alt.NamedData("heads")).encode(
        x=alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0, domain=False, ticks=False)),
        y=alt.Y("layer:O", title="layer", axis=alt.Axis(domain=False, ticks=False, labelOverlap=True)),
    )
    label = (
        "'layer ' + datum.layer + ', head ' + datum.head + ': ' + (isValid(datum.shown) ? datum.shown : 'undefined')"
    )
    low, high = (json.dumps({name: pair[end] for name, pair in limits.items()}) for end in (0, 1))
    tone = f"isValid(datum.shown) ? clamp(datum.shown, {low}[statistic], {high}[statistic]) : null"
    colour = alt.Color(
        "tone:Q",
        title=None,
        scale=alt.Scale(scheme="viridis", zero=False),
        legend=alt.Legend(orient="top", gradientLength=CELL["width"] * numbers, gradientThickness=10),
    )
    cells = (
        place.transform_calculate(shown="datum[statistic]", label=label)
        .transform_calculate(tone=tone)
        .mark_rect(invalid="show", cursor="pointer", stroke="white", strokeWidth=1)
        .encode(color=colour, tooltip="label:N", description="label:N")
        .add_params(menu, chosen, pointed)
        .properties(name="map")
    )
    frame: Any = {"filled": False, "strokeWidth": 2.5, "fillOpacity": 0}
    outline = place.transform_filter(chosen).mark_rect(stroke="#000000", **frame)
    pointer = place.transform_filter(pointed).mark_rect(stroke=POINTED, **frame)
    return alt.layer(cells, outline, pointer).properties(
        width=CELL["width"] * numbers,
        height=CELL["height"] * layers,
        title=alt.Title(
            "Every head of the model",
            subtitle=[
                "click a cell, or use the sliders below",
                "grey: undefined; colours end at the 2nd and 98th percentile",
            ],
        ),
    )


def curve(offsets: Sequence[int], band: str) -> Any:
    """g(offset) with its band for the chosen head, and the curve of the head under the pointer."""
    positions = "[" + ",".join(str(int(offset)) for offset in offsets) + "]"

    def points(selection: Any) -> alt.Chart:
        return (
            alt.Chart(alt.NamedData("heads"))
            .transform_filter(selection)
            .transform_calculate(offset=positions, above="datum.above || datum.below")
            .transform_flatten(["offset", "g", "below", "above"])
            .transform_filter("isValid(datum.g)")  # a window ends before the offsets do
            .transform_calculate(
                nats="datum.base + datum.step * datum.g",
                low="datum.base + datum.step * (datum.g - datum.below)",
                high="datum.base + datum.step * (datum.g + datum.above)",
            )
        )

    chosen: Any = {"param": "chosen"}
    # The chosen head too, hidden under its own line: a layer without points would have no extent to scale by.
    either: Any = {"or": [{"param": "pointed", "empty": False}, chosen]}
    ahead = [2**power for power in range(int(math.log2(max(1, *offsets))) + 1)]
    lowest = min(0, *(int(offset) for offset in offsets))
    offset = alt.X(
        "offset:Q",
        title="offset: query position − key position (tokens, logarithmic beyond 1)",
        scale=alt.Scale(type="symlog", constant=1, domain=[lowest, int(max(offsets))], nice=False),
        axis=alt.Axis(values=[*(-power for power in reversed(ahead) if -power >= lowest), 0, *ahead]),
    )
    nats = alt.Y("nats:Q", title="g(offset), nats", scale=alt.Scale(zero=False))
    tooltip = [
        alt.Tooltip("offset:Q"),
        alt.Tooltip("nats:Q", format=".3f", title="g (nats)"),
        alt.Tooltip("low:Q", format=".3f"),
        alt.Tooltip("high:Q", format=".3f"),
    ]
    area = points(chosen).mark_area(opacity=0.22, color=CHOSEN).encode(x=offset, y=alt.Y("low:Q"), y2="high:Q")
    line = points(chosen).mark_line(color=CHOSEN, strokeWidth=2, point={"size": 14, "color": CHOSEN})
    other = points(either).mark_line(color=POINTED, strokeWidth=1.6, strokeDash=[5, 3])
    heading = alt.Title(
        alt.expr("'Positional kernel g(offset): layer ' + chosen.layer[0] + ', head ' + chosen.head[0]"),
        subtitle=f"blue: the chosen head, shaded its {band}; orange, dashed: the head under the pointer",
    )
    return alt.layer(
        area,
        other.encode(x=offset, y=nats, detail=["layer:N", "head:N"]),
        line.encode(x=offset, y=nats, tooltip=tooltip),
    ).properties(title=heading, **CURVE)


def sentence() -> Any:
    """The chosen head in words, and below it the head under the pointer."""
    chart = alt.Chart(alt.NamedData("heads"))
    look: Any = {"align": "left", "baseline": "top", "lineBreak": "\n", "lineHeight": 17, "x": 0, "fontSize": 12.5}
    chosen = chart.transform_filter({"param": "chosen"}).mark_text(y=0, color=CHOSEN, **look).encode(text="sentence:N")
    pointed = (
        chart.transform_filter({"param": "pointed", "empty": False})
        .mark_text(y=62, color="#B04A00", **look)
        .encode(text="sentence:N")
    )
    return alt.layer(chosen, pointed).properties(width=CURVE["width"], height=110)
