"""Figures show what the table holds, inside their frame, the same bytes every time."""

import itertools
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from poskernel.errors import InputError
from poskernel.report import figures
from poskernel.report.figures import heat_maps, length_curves, save_figure, scatter, svg_text

PANELS = {"alpha": "Predicted: α", "accuracy": "Trained: LG"}


def texts(axis):
    return [text.get_text() for text in axis.texts]


def curves_table(encodings=5, tasks=7):
    grid = itertools.product(range(encodings), range(tasks), (30, 40, 80))
    table = pd.DataFrame(
        [(f"encoding {e}", f"task {t}", n) for e, t, n in grid], columns=["encoding", "task", "length"]
    )
    return table.assign(alpha=0.5, accuracy=0.4 + table.index * 1e-3)


def pictures(cells):
    yield heat_maps(cells, PANELS, title="Do the two maps agree?")
    yield scatter(cells, title="Predicted and measured agree", interval="ρ = 0.90 [0.73, 0.95]")
    for encodings in (1, 5, 6):
        table = curves_table(encodings)
        yield length_curves(table, title="Both fall with length", train_length=20)
        yield length_curves(table.assign(accuracy_low=0.3, accuracy_high=0.6), title="t " * 80, train_length=20)


def test_no_label_is_clipped(cells):
    for figure in pictures(cells):
        figure.draw_without_rendering()
        width, height = figure.get_size_inches()
        box = figure.get_tightbbox()
        assert box.x0 >= -0.01 and box.y0 >= -0.01 and box.x1 <= width + 0.01 and box.y1 <= height + 0.01


def test_axes_are_named(cells):
    for figure in pictures(cells):
        assert figure.get_suptitle()
        shown = [axis for axis in figure.axes if axis.axison and axis.get_visible()]
        assert any(axis.get_xlabel() for axis in shown) and any(axis.get_ylabel() for axis in shown)


def test_heat_maps_write_every_value_or_the_reason(cells):
    predicted, trained, bar = heat_maps(cells, PANELS, title="?").axes
    assert texts(predicted) == ["1.00", "0.00", "content\ntask", "0.60", "0.00", "not run"]
    assert texts(trained) == ["0.90", "0.10", "0.30", "0.20", "failed", "not run"]
    assert sum(patch.get_hatch() is not None for patch in trained.patches) == 2
    assert trained.patches[1].get_hatch() is None
    assert bar.get_ylim() == (0, 1)
    # One scale: equal values have equal colours in both maps.
    same = heat_maps(cells.assign(accuracy=cells["alpha"]), PANELS, title="?").axes
    assert [p.get_facecolor() for p in same[0].patches] == [p.get_facecolor() for p in same[1].patches]


def test_heat_map_text_stands_out(cells):
    values = np.linspace(0, 1, 5)
    axis = heat_maps(cells.assign(alpha=values), {"alpha": ""}, title="?").axes[0]
    contrast = []
    for patch, text in zip(axis.patches, axis.texts, strict=True):
        if patch.get_hatch() is None:
            lights = sorted(luminance(to_rgb(colour)) + 0.05 for colour in (patch.get_facecolor(), text.get_color()))
            contrast.append(lights[1] / lights[0])
    assert len(contrast) == 5 and min(contrast) > 4.5  # WCAG AA


def luminance(colour):
    """Looked up channel by channel, WCAG 2.1."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_scatter_shows_each_point_its_status_and_the_exceptions(cells):
    figure = scatter(cells, title="?", interval="ρ = 0.90 [0.73, 0.95]")
    axis = figure.axes[0]
    drawn = np.concatenate([collection.get_offsets() for collection in axis.collections])
    assert len(drawn) == 3
    assert sorted(drawn[:, 1]) == [0.1, 0.2, 0.9]
    assert np.abs(np.sort(drawn[:, 0]) - [0, 0.6, 1]).max() < 0.02
    assert texts(axis) == ["alibi prev"]
    assert "ρ = 0.90 [0.73, 0.95]" in axis.get_title(loc="left") and "2 of 5 rows" in axis.get_title(loc="left")
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "hollow: unlearned, failed" in legend
    hollow = [c for c in axis.collections if len(c.get_offsets()) and np.allclose(c.get_facecolor()[0], 1)]
    assert [c.get_offsets()[0][1] for c in hollow] == [0.1]


def test_curves_are_dashed_for_alpha_and_solid_for_accuracy():
    table = curves_table(2, 3).assign(accuracy_low=0.3, accuracy_high=0.6)
    axis = length_curves(table, title="?", train_length=20).axes[0]
    dashed, solid = axis.lines[0], axis.lines[1]
    assert dashed.is_dashed() and not solid.is_dashed()
    rows = table[(table["encoding"] == "encoding 0") & (table["task"] == "task 0")]
    assert solid.get_xdata().tolist() == [30, 40, 80] and solid.get_ydata().tolist() == rows["accuracy"].tolist()
    assert dashed.get_ydata().tolist() == rows["alpha"].tolist()
    assert len(axis.collections) == 3
    assert not length_curves(curves_table(2, 3), title="?", train_length=20).axes[0].collections


def test_svg_is_the_same_every_time(cells):
    first, second = (svg_text(heat_maps(cells, PANELS, title="?")) for _ in range(2))
    assert first == second
    assert "<dc:date>" not in first
    assert first != svg_text(heat_maps(cells.assign(alpha=0.5), PANELS, title="?"))


def test_saved_as_png_svg_and_csv(cells, tmp_path):
    paths = save_figure(heat_maps(cells, PANELS, title="?"), cells, tmp_path / "figures", "maps")
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["maps.csv", "maps.png", "maps.svg"]
    assert paths["png"].read_bytes().startswith(b"\x89PNG")
    pd.testing.assert_frame_equal(pd.read_csv(paths["csv"]), cells, check_dtype=False)
    again = save_figure(heat_maps(cells, PANELS, title="?"), cells, tmp_path / "again", "maps")
    assert all(again[kind].read_bytes() == paths[kind].read_bytes() for kind in paths)


def test_a_figure_that_cannot_be_drawn_leaves_nothing(cells, tmp_path, monkeypatch):
    def broken(figure):
        raise RuntimeError("no")

    monkeypatch.setattr(figures, "svg_text", broken)
    with pytest.raises(RuntimeError):
        save_figure(heat_maps(cells, PANELS, title="?"), cells, tmp_path, "maps")
    assert not list(tmp_path.iterdir())


def test_bad_tables_are_one_sentence(cells):
    with pytest.raises(InputError, match="no column 'gamma'"):
        heat_maps(cells, {"gamma": "?"}, title="?")
    with pytest.raises(InputError, match="no rows"):
        heat_maps(cells[:0], PANELS, title="?")
    with pytest.raises(InputError, match="10 rows for 5 cells"):
        heat_maps(pd.concat([cells, cells]), PANELS, title="?")


@pytest.mark.parametrize(
    ("package", "module"),
    [("matplotlib", "figures"), ("jinja2", "page"), ("markupsafe", "tables")],
)
def test_a_missing_extra_names_the_pip_line(package, module):
    code = f"import sys; sys.modules['{package}'] = None; import poskernel.report.{module}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "MissingExtraError" in result.stderr and "pip install 'poskernel[report]'" in result.stderr
