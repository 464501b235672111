"""Statistics on cells whose answers can be worked out by hand."""

import math

import pytest

from poskernel.experiments.comparison import compare
from poskernel.experiments.reproduction.agreement import (
    blind_rule,
    encoding_class,
    learnable,
    non_trivial,
    statistics_of,
    statistics_table,
    taxonomy_rule,
    violations,
)
from study_table import CELLS, joined


def test_known_answers(evidence):
    found = statistics_of(evidence.comparison("paper", 1), seed=0)
    assert found["AUC, all cells"].estimate.value == 1.0 and found["AUC, all cells"].p == pytest.approx(1 / 20_001)
    # Six positives at alpha 1 and the four sinusoidal negatives at 0.2.
    assert found["AUC, non-trivial cells"].estimate.n == 10
    assert found["precision at alpha of 0.5"].estimate.value == 1.0
    assert found["hand taxonomy: Spearman, all cells"].estimate.value == pytest.approx(
        found["Spearman, learnable, alpha binarised"].estimate.value, abs=0.5
    )
    assert math.isnan(found["Spearman, sinusoidal bounded offsets, cells"].estimate.value)  # alpha is constant there


def test_cluster_statistics_draw_clusters(evidence):
    found = statistics_of(evidence.comparison("paper", 1), seed=0)
    assert "5 clusters" in found["AUC, all cells, whole encodings drawn"].method
    assert "7 clusters" in found["Spearman, all cells, whole tasks drawn"].estimate.method
    assert "clusters" not in found["Spearman, all cells"].estimate.method


def test_an_encoding_that_always_fails_tells_nothing_within_itself():
    """Alpha that knows the encoding alone separates cells, but not within encodings."""
    rows = joined(
        {("rope", task): (1.0, 0.9, 1.0) for task in ("prev", "skip2")}
        | {("nope", task): (0.0, 0.1, 0.3) for task in ("prev", "skip2")}
    )
    found = statistics_of(compare(rows), seed=0)
    assert found["AUC, all cells"].p < 0.2
    assert found["AUC, all cells, whole encodings drawn"].p == 1.0


def test_subsets():
    cells = compare(joined(CELLS)).cells
    assert set(learnable(cells)["task"]) == {"prev", "first"} and len(learnable(cells, 0.4)) == 4
    assert len(non_trivial(cells)) == 2


def test_violations_are_listed_by_cell_and_length():
    rows = joined({**CELLS, ("rope", "prev"): (0.8, 0.2, 1.0)}, seeds=(0, 1))
    broken = violations(rows, 0.5)
    assert broken[["encoding", "task", "length", "seeds", "worst"]].to_numpy().tolist() == [
        ["rope", "prev", 30, 2, 0.2],
        ["rope", "prev", 60, 2, 0.2],
    ]
    assert violations(rows, 0.9).empty


def test_baselines():
    assert blind_rule("nope", "skip5") and not blind_rule("rope", "first")
    assert taxonomy_rule("rope", "prev") and taxonomy_rule("learned", "first") and taxonomy_rule("alibi", "skip2")
    assert not any(
        taxonomy_rule(*cell) for cell in (("rope", "first"), ("learned", "prev"), ("nope", "prev"), ("rope", "copy"))
    )
    assert encoding_class("rope:scale=0.5") == "relative" and encoding_class("nope") == "none"


def test_table_has_a_line_a_statistic():
    found = statistics_of(compare(joined(CELLS)), seed=0)
    table = statistics_table(found)
    assert list(table["statistic"]) == list(found) and table["how"].str.len().min() > 0
