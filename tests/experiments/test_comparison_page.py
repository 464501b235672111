"""The sections that compare predictions with trained models say what the rows say."""

import pandas as pd
import pytest

pytest.importorskip("jinja2")

from poskernel.experiments.comparison import compare
from poskernel.experiments.comparison_page import comparison_sections, existence_section
from poskernel.experiments.study_rows import StudyRows
from poskernel.study import STUDIES
from study_table import joined, table


def test_existence_counts_the_cells_that_fail(tmp_path):
    rows = table()
    none = (rows["metric"] == "exists") & (rows["encoding"] == "alibi")
    rows.loc[none, ["value", "reason"]] = [0.0, "no"]
    section = existence_section(compare(StudyRows.of(STUDIES["quick"], rows).joined(1)), tmp_path)
    assert section.findings[0].number == "2 of 3"
    written = pd.read_csv(tmp_path / "exists.csv").set_index("encoding")
    assert written.loc["alibi", "first"] == "no" and written.loc["rope", "copy"] == "yes"


def test_every_section_has_a_question_an_answer_and_a_command(tmp_path):
    sections = comparison_sections(compare(joined()), tmp_path)
    assert [section.title for section in sections] == [
        "Who generalizes", "Selection or impossibility", "How well it predicts", "How it fades with length",
    ]  # fmt: skip
    for section in sections:
        assert section.question.endswith("?") and section.findings and section.panels and section.command
    assert all(finding.number and finding.method for section in sections for finding in section.findings)
