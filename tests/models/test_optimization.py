"""The optimiser against torch's own, its schedule, and that it can be taken up anywhere."""

import itertools
import math

import pytest
import torch
from torch import nn

from poskernel.errors import InputError
from poskernel.models.optimization import Optimization, Schedule

SCHEDULE = Schedule(steps=20, batch=4, learning_rate=0.1, warmup=5, weight_decay=0.02, clip=0.5)


def problem() -> tuple[nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(16, 3)


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (model(x) - 3 * x.sum(1, keepdim=True)).square().mean()


def test_it_is_adamw_with_clipping_and_the_schedule() -> None:
    model, x = problem()
    other = problem()[0]
    found = Optimization(list(model.parameters()), SCHEDULE)
    plain = torch.optim.AdamW(other.parameters(), lr=1.0, weight_decay=0.02)
    for step in range(SCHEDULE.steps):
        found.step(loss_of(model, x))
        plain.zero_grad()
        loss_of(other, x).backward()
        nn.utils.clip_grad_norm_(other.parameters(), 0.5)
        plain.param_groups[0]["lr"] = SCHEDULE.rate(step)
        plain.step()
    found.finish()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_the_rate_rises_in_a_line_and_falls_as_a_cosine_to_nothing() -> None:
    rates = [SCHEDULE.rate(step) for step in range(21)]
    assert rates[:5] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1])
    assert rates[5] == 0.1 and rates[20] == pytest.approx(0)
    assert rates[11] == pytest.approx(0.05 * (1 + math.cos(math.pi * 6 / 15)))
    assert all(a >= b for a, b in itertools.pairwise(rates[5:]))


@pytest.mark.parametrize("broken_off", [1, 7, 19])
def test_a_training_that_is_taken_up_ends_bit_for_bit_the_same(broken_off: int) -> None:
    whole, x = problem()
    through = Optimization(list(whole.parameters()), SCHEDULE)
    losses = [through.step(loss_of(whole, x)) for _ in range(SCHEDULE.steps)]
    first, _ = problem()
    begun = Optimization(list(first.parameters()), SCHEDULE)
    found = [begun.step(loss_of(first, x)) for _ in range(broken_off)]
    state = begun.state()
    begun.step(loss_of(first, x))  # what comes after does not reach a state that was taken
    torch.manual_seed(9)
    second = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    taken_up = Optimization(list(second.parameters()), SCHEDULE)
    taken_up.restore(state)
    found += [taken_up.step(loss_of(second, x)) for _ in range(SCHEDULE.steps - broken_off)]
    assert found == losses
    assert torch.equal(taken_up.flat, through.flat)


def test_a_state_without_moments_is_noticed_to_differ() -> None:
    model, x = problem()
    begun = Optimization(list(model.parameters()), SCHEDULE)
    for _ in range(8):
        begun.step(loss_of(model, x))
    state = begun.state()
    expected = begun.step(loss_of(model, x)), begun.flat.detach().clone()
    again = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    wrong = Optimization(list(again.parameters()), SCHEDULE)
    wrong.restore({**state, "exp_avg": torch.zeros_like(state["exp_avg"])})
    wrong.step(loss_of(again, x))
    assert not torch.equal(wrong.flat, expected[1])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 0}, "steps of the schedule is 0"),
        ({"batch": True}, "batch of the schedule is True"),
        ({"learning_rate": 0.0}, "learning_rate of the schedule is 0.0"),
        ({"learning_rate": math.nan}, "learning_rate of the schedule is nan"),
        ({"weight_decay": -1.0}, "weight_decay of the schedule is -1.0"),
        ({"clip": 0.0}, "clip of the schedule is 0.0"),
        ({"steps": 10, "warmup": 10}, "a warm-up of 10 steps"),
    ],
)  # fmt: skip
def test_a_schedule_that_cannot_be(changes: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Schedule(**changes)  # type: ignore[arg-type]
