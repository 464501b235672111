"""Curves and maps on axes: what is drawn is what was given."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("jinja2")
pyplot = pytest.importorskip("matplotlib.pyplot")

from matplotlib.figure import Figure  # noqa: E402

from poskernel.errors import InputError  # noqa: E402
from poskernel.report.head_curves import kernel_curve, kind_map, statistic_map  # noqa: E402

OFFSETS, G, REACH = [-2, -1, 0, 1, 2], [0.0, 1.0, 4.0, 2.0, -1.0], [0.1, 0.2, 0.3, 0.2, 0.1]


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def test_a_curve_and_its_band_are_drawn_on_the_axes_given():
    given = Figure().subplots()
    axis = kernel_curve(OFFSETS, G, REACH, "layer 1, head 2", ax=given)
    assert axis is given
    np.testing.assert_array_equal(axis.lines[0].get_xydata(), np.stack([OFFSETS, G], 1))
    corners = axis.collections[0].get_paths()[0].vertices
    assert {(0, 3.7), (0, 4.3)} <= {(across, round(up, 6)) for across, up in corners}
    assert axis.get_title() == "layer 1, head 2"
    assert axis.get_legend() is None
    assert not pyplot.get_fignums()


def test_without_axes_a_figure_is_made_that_notebooks_show():
    axis = kernel_curve(OFFSETS, G, REACH, "a head")
    assert pyplot.get_fignums() == [axis.figure.number]


def test_a_probe_is_moved_to_the_level_of_g_over_the_offsets_of_both():
    axis = kernel_curve(OFFSETS, G, REACH, "a head", ([0, 1, 2, 3], [14.0, 12.0, 9.0, 50.0]), Figure().subplots())
    np.testing.assert_allclose(axis.lines[1].get_xydata(), [[0, 4], [1, 2], [2, -1]])
    assert len(axis.get_legend().get_texts()) == 2


def heads(**columns):
    return pd.DataFrame({"layer": [3, 3, 7], "head": [0, 1, 0], "r2": [0.5, np.nan, 0.9]} | columns)


def test_a_map_has_a_row_a_layer_and_leaves_undefined_cells_empty():
    axis = statistic_map(heads(), "r2", "R2 of a model", Figure().subplots())
    np.testing.assert_array_equal(axis.images[0].get_array().filled(np.nan), [[0.5, np.nan], [0.9, np.nan]])
    assert [label.get_text() for label in axis.get_yticklabels()] == ["3", "7"]
    assert axis.get_title() == "R2 of a model"
    assert pyplot.get_fignums() == [] and statistic_map(heads(), "r2", "").figure.number in pyplot.get_fignums()


def test_columns_that_are_no_numbers_are_refused():
    with pytest.raises(InputError, match="the column 'kind' is no number"):
        statistic_map(heads(kind="local"), "kind", "")
    with pytest.raises(InputError, match="signal"):
        statistic_map(heads(), "signal", "")
    assert statistic_map(heads(agrees=[True, False, True]), "agrees", "", Figure().subplots()).images


def test_kinds_are_colours_that_the_legend_counts():
    axis = kind_map(heads(kind=["fixed-offset 3", "local", "fixed-offset 7"]), "kinds", Figure().subplots())
    image = axis.images[0]
    drawn = image.get_array()
    assert drawn[0, 0] == drawn[1, 0] != drawn[0, 1] and drawn.mask[1, 1]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["fixed-offset 2", "local 1"]
    colours = [patch.get_facecolor() for patch in axis.get_legend().get_patches()]
    np.testing.assert_allclose(image.cmap(image.norm(drawn[0, 0])), colours[0])
    np.testing.assert_allclose(image.cmap(image.norm(drawn[0, 1])), colours[1])
