"""Where peaks were and where they are: one panel a setting, one point a head, on the same logarithmic axes."""

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from poskernel.report.figures import FAINT, MUTED, STYLE, WIDTH, headline, in_order, require_columns, series_look

ACROSS = 3
JITTER = 0.035
"""Spread of points that would hide each other, in decades; seeded, so the picture is the same every time."""


def peak_map(
    table: pd.DataFrame,
    *,
    title: str,
    x: str = "peak_offset",
    y: str = "new_peak_offset",
    panel: str = "setting",
    colour: str = "verdict",
    labels: tuple[str, str] = ("peak offset as the model is (tokens, + 1)", "peak offset under the setting (+ 1)"),
    factors: Mapping[str, float] | None = None,
) -> Figure:
    """Offsets before against after, + 1 so that offset 0 has a place; the dashed line is an unmoved peak.

    `table` has one line a head and setting. `factors` draws a dotted line for settings that would move every peak at t
    to factor x t, as linear interpolation would.
    """
    require_columns(table, [x, y, panel, colour])
    panels, names = in_order(table[panel]), sorted(set(table[colour]))
    down = -(-len(panels) // ACROSS)
    largest = 1 + float(max(table[x].max(), table[y].max()))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.2 + 2.7 * down), layout="constrained")
        grid = figure.subplots(down, ACROSS, sharex=True, sharey=True, squeeze=False).ravel()
        for axis, name in zip(grid, panels, strict=False):
            draw_panel(axis, table[table[panel] == name], names, (x, y, colour), (factors or {}).get(name), largest)
            axis.set_title(str(name))
        for index, axis in enumerate(grid):
            axis.set_visible(index < len(panels))
            if index < len(panels) <= index + ACROSS:
                axis.set_xlabel(labels[0], fontsize=8.5)
                axis.tick_params(labelbottom=True)
        for axis in grid[::ACROSS]:
            axis.set_ylabel(labels[1], fontsize=8.5)
        handles = [
            Line2D([], [], linestyle="", marker=mark, color=ink, markersize=5, label=str(name))
            for index, name in enumerate(names)
            for ink, mark in [series_look(index)]
        ]
        handles.append(Line2D([], [], color=MUTED, linestyle=(0, (4, 3)), linewidth=1, label="unmoved"))
        if factors:
            handles.append(Line2D([], [], color=MUTED, linestyle=":", linewidth=1, label="factor x offset"))
        figure.legend(handles=handles, loc="outside lower center", ncols=6)
        headline(figure, title)
    return figure


def draw_panel(
    axis: Axes,
    rows: pd.DataFrame,
    names: list[str],
    columns: tuple[str, str, str],
    factor: float | None,
    largest: float,
) -> None:
    """The points of one setting and the lines they are read against."""
    x, y, colour = columns
    axis.plot([1, largest], [1, largest], color=MUTED, linestyle=(0, (4, 3)), linewidth=1, zorder=1)
    if factor is not None:
        offset = np.geomspace(0.5, largest, 60)
        axis.plot(1 + offset, 1 + factor * offset, color=MUTED, linestyle=":", linewidth=1, zorder=1)
    generator = np.random.default_rng(0)
    for index, name in enumerate(names):
        chosen, (ink, mark) = rows[rows[colour] == name], series_look(index)
        spread = 10 ** generator.normal(0, JITTER, (2, len(chosen)))
        axis.scatter(
            (1 + chosen[x]) * spread[0], (1 + chosen[y]) * spread[1], s=14, c=ink, marker=mark, alpha=0.75,
            edgecolor="white", linewidths=0.3, zorder=3,
        )  # fmt: skip
    axis.set(xscale="log", yscale="log", xlim=(0.7, largest * 1.4), ylim=(0.7, largest * 1.4))
    axis.grid(color=FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
