"""Tidy table in, matplotlib figure out; each figure is saved as png, svg and the csv of its data.

Columns used throughout: encoding, task, alpha (the predicted alignment), accuracy (the trained length-generalization
accuracy), length. Figures are built without pyplot: no global state, safe in worker processes.
"""

import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from poskernel.errors import InputError, MissingExtraError
from poskernel.report.tables import csv_text
from poskernel.storage import write_whole

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle
except ImportError as missing:
    raise MissingExtraError("a figure", "report") from missing

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7A5195", "#8C8C8C", "#A6761D")
"""Okabe and Ito's palette, told apart with every common colour blindness, and three more; markers repeat the code."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
INK, MUTED, FAINT = "#1b1f24", "#57606a", "#d0d7de"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "hatch.color": "#8c959f",
    "hatch.linewidth": 0.6,
    # Text as outlines: the picture looks the same wherever it is opened. A fixed salt gives the same ids every time.
    "svg.fonttype": "path",
    "svg.hashsalt": "poskernel",
}
WIDTH = 9.2
"""Inches: the width of the page's column, so that text keeps its size there."""
DOTS_PER_INCH = 200
EQUAL_CONTRAST = 0.179
"""Luminance of the ground on which black and white text stand out alike: (0.179 + 0.05)^2 = 1.05 x 0.05."""
DODGE = 0.018
"""How far apart the encodings stand in a scatter, in units of its x axis."""
BAND = {"accuracy_low", "accuracy_high"}
EXCEPTIONS, EXCEPTION_GAP = 8, 0.2
"""A scatter names at most so many points, those off the identity line by more than this."""


def heat_maps(
    table: pd.DataFrame,
    panels: Mapping[str, str],
    *,
    title: str,
    rows: str = "encoding",
    columns: str = "task",
    scale: tuple[float, float] = (0.0, 1.0),
    unit: str = "share of query rows",
) -> Figure:
    """Heat maps side by side on one colour scale, the value written in each cell.

    `table` has one line a cell with the columns `rows`, `columns` and those that `panels` maps to a panel's title. A
    cell without a value is hatched and says why: the text of the column `NAME_reason`, else "no value".
    """
    require_columns(table, [rows, columns, *panels])
    names, labels = in_order(table[rows]), in_order(table[columns])
    cells = {(record[rows], record[columns]): record for record in table.to_dict("records")}
    if len(cells) < len(table):
        raise InputError(f"{len(table)} rows for {len(cells)} cells of {rows} x {columns}: give one row a cell.")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.55 + 0.42 * len(names)), layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        colours = mpl.cm.ScalarMappable(mpl.colors.Normalize(*scale), "cividis")
        for axis, (column, heading) in zip(axes, panels.items(), strict=True):
            for down, name in enumerate(names):
                for right, label in enumerate(labels):
                    value, reason = content(cells.get((name, label)), column)
                    draw_cell(axis, (right, down), value, reason, colours)
            axis.set_title(heading)
            axis.set(xlim=(-0.5, len(labels) - 0.5), ylim=(len(names) - 0.5, -0.5), xlabel=columns)
            axis.set_xticks(range(len(labels)), labels, rotation=40, ha="right", rotation_mode="anchor")
            axis.set_yticks(range(len(names)), names)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
        axes[0].set_ylabel(rows)
        figure.colorbar(colours, ax=list(axes), label=unit, aspect=14, pad=0.015)
        headline(figure, title)
    return figure


def content(record: Mapping[Any, Any] | None, column: str) -> tuple[float, str]:
    """Value of a cell, and the reason where it has none."""
    if record is None:
        return float("nan"), "not run"
    reason = record.get(f"{column}_reason")
    return float(record[column]), reason if isinstance(reason, str) and reason else "no value"


def draw_cell(axis: Axes, place: tuple[int, int], value: float, reason: str, colours: Any) -> None:
    """One coloured cell with its value, or a hatched one with the reason; place counts (right, down)."""
    right, down = place
    corner = (right - 0.48, down - 0.46)
    if np.isnan(value):
        axis.add_patch(Rectangle(corner, 0.96, 0.92, facecolor="white", edgecolor="#8c959f", hatch="////", linewidth=0))
        words = textwrap.fill(reason, 8, break_long_words=False)
        size = min(6.5, 46 / max(map(len, words.split("\n"))))
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        axis.text(right, down, words, ha="center", va="center", fontsize=size, color=INK, linespacing=0.95, bbox=box)
        return
    fill = colours.to_rgba(value)
    axis.add_patch(Rectangle(corner, 0.96, 0.92, facecolor=fill, linewidth=0))
    ink = "black" if luminance(fill[:3]) > EQUAL_CONTRAST else "white"
    axis.text(right, down, f"{value:.2f}", ha="center", va="center", fontsize=8.5, color=ink)


def luminance(colour: Sequence[float]) -> float:
    """Relative luminance of an sRGB colour, 0 to 1 (WCAG 2.1)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def scatter(
    table: pd.DataFrame,
    *,
    title: str,
    interval: str,
    x: str = "alpha",
    y: str = "accuracy",
    colour: str = "encoding",
    status: str = "status",
    labels: tuple[str, str] = ("predicted alignment α (share of rows)", "trained accuracy LG (share of rows)"),
) -> Figure:
    """Predicted against measured with the identity line and a box of text: the statistic with its interval.

    One point a row; colour and shape give the encoding, a hollow point any status but "done" (named in the legend).
    Points of different encodings stand a little beside their true x so that ties stay visible; the axis says so.
    """
    require_columns(table, [x, y, colour, status])
    shown = table.dropna(subset=[x, y])
    names, other = in_order(table[colour]), [name for name in in_order(table[status]) if name != "done"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 5.0), layout="constrained")
        axis = figure.subplots()
        axis.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        for index, name in enumerate(names):
            points = shown[shown[colour] == name]
            place = (points[x] + dodge(index, len(names))).to_numpy()
            done, ink, mark = (points[status] == "done").to_numpy(), *series_look(index)
            axis.scatter(
                place[done], points[y][done], s=38, c=ink, marker=mark, edgecolor="white", linewidths=0.5, zorder=3
            )
            axis.scatter(
                place[~done], points[y][~done], s=34, c="white", marker=mark, edgecolor=ink, linewidths=1.1, zorder=3
            )
        if "task" in shown:
            name_exceptions(axis, shown, x, y, colour=colour)
        edge = 0.05 + DODGE * len(names) / 2
        axis.set(xlim=(-edge, 1 + edge), ylim=(-0.04, 1.06), ylabel=labels[1])
        axis.set_xlabel(f"{labels[0]}; shifted slightly by {colour}")
        axis.grid(color=FAINT, linewidth=0.6)
        axis.set_axisbelow(True)
        handles = [point_key(index, name) for index, name in enumerate(names)]
        handles += [Line2D([], [], color=MUTED, linestyle=(0, (4, 3)), linewidth=1, label="measured = predicted")]
        if other:
            hollow = f"hollow: {', '.join(map(str, other))}"
            handles += [
                Line2D([], [], marker="o", linestyle="", markerfacecolor="white", markeredgecolor=MUTED, label=hollow)
            ]
        left_out = len(table) - len(shown)
        notes = [interval] + ([f"{left_out} of {len(table)} rows have no value and are not drawn"] if left_out else [])
        figure.legend(handles=handles, loc="outside right upper", title=colour, alignment="left")
        axis.set_title(
            "\n".join(textwrap.fill(note, 84) for note in notes), fontsize=9.5, fontweight="normal", color=MUTED
        )
        headline(figure, title)
    return figure


def name_exceptions(axis: Axes, table: pd.DataFrame, x: str, y: str, *, colour: str) -> None:
    """Write the names of the points furthest from the identity line beside them, at most EXCEPTIONS of them."""
    gap, names = (table[y] - table[x]).abs(), in_order(table[colour])
    far = table.loc[gap[gap > EXCEPTION_GAP].nlargest(EXCEPTIONS).index].sort_values(y)
    lowest = -1.0
    for across, up, name, task in zip(far[x], far[y], far[colour], far["task"], strict=True):
        lowest = max(up, lowest + 0.035)  # names of neighbours stand above each other, not upon each other
        side, turn = ("left", 0.015) if across < 0.5 else ("right", -0.015)
        place = across + dodge(names.index(name), len(names)) + turn
        axis.text(place, lowest, f"{name} {task}", ha=side, va="center", fontsize=7.5, color=MUTED)


def dodge(index: int, number: int) -> float:
    """How far the points of one of `number` series stand from their true x."""
    return DODGE * (index - (number - 1) / 2)


def length_curves(
    table: pd.DataFrame, *, title: str, train_length: int, tasks: Sequence[str] | None = None, columns: int = 3
) -> Figure:
    """Alpha (dashed) and accuracy (solid) against length: one panel an encoding, one colour and marker a task.

    `table` has one line a cell and length: encoding, task, length, alpha, accuracy; where accuracy_low and
    accuracy_high are given (the spread over seeds) they are drawn as a band.
    """
    require_columns(table, ["encoding", "task", "length", "alpha", "accuracy"])
    names, chosen = in_order(table["encoding"]), list(tasks or in_order(table["task"]))
    down = -(-len(names) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.9 + 2.35 * down), layout="constrained")
        grid = figure.subplots(down, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axis, name in zip(grid, names, strict=False):
            draw_curves(axis, table[table["encoding"] == name], chosen)
            axis.set_title(name)
            axis.axvline(train_length, color=MUTED, linewidth=1, linestyle=":")
            axis.grid(color=FAINT, linewidth=0.6)
            axis.set(ylim=(-0.04, 1.04))
        for index, axis in enumerate(grid):
            if index >= len(names):
                axis.set_visible(False)
            elif index + columns >= len(names):
                axis.set_xlabel("test length (tokens)")
                axis.tick_params(labelbottom=True)
        for axis in grid[::columns]:
            axis.set_ylabel("share of query rows")
        band = set(table.columns) >= BAND
        figure.legend(handles=curve_keys(chosen, train_length, band), **legend_place(grid, names, columns))
        headline(figure, title)
    return figure


def draw_curves(axis: Axes, table: pd.DataFrame, tasks: Sequence[str]) -> None:
    """The two curves of each task, with the band of the measured one where the table has it."""
    for index, task in enumerate(tasks):
        rows = table[table["task"] == task].sort_values("length")
        ink, mark = series_look(index)
        axis.plot(rows["length"], rows["alpha"], color=ink, linestyle=(0, (4, 2)), linewidth=1.3)
        axis.plot(rows["length"], rows["accuracy"], color=ink, linewidth=1.6, marker=mark, markersize=4)
        if set(rows.columns) >= BAND:
            axis.fill_between(
                rows["length"], rows["accuracy_low"], rows["accuracy_high"], color=ink, alpha=0.15, linewidth=0
            )


def curve_keys(tasks: Sequence[str], train_length: int, band: bool) -> list[Any]:
    """Legend of the curves: what the line styles mean, then the tasks."""
    return [
        Line2D([], [], color=INK, linestyle=(0, (4, 2)), linewidth=1.3, label="predicted α"),
        Line2D([], [], color=INK, linewidth=1.6, label="trained LG (band: seeds)" if band else "trained LG"),
        Line2D([], [], color=MUTED, linestyle=":", linewidth=1, label=f"training length {train_length}"),
        *(point_key(index, task, line="-") for index, task in enumerate(tasks)),
    ]


def legend_place(grid: Iterable[Axes], names: Sequence[str], columns: int) -> dict[str, Any]:
    """The legend fills the first empty panel; where every panel is taken it stands below."""
    panels = list(grid)
    if len(names) == len(panels):
        return {"loc": "outside lower center", "ncols": 5}
    empty = panels[len(names)]
    empty.set_visible(True)
    empty.axis("off")
    return {"loc": "center", "bbox_to_anchor": (0.5, 0.5), "bbox_transform": empty.transAxes}


def series_look(index: int) -> tuple[str, Any]:
    """Colour and marker of the series with that index."""
    return COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]


def point_key(index: int, name: object, line: Any = "") -> Line2D:
    """Legend entry of the series with that index."""
    ink, mark = series_look(index)
    return Line2D([], [], color=ink, marker=mark, markersize=5, linestyle=line, label=str(name))


def headline(figure: Figure, title: str) -> None:
    """The finding in words over the whole figure, wrapped to its width and flush left."""
    words = textwrap.fill(title, int(WIDTH * 9))
    figure.suptitle(words, x=0.012, ha="left", fontsize=12, fontweight="bold")


def in_order(column: "pd.Series[Any]") -> list[Any]:
    """Distinct entries in the order in which they appear: the table decides the order of rows, panels and legends."""
    return list(dict.fromkeys(column))


def require_columns(table: pd.DataFrame, names: Sequence[str]) -> None:
    """InputError for an empty table or one that lacks a column."""
    lacking = [name for name in names if name not in table.columns]
    if lacking:
        raise InputError(f"the table has no column '{lacking[0]}': it has {', '.join(map(str, table.columns))}.")
    if table.empty:
        raise InputError("the table has no rows: there is nothing to draw.")


def lay_out(figure: Figure) -> None:
    """Place everything, once: each drawing of a figure would do so again, and take twice as long."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")


def svg_text(figure: Figure) -> str:
    """The figure as svg, the same bytes for the same figure: no date, fixed ids."""
    stream = io.BytesIO()
    with mpl.rc_context(STYLE):
        lay_out(figure)
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue().decode()


def save_figure(figure: Figure, table: pd.DataFrame, folder: Path, name: str) -> dict[str, Path]:
    """Write name.png, name.svg and name.csv (the data shown) into the folder; each file appears whole or not at all.

    All three are made before the first is written, so a failure to draw leaves nothing. Returns the path by kind.
    """
    image = io.BytesIO()
    with mpl.rc_context(STYLE):
        lay_out(figure)
        figure.savefig(image, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    contents = {"png": image.getvalue(), "svg": svg_text(figure).encode(), "csv": csv_text(table).encode()}
    return {kind: write_whole(folder / f"{name}.{kind}", content) for kind, content in contents.items()}
