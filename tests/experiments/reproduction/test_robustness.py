"""Interior positions, scale, training length, sensitivity."""

import pandas as pd
import pytest

from poskernel.encodings import Rope, Sinusoidal
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.robustness import (
    common_correlation,
    generalizing,
    interior_sections,
    scale_sections,
    sensitivity_sections,
    sensitivity_table,
    train_length_sections,
)


def test_scale_uses_the_cells_both_sizes_learned(evidence):
    default, large, number = common_correlation(evidence, 1)
    assert number == default.n == large.n == 14 and default.value == pytest.approx(large.value)


def test_generalizing_names_cells():
    cells = pd.DataFrame({"encoding": ["rope", "learned"], "task": ["prev", "prev"], "accuracy": [0.5, 0.49]})
    assert generalizing(cells) == ["rope prev"]


def test_sensitivity_has_a_line_a_setting(evidence):
    table = sensitivity_table(evidence, Rope)
    assert len(table) == 25 and list(table.columns) == [
        "frequencies",
        "base",
        "prev",
        "skip3",
        "copy",
        "reverse",
        "first",
    ]
    assert set(table["prev"]) == {1.0} and set(sensitivity_table(evidence, Sinusoidal)["prev"]) == {0.2}


@pytest.mark.parametrize("make", [interior_sections, scale_sections, train_length_sections, sensitivity_sections])
def test_sections(make, evidence, nothing, tmp_path):
    (section,) = make(evidence, Output(tmp_path))
    assert section.findings and section.panels and section.question.endswith("?")
    (empty,) = make(nothing, Output(tmp_path))
    assert "empty until" in empty.findings[0].sentence


def test_training_lengths_are_kept_apart(evidence, tmp_path):
    (section,) = train_length_sections(evidence, Output(tmp_path))
    assert section.findings[-1].number == "yes"
    table = pd.read_csv(tmp_path / "tables" / "train-length-cells.csv")
    assert table.groupby("training length").size().to_dict() == {10: 30, 20: 30, 40: 30}
