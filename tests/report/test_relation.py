"""Two numbers against each other: every row is a point, what is missing is told."""

import pandas as pd
import pytest

from poskernel.errors import InputError
from poskernel.report.relation import relation

TABLE = pd.DataFrame({"x": [0.1, 0.5, 0.9], "y": [3.0, 2.0, 1.0], "who": ["one", "two", "one"]})


def test_every_row_is_a_point_of_its_series():
    figure = relation(TABLE, title="A title", x="x", y="y", series="who", labels=("across", "up"))
    (axis,) = figure.axes
    assert [points.get_offsets().tolist() for points in axis.collections] == [[[0.1, 3.0], [0.9, 1.0]], [[0.5, 2.0]]]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("across", "up") and not axis.lines
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(InputError, match="no column 'z'"):
        relation(TABLE, title="", x="z", y="y", series="who", labels=("", ""))
