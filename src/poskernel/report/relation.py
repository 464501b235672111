"""Two numbers of a tidy table against each other, a colour and a shape a series."""

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from poskernel.report.figures import (
    FAINT,
    STYLE,
    WIDTH,
    headline,
    in_order,
    point_key,
    require_columns,
    series_look,
)


def relation(table: pd.DataFrame, *, title: str, x: str, y: str, series: str, labels: tuple[str, str]) -> Figure:
    """One point a row; no line is drawn, since none is claimed. `labels` are those of the axes."""
    require_columns(table, [x, y, series])
    names = in_order(table[series])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
        axis = figure.subplots()
        for index, name in enumerate(names):
            rows, (ink, mark) = table[table[series] == name], series_look(index)
            axis.scatter(
                rows[x], rows[y], s=26, c=ink, marker=mark, alpha=0.75, edgecolor="white", linewidths=0.5, zorder=3
            )
        axis.set(xlabel=labels[0], ylabel=labels[1])
        axis.grid(color=FAINT, linewidth=0.6)
        axis.set_axisbelow(True)
        handles = [point_key(index, name) for index, name in enumerate(names)]
        figure.legend(handles=handles, loc="outside right upper", title=series, alignment="left")
        headline(figure, title)
    return figure
