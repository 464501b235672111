"""Trained heads are read from weights that are there, never trained; every number against a slow loop."""

import dataclasses

import pytest
import torch

from poskernel.attention.mean_kernel import mean_kernels
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.encodings import ENCODINGS, parse_encoding
from poskernel.experiments.trained_kernels import (
    MEANINGS,
    SEQUENCES,
    TrainedKernelCell,
    TrainedKernels,
    TrainedKernelUnit,
    share_among_others,
)
from poskernel.kernel import GridKernel, tabulated
from poskernel.models.training import Recipe, TrainedModel, evaluation_tokens, initial_model, save_checkpoint
from poskernel.study import STUDIES, Status, TrainingCell
from poskernel.study.units import TrainingUnit, units_of
from poskernel.tasks import TASKS

LENGTHS = (23, 26)


def cell_of(encoding="rope", task="prev"):
    return TrainedKernelCell.of(TrainingCell(parse_encoding(encoding), TASKS[task]))


def kept(folder, unit, encoding=None):
    """Weights of an untrained model in the place of a trained one's."""
    cell = unit.cell.trained
    model = initial_model(cell.architecture, encoding or cell.encoding, unit.seed)
    trained = TrainedModel(model, cell.task, cell.recipe, unit.seed, torch.zeros(1), 1.0)
    save_checkpoint(trained, TrainingUnit(cell, LENGTHS, unit.seed).weights_file(folder))
    return model


def slow(model, task, length, seed):
    """Every number of one length, pair by pair."""
    targets, grid = task.targets(length).rows(20, length), mean_kernels(model, length)[0].transfer(length)
    seen = []
    tokens = evaluation_tokens(model.architecture, length, SEQUENCES, seed)
    TransformerSource(model.eval()).forward(tokens, seen.append)
    weights, found = seen[0].pattern(0), {name: [] for name in MEANINGS if not name.endswith("trained")}
    for row, key in zip(targets.query.tolist(), targets.key.tolist(), strict=True):
        logits = grid[row, : row + 1]
        rivals = [logits[other] for other in range(row + 1) if other != key]
        others = [logits[other] for other in range(row) if other != key]
        found["kernel_alpha"].append(float(all(logits[key] > each for each in rivals)))
        found["kernel_alpha_others"].append(float(all(logits[key] > each for each in others)))
        found["kernel_mass"].append(float(logits.softmax(0)[key]))
        for sequence in weights[:, row]:
            found["attended"].append(float(sequence[key]))
            found["attended_most"].append(float(sequence[key] >= sequence.max()))
    return {name: sum(values) / len(values) for name, values in found.items()}


@pytest.mark.parametrize(("encoding", "task"), [("rope", "prev"), ("sinusoidal", "first"), ("learned", "reverse")])
def test_numbers_are_those_of_a_slow_loop(tmp_path, encoding, task):
    unit = TrainedKernelUnit(cell_of(encoding, task), LENGTHS, seed=3)
    model, found = kept(tmp_path, unit), unit.run(tmp_path)
    assert {each.status for each in found} == {Status.DONE} and [each.key for each in found] == list(unit.keys)
    for length in LENGTHS:
        values = {each.metric: each.value for each in found if each.length == length}
        assert values == pytest.approx(slow(model, TASKS[task], length, 3), abs=1e-5)


def test_alphas_at_the_training_length_are_of_every_row(tmp_path):
    unit = TrainedKernelUnit(cell_of("alibi", "prev"), LENGTHS)
    kept(tmp_path, unit)
    found = {each.metric: each.value for each in unit.run(tmp_path) if each.length == 20}
    assert found["kernel_alpha_others_trained"] == 1.0, "of the other keys ALiBi likes the last one best"
    assert set(found) == {"kernel_alpha_trained", "kernel_alpha_others_trained"}


def test_the_query_itself_is_left_out():
    targets = TASKS["prev"].targets(6)
    assert share_among_others(tabulated(torch.tensor([9.0, 2, 1, 0, -1, -2], dtype=torch.float64)), targets) == 1
    assert share_among_others(tabulated(torch.tensor([9.0, 1, 2, 0, -1, -2], dtype=torch.float64)), targets) == 1 / 5
    tied = GridKernel(torch.zeros(6, 6, dtype=torch.float64))
    assert share_among_others(tied, targets) == 1 / 5  # row 1 has one key beside itself


def test_nothing_is_trained_where_weights_are_missing(tmp_path):
    found = TrainedKernelUnit(cell_of(), LENGTHS).run(tmp_path)
    assert {each.status for each in found} == {Status.FAILED} and not list(tmp_path.iterdir())
    assert "poskernel study run paper --tiers 1 --weights" in found[0].reason


def test_another_models_weights_are_no_answer(tmp_path):
    unit = TrainedKernelUnit(cell_of(), LENGTHS)
    kept(tmp_path, unit, ENCODINGS["nope"])
    assert {each.reason for each in unit.run(tmp_path)} == {unit.run(tmp_path)[0].reason}
    assert "holds another model" in unit.run(tmp_path)[0].reason


def test_a_unit_for_every_one_layer_model_of_the_paper():
    units = TrainedKernels().units()
    models = [unit for unit in units_of(STUDIES["paper"].only([1])) if isinstance(unit, TrainingUnit)]
    assert len(units) == 175 and len({unit.cell.id for unit in units}) == 35
    assert [(unit.cell.trained.id, unit.seed) for unit in units] == [(unit.cell.id, unit.seed) for unit in models]
    assert not {unit.cell.id for unit in units} & {unit.cell.id for unit in models}
    assert TrainedKernels().config["name"] == "trained-kernels"


def test_another_recipe_is_another_cell():
    cell = TrainingCell(parse_encoding("rope"), TASKS["prev"])
    other = dataclasses.replace(cell, recipe=Recipe(steps=5))
    assert TrainedKernelCell.of(cell).id != TrainedKernelCell.of(other).id


def test_content_tasks_have_no_targets():
    with pytest.raises(ValueError, match="no function of the position"):
        TrainedKernelUnit(cell_of("rope", "induction"), LENGTHS).targets(9, 0)
