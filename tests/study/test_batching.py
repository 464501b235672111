"""Batches of models: what they measure, how a study is cut into them, resumes, kept weights and failures."""

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError
from poskernel.models import ensemble_training
from poskernel.models.training import Recipe, initial_model, load_checkpoint
from poskernel.models.transformer import Architecture
from poskernel.study import batching as batching_module
from poskernel.study.batching import ONE_BY_ONE, Batching, EnsembleUnit
from poskernel.study.grid import Axes, Study, TrainingCell
from poskernel.study.planning import Shard, plan, status
from poskernel.study.runner import run
from poskernel.study.store import CellRow, Store
from poskernel.study.units import Measurement, Metric, PredictionUnit, Status, TrainingUnit, units_of
from poskernel.tasks import TASKS

SMALL = Architecture(width=16, train_length=8)
SHORT = Recipe(steps=60, batch=8, learning_rate=1e-2, evaluation_sequences=32)
ROPE, T5 = ENCODINGS["rope"], ENCODINGS["t5"]


def unit(encoding: str, task: str, seed: int, **changes: object) -> TrainingUnit:
    cell = TrainingCell(ENCODINGS[encoding], TASKS[task], SMALL, SHORT)
    return TrainingUnit(cell, **{"lengths": (12, 16), "seed": seed, **changes})  # type: ignore[arg-type]


MEMBERS = (unit("rope", "prev", 1), unit("t5", "prev", 1), unit("nope", "first", 2, lengths=(10,)))
BATCH = EnsembleUnit.of(MEMBERS)

AXES = Axes(
    (ENCODINGS["rope"], ENCODINGS["alibi"], ENCODINGS["learned"]), (TASKS["prev"], TASKS["copy"]), tiers=(1, 2),
    seeds=(0, 1), lengths=(30, 40), existence=False, width=8,
    recipe=Recipe(steps=2, batch=2, evaluation_sequences=4),
)  # fmt: skip
STUDY = Study("small", "?", (AXES,))
UNITS = units_of(STUDY)  # 6 predictions, then 12 models of each seed
FIVES = Batching(5)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.sqlite") as opened:
        yield opened


def put(store: Store, made: TrainingUnit, measurements: list[Measurement]) -> None:
    store.add([CellRow.of(cell) for cell in made.cells], measurements)


def run_here(store: Store, batching: Batching, weights: Path | None = None) -> tuple[int, int, int]:
    with ThreadPoolExecutor(1) as threads:
        summary = run(STUDY, store, workers=1, executor=threads, batching=batching, weights=weights)
    return summary.done, summary.skipped, summary.failed


def test_a_batch_measures_what_its_models_measure() -> None:
    assert BATCH.keys == tuple(key for member in MEMBERS for key in member.keys)
    assert BATCH.measures == tuple(measure for member in MEMBERS for measure in member.measures)
    assert BATCH.cells == tuple(member.cell for member in MEMBERS)
    assert (BATCH.cost, BATCH.parts) == (sum(member.cost for member in MEMBERS), MEMBERS)
    assert MEMBERS[0].parts == (MEMBERS[0],)
    found = BATCH.run()
    assert tuple(each.key for each in found) == BATCH.keys
    expected = [each for member in MEMBERS for each in member.run()]
    assert len({each.value for each in expected}) > 5
    for one, other in zip(found, expected, strict=True):
        assert one.value == pytest.approx(other.value, abs=0.01)
        assert one.status is other.status


def test_models_are_measured_under_other_encodings_in_batches_too() -> None:
    slow = dataclasses.replace(ROPE, scale=0.25)  # type: ignore[type-var]
    members = (
        unit("rope", "prev", 1, test_encodings=(slow, ENCODINGS["nope"])),
        unit("rope", "skip2", 2, test_encodings=(ENCODINGS["dynamic"],)),
        unit("t5", "prev", 1),
    )
    found = EnsembleUnit.of(members).run()
    expected = [each for member in members for each in member.run()]
    assert [each.key for each in found] == [each.key for each in expected]
    assert [each.value for each in found] == pytest.approx([each.value for each in expected], abs=0.01)
    assert [each.status for each in found] == [each.status for each in expected]


def test_what_a_reader_calls_a_batch() -> None:
    first, last = MEMBERS[0].description, MEMBERS[-1].description.removeprefix("train ")
    assert BATCH.description == f"{first}, and so on: 3 models to {last}"
    assert EnsembleUnit.of(MEMBERS[:1]).description == MEMBERS[0].description


def test_models_of_two_kinds_do_not_go_together() -> None:
    other = TrainingCell(ROPE, TASKS["prev"], SMALL, dataclasses.replace(SHORT, steps=3))
    with pytest.raises(ValueError, match="one architecture and one recipe"):
        EnsembleUnit.of([MEMBERS[0], TrainingUnit(other, (12,))])


@given(st.integers(1, 40))
def test_batches_follow_the_plan_and_lose_nothing(size: int) -> None:
    batches = Batching(size, device="cuda").of(UNITS)
    assert [part for each in batches for part in each.parts if isinstance(part, PredictionUnit)] == UNITS[:6]
    ensembles = [each for each in batches if isinstance(each, EnsembleUnit)]
    assert {part for each in ensembles for part in each.parts} == set(UNITS[6:])
    assert sum(len(each.parts) for each in ensembles) == 24
    for tier in (1, 2):
        sizes = [len(each.parts) for each in ensembles if each.cell.tier == tier]
        assert max(sizes) <= size
        assert set(sizes[:-1]) <= {size}
        assert [part for each in ensembles if each.cell.tier == tier for part in each.parts] == [
            each for each in UNITS[6:] if each.cell.tier == tier
        ]
    assert {each.device for each in ensembles} == {"cuda"}


def test_one_model_at_a_time_on_the_cpu_is_the_study_as_it_was() -> None:
    assert Batching(1, "cpu").of(UNITS) == UNITS
    assert ONE_BY_ONE.of(UNITS) == UNITS


def test_shards_deal_out_whole_batches(store: Store) -> None:
    parts = [plan(STUDY, store, shard=Shard(number, 3), batching=FIVES) for number in (1, 2, 3)]
    found = [part for planned in parts for item in planned for part in item.unit.parts]
    assert sorted(map(repr, found)) == sorted(map(repr, UNITS))


def test_batches_of_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="a batch of 0 models"):
        Batching(0)


def test_devices_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="do not train on 'mps': choose from cpu, cuda"):
        Batching(4, "mps")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    Batching(4).check_device()
    with pytest.raises(InputError, match="no CUDA device here"):
        Batching(4, "cuda").check_device()
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    Batching(4, "cuda").check_device()


def test_a_resume_makes_the_whole_batch_again_and_stores_what_is_missing_alone(store: Store, tmp_path: Path) -> None:
    with Store(tmp_path / "whole.sqlite") as whole:
        assert run_here(whole, FIVES) == (6 + 6, 0, 0)
        expected = whole.rows()
        assert plan(STUDY, whole, batching=FIVES) == []
    rows = {(row["cell"], row["metric"], row["length"], row["seed"]): row for row in expected}
    first, second = FIVES.of(UNITS)[6].parts[:2]
    held = [Measurement(*key, 0.123, Status.DONE) for key in first.keys]
    held += [Measurement(*second.keys[0], 0.456, Status.UNLEARNED)]
    put(store, first, held[:-1])  # type: ignore[arg-type]
    put(store, second, held[-1:])  # type: ignore[arg-type]
    planned = plan(STUDY, store, batching=FIVES)
    assert [item.unit for item in planned] == FIVES.of(UNITS)
    lengths = "length_generalization at 30, length_generalization at 40"
    assert planned[6].reason == f"4 of 5 models: not measured yet: {lengths}; new"
    assert {item.reason for item in (*planned[:6], *planned[7:])} == {"new"}
    run_here(store, FIVES)
    kept = {measurement.key: measurement.value for measurement in held}
    for row in store.rows():
        key = (row["cell"], row["metric"], row["length"], row["seed"])
        assert row["value"] == kept.get(key, rows[key]["value"])
    assert int(status(STUDY, store)["missing"].sum()) == 0


def test_rows_of_single_models_are_enough_for_a_batch(store: Store) -> None:
    for made in UNITS:
        put(store, made, [Measurement(*key, 0.5, Status.DONE) for key in made.keys])  # type: ignore[arg-type]
    assert plan(STUDY, store, batching=FIVES) == []
    assert run_here(store, FIVES) == (0, 12, 0)


def test_weights_are_kept_one_file_a_model_and_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = BATCH.run(tmp_path)
    files = [member.weights_file(tmp_path) for member in MEMBERS]
    assert sorted(tmp_path.iterdir()) == sorted(file for file in files if file is not None)
    made = load_checkpoint(tmp_path / f"{MEMBERS[1].cell.id}-1.safetensors")
    assert (made.model.encoding, made.seed, made.train_accuracy) == (T5, 1, first[3].value)
    monkeypatch.setattr(batching_module, "train_ensemble", None)  # would fail if it were called
    assert BATCH.run(tmp_path) == first


def test_weights_that_are_kept_stay_and_are_what_is_measured(tmp_path: Path) -> None:
    MEMBERS[1].run(tmp_path)
    (file,) = tmp_path.iterdir()
    before = file.read_bytes()
    found = BATCH.run(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert file.read_bytes() == before
    assert found[3].value == load_checkpoint(file).train_accuracy


def test_weights_that_are_not_there_are_a_reason_for_the_whole_batch(store: Store, tmp_path: Path) -> None:
    for made in UNITS:
        put(store, made, [Measurement(*key, 0.5, Status.DONE) for key in made.keys])  # type: ignore[arg-type]
    before, weights = store.rows(), tmp_path / "weights"
    assert {item.reason for item in plan(STUDY, store, weights=weights, batching=FIVES)} == {"its weights are not kept"}
    run_here(store, FIVES, weights)
    assert len(list(weights.iterdir())) == 24
    assert store.rows() == before
    next(weights.iterdir()).unlink()
    assert len(plan(STUDY, store, weights=weights, batching=FIVES)) == 1


def test_a_model_whose_loss_is_no_number_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = BATCH.run()

    def make(shape: Architecture, encoding: object, seed: int) -> object:
        model = initial_model(shape, encoding, seed)  # type: ignore[arg-type]
        if encoding == T5:
            model.head.weight.data[0] = float("nan")
        return model

    monkeypatch.setattr(ensemble_training, "initial_model", make)
    found = BATCH.run()
    assert [*found[:3], *found[6:]] == [*sound[:3], *sound[6:]]
    assert {(each.status, each.value, each.transient) for each in found[3:6]} == {(Status.FAILED, None, False)}
    assert {each.reason for each in found[3:6]} == {"training broke off: the loss is nan at step 1 of 60"}


def test_a_model_that_cannot_be_evaluated_fails_alone_with_its_own_reason() -> None:
    few = dataclasses.replace(ENCODINGS["randomized"], positions=14)  # type: ignore[type-var]
    cell = TrainingCell(few, TASKS["prev"], SMALL, SHORT)
    members = (MEMBERS[0], TrainingUnit(cell, (12, 16), 1), MEMBERS[1])
    found = EnsembleUnit.of(members).run()
    alone = members[1].run()
    assert found[3:6] == alone
    assert {each.status for each in alone} == {Status.FAILED}
    assert all(each.status is not Status.FAILED for each in (*found[:3], *found[6:]))


def test_whatever_else_goes_wrong_fails_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(batching_module, "train_ensemble", starved)
    found = BATCH.run()
    assert tuple(each.key for each in found) == BATCH.keys
    assert all(each.status is Status.FAILED and each.transient for each in found)


def test_train_accuracy_is_the_first_measure_of_a_unit() -> None:
    assert all(member.measures[0][1] is Metric.TRAIN_ACCURACY for member in MEMBERS)
