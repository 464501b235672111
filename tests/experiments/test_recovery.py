"""Units of E5: what they measure, by obvious means, and failures as statuses."""

import dataclasses

import numpy as np
import pytest
import torch

from poskernel.encodings import Rope
from poskernel.experiments.convolution_model import Learner, Recovered, train_learner
from poskernel.experiments.recovery import (
    CURVES,
    KERNELS,
    OFFSETS,
    SUPPORT,
    RecoveryCell,
    RecoveryUnit,
    comparison,
    kernel_correlation,
)
from poskernel.models.optimization import Schedule
from poskernel.models.transformer import Norm
from poskernel.study import Status

LEARNER = Learner(KERNELS["gaussian"], Rope(), schedule=Schedule(10, 8, 1e-2, 2, 0.0))
UNIT = RecoveryUnit(RecoveryCell(LEARNER), 1, (0, 10))


def truth(name: str) -> torch.Tensor:
    padded = torch.zeros(OFFSETS, dtype=torch.float64)
    padded[:SUPPORT] = torch.tensor(KERNELS[name].weights, dtype=torch.float64)
    return padded


def test_kernels_are_rows_of_attention_with_the_shapes_they_are_named_for() -> None:
    for task in KERNELS.values():
        assert sum(task.weights) == pytest.approx(1) and task.support == SUPPORT
    assert int(np.argmax(KERNELS["gaussian"].weights)) == int(np.argmax(KERNELS["triangular"].weights)) == 5
    assert len({round(w, 12) for w in KERNELS["box"].weights if w > 0}) == 1
    peaks = KERNELS["two-peaked"].weights
    assert peaks[2] > 2 * peaks[5] < 2 * peaks[9]


def test_what_equals_the_kernel_has_no_error_and_what_does_not_has() -> None:
    weights, g = truth("gaussian"), truth("gaussian").clamp(min=1e-9).log()
    right = comparison(Recovered(weights, g, 1.0, 0.0), KERNELS["gaussian"])
    assert right["weight_correlation"] == pytest.approx(1) and right["kernel_correlation"] == pytest.approx(1)
    assert right["weight_error"] == pytest.approx(0) and right["spectrum_error"] == pytest.approx(0)
    shifted = comparison(Recovered(weights.roll(3), g.roll(3), 1.0, 0.0), KERNELS["gaussian"])
    expected = np.linalg.norm(weights.roll(3) - weights) / np.linalg.norm(weights)
    assert shifted["weight_error"] == pytest.approx(float(expected))
    assert shifted["weight_correlation"] == pytest.approx(float(np.corrcoef(weights.roll(3), weights)[0, 1]))
    assert shifted["kernel_correlation"] < 0.5
    assert shifted["spectrum_error"] == pytest.approx(0, abs=1e-9)  # a shift is what the sizes alone do not see


def test_numbers_that_do_not_exist_say_why() -> None:
    assert kernel_correlation(truth("box"), truth("box")) == "log w is constant where w is not 0"
    assert kernel_correlation(None, truth("gaussian")) == "two layers have no one g"
    level = comparison(Recovered(torch.full((OFFSETS,), 1 / OFFSETS).double(), None, None, 1.0), KERNELS["box"])
    assert level["weight_correlation"] == "all values are equal"
    assert level["stationarity"] == "no logits of one layer alone"


def test_a_unit_measures_what_training_gives() -> None:
    measured = {(m.metric, m.length): m for m in UNIT.run()}
    assert list(measured) == [(metric, length) for _, metric, length in UNIT.measures]
    assert len(measured) == 2 * len(CURVES) + 2 * OFFSETS
    final = train_learner(LEARNER, 1, (0, 10))[10]
    assert final is not None and measured["weight", 5].value == float(final.weights[5])
    assert measured["weight_error", 10].value == comparison(final, LEARNER.task)["weight_error"]
    assert {m.status for m in measured.values()} == {Status.DONE} and {m.seed for m in measured.values()} == {1}


def test_a_training_that_breaks_off_is_a_failure() -> None:
    wild = dataclasses.replace(LEARNER, norm=Norm.NONE, schedule=Schedule(10, 8, 1e30, 2, 0.0, 1e30))
    measured = RecoveryUnit(RecoveryCell(wild), 0, (0, 10)).run()
    assert {m.status for m in measured} == {Status.FAILED} and {m.value for m in measured} == {None}
    assert measured[0].reason == "training broke off: the loss was not finite"


def test_cells_say_what_they_set_and_every_field_makes_another() -> None:
    cell = RecoveryCell(LEARNER)
    assert dict(cell.columns) == {
        "kernel": "gaussian", "encoding": "rope", "norm": "layer", "positions": "ordered", "layers": 1,
    }  # fmt: skip
    changes = {"norm": Norm.RMS, "scrambled": True, "layers": 2, "width": 16, "length": 128, "task": KERNELS["box"]}
    others = [RecoveryCell(dataclasses.replace(LEARNER, **{name: value})) for name, value in changes.items()]
    assert len({each.id for each in (cell, *others)}) == 7
