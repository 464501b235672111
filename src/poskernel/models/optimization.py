"""AdamW with warm-up, cosine and clipping, one vector for all weights; its whole state can be kept and taken up again.

A training that is taken up at a step goes on bit for bit as one that was never broken off (same machine type, one
thread): the state is the weights, both moments and the number of steps, and nothing else.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from poskernel.errors import InputError
from poskernel.models.training import flattened

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Schedule:
    """How weights are trained: AdamW, a linear warm-up, then half a cosine to zero."""

    steps: int = 1000
    batch: int = 16
    learning_rate: float = 1e-3
    """At the end of the warm-up."""
    warmup: int = 100
    weight_decay: float = 0.01
    """Decoupled, on all weights; 0 makes it Adam."""
    clip: float = 1.0
    """Largest norm of the gradient of all weights together."""

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch", 1), ("warmup", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or value != int(value) or value < least:
                raise InputError(f"{name} of the schedule is {value}: give a whole number of at least {least}.")
        for name, positive in (("learning_rate", True), ("weight_decay", False), ("clip", True)):
            value = getattr(self, name)
            if not (math.isfinite(value) and (value > 0 or (value == 0 and not positive))):
                wanted = "a positive number" if positive else "0 or a positive number"
                raise InputError(f"{name} of the schedule is {value}: give {wanted}.")
        if self.warmup >= self.steps:
            raise InputError(f"a warm-up of {self.warmup} steps does not fit into {self.steps}: give fewer.")

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        gone = (step - self.warmup) / (self.steps - self.warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * gone))


class Optimization:
    """Weights being trained by a schedule. They are views of one vector until `finish`."""

    def __init__(self, weights: Sequence[nn.Parameter], schedule: Schedule) -> None:
        self.weights, self.schedule, self.steps = list(weights), schedule, 0
        self.flat = flattened(self.weights)
        self.optimizer = torch.optim.AdamW(
            [self.flat], lr=schedule.learning_rate, weight_decay=schedule.weight_decay, fused=True
        )

    def step(self, loss: Tensor) -> float:
        """One step down the gradient of a loss; its value, which the caller has to look at (nan)."""
        gradients = torch.autograd.grad(loss, self.weights)
        gradient = torch.cat([part.flatten() for part in gradients])
        self.flat.grad = gradient * (self.schedule.clip / gradient.norm().clamp(min=self.schedule.clip))
        self.optimizer.param_groups[0]["lr"] = self.schedule.rate(self.steps)
        self.optimizer.step()
        self.steps += 1
        return loss.item()

    def finish(self) -> None:
        """Give each weight storage of its own again."""
        for weight in self.weights:
            weight.data = weight.data.clone()

    def state(self) -> dict[str, Tensor]:
        """Copies of everything that later steps depend on."""
        held = self.optimizer.state[self.flat]
        moments = {name: held[name].clone() if held else torch.zeros_like(self.flat.data) for name in MOMENTS}
        return {"weights": self.flat.data.clone(), "steps": torch.tensor(self.steps), **moments}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take up a state that `state` gave."""
        self.steps = int(state["steps"])
        self.flat.data.copy_(state["weights"])
        moments = {name: state[name].clone() for name in MOMENTS}
        self.optimizer.state[self.flat] = {"step": torch.tensor(float(self.steps)), **moments}
