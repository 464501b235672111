"""A study's rows are found by cell, so models that look alike in the table's columns are not mixed up."""

import dataclasses

import pandas as pd
import pytest

from poskernel.encodings import Rope
from poskernel.errors import InputError
from poskernel.experiments.study_rows import JOINED, StudyRows, in_study_order, prediction_of
from poskernel.study import STUDIES, PredictionCell, TrainingCell
from poskernel.tasks import TASKS
from study_table import CELLS, row, study_table, table


def rules_answer(cell, metric, length, seed):
    """Values that name their cell: budgets by steps, alphas by rule."""
    if metric == "alpha":
        return {"adam": 0.25, "optimum": 0.75}.get(cell.rule, 0.0)
    if metric == "length_generalization":
        return {2000: 0.2, 8000: 0.5, 32_000: 0.9}[cell.recipe.steps]
    return 1.0


def test_models_that_differ_in_steps_alone_are_told_apart():
    rows = StudyRows.of(STUDIES["rules"], study_table("rules", rules_answer))
    for steps, value, cells in ((2000, 0.2, 35), (8000, 0.5, 5), (32_000, 0.9, 5)):
        found = rows.joined(1, steps=steps)
        assert set(found["accuracy"]) == {value} and len(found.drop_duplicates(["encoding", "task"])) == cells
    assert set(rows.joined(1, rule="optimum")["alpha"]) == {0.75} and set(rows.joined(1)["alpha"]) == {0.25}
    assert set(rows.joined(1, rule="adam:steps=100")["alpha"]) == {0.0}


def test_rows_of_other_studies_stay_out():
    wide = dataclasses.replace(
        TrainingCell(Rope(), TASKS["prev"]), architecture=STUDIES["scale"].axes[0].architecture(1)
    )
    other = pd.DataFrame([row(wide, "length_generalization", 30, 0, 0.0)])
    rows = pd.concat([table(), other], ignore_index=True)
    plain = StudyRows.of(STUDIES["quick"], rows).joined(1)
    assert plain["accuracy"].min() == 0.08 and list(plain.columns) == JOINED
    assert list(StudyRows.of(STUDIES["scale"], rows).joined(1)["accuracy"]) == [0.0]


def test_a_prediction_for_another_test_encoding_is_another():
    own, tested = TrainingCell(Rope(), TASKS["prev"]), TrainingCell(Rope(), TASKS["prev"]).tested(Rope(scale=0.5))
    assert prediction_of(own) == PredictionCell(Rope(), TASKS["prev"])
    assert prediction_of(tested).id != prediction_of(own).id


def test_what_is_missing_is_known():
    rows = StudyRows.of(STUDIES["quick"], table())
    assert len(rows.missing) == 560 - len(rows.table) and len(rows.planned) == 560
    everything = StudyRows.of(STUDIES["quick"], study_table("quick", lambda *_: 0.5))
    assert everything.missing.empty


def test_a_measurement_twice_is_an_error():
    with pytest.raises(InputError, match="stands twice"):
        StudyRows.of(STUDIES["quick"], pd.concat([table(), table()]))


def test_rows_of_another_form_are_an_error():
    with pytest.raises(InputError, match="no column 'cell'"):
        StudyRows.of(STUDIES["quick"], table(CELLS).drop(columns="cell"))


def test_order_is_the_registries():
    names = pd.DataFrame(
        {"encoding": ["alibi", "rope:scale=0.1", "nope", "mine"], "task": "prev", "length": 30, "seed": 0}
    )
    assert list(in_study_order(names)["encoding"]) == ["nope", "rope:scale=0.1", "alibi", "mine"]
