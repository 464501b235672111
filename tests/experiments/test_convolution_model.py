"""The convolution learner: what it computes, what is read off it, and that a wrong reading is noticed."""

import pytest
import torch

from poskernel.encodings import Nope, Rope, Sinusoidal
from poskernel.experiments.convolution_model import (
    ConvolutionModel,
    Learner,
    by_offset,
    mean_jacobian,
    recovered,
    stationary_part,
    train_learner,
)
from poskernel.models.generated import Convolution
from poskernel.models.optimization import Schedule
from poskernel.models.transformer import Norm, rotate

TASK = Convolution((0.1, 0.2, 0.4, 0.2, 0.1))
SHORT = Schedule(steps=60, batch=16, learning_rate=1e-2, warmup=10, weight_decay=0.0)


def model_of(**changes: object) -> ConvolutionModel:
    torch.manual_seed(0)
    return ConvolutionModel(Learner(TASK, **{"encoding": Rope(), "width": 8, "length": 12, **changes}))  # type: ignore[arg-type]


@pytest.mark.parametrize("encoding", [Rope(), Sinusoidal(), Nope()], ids=lambda encoding: encoding.name)
@pytest.mark.parametrize("scrambled", [False, True])
def test_an_output_is_the_weighted_sum_it_says(encoding, scrambled: bool) -> None:
    model = model_of(encoding=encoding, scrambled=scrambled)
    (layer,) = model.layers
    x = torch.randn(12)
    places = model.position
    assert sorted(places.tolist()) == list(range(12)) and (places.tolist() != list(range(12))) is scrambled
    placement = model.position_module(places)
    stream = torch.stack([x[t] * layer.direction + layer.constant for t in range(12)])
    stream = stream if placement.embedding is None else stream + placement.embedding
    query, key = layer.query_key(layer.norm(stream)).split(8, dim=-1)
    if placement.query_rotation is not None:
        query, key = (rotate(part[:, None], placement.query_rotation)[:, 0] for part in (query, key))
    for t in range(12):
        weights = (key[: t + 1] @ query[t] / 8**0.5).softmax(0)
        torch.testing.assert_close(model(x[None])[0, t], layer.gain * (weights @ x[: t + 1]))


def test_no_output_depends_on_later_numbers() -> None:
    jacobian = mean_jacobian(model_of(layers=2), torch.randn(3, 12))
    assert torch.equal(jacobian.triu(1), torch.zeros(12, 12)) and float(jacobian.tril().abs().sum()) > 0


def test_a_mean_jacobian_is_that_of_finite_differences() -> None:
    model, x = model_of(layers=2).double(), torch.randn(2, 12).double()
    found, step = mean_jacobian(model, x), 1e-5
    for s in (0, 4, 9):
        moved = x.clone()
        moved[:, s] += step
        expected = ((model(moved) - model(x)) / step).mean(0)
        torch.testing.assert_close(found[:, s], expected.detach(), atol=1e-4, rtol=1e-3)


def test_entries_by_offset() -> None:
    matrix = torch.arange(16.0).view(4, 4)
    assert by_offset(matrix, torch.tensor([2, 3]), 3).tolist() == [[10, 9, 8], [15, 14, 13]]


def test_the_stationary_part_of_a_function_of_the_offset_is_everything() -> None:
    profile = torch.randn(6, dtype=torch.float64)
    found, share = stationary_part(profile + torch.randn(5, 1, dtype=torch.float64))
    torch.testing.assert_close(found, profile - profile.mean())
    assert share == pytest.approx(1)
    generator = torch.Generator().manual_seed(0)
    _, noise = stationary_part(torch.randn(400, 6, dtype=torch.float64, generator=generator))
    assert noise == pytest.approx(1 / 400, abs=0.01)
    assert stationary_part(torch.ones(3, 4, dtype=torch.float64))[1] is None


def test_looks_do_not_disturb_training_and_it_repeats() -> None:
    learner = Learner(TASK, Rope(), Norm.SCALE, width=8, length=12, schedule=SHORT)
    often, once = train_learner(learner, 1, (0, 20, 40, 60)), train_learner(learner, 1, (60,))
    assert torch.equal(often[60].weights, once[60].weights) and set(often) == {0, 20, 40, 60}
    assert not torch.equal(train_learner(learner, 2, (60,))[60].weights, once[60].weights)


def test_what_is_planted_is_recovered_and_what_is_not_is_not() -> None:
    """Keys that prefer one offset by far: the weights must show that offset, and g must peak there."""
    model = model_of(width=16, length=16)
    (layer,) = model.layers
    learner = Learner(TASK, Rope(), width=16, length=16)
    before = recovered(model, learner, 0)
    with torch.no_grad():
        layer.direction.zero_()
        layer.query_key.weight.zero_()
        frequency = 1e4 ** (-torch.arange(8) / 8)
        layer.query_key.bias.zero_()
        layer.query_key.bias[:8] = 80 * (2 * frequency).cos()
        layer.query_key.bias[8:16] = -80 * (2 * frequency).sin()
        layer.query_key.bias[16:24] = 1.0
    after = recovered(model, learner, 0)
    assert int(after.weights.argmax()) == int(after.profile.argmax()) == 2 and float(after.weights[2]) > 0.9
    assert after.stationarity == pytest.approx(1) and float(after.weights.sum()) == pytest.approx(1, abs=1e-3)
    assert float(before.weights.max()) < 0.6


def test_a_loss_that_is_not_finite_leaves_nothing_to_look_at() -> None:
    wild = Learner(TASK, Rope(), Norm.NONE, width=8, length=12, schedule=Schedule(20, 8, 1e30, 2, 0.0, 1e30))
    found = train_learner(wild, 0, (0, 20))
    assert found[0] is not None and found[20] is None


def test_the_kernel_is_learnt() -> None:
    learner = Learner(TASK, Rope(), width=16, length=24, schedule=Schedule(150, 32, 1e-2, 20, 0.0))
    found = train_learner(learner, 0, (0, 150))
    truth = torch.zeros(12, dtype=torch.float64)
    truth[:5] = torch.tensor(TASK.weights, dtype=torch.float64)
    errors = [float((look.weights - truth).norm() / truth.norm()) for look in found.values()]
    assert errors[0] > 0.6 and errors[1] < 0.2
