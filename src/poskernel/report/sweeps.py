"""Values along a swept setting, and single runs as dots: long tables in, matplotlib figures out."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from poskernel.report.figures import (
    FAINT,
    INK,
    MUTED,
    STYLE,
    WIDTH,
    headline,
    in_order,
    point_key,
    require_columns,
    series_look,
)


def sweep(
    table: pd.DataFrame,
    *,
    title: str,
    x: str,
    y: str,
    labels: tuple[str, str],
    series: str = "series",
    panel: str | None = None,
    runs: pd.DataFrame | None = None,
    logarithmic: bool = True,
    limits: tuple[float, float] | None = (-0.04, 1.06),
    ticks: Sequence[float | int] | None = None,
    height: float = 3.6,
) -> Figure:
    """Lines of y against x, one colour and marker a series; `runs` (same columns) are single runs, drawn as dots.

    With `panel`, one panel beside the other for each of its values, at most four a row. Columns y_low and y_high, where
    given, are drawn as bars. Lines of a series named in `runs` are thick: what was measured.
    """
    require_columns(table, [x, y, series, *([panel] if panel else [])])
    panels, names = in_order(table[panel]) if panel else [""], in_order(table[series])
    across = min(len(panels), 4)
    down = -(-len(panels) // across)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.3 + height * down), layout="constrained")
        grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
        measured = set() if runs is None else set(runs[series])
        for axis, name in zip(grid, panels, strict=False):
            chosen = table[table[panel] == name] if panel else table
            dots = None if runs is None else runs[runs[panel] == name] if panel else runs
            draw_sweep(axis, chosen, dots, names, (x, y, series), measured)
            axis.set(xlabel=labels[0], title=str(name))
            if logarithmic:
                axis.set_xscale("log")
            if limits:
                axis.set_ylim(*limits)
        marked = sorted(table[x].unique()) if ticks is None else ticks
        grid[0].set_xticks(marked, [f"{tick:g}" for tick in marked])
        grid[0].minorticks_off()
        for index, axis in enumerate(grid):
            axis.set_visible(index < len(panels))
            axis.tick_params(axis="x", labelrotation=40 if len(panels) > 2 else 0)
        for axis in grid[::across]:
            axis.set_ylabel(labels[1])
        handles = [point_key(index, name, line="-") for index, name in enumerate(names)]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        headline(figure, title)
    return figure


def draw_sweep(
    axis: Axes,
    table: pd.DataFrame,
    runs: pd.DataFrame | None,
    names: list[Any],
    columns: tuple[str, str, str],
    measured: set[Any],
) -> None:
    """The lines of one panel; lines of measured series in ink on top, single runs as dots."""
    x, y, series = columns
    for index, name in enumerate(names):
        ink, mark = series_look(index)
        rows = table[table[series] == name].dropna(subset=[y]).sort_values(x)
        width, place, line = (2.4, 4, "-") if name in measured else (1.2, 2, (0, (4, 2)))
        if {f"{y}_low", f"{y}_high"} <= set(rows.columns):
            axis.vlines(rows[x], rows[f"{y}_low"], rows[f"{y}_high"], color=ink, linewidth=1, alpha=0.6)
        axis.plot(rows[x], rows[y], color=ink, linewidth=width, linestyle=line, marker=mark, markersize=5, zorder=place)
        if runs is not None:
            dots = runs[runs[series] == name]
            axis.plot(dots[x], dots[y], linestyle="", marker="o", markersize=4, color=ink, alpha=0.45, zorder=5)
    axis.grid(color=FAINT, linewidth=0.6)
    axis.set_axisbelow(True)


def seed_dots(
    cells: pd.DataFrame,
    runs: pd.DataFrame,
    *,
    title: str,
    axis_label: str,
    panels: Mapping[Any, str],
    panel: str = "tier",
    label: str = "cell",
    predicted: str = "alpha",
    measured: str = "accuracy",
) -> Figure:
    """A line a cell: the prediction as a bar, every seed's measurement as a dot; one column a panel."""
    require_columns(cells, [panel, label, predicted])
    require_columns(runs, [panel, label, measured])
    names = in_order(cells[label])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.6 + 0.19 * len(names)), layout="constrained")
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (value, heading) in zip(grid, panels.items(), strict=True):
            lines, dots = cells[cells[panel] == value], runs[runs[panel] == value].dropna(subset=[measured])
            heights = [names.index(name) for name in lines[label]]
            axis.plot(
                lines[predicted], heights, linestyle="", marker="|", markersize=11, markeredgewidth=2.2, color="#D55E00"
            )
            up = np.array([names.index(name) for name in dots[label]], dtype=float)
            axis.plot(dots[measured], up, linestyle="", marker="o", markersize=4.2, color="#0072B2", alpha=0.5)
            axis.set(title=heading, xlim=(-0.04, 1.04), xlabel=axis_label, ylim=(len(names) - 0.4, -0.6))
            axis.grid(color=FAINT, linewidth=0.6)
            axis.set_axisbelow(True)
        grid[0].set_yticks(range(len(names)), names, fontsize=8)
        bar: Any = {"marker": "|", "linestyle": "", "color": "#D55E00", "markersize": 11, "markeredgewidth": 2.2}
        dot: Any = {"marker": "o", "linestyle": "", "color": "#0072B2", "alpha": 0.5, "markersize": 5}
        handles = [Line2D([], [], label="predicted", **bar), Line2D([], [], label="trained, a dot a seed", **dot)]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
        headline(figure, title)
    return figure


def scatter_panels(
    table: pd.DataFrame,
    *,
    title: str,
    panel: str,
    notes: Mapping[Any, str],
    x: str = "alpha",
    y: str = "accuracy",
    colour: str = "encoding",
    status: str = "status",
    labels: tuple[str, str] = ("predicted α", "trained LG"),
) -> Figure:
    """Predicted against measured, a panel a value of `panel` with its note over it; hollow where not learned."""
    require_columns(table, [x, y, colour, status, panel])
    names = in_order(table[colour])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.1), layout="constrained")
        grid = figure.subplots(1, len(notes), sharey=True, sharex=True, squeeze=False)[0]
        for axis, (value, note) in zip(grid, notes.items(), strict=True):
            axis.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            for index, name in enumerate(names):
                ink, mark = series_look(index)
                for done in (True, False):
                    rows = table[
                        (table[panel] == value) & (table[colour] == name) & ((table[status] == "done") == done)
                    ]
                    fill = ink if done else "white"
                    across = rows[x] + 0.012 * (index - (len(names) - 1) / 2)
                    axis.scatter(across, rows[y], s=30, c=fill, marker=mark, edgecolor=ink, linewidths=0.9, zorder=3)
            axis.set_title(note, fontsize=9)
            axis.set(xlim=(-0.08, 1.08), ylim=(-0.04, 1.06), xlabel=labels[0])
            axis.grid(color=FAINT, linewidth=0.6)
            axis.set_axisbelow(True)
        grid[0].set_ylabel(labels[1])
        hollow: Any = {"marker": "o", "linestyle": "", "markerfacecolor": "white", "markeredgecolor": INK}
        handles = [point_key(index, name) for index, name in enumerate(names)]
        handles += [Line2D([], [], label="hollow: not learned", **hollow)]
        figure.legend(handles=handles, loc="outside lower center", ncols=6)
        headline(figure, title)
    return figure
