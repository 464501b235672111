"""How a headline's value is had from the rows, on the made-up world."""

import math

import pytest

from poskernel.errors import RunError
from poskernel.experiments.reproduction import measures


def test_counts_and_claims(evidence):
    assert measures.positives(evidence).value == 6 and measures.positives(evidence).n == 35
    assert measures.permutation_p(evidence).value == 1
    assert measures.extreme_alpha(generalizes=True)(evidence).value == 1.0
    assert measures.extreme_alpha(generalizes=False)(evidence).value == pytest.approx(0.2)
    assert measures.learned_cells(1)(evidence).value == 14
    assert measures.broken_rows(evidence).value == 0
    assert measures.interior_floor(evidence).value == 0  # LG is 0.92
    assert measures.four_cells(10)(evidence).value == 1
    assert measures.not_learned("0.01")(evidence).value == 0
    assert measures.rescued_are(2, {"alibi prev"})(evidence).value == 1
    assert measures.rescued_are(2, {"nope prev"})(evidence).value == 0


def test_values(evidence):
    assert measures.worst_seed("rope", "prev", 60)(evidence).value == pytest.approx(0.9)
    assert measures.cell_mean("rope", "prev", 2)(evidence).value == pytest.approx(0.92)
    assert measures.accuracy("alibi", "prev", 60, 2)(evidence).value == pytest.approx(0.92)
    assert measures.train_length_auc(40)(evidence).value == 1.0
    assert measures.scale_correlation(1, large=True)(evidence).n == 14
    assert measures.wide_precision(evidence).value == 1.0
    assert measures.mean_alpha("sinusoidal", "prev")(evidence).value == pytest.approx(0.2)
    assert measures.kept_at_depth(2)(evidence).n == 150
    assert measures.rule_rank("adam")(evidence).n == 70


def test_words(evidence):
    assert measures.rescued_here(2)(evidence) == "here: alibi prev"
    assert "rope skip2" in measures.winners_here(20)(evidence)


def test_missing_rows_are_not_measured(partial):
    assert math.isnan(measures.interior_floor(partial).value)
    with pytest.raises(RunError):
        measures.scale_correlation(1, large=True)(partial)
    with pytest.raises(RunError):
        measures.train_length_auc(10)(partial)


def test_an_interval_that_is_not_there_includes_nothing(evidence):
    assert measures.zero_inside(1)(evidence).value == 0


def test_forms():
    found = measures.lg(("rope", "prev"), 0.87, 0.05, 2)
    assert found.printed == "0.87 ± 0.05" and found.tier == 2 and "tier 2" in found.name
    assert measures.promise(0.5, 0.925, 3).printed == "0.925"
    assert measures.rank("r", 0.9, "w", "Spearman, all cells", low=0.7, high=0.95).bounds == (0.7, 0.95)
    assert measures.predicted(("rope", "first"), 0.8, "section 6", 30).tier is None
