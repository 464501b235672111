"""Peaks before and after: a panel a setting, every head a point, and the table that is missing something refused."""

import pandas as pd
import pytest

from poskernel.errors import InputError
from poskernel.report.figures import svg_text
from poskernel.report.peaks import peak_map

TABLE = pd.DataFrame(
    {
        "setting": ["linear:2"] * 3 + ["yarn:2"] * 3,
        "verdict": ["moved", "kept", "moved", "kept", "kept", "lost"],
        "peak_offset": [1, 0, 40, 1, 0, 40],
        "new_peak_offset": [2, 0, 80, 1, 0, 40],
    }
)


def test_a_panel_a_setting_and_a_point_a_head():
    figure = peak_map(TABLE, title="Peaks", factors={"linear:2": 2.0})
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title(loc="left") or axis.get_title() for axis in shown] == ["linear:2", "yarn:2"]
    assert [sum(len(points.get_offsets()) for points in axis.collections) for axis in shown] == [3, 3]
    assert [len(axis.lines) for axis in shown] == [2, 1]
    assert svg_text(peak_map(TABLE, title="Peaks")) == svg_text(peak_map(TABLE, title="Peaks"))


def test_tables_without_a_column_are_refused():
    with pytest.raises(InputError, match="no column 'verdict'"):
        peak_map(TABLE.drop(columns="verdict"), title="Peaks")
