"""Curves of a tidy table: every series drawn and named, points where given, faults said."""

import pandas as pd
import pytest

pytest.importorskip("matplotlib")

from poskernel.errors import InputError
from poskernel.report.curves import curves
from poskernel.report.figures import svg_text

TABLE = pd.DataFrame({"x": [1, 2, 4, 1, 2, 4], "y": [3.0, 2, 1, 1, 1, 0.5], "kind": ["a"] * 3 + ["b"] * 3})
WORDS = {"title": "A title", "x": "x", "y": "y", "labels": ("across", "up"), "series": "kind"}


def test_every_series_is_drawn_and_named():
    figure = curves(TABLE, **WORDS, level=(2.0, "two"), scales=("log", "log"), limits=(0.1, 10.0))
    (axis,) = figure.axes
    assert [line.get_xdata().tolist() for line in axis.lines[:2]] == [[1, 2, 4]] * 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "two"]
    assert (axis.get_xscale(), axis.get_yscale(), axis.get_ylim()) == ("log", "log", (0.1, 10))
    assert figure.legends[0].get_title().get_text() == "kind"


def test_points_stand_on_the_curves_and_steps_hold():
    figure = curves(TABLE, **WORDS, points=TABLE[TABLE["kind"] == "b"])
    assert [len(each.get_offsets()) for each in figure.axes[0].collections] == [0, 3]
    assert curves(TABLE, **WORDS, steps=True).axes[0].lines[0].get_drawstyle() == "steps-post"


def test_the_same_table_gives_the_same_bytes():
    assert svg_text(curves(TABLE, **WORDS)) == svg_text(curves(TABLE, **WORDS))


def test_a_missing_column_is_named():
    with pytest.raises(InputError, match="no column 'z'"):
        curves(TABLE, **{**WORDS, "y": "z"})
