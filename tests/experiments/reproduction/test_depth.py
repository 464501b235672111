"""Depth: the cells that generalize against alpha are found by name."""

from poskernel.experiments.reproduction.depth import depth_sections, depth_table, learnable_precision, rescued_names
from poskernel.experiments.reproduction.output import Output


def test_rescued_cells(evidence):
    assert rescued_names(evidence, "paper", 1) == set()
    assert rescued_names(evidence, "paper", 2) == {"alibi prev"}


def test_table(evidence):
    table = depth_table(evidence, "paper")
    assert list(table["rescued"]) == ["none", "alibi prev", "alibi prev"]
    assert list(table["learnable cells"]) == [14, 14, 14] and list(table["models"]) == [175] * 3


def test_precision_is_over_learnable_cells_alone(evidence):
    assert learnable_precision(evidence, "paper", 1).estimate.n == 6 * 5 * 5


def test_sections(evidence, nothing, tmp_path):
    (section,) = depth_sections(evidence, Output(tmp_path))
    assert [finding.number for finding in section.findings] == ["0", "1", "1"]
    assert depth_sections(nothing, Output(tmp_path)) == []
