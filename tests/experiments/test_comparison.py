"""Joining predictions with trained models, on a table whose answers are known."""

import pandas as pd
import pytest

from poskernel.errors import RunError
from poskernel.experiments.comparison import along_lengths, at_length, compare, in_study_order
from study_table import CELLS, table


def test_known_answers():
    found = compare(table(CELLS), tier=1)
    assert (found.separation.positives, found.separation.negatives) == (2, 3)
    assert found.separation.auc.value == 1.0
    assert found.certain_above_hopeless is True
    assert found.learnable_correlation.n == 3
    assert found.precisions[0.5].estimate.value == 1.0 and found.precisions[0.5].estimate.n == 4
    assert list(found.cells["status"]) == ["done", "done", "done", "unlearned", "unlearned"]


def test_a_cell_with_alpha_0_that_generalizes_is_noticed():
    broken = compare(table({**CELLS, ("alibi", "first"): (0.0, 0.95, 1.0)}), tier=1)
    assert broken.certain_above_hopeless is False
    assert broken.separation.auc.value < 1.0
    over = compare(table({**CELLS, ("rope", "prev"): (1.0, 0.2, 1.0)}), tier=1)
    assert len(over.precisions[0.5].violations) == 2


def test_failed_rows_stay_without_a_value():
    rows = table(CELLS)
    lost = (rows["metric"] == "length_generalization") & (rows["encoding"] == "rope") & (rows["task"] == "copy")
    rows.loc[lost, ["value", "status", "reason"]] = [None, "failed", "loss is nan at step 7"]
    found = compare(rows, tier=1)
    assert len(found.rows) == 10 and found.correlation.n == 4
    cell = at_length(found.rows, 60).set_index(["encoding", "task"]).loc[("rope", "copy")]
    assert pd.isna(cell["accuracy"]) and cell["accuracy_reason"] == "loss is nan at step 7"


def test_nothing_trained_is_an_error():
    with pytest.raises(RunError, match="tier 2"):
        compare(table(CELLS), tier=2)


def test_seeds_give_a_band():
    assert "accuracy_low" not in along_lengths(compare(table(CELLS), tier=1).rows)
    assert "accuracy_low" in along_lengths(compare(table(CELLS, seeds=(0, 1)), tier=1).rows)


def test_order_is_the_registries():
    names = pd.DataFrame(
        {"encoding": ["alibi", "rope:scale=0.1", "nope", "mine"], "task": "prev", "length": 30, "seed": 0}
    )
    assert list(in_study_order(names)["encoding"]) == ["nope", "rope:scale=0.1", "alibi", "mine"]
