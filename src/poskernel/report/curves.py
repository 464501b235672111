"""Curves of a tidy table, with computed points on them where a formula is compared with numbers."""

from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from poskernel.report.figures import (
    FAINT,
    MUTED,
    STYLE,
    WIDTH,
    headline,
    in_order,
    point_key,
    require_columns,
    series_look,
)

Scale = Literal["linear", "log"]


def curves(
    table: pd.DataFrame,
    *,
    title: str,
    x: str,
    y: str,
    labels: tuple[str, str],
    series: str = "series",
    scales: tuple[Scale, Scale] = ("linear", "linear"),
    limits: tuple[float, float] | None = None,
    level: tuple[float, str] | None = None,
    points: pd.DataFrame | None = None,
    steps: bool = False,
) -> Figure:
    """One line a series; `points` (same columns) are marked on top, `level` is a dashed line with its name.

    `steps` draws values that hold from one x to the next; values a logarithmic axis has no place for are left out.
    """
    require_columns(table, [x, y, series])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
        axis = figure.subplots()
        names = in_order(table[series])
        for index, name in enumerate(names):
            rows, (ink, mark) = table[table[series] == name], series_look(index)
            style: Any = {"drawstyle": "steps-post"} if steps else {}
            axis.plot(rows[x], rows[y], color=ink, linewidth=1.7, **style)
            if points is not None:
                marked = points[points[series] == name]
                axis.scatter(
                    marked[x], marked[y], s=26, c=ink, marker=mark, edgecolor="white", linewidths=0.5, zorder=3
                )
        handles = [
            point_key(index, name, line="-") if points is not None else line_key(index, name)
            for index, name in enumerate(names)
        ]
        if level is not None:
            axis.axhline(level[0], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            handles.append(Line2D([], [], color=MUTED, linestyle=(0, (4, 3)), linewidth=1, label=level[1]))
        axis.set(xscale=scales[0], yscale=scales[1], xlabel=labels[0], ylabel=labels[1])
        if limits is not None:
            axis.set_ylim(*limits)
        axis.grid(color=FAINT, linewidth=0.6)
        axis.set_axisbelow(True)
        figure.legend(handles=handles, loc="outside right upper", title=series, alignment="left")
        headline(figure, title)
    return figure


def line_key(index: int, name: object) -> Line2D:
    """Legend entry of a series that is a line alone."""
    return Line2D([], [], color=series_look(index)[0], linewidth=1.7, label=str(name))
