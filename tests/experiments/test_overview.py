"""The page of the main job: it says what was found, also where that is not what was expected."""

import pytest

pytest.importorskip("jinja2")

from poskernel.experiments.comparison import compare
from poskernel.experiments.overview import Overview, write_report
from study_table import CELLS, joined


@pytest.mark.parametrize(("accuracy", "word"), [(0.2, "lies above"), (0.95, "does not lie above")])
def test_the_verdict_follows_the_data(accuracy, word, tmp_path):
    comparison = compare(joined({**CELLS, ("alibi", "first"): (0.0, accuracy, 1.0)}))
    page = write_report(Overview(comparison, None), tmp_path).read_text()
    assert word in page
    assert ("Alpha tells who generalizes" in (tmp_path / "figures" / "alpha-and-lg.svg").read_text()) == (
        accuracy < 0.5
    )
    assert (tmp_path / "manifest.json").exists()
