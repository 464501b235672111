"""Cell ids: what they depend on, what they do not, and that they stay."""

import dataclasses
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import poskernel
from poskernel.encodings import ENCODINGS, Rope, Sinusoidal, parse_encoding
from poskernel.errors import InputError
from poskernel.models.training import Recipe
from poskernel.models.transformer import Architecture, Norm
from poskernel.study.grid import Axes, PredictionCell, Study, TrainingCell, canonical
from poskernel.study.units import PredictionUnit, TrainingUnit, units_of
from poskernel.tasks import TASKS, Skip

CELL = TrainingCell(Rope(), TASKS["prev"])


def test_ids_stay_what_they_are() -> None:
    """Stored measurements are found by these: a change orphans every store, so defaults and names must not change."""
    assert CELL.id == "4e5363b36c58a879"
    assert (
        TrainingCell(Sinusoidal(frequencies=8), Skip(7), Architecture(layers=2, heads=4), Recipe(steps=10)).id
        == "a31c77b0e8b8ccbc"
    )
    assert PredictionCell(ENCODINGS["learned"], TASKS["copy"], 40, "optimum").id == "5b03436b85022a79"


def test_ids_are_the_same_in_another_process() -> None:
    code = (
        "from poskernel.encodings import Rope; from poskernel.study.grid import TrainingCell; "
        "from poskernel.tasks import STUDY_TASKS; print(TrainingCell(Rope(), STUDY_TASKS[0]).id)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(poskernel.__file__).parent.parent), "PYTHONHASHSEED": "5"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.strip() == CELL.id


def test_numbers_and_spellings_that_mean_the_same_give_the_same_id() -> None:
    for text in ("rope", "rope:base=10000", "rope:base=1e4,frequencies=16", "rope:frequencies=16.0"):
        assert TrainingCell(parse_encoding(text), TASKS["prev"]).id == CELL.id
    assert TrainingCell(Rope(), Skip(1), Architecture(), Recipe(learning_rate=0.0003)).id == CELL.id


def test_every_field_changes_the_id() -> None:
    changed = [
        CELL,
        TrainingCell(ENCODINGS["alibi"], TASKS["prev"]),
        TrainingCell(Rope(), Skip(2)),
        PredictionCell(Rope(), TASKS["prev"]),
        PredictionCell(Rope(), TASKS["prev"], 40),
        PredictionCell(Rope(), TASKS["prev"], rule="optimum"),
        *(TrainingCell(encoding, TASKS["prev"]) for encoding in (Rope(base=1e5), Rope(frequencies=8), Rope(scale=0.5))),
    ]
    others = {"width": 32, "layers": 2, "heads": 2, "mlp": False, "norm": Norm.RMS, "vocabulary": 64, "causal": False}
    others["attention_norm"] = Norm.NONE
    for name, value in {**others, "train_length": 10}.items():
        changed.append(dataclasses.replace(CELL, architecture=dataclasses.replace(Architecture(), **{name: value})))
    for field in dataclasses.fields(Recipe):
        recipe = dataclasses.replace(Recipe(), **{field.name: field.default * 2})  # type: ignore[operator]
        changed.append(dataclasses.replace(CELL, recipe=recipe))
    assert {field.name for field in dataclasses.fields(Architecture)} == {*others, "train_length"}
    assert len({cell.id for cell in changed}) == len(changed)


def test_a_field_added_later_with_a_default_leaves_ids_alone() -> None:
    @dataclass(frozen=True)
    class Before:
        steps: int = 3

    @dataclass(frozen=True)
    class After(Before):
        warmup: int = 0

    assert canonical(Before(4), defaults=False) == canonical(After(4), defaults=False) == {"steps": 4.0}
    assert canonical(After(4, 7), defaults=False) == {"steps": 4.0, "warmup": 7.0}
    assert canonical(After(4), defaults=True) == {"steps": 4.0, "warmup": 0.0}


def test_the_config_states_every_effective_parameter() -> None:
    assert '"encoding":{"base":10000.0,"frequencies":16.0,"name":"rope","scale":1.0}' in CELL.config
    assert '"learning_rate":0.0003' in CELL.config


def test_what_has_no_canonical_form_is_refused() -> None:
    @dataclass(frozen=True)
    class Holder:
        held: object

    with pytest.raises(InputError, match="has no canonical form"):
        canonical(Holder({1, 2}), defaults=True)


def test_labels_are_short_and_parse_back() -> None:
    for encoding in (Rope(), Rope(scale=0.03), Sinusoidal(frequencies=8, base=100.0), ENCODINGS["alibi"]):
        assert parse_encoding(TrainingCell(encoding, TASKS["prev"]).label) == encoding
    assert CELL.label == "rope"


def test_cells_are_checked_when_made() -> None:
    with pytest.raises(InputError, match="RoPE needs an even head width"):
        TrainingCell(Rope(), TASKS["prev"], Architecture(width=9))
    with pytest.raises(InputError, match="no query row at length 10, the shortest of a training length of 20"):
        TrainingCell(Rope(), Skip(20))
    with pytest.raises(InputError, match="adam"):
        PredictionCell(Rope(), TASKS["prev"], rule="adan")
    with pytest.raises(InputError, match="length 20 is not beyond the training length 20"):
        TrainingUnit(CELL, (20,))
    with pytest.raises(InputError, match="length 15 is not beyond"):
        PredictionUnit(PredictionCell(Rope(), TASKS["induction"]), (30, 15))


def test_axes_are_checked_when_made() -> None:
    with pytest.raises(InputError, match="tier 4 does not exist"):
        Axes((Rope(),), (TASKS["prev"],), tiers=(4,), seeds=(0,), lengths=(30,))
    with pytest.raises(InputError, match="without lengths measures nothing"):
        Axes((Rope(),), (TASKS["prev"],), tiers=(1,), seeds=(0,), lengths=())


def test_only_the_first_rule_asks_for_existence() -> None:
    axes = Axes((Rope(),), (TASKS["prev"],), tiers=(), seeds=(), lengths=(30,), rules=("adam", "optimum"))
    units = units_of(Study("rules", "?", (axes,)))
    assert [len(unit.keys) for unit in units] == [2, 1]
