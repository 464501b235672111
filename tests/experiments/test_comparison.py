"""Comparing predictions with trained models, on a table whose answers are known."""

import pandas as pd
import pytest

from poskernel.errors import InputError, RunError
from poskernel.experiments.comparison import along_lengths, at_length, compare
from poskernel.experiments.study_rows import StudyRows
from poskernel.study import STUDIES
from study_table import CELLS, joined, table


def test_known_answers():
    found = compare(joined())
    assert (found.separation.positives, found.separation.negatives) == (2, 3)
    assert found.separation.auc.value == 1.0
    assert found.certain_above_hopeless is True
    assert found.learnable_correlation.n == 3
    assert found.precisions[0.5].estimate.value == 1.0 and found.precisions[0.5].estimate.n == 4
    assert list(found.cells["status"]) == ["done", "done", "done", "unlearned", "unlearned"]


def test_a_cell_with_alpha_0_that_generalizes_is_noticed():
    broken = compare(joined({**CELLS, ("alibi", "first"): (0.0, 0.95, 1.0)}))
    assert broken.certain_above_hopeless is False
    assert broken.separation.auc.value < 1.0
    over = compare(joined({**CELLS, ("rope", "prev"): (1.0, 0.2, 1.0)}))
    assert len(over.precisions[0.5].violations) == 2


def test_failed_rows_stay_without_a_value():
    rows = table()
    lost = (rows["metric"] == "length_generalization") & (rows["encoding"] == "rope") & (rows["task"] == "copy")
    rows.loc[lost, ["value", "status", "reason"]] = [None, "failed", "loss is nan at step 7"]
    found = compare(StudyRows.of(STUDIES["quick"], rows).joined(1))
    assert len(found.rows) == 10 and found.correlation.n == 4
    cell = at_length(found.rows, 60).set_index(["encoding", "task"]).loc[("rope", "copy")]
    assert pd.isna(cell["accuracy"]) and cell["accuracy_reason"] == "loss is nan at step 7"


def test_nothing_trained_is_an_error():
    with pytest.raises(RunError, match="run the study first"):
        compare(joined(accuracy=None))


@pytest.mark.parametrize(("column", "values"), [("tier", (1, 2)), ("steps", (2000, 8000)), ("width", (64, 128))])
def test_models_of_two_settings_are_not_averaged(column, values):
    rows = joined()
    mixed = pd.concat([rows.assign(**{column: value}) for value in values])
    with pytest.raises(InputError, match=f"mix models of {column} {values[0]}, {values[1]}"):
        compare(mixed)


def test_train_accuracy_counts_each_seed_once():
    rows = joined({("rope", "prev"): (1.0, 0.9, 0.7)}, seeds=(0, 1))
    rows.loc[rows["seed"] == 1, "train_accuracy"] = 1.0
    cell = compare(rows[(rows["seed"] == 0) | (rows["length"] == 30)]).cells.iloc[0]
    assert cell["train_accuracy"] == pytest.approx(0.85) and cell["seeds"] == 2


def test_seeds_give_a_band():
    assert "accuracy_low" not in along_lengths(joined())
    assert "accuracy_low" in along_lengths(joined(seeds=(0, 1)))
