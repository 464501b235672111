"""Estimates with their intervals as pictures, one a line or along an axis, and tiles of yes and no.

A column of the table holds the estimates.
"""

import textwrap
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
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

SPREAD = 0.22
"""How far the series of one line stand apart, in lines."""


def forest(
    table: pd.DataFrame,
    *,
    title: str,
    axis_label: str,
    label: str = "label",
    estimate: str = "estimate",
    series: str | None = None,
    other: tuple[str, str] | None = None,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """One line an estimate, its interval as a bar; lines of one `label` stand together, coloured by `series`.

    `other` names a column of plain numbers to compare with, drawn as hollow diamonds, and what they are. What is
    undefined is written, not drawn.
    """
    require_columns(table, [label, estimate, *([series] if series else []), *([other[0]] if other else [])])
    labels, names = in_order(table[label]), in_order(table[series]) if series else [""]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.5 + (0.22 + 0.12 * len(names)) * len(labels)), layout="constrained")
        axis = figure.subplots()
        for record in table.to_dict("records"):
            index = names.index(record[series]) if series else 0
            height = float(labels.index(record[label])) + SPREAD * (index - (len(names) - 1) / 2)
            draw_interval(axis, record[estimate], height, series_look(index))
            if other and not np.isnan(record[other[0]]):
                axis.plot(record[other[0]], height, marker="D", color="white", markeredgecolor=MUTED, markersize=6)
        axis.set_yticks(range(len(labels)), [textwrap.fill(str(name), 34) for name in labels])
        axis.set(ylim=(len(labels) - 0.5, -0.5), xlabel=axis_label)
        if limits:
            axis.set_xlim(*limits)
        axis.axvline(0, color=MUTED, linewidth=0.8)
        axis.grid(axis="x", color=FAINT, linewidth=0.6)
        axis.set_axisbelow(True)
        handles = [point_key(index, name) for index, name in enumerate(names)] if series else []
        if other:
            look: Any = {"marker": "D", "linestyle": "", "markerfacecolor": "white", "markeredgecolor": MUTED}
            handles.append(Line2D([], [], label=other[1], **look))
        if handles:
            figure.legend(handles=handles, loc="outside lower center", ncols=4)
        headline(figure, title)
    return figure


def draw_interval(axis: Axes, found: Any, height: float, look: tuple[str, Any]) -> None:
    """One estimate: a mark and a bar; words where there is no number."""
    ink, mark = look
    if np.isnan(found.value):
        words = textwrap.shorten(getattr(found, "method", "") or "undefined", 60)
        axis.text(0.005, height, words, va="center", fontsize=7.5, color=MUTED, transform=axis.get_yaxis_transform())
        return
    if not np.isnan(found.low):
        axis.plot([found.low, found.high], [height, height], color=ink, linewidth=1.8, alpha=0.7, zorder=2)
    axis.plot(found.value, height, marker=mark, color=ink, markersize=6, markeredgecolor="white", zorder=3)


def interval_trend(
    table: pd.DataFrame,
    *,
    title: str,
    x: str,
    labels: tuple[str, str],
    estimate: str = "estimate",
    series: str = "series",
    limits: tuple[float, float] = (-1.0, 1.05),
) -> Figure:
    """Estimates along categories, one line a series, intervals as bars beside each other."""
    require_columns(table, [x, estimate, series])
    places, names = in_order(table[x]), in_order(table[series])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
        axis = figure.subplots()
        for index, name in enumerate(names):
            rows = table[table[series] == name]
            turn = 0.08 * (index - (len(names) - 1) / 2)
            across = np.array([places.index(place) for place in rows[x]]) + turn
            low, value, high = (np.array([getattr(e, part) for e in rows[estimate]]) for part in LOW_TO_HIGH)
            ink, mark = series_look(index)
            axis.vlines(across, low, high, color=ink, linewidth=2, alpha=0.7)
            axis.plot(across, value, color=ink, marker=mark, linewidth=1.2)
        axis.set_xticks(range(len(places)), [str(place) for place in places])
        axis.set(xlim=(-0.4, len(places) - 0.6), ylim=limits, xlabel=labels[0], ylabel=labels[1])
        axis.axhline(0, color=MUTED, linewidth=0.8)
        axis.grid(axis="y", color=FAINT, linewidth=0.6)
        handles = [point_key(index, name, line="-") for index, name in enumerate(names)]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        headline(figure, title)
    return figure


LOW_TO_HIGH = ("low", "value", "high")


def tiles(
    table: pd.DataFrame,
    *,
    title: str,
    group: str,
    grounds: Mapping[str, str],
    marks: Mapping[str, str],
    disagree: str,
    note: str,
    rows: str = "encoding",
    columns: str = "task",
) -> Figure:
    """A grid of tiles: ground by `group` (`grounds` maps it to colours), one mark a column of `marks`.

    `marks` maps columns to letters. A mark is filled for True, hollow for False, a dash where it is missing. Where the
    column `disagree` is True the tile has a heavy edge, which `note` explains.
    """
    require_columns(table, [rows, columns, group, disagree, *marks])
    names, tasks = in_order(table[rows]), in_order(table[columns])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.7 + 0.62 * len(names)), layout="constrained")
        axis = figure.subplots()
        for record in table.to_dict("records"):
            place = (float(tasks.index(record[columns])), float(names.index(record[rows])))
            edge = ("#b3261e", 2.4) if record[disagree] is True else ("white", 1.0)
            ground = mpl.patches.Rectangle(
                (place[0] - 0.47, place[1] - 0.44),
                0.94,
                0.88,
                facecolor=grounds[record[group]],
                edgecolor=edge[0],
                linewidth=edge[1],
            )
            axis.add_patch(ground)
            for index, (column, letter) in enumerate(marks.items()):
                draw_mark(axis, place[0] + 0.28 * (index - (len(marks) - 1) / 2), place[1], record[column], letter)
        axis.set(xlim=(-0.52, len(tasks) - 0.48), ylim=(len(names) - 0.5, -0.5), xlabel=columns, ylabel=rows)
        axis.set_xticks(range(len(tasks)), tasks)
        axis.set_yticks(range(len(names)), names)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        handles: list[Any] = [mpl.patches.Patch(facecolor=ground, label=name) for name, ground in grounds.items()]
        handles += [mpl.patches.Patch(facecolor="white", edgecolor="#b3261e", linewidth=2.4, label=note)]
        handles += [point_in_words("black", "filled: yes"), point_in_words("white", "hollow: no")]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
        headline(figure, title)
    return figure


def draw_mark(axis: Axes, across: float, down: float, answer: object, letter: str) -> None:
    """One answer: a filled or hollow circle, or a dash, over its letter."""
    if isinstance(answer, bool | np.bool_):
        fill = "black" if answer else "white"
        axis.plot(across, down - 0.12, marker="o", markersize=8, color=fill, markeredgecolor="black")
    else:
        axis.text(across, down - 0.12, "–", ha="center", va="center")
    axis.text(across, down + 0.24, letter, ha="center", va="center", fontsize=8, color="#1b1f24")


def point_in_words(fill: str, words: str) -> Line2D:
    """Legend entry of a filled or hollow circle."""
    return Line2D([], [], marker="o", linestyle="", color=fill, markeredgecolor="black", markersize=8, label=words)
