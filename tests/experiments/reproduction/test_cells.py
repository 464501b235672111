"""Tables and pictures of single cells."""

import math

import pytest

from poskernel.experiments.comparison import compare
from poskernel.experiments.reproduction.cells import (
    GROUNDS,
    cell_class,
    cell_table,
    cells_sections,
    pictured_length,
    taxonomy_table,
    tiers_of,
    yes_or_none,
)
from poskernel.experiments.reproduction.output import Output
from study_table import joined


def test_cell_table_by_hand():
    rows = joined({("rope", "prev"): (1.0, 0.8, 1.0)}, seeds=(0, 1, 2))
    rows.loc[rows["seed"] == 2, "accuracy"] = 0.95
    (line,) = cell_table(rows, 60).to_dict("records")
    assert line["alpha"] == 1.0 and line["exists"] == "yes" and line["seeds"] == 3
    assert line["LG"].value == pytest.approx(0.85) and line["SD"] == pytest.approx(0.0866, abs=1e-4)
    half = 4.3027 * 0.0866 / math.sqrt(3)  # Student's t with two degrees of freedom
    assert line["LG"].high - line["LG"].value == pytest.approx(half, abs=1e-3)


def test_taxonomy_marks_disagreement():
    table = taxonomy_table(compare(joined({("rope", "prev"): (1.0, 0.2, 1.0), ("learned", "first"): (1.0, 1.0, 1.0)})))
    lines = table.set_index(["encoding", "task"])
    assert lines.loc[("rope", "prev"), "disagree"] and not lines.loc[("learned", "first"), "disagree"]
    assert lines.loc[("rope", "prev"), "class"] == "relative encoding, bounded offset"
    assert lines.loc[("rope", "prev"), "exists"]


def test_the_longest_length_stands_in_for_60():
    rows = joined()
    assert pictured_length(rows) == 60 and pictured_length(rows[rows["length"] == 30]) == 30


def test_classes():
    assert cell_class("nope", "prev") == cell_class("rope", "first") == "no match of encoding and task"
    assert cell_class("sinusoidal", "pos5") == "absolute encoding, fixed position"
    assert {cell_class(e, t) for e in ("rope", "learned", "nope") for t in ("prev", "first", "copy")} == set(GROUNDS)
    assert yes_or_none([0.2, 0.5, math.nan], 0.5) == [False, True, None]


def test_sections_say_what_there_is(evidence, partial, nothing, tmp_path):
    assert tiers_of(evidence, "paper") == [1, 2, 3] and tiers_of(partial, "paper") == [1]
    sections = cells_sections(partial, Output(tmp_path))
    assert [section.title for section in sections] == ["Who generalizes", "The taxonomy", "How it fades with length"]
    assert sections[1].findings[0].number == "35 of 35"
    (empty,) = cells_sections(nothing, Output(tmp_path))
    assert "empty until" in empty.findings[0].sentence and empty.command == "poskernel study run paper"
    assert (tmp_path / "figures" / "paper-seeds.csv").exists() and (
        tmp_path / "tables" / "paper-cells-tier-1.tex"
    ).exists()
