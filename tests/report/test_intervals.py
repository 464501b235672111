"""Estimates and tiles as pictures: what is drawn is what the table holds."""

import math

import numpy as np
import pandas as pd
import pytest

from poskernel.errors import InputError
from poskernel.report.intervals import forest, interval_trend, tiles
from poskernel.statistics import Estimate


def estimates():
    return pd.DataFrame(
        {
            "label": ["one", "one", "two"],
            "series": ["plain", "clustered", "plain"],
            "estimate": [
                Estimate(0.5, 0.2, 0.8, 9, "bootstrap"),
                Estimate(0.5, math.nan, math.nan, 9, "no interval: 1 cluster"),
                Estimate(math.nan, math.nan, math.nan, 0, "undefined: the second array is constant"),
            ],
            "paper": [0.6, math.nan, math.nan],
        }
    )


def grid():
    return pd.DataFrame(
        {
            "encoding": ["rope", "rope", "nope"],
            "task": ["prev", "copy", "prev"],
            "class": ["relative", "growing", "none"],
            "predicted": [True, False, False],
            "exists": [True, None, False],
            "disagree": [False, True, False],
        }
    )


def tile_figure(table):
    return tiles(
        table,
        title="Which cells carry over",
        group="class",
        grounds={"relative": "#cfe3f3", "growing": "#fbe3c8", "none": "#ececec"},
        marks={"predicted": "α", "exists": "∃"},
        disagree="disagree",
        note="α and LG disagree",
    )


def trend_figure():
    return interval_trend(estimates(), title="By label", x="label", labels=("label", "value"))


def forest_figure(**fields):
    return forest(
        estimates(), title="All estimates", axis_label="value", series="series", other=("paper", "paper"), **fields
    )


def test_forest_draws_values_intervals_and_reasons():
    axis = forest_figure().axes[0]
    bars = [line.get_xdata() for line in axis.lines if len(line.get_xdata()) == 2 and line.get_linewidth() == 1.8]
    assert [list(bar) for bar in bars] == [[0.2, 0.8]]
    points = [float(np.ravel(line.get_xdata())[0]) for line in axis.lines if len(np.ravel(line.get_xdata())) == 1]
    assert sorted(points) == [0.5, 0.5, 0.6]
    assert [text.get_text() for text in axis.texts] == ["undefined: the second array is constant"]


def test_trend_draws_every_interval():
    axis = trend_figure().axes[0]
    ends = [list(path.vertices[:, 1]) for bars in axis.collections for path in bars.get_paths() if len(path.vertices)]
    assert [pair for pair in ends if np.isfinite(pair).all()] == [[0.2, 0.8]]


def test_tiles_fill_marks_for_yes():
    axis = tile_figure(grid()).axes[0]
    fills = [line.get_color() for line in axis.lines]
    assert sorted(fills) == ["black", "black", "white", "white", "white"]
    assert [text.get_text() for text in axis.texts].count("–") == 1
    assert sum(patch.get_linewidth() > 2 for patch in axis.patches) == 1


def test_a_missing_column_is_an_error():
    with pytest.raises(InputError, match="no column 'disagree'"):
        tile_figure(grid().drop(columns="disagree"))
    with pytest.raises(InputError, match="no rows"):
        forest(estimates().iloc[:0], title="none", axis_label="value")


def test_no_label_is_clipped():
    for figure in (forest_figure(), forest_figure(limits=(-0.1, 1.0)), trend_figure(), tile_figure(grid())):
        figure.draw_without_rendering()
        width, height = figure.get_size_inches()
        box = figure.get_tightbbox()
        assert box.x0 >= -0.01 and box.y0 >= -0.01 and box.x1 <= width + 0.01 and box.y1 <= height + 0.01
