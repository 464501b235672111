"""Induction: the alphas beside LG."""

import pytest

from poskernel.experiments.reproduction.induction import induction_sections, induction_table, ranking
from poskernel.experiments.reproduction.output import Output


def test_table(evidence):
    table = induction_table(evidence)
    line = table[(table["architecture"] == "2 layers, 4 heads") & (table["encoding"] == "alibi")].iloc[0]
    assert line["LG"].value == pytest.approx(0.8) and line["alpha+"] == 1.0 and line["graded alpha+"] == 0.0
    assert len(table) == 10


def test_a_constant_alpha_ranks_nothing(evidence):
    table = induction_table(evidence)
    assert "constant" in ranking(table, "2 layers, 4 heads", "alpha+", 0).method
    assert ranking(table, "2 layers, 4 heads", "graded alpha+", 0).n == 5


def test_sections(evidence, nothing, tmp_path):
    (section,) = induction_sections(evidence, Output(tmp_path))
    assert len(section.findings) == 4
    assert "empty until" in induction_sections(nothing, Output(tmp_path))[0].findings[0].sentence
