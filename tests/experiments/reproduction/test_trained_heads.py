"""Trained heads' section: in a made-up world each mispredicted row is put down to what was put into it."""

import pytest

from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.trained_heads import (
    CAUSES,
    closer,
    mispredicted,
    models_table,
    rows_table,
    trained_heads_sections,
    undone,
)
from poskernel.experiments.study_rows import keyed
from poskernel.experiments.trained_kernels import ALPHA, ATTENDED, MASS, NAME, TrainedKernels
from poskernel.study.grid import TrainingCell
from poskernel.study.store import frame
from study_table import row, study_table

# LG of the made-up world is 0.9 where solved, else 0.1; fitted alpha of these is 0 where LG is low, 1 where it is high.
HEADS = {
    ("rope", "first"): {ALPHA: 0.1, MASS: 0.1, ATTENDED: 0.1},
    ("alibi", "prev"): {ALPHA: 1.0, MASS: 0.1, ATTENDED: 0.1},
}


def solved(cell):
    """What the made-up models of one layer generalize on."""
    return (cell.encoding.name, cell.task.name) in {("rope", "prev"), ("rope", "skip2"), ("learned", "first")}


def one_layer(cell, metric, length, seed):
    """A row of the paper study, nothing of deeper models."""
    if not isinstance(cell, TrainingCell):
        return {"exists": 1.0}.get(metric, float(solved(cell)))
    if cell.tier != 1:
        return None
    return 1.0 if metric == "train_accuracy" else 0.1 + 0.8 * solved(cell)


def heads(fitted):
    """Rows of every trained head: as the fitted kernel, but for those of HEADS."""
    rows = []
    for unit in TrainedKernels().units():
        label = (unit.cell.label, unit.cell.task_name)
        for cell, metric, length in unit.measures:
            value = HEADS.get(label, {}).get(metric, fitted[label])
            rows.append(row(cell, metric, length, unit.seed, value))
    return keyed(frame(rows))


@pytest.fixture(scope="module")
def world():
    paper = keyed(study_table("paper", one_layer))
    alphas = paper[paper["metric"] == "alpha"]
    fitted = {(e, t): v for e, t, v in zip(alphas["encoding"], alphas["task"], alphas["value"], strict=True)}
    wrong = (paper["metric"] == "alpha") & (paper["encoding"] == "rope") & (paper["task"] == "first")
    paper = paper.assign(value=paper["value"].where(~wrong, 0.8))
    return Evidence({"paper": paper, NAME: heads(fitted)}, "a made-up world")


@pytest.fixture(scope="module")
def rows(world):
    return rows_table(models_table(world))


def test_a_line_a_cell_and_length(rows):
    assert len(rows) == 35 * 5 and set(rows["seeds"]) == {5}


def test_what_was_put_in_is_found(rows):
    wrong = mispredicted(rows)
    assert set(wrong["encoding"] + " " + wrong["task"]) == {"rope first"} and set(wrong["cause"]) == {CAUSES[ALPHA]}
    assert set(undone(rows)["encoding"] + " " + undone(rows)["task"]) == {"alibi prev"}


@pytest.mark.parametrize("cause", [MASS, ATTENDED, ""])
def test_causes_are_asked_in_order(rows, cause):
    names = [ALPHA, MASS, ATTENDED]
    high = names if cause == "" else names[: names.index(cause)]
    values = {name: 0.9 if name in high else 0.1 for name in names}
    where = (rows["encoding"] == "rope") & (rows["task"] == "first")
    changed = rows.assign(**{name: rows[name].where(~where, value) for name, value in values.items()})
    assert set(mispredicted(changed)["cause"]) == {CAUSES[cause]}


def test_nearer_means_a_smaller_distance(rows):
    assert closer(rows.assign(**{ALPHA: rows["accuracy"]}), ALPHA, 0).value > 0
    assert closer(rows.assign(**{ALPHA: 1 - rows["accuracy"]}), ALPHA, 0).value < 0


def test_sections(world, tmp_path):
    (section,) = trained_heads_sections(world, Output(tmp_path))
    assert [finding.number for finding in section.findings[:2]] == ["5 of 5", "5 of 170"]
    assert (tmp_path / "figures" / "trained-kernels-scores.svg").exists()
    without = Evidence({"paper": world.tables["paper"]}, "no heads")
    assert models_table(without).empty
    (empty,) = trained_heads_sections(without, Output(tmp_path))
    assert "empty until" in empty.findings[0].sentence and "study kernels" in empty.command
