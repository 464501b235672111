"""One learner of a known convolution as a unit: trained, looked at on the way, compared with the kernel."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.experiments.convolution_model import Learner, Recovered, train_learner
from poskernel.experiments.experiment import ConditionCell, ExperimentUnit, Quantity
from poskernel.models.generated import Convolution
from poskernel.study.grid import Cell, short_specification
from poskernel.study.units import Measurement

OFFSETS = 32
"""Offsets that are looked at: all those that every late row of a length of 64 sees."""
SUPPORT = 12
"""Offsets that a kernel has weights for."""
LOOKS = (0, 25, 50, 100, 200, 400, 800)
TAIL = 0.01
"""g is compared with log w where w is above this share of its largest: elsewhere nothing pins g down."""


def normalized(shape: Callable[[int], float]) -> Convolution:
    """The convolution whose weights follow a shape over the offsets 0 to SUPPORT - 1."""
    weights = [shape(offset) for offset in range(SUPPORT)]
    return Convolution(tuple(weight / math.fsum(weights) for weight in weights))


KERNELS = {
    "gaussian": normalized(lambda d: math.exp(-((d - 5) ** 2) / (2 * 1.5**2))),
    "triangular": normalized(lambda d: max(0.0, 4 - abs(d - 5))),
    "box": normalized(lambda d: float(2 <= d < 8)),
    "two-peaked": normalized(lambda d: math.exp(-((d - 2) ** 2) / 2) + math.exp(-((d - 9) ** 2) / 2)),
}


@dataclass(frozen=True)
class RecoveryCell(ConditionCell):
    """One learner."""

    kind = "recovery"
    learner: Learner

    @property
    def label(self) -> str:
        """Its encoding."""
        return short_specification(self.learner.encoding)

    @property
    def task_name(self) -> str:
        """Its kernel."""
        return next(name for name, task in KERNELS.items() if task == self.learner.task)

    @property
    def train_length(self) -> int:
        """Positions of a sequence."""
        return self.learner.length

    @property
    def columns(self) -> Mapping[str, Any]:
        """Kernel, encoding, norm, whether positions are scrambled, layers."""
        learner = self.learner
        return {
            "kernel": self.task_name,
            "encoding": self.label,
            "norm": str(learner.norm),
            "positions": "scrambled" if learner.scrambled else "ordered",
            "layers": learner.layers,
        }

    @property
    def description(self) -> str:
        """Encoding, kernel, norm, and what is out of the ordinary."""
        learner = self.learner
        unusual = ["scrambled positions"] * learner.scrambled + [f"{learner.layers} layers"] * (learner.layers > 1)
        return ", ".join([f"{self.label} on the {self.task_name} kernel", f"norm {learner.norm}", *unusual])


CURVES = ("weight_correlation", "weight_error", "spectrum_error", "kernel_correlation", "stationarity", "output_error")
MEASURES = (
    Quantity("weight_correlation", "correlation over offsets of the mean weights with w", "training step"),
    Quantity("weight_error", "Euclidean distance of the mean weights from w, over the length of w", "training step"),
    Quantity("spectrum_error", "the same distance of the sizes of their Fourier coefficients", "training step"),
    Quantity(
        "kernel_correlation", f"correlation of g with log w where w is above {TAIL:g} of its peak", "training step"
    ),
    Quantity("stationarity", "share of the variance of row-centred mean logits that g explains (R2)", "training step"),
    Quantity("output_error", "mean squared error as a share of the variance of y", "training step"),
    Quantity("weight", "mean weight at an offset, after training", "offset"),
    Quantity("g", "row-centred mean logit at an offset, nats, after training", "offset"),
)


@dataclass(frozen=True)
class RecoveryUnit(ExperimentUnit):
    """Train one learner and compare what its attention does with the kernel."""

    cell: RecoveryCell
    looks: tuple[int, ...] = LOOKS

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Every curve at every look, then both profiles at every offset."""
        curves = [(self.cell, metric, step) for metric in CURVES for step in self.looks]
        return [*curves, *((self.cell, metric, offset) for metric in ("weight", "g") for offset in range(OFFSETS))]

    @property
    def cost(self) -> float:
        """In trainings of a tier-1 model of the studies."""
        return 0.4 * self.cell.learner.layers * self.cell.learner.schedule.steps / 800

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Train and compare; from where a loss was not finite there is nothing to compare, and all of it failed."""
        learner, last = self.cell.learner, max(self.looks)
        found = train_learner(learner, self.seed, self.looks)
        if any(look is None for look in found.values()):
            return self.failures("training broke off: the loss was not finite", transient=False)
        values: dict[tuple[Cell, str, int], float | str] = {}
        for step, look in found.items():
            assert look is not None
            for metric, value in comparison(look, learner.task).items():
                values[self.cell, metric, step] = value
        final = found[last]
        assert final is not None
        for offset in range(OFFSETS):
            values[self.cell, "weight", offset] = float(final.weights[offset])
            values[self.cell, "g", offset] = "two layers" if final.profile is None else float(final.profile[offset])
        return self.done(values)


def comparison(look: Recovered, task: Convolution) -> dict[str, float | str]:
    """The curves' values at one look; a text where one is undefined."""
    truth = torch.zeros(OFFSETS, dtype=torch.float64)
    truth[: task.support] = torch.tensor(task.weights, dtype=torch.float64)
    mine, theirs = (torch.fft.rfft(values).abs() for values in (look.weights, truth))
    return {
        "weight_correlation": correlation(look.weights, truth),
        "weight_error": float((look.weights - truth).norm() / truth.norm()),
        "spectrum_error": float((mine - theirs).norm() / theirs.norm()),
        "kernel_correlation": kernel_correlation(look.profile, truth),
        "stationarity": "no logits of one layer alone" if look.stationarity is None else look.stationarity,
        "output_error": look.error,
    }


def kernel_correlation(profile: Float[Tensor, " offset"] | None, truth: Float[Tensor, " offset"]) -> float | str:
    """Correlation of g with log w where w is not in its tail."""
    if profile is None:
        return "two layers have no one g"
    inside = truth > TAIL * truth.max()
    logs = truth[inside].log()
    if float(logs.max() - logs.min()) < 1e-9:
        return "log w is constant where w is not 0"
    return correlation(profile[inside], logs)


def correlation(first: Float[Tensor, " offset"], second: Float[Tensor, " offset"]) -> float | str:
    """Pearson's correlation; a text where one side is constant."""
    if min(float(side.std()) for side in (first, second)) < 1e-12:
        return "all values are equal"
    return float(torch.corrcoef(torch.stack([first, second]))[0, 1])
