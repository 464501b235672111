"""Units of the circuit test on a tiny model whose circuit is given: every change acts where it says."""

import dataclasses

import pytest
import torch

pytest.importorskip("transformers")

from families import HEADS, LAYERS, loaded
from poskernel.attention.interventions.changes import PlaneGain, Translation
from poskernel.attention.interventions.planes import rotary_planes
from poskernel.experiments.pretrained import circuit_units
from poskernel.experiments.pretrained.circuit import Circuit
from poskernel.experiments.pretrained.circuit_units import (
    CHANGES,
    COUNTS,
    DRAWN,
    STATE_MEASURES,
    CircuitSize,
    CircuitUnit,
    Prepared,
)
from poskernel.experiments.pretrained.models import PretrainedModel, RealModelCell

MODEL = PretrainedModel("tiny", "package:tiny", LAYERS, HEADS, True, (0,), "RoPE")
SIZE = CircuitSize(texts=2, choosing=(4, 24), patterns=2, period=10, draws=2, dropped=2)
UNIT = CircuitUnit(RealModelCell(MODEL, "topics", 2, 20), 1, SIZE)
GIVEN = Circuit(previous=((0, 0), (0, 1)), induction=((1, 2),))


@pytest.fixture
def given(monkeypatch):
    """The tiny model with a circuit that is said to be there."""
    words = loaded("llama")
    words.source.module.config.tie_word_embeddings = True
    monkeypatch.setattr(circuit_units, "opened", lambda model: words)
    monkeypatch.setattr(circuit_units, "previous_token_heads", lambda *_: GIVEN.previous)
    monkeypatch.setattr(circuit_units, "induction_heads", lambda *_, seed: GIVEN.induction)
    return words.source


def test_every_change_is_measured_and_draws_differ(given) -> None:
    found = {m.key: m for m in UNIT.run()}
    assert list(found) == list(UNIT.keys) and {str(m.status) for m in found.values()} == {"done"}
    assert {metric for _, metric, _ in UNIT.measures} == {each.name for each in (*STATE_MEASURES, *COUNTS)}
    assert len(UNIT.changes) == len(CHANGES) + len(DRAWN)
    whole = UNIT.cell.at(protocol="circuit").id
    assert [found[whole, name, 20, 1].value for name in ("previous_heads", "induction_heads")] == [2.0, 1.0]

    def state(name: str, draw: int = 0) -> list[float | None]:
        return [found[UNIT.cell_of(name, draw).id, each.name, 20, 1].value for each in STATE_MEASURES]

    assert state("damped") != state("none") != state("moved by 1")
    assert state("other heads moved by 1") != state("other heads moved by 1", 1)
    assert [m.value for m in UNIT.run()] == [m.value for m in found.values()]


def test_without_a_circuit_the_unit_fails_and_says_so(given, monkeypatch) -> None:
    monkeypatch.setattr(circuit_units, "induction_heads", lambda *_, seed: ())
    found = UNIT.run()
    assert {str(m.status) for m in found} == {"failed"} and "no circuit to test" in found[0].reason


def test_changes_act_on_the_heads_and_planes_that_they_name(given) -> None:
    text = torch.randint(4, 100, (4, 24), generator=torch.Generator().manual_seed(0))
    prepared = Prepared.of(given, GIVEN, text, SIZE, 1)
    count = len(rotary_planes(given)[0].frequencies)
    assert all(len(planes) == 3 for planes in prepared.carrying.values())
    damped, moved = prepared.changes("damped", 0)[0], prepared.changes("moved by 2", 0)[0]
    assert isinstance(damped, PlaneGain) and (dict(damped.planes), damped.gain) == (prepared.carrying, 0.5)
    assert isinstance(moved, Translation) and moved.delta == 2.0 and moved.chosen == frozenset(GIVEN.previous)
    assert all(planes == tuple(range(count)) for planes in moved.planes.values())
    for draw in range(SIZE.draws):
        other = prepared.changes("other heads moved by 1", draw)[0]
        assert len(other.chosen) == 2 and not other.chosen & {*GIVEN.previous, *GIVEN.induction}
    near, far = (prepared.induction_planes(resolved)[1, 2] for resolved in (True, False))
    assert sorted((*near, *far)) == list(range(count)) and near and far
    waves = rotary_planes(given)[1].wavelengths
    assert all(waves[plane] <= 20 for plane in near) and all(waves[plane] > 20 for plane in far)
    assert prepared.changes("none", 0) == []
    without = dataclasses.replace(prepared, controls={})
    assert without.changes("energy-matched", 0) is None and without.changes("damped, heads with a control", 0) is None
