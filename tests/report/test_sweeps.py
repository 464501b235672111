"""Sweeps, single runs and panels of points: what is drawn is what the table holds."""

import numpy as np
import pandas as pd
import pytest

from poskernel.errors import InputError
from poskernel.report.sweeps import scatter_panels, seed_dots, sweep


def lines():
    return pd.DataFrame(
        {
            "steps": [100, 1000, 100, 1000],
            "value": [0.1, 0.9, 0.2, 0.2],
            "series": ["alpha", "alpha", "LG", "LG"],
            "task": ["prev"] * 4,
        }
    )


def sweep_figure(table=None, **fields):
    shown = lines() if table is None else table
    runs = lines()[2:].assign(value=[0.15, 0.25])
    return sweep(
        shown, title="Steps", x="steps", y="value", labels=("steps", "share"), panel="task", runs=runs, **fields
    )


def cells():
    return pd.DataFrame(
        {
            "tier": [1, 1, 2, 2],
            "cell": ["rope prev", "nope prev"] * 2,
            "encoding": ["rope", "nope"] * 2,
            "alpha": [1.0, 0.0] * 2,
            "accuracy": [0.9, 0.1, 0.8, np.nan],
            "status": ["done", "unlearned"] * 2,
        }
    )


def dots_figure():
    return seed_dots(cells(), cells(), title="Seeds", axis_label="share", panels={1: "one layer", 2: "two layers"})


def panels_figure():
    return scatter_panels(cells(), title="By tier", panel="tier", notes={1: "one", 2: "two"})


def test_sweep_draws_lines_in_order_and_runs_as_dots():
    axis = sweep_figure(lines().iloc[::-1]).axes[0]
    drawn = [list(line.get_ydata()) for line in axis.lines]
    assert [0.1, 0.9] in drawn and [0.2, 0.2] in drawn and [0.15, 0.25] in drawn
    widths = {tuple(line.get_ydata()): line.get_linewidth() for line in axis.lines}
    assert widths[(0.2, 0.2)] > widths[(0.1, 0.9)]  # what was measured stands out
    assert axis.get_xscale() == "log"


def test_sweep_marks_the_ticks_it_is_given():
    axis = sweep_figure(ticks=(100, 400)).axes[0]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["100", "400"]


def test_seeds_stand_on_the_line_of_their_cell():
    one, two = dots_figure().axes
    bars, dots = one.lines
    assert list(bars.get_xdata()) == [1.0, 0.0] and list(bars.get_ydata()) == [0, 1]
    assert list(dots.get_xdata()) == [0.9, 0.1]
    assert list(two.lines[1].get_xdata()) == [0.8]  # a failed run is not drawn as a number


def test_points_that_did_not_learn_are_hollow():
    axis = panels_figure().axes[0]
    white = [c for c in axis.collections if len(c.get_offsets()) and c.get_facecolor()[0][:3].min() == 1.0]
    assert len(white) == 1 and white[0].get_offsets()[0][1] == pytest.approx(0.1)
    assert [a.get_title(loc="left") for a in panels_figure().axes] == ["one", "two"]


def test_a_missing_column_is_an_error():
    with pytest.raises(InputError, match="no column 'value'"):
        sweep_figure(lines().drop(columns="value"))
    with pytest.raises(InputError, match="no column 'status'"):
        scatter_panels(cells().drop(columns="status"), title="", panel="tier", notes={1: ""})


def test_no_label_is_clipped():
    for figure in (sweep_figure(), dots_figure(), panels_figure()):
        figure.draw_without_rendering()
        width, height = figure.get_size_inches()
        box = figure.get_tightbbox()
        assert box.x0 >= -0.01 and box.y0 >= -0.01 and box.x1 <= width + 0.01 and box.y1 <= height + 0.01
