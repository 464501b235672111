"""Language models as units: cells and their parts, shared weights, loss curves."""

import dataclasses

import pytest

from poskernel.encodings import ENCODINGS
from poskernel.experiments.language_units import LanguageCell, LossUnit
from poskernel.models.generated import Dyck
from poskernel.models.language import LanguageRecipe, Objective, Text, bigram_loss
from poskernel.models.language_training import Condition, train_language
from poskernel.models.optimization import Schedule
from poskernel.models.transformer import Architecture, Norm
from poskernel.study import Status

TOPICS = Text("topics", "characters")
RECIPE = LanguageRecipe(TOPICS, schedule=Schedule(12, 2, 1e-2, 2), checkpoints=(0, 6), evaluation_windows=4)
SHAPE = Architecture(16, 2, 2, vocabulary=TOPICS.vocabulary, train_length=8)
CELL = LanguageCell(Condition(SHAPE, ENCODINGS["rope"], RECIPE))


def test_a_part_is_a_cell_of_its_own_with_the_same_weights(tmp_path) -> None:
    head = CELL.at(layer=1, head=0)
    assert head.id != CELL.id and head.whole == CELL and len({CELL.at(layer=1, head=h).id for h in range(2)}) == 2
    assert dict(head.columns) == {**CELL.columns, "layer": 1, "head": 0}
    assert LossUnit(head, 1).weights_file(tmp_path) == LossUnit(CELL, 1).weights_file(tmp_path)
    assert LossUnit(CELL, 2).weights_file(tmp_path) != LossUnit(CELL, 1).weights_file(tmp_path)


def test_columns_say_what_is_before_attention_and_where_a_model_looks() -> None:
    removed = dataclasses.replace(SHAPE, attention_norm=Norm.NONE, causal=False)
    columns = LanguageCell(Condition(removed, ENCODINGS["nope"], RECIPE)).columns
    assert columns["norm"] == "layer, none before attention" and columns["direction"] == "bidirectional"
    assert columns["source"] == "topics" and columns["objective"] == "next"


def test_curves_are_those_of_the_training(tmp_path) -> None:
    unit = LossUnit(CELL, 1)
    measured = {(m.metric, m.length): m.value for m in unit.run(tmp_path)}
    trained = train_language(CELL.condition, 1)
    assert list(measured) == [(metric, length) for _, metric, length in unit.measures]
    assert [measured["train_loss", step] for step in range(1, 13)] == pytest.approx(trained.history.tolist())
    assert {n: measured["validation_loss", n] for n in (0, 6, 12)} == {n: f.loss for n, f in trained.held_out.items()}
    assert measured["bigram_margin", 8] == bigram_loss(TOPICS, RECIPE, 8) - trained.held_out[12].loss < 0
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {f"{CELL.id}-1{end}.safetensors" for end in ("", "-step0", "-step6")}
    assert {(m.metric, m.length): m.value for m in unit.run(tmp_path)} == measured


def test_a_bigram_is_asked_only_where_it_answers_the_same_question() -> None:
    masked = dataclasses.replace(RECIPE, objective=Objective.MASKED)
    brackets = LanguageRecipe(Dyck(), schedule=RECIPE.schedule)
    for recipe in (masked, brackets):
        unit = LossUnit(LanguageCell(dataclasses.replace(CELL.condition, recipe=recipe)))
        assert "bigram_margin" not in {metric for _, metric, _ in unit.measures}


def test_a_training_that_breaks_off_is_a_failure() -> None:
    wild = dataclasses.replace(RECIPE, schedule=Schedule(12, 2, 1e30, 2, clip=1e30))
    measured = LossUnit(LanguageCell(dataclasses.replace(CELL.condition, recipe=wild))).run()
    assert {m.status for m in measured} == {Status.FAILED} and "training broke off: the loss is" in measured[0].reason
