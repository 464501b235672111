"""Work units: what they measure, and that whatever goes wrong becomes a status with a reason."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from poskernel.encodings import ENCODINGS
from poskernel.models.training import Recipe, TrainedModel, evaluate, load_checkpoint, token_accuracy, train, under
from poskernel.models.transformer import Architecture
from poskernel.realizability import predict
from poskernel.study import units as units_module
from poskernel.study.grid import PredictionCell, TrainingCell
from poskernel.study.units import (
    NO_SEED,
    Metric,
    PredictionUnit,
    Status,
    TrainingUnit,
    Unit,
    exists_measurement,
)
from poskernel.tasks import TASKS

SMALL = Architecture(width=16, train_length=8)
SHORT = Recipe(steps=10, batch=8, evaluation_sequences=32)
UNIT = TrainingUnit(TrainingCell(ENCODINGS["learned"], TASKS["prev"], SMALL, SHORT), (12, 16), seed=3)
KEY = ("cell", "exists", 30, NO_SEED)


def test_a_training_unit_measures_what_training_and_evaluation_give() -> None:
    trained = train(SMALL, ENCODINGS["learned"], TASKS["prev"], SHORT, seed=3)
    measured = UNIT.run()
    assert [m.key for m in measured] == list(UNIT.keys)
    assert [(m.metric, m.length, m.seed) for m in measured] == [
        ("train_accuracy", 8, 3), ("length_generalization", 12, 3), ("length_generalization", 16, 3),
    ]  # fmt: skip
    assert measured[0].value == trained.train_accuracy
    assert [m.value for m in measured[1:]] == [evaluate(trained.model, TASKS["prev"], n, 32, seed=3) for n in (12, 16)]


def test_a_label_tells_a_unit_from_all_others_of_its_study() -> None:
    plain = TrainingCell(ENCODINGS["rope"], TASKS["prev"])
    assert TrainingUnit(plain, (30,), seed=2).description == "train rope prev, tier 1, seed 2"
    longer = dataclasses.replace(plain, recipe=Recipe(steps=8000), architecture=Architecture(train_length=40))
    assert TrainingUnit(longer, (80,)).description == "train rope prev, tier 1, train_length=40, steps=8000, seed 0"
    predicted = PredictionCell(ENCODINGS["rope"], TASKS["prev"], 40)
    assert PredictionUnit(predicted, (80,)).description == "predict rope prev, fitted_length=40, rule adam"


def test_a_model_that_did_not_learn_keeps_its_values_with_the_status() -> None:
    measured = UNIT.run()
    assert all(m.status is Status.UNLEARNED and m.value is not None for m in measured)
    assert measured[0].reason == f"in-distribution accuracy {measured[0].value:.3f} is not above 0.8"


@pytest.mark.parametrize(("accuracy", "status"), [(0.8, Status.UNLEARNED), (0.81, Status.DONE), (1.0, Status.DONE)])
def test_learned_means_above_the_threshold(monkeypatch: pytest.MonkeyPatch, accuracy: float, status: Status) -> None:
    trained = train(SMALL, ENCODINGS["learned"], TASKS["prev"], SHORT)
    answer = TrainedModel(trained.model, trained.task, SHORT, 0, trained.history, accuracy)
    monkeypatch.setattr(units_module, "train", lambda *_: answer)
    assert {m.status for m in UNIT.run()} == {status}


def test_a_loss_that_is_not_finite_is_a_failure_without_a_number() -> None:
    wild = TrainingCell(ENCODINGS["learned"], TASKS["prev"], SMALL, Recipe(steps=50, batch=8, learning_rate=1e30))
    measured = TrainingUnit(wild, (12,)).run()
    assert all(m.status is Status.FAILED and m.value is None and not m.transient for m in measured)
    assert measured[0].reason.startswith("training broke off: the loss is nan at step")


@dataclass(frozen=True)
class Breaking(TrainingUnit):
    """Raises instead of working."""

    error: Exception = field(default_factory=ValueError)

    def measure(self, weights: Path | None) -> list[units_module.Measurement]:
        raise self.error


@pytest.mark.parametrize(
    ("error", "reason", "transient"),
    [
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero", False),
        (MemoryError(), "out of memory: ", True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out of memory: Default", True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "out of memory: CUDA", True),
    ],
)
def test_exceptions_become_failures_with_a_reason(error: Exception, reason: str, transient: bool) -> None:
    measured = Breaking(UNIT.cell, UNIT.lengths, error=error).run()
    assert len(measured) == 3
    assert all(m.status is Status.FAILED and m.value is None for m in measured)
    assert measured[0].reason.startswith(reason)
    assert measured[0].transient is transient


def test_weights_are_kept_and_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = UNIT.run(tmp_path)
    (file,) = tmp_path.iterdir()
    assert file == UNIT.weights_file(tmp_path)
    assert load_checkpoint(file).seed == 3
    monkeypatch.setattr(units_module, "train", None)  # would fail if it were called
    assert UNIT.run(tmp_path) == first


def test_units_run_on_one_thread_and_give_the_threads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(units_module, "train", lambda *_: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        UNIT.run()
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("task", ["prev", "first", "copy"])
def test_a_prediction_unit_measures_what_predict_gives(task: str) -> None:
    lengths = (30, 60)
    unit = PredictionUnit(PredictionCell(ENCODINGS["rope"], TASKS[task]), lengths)
    rows, alone = predict("rope", task, 20, lengths).rows, predict("rope", task, 20, lengths, existence=False).rows
    found = {(m.metric, m.length): m for m in unit.run()}
    assert list(found) == [(metric, length) for metric in ("alpha", "exists") for length in lengths]
    for row, by_itself in zip(rows, alone, strict=True):
        alpha, exists = found[Metric.ALPHA, row.length], found[Metric.EXISTS, row.length]
        # The row's reason may quote existence; a measurement of alpha is the same whatever else was asked.
        assert (alpha.value, alpha.reason, alpha.seed) == (row.alpha, by_itself.reason, NO_SEED)
        assert exists.reason == row.exists
        assert exists.value == (1.0 if row.exists == "yes" else 0.0)


def test_undefined_alphas_have_no_value_and_a_reason() -> None:
    alpha, exists = PredictionUnit(PredictionCell(ENCODINGS["rope"], TASKS["induction"]), (30,)).run()
    assert (alpha.value, alpha.status) == (None, Status.DONE)
    assert alpha.reason.startswith("undefined")
    assert (exists.value, exists.reason) == (None, "not-applicable")


@pytest.mark.parametrize(
    ("answer", "value", "status"),
    [
        ("yes", 1.0, Status.DONE),
        ("no", 0.0, Status.DONE),
        ("conflict", 0.0, Status.DONE),
        ("undecided", None, Status.TIMEOUT),
        (None, None, Status.DONE),
    ],
)
def test_answers_about_existence_become_numbers_where_they_are_known(
    answer: str | None, value: float | None, status: Status
) -> None:
    measured = exists_measurement(KEY, answer)
    assert (measured.value, measured.status) == (value, status)
    assert measured.reason == (answer or "not asked")
    assert measured.transient is (answer == "undecided")


def test_costs_grow_with_depth_and_steps() -> None:
    def cost(layers: int, steps: int) -> float:
        shape = Architecture(layers=layers)
        unit: Unit = TrainingUnit(TrainingCell(ENCODINGS["rope"], TASKS["prev"], shape, Recipe(steps=steps)), (30,))
        return unit.cost

    assert cost(1, 2000) == 1.0
    assert cost(4, 1000) == 2.0


def test_a_trained_model_is_measured_under_other_encodings_too() -> None:
    cell = TrainingCell(ENCODINGS["rope"], TASKS["prev"], SMALL, SHORT)
    slow = dataclasses.replace(ENCODINGS["rope"], scale=0.25)  # type: ignore[type-var]
    unit = TrainingUnit(cell, (12, 16), seed=3, test_encodings=(slow, ENCODINGS["nope"]))
    measured = unit.run()
    plain = TrainingUnit(cell, (12, 16), seed=3).run()
    assert measured[:3] == plain
    assert [m.key for m in measured] == list(unit.keys)
    assert [each.label for each in unit.cells] == ["rope", "rope at rope:scale=0.25", "rope at nope"]
    trained = train(SMALL, ENCODINGS["rope"], TASKS["prev"], SHORT, seed=3)
    other = under(trained.model, slow)
    by_hand = [token_accuracy(other, TASKS["prev"], 8, first=0, sequences=32, seed=3)]
    by_hand += [evaluate(other, TASKS["prev"], length, 32, seed=3) for length in (12, 16)]
    assert [m.value for m in measured[3:6]] == by_hand
    assert {m.cell for m in measured[3:6]} == {cell.tested(slow).id} != {cell.id}


def test_content_alphas_are_measured_where_they_are_asked_for() -> None:
    unit = PredictionUnit(PredictionCell(ENCODINGS["sinusoidal"], TASKS["induction"]), (30, 60), False, content=True)
    found = {(m.metric, m.length): m.value for m in unit.run()}
    assert list(found) == [key[1:3] for key in unit.keys]
    support = {row.length: row.alpha for row in predict("sinusoidal", "prev", 20, (30, 60), existence=False).rows}
    for length in (30, 60):
        assert found["alpha", length] is None
        assert found["alpha_content", length] == found["alpha_plus", length] == 1
        assert found["alpha_graded", length] == support[length]


def test_an_alpha_is_the_same_measurement_whether_existence_is_asked_or_not() -> None:
    cell = PredictionCell(ENCODINGS["rope"], TASKS["copy"])
    with_it = PredictionUnit(cell, (40, 60)).run()
    assert with_it[:2] == PredictionUnit(cell, (40, 60), existence=False).run()
