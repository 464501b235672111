"""E6's exact part: what the causal boundary does to three kinds of kernels, without a model.

Row t of a shared kernel g holds weights exp(g(d)) / Z_t at offsets 0 to t, and is TV(t, T) = 1 - Z_t / Z_T away from a
later row T. How fast that falls with t tells the kinds apart.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.estimators.distance import kernel_boundary, total_variation
from poskernel.encodings.encoding import geometric_frequencies
from poskernel.experiments.experiment import ConditionCell, ExperimentUnit, Quantity
from poskernel.random_streams import random_stream
from poskernel.study.grid import Cell
from poskernel.study.units import Measurement

CASES = ("linear", "logarithmic", "bounded")
PLANES, BASE = 8, 100.0
"""Of a bounded kernel: its longest wavelength is 2 pi BASE^(1 - 1 / PLANES), about 350 positions."""
CASE_MEASURES = (
    Quantity("identity_error", "largest |TV - (1 - Z_t / Z_T)| over rows, both computed from the weights", "offsets"),
    Quantity(
        "rate",
        "linear: -slope of log TV(t, 2t + 1) against t over m; logarithmic: its slope against log t over "
        "1 - c: 1 where the law holds",
        "offsets",
    ),
    Quantity("limit", "bounded: TV(t, 2t + 1) of the last row over 1/2", "offsets"),
)


@dataclass(frozen=True)
class CaseCell(ConditionCell):
    """One kind of kernel, drawn at random by the seed: slope m, exponent c, or amplitudes."""

    kind = "boundary-case"
    case: str
    offsets: int = 1 << 16

    @property
    def label(self) -> str:
        """The kind."""
        return self.case

    @property
    def task_name(self) -> str:
        """None: kernels alone."""
        return "kernel"

    @property
    def train_length(self) -> int:
        """Offsets of the kernel."""
        return self.offsets

    @property
    def columns(self) -> Mapping[str, Any]:
        """The kind."""
        return {"case": self.case, "encoding": "kernel"}

    @property
    def description(self) -> str:
        """The kind."""
        return f"{self.case} kernel alone"


def drawn_kernel(case: str, offsets: int, seed: int) -> tuple[Float[Tensor, " offset"], float]:
    """g at offsets 0, 1, ... in nats, and its law's number: m in 1/32 to 1/4, c in 1.5 to 3 (nan: bounded)."""
    stream = random_stream(seed, f"boundary/{case}")
    distance, chance = torch.arange(offsets, dtype=torch.float64), float(torch.rand(1, generator=stream))
    if case == "linear":
        slope = 2.0 ** (-5 + 3 * chance)
        return -slope * distance, slope
    if case == "logarithmic":
        exponent = 1.5 + 1.5 * chance
        return -exponent * torch.log1p(distance), exponent
    phase = distance[:, None] * geometric_frequencies(BASE, PLANES)
    weights = torch.randn(2 * PLANES, dtype=torch.float64, generator=stream) / PLANES**0.5
    return torch.cat([phase.cos(), phase.sin()], 1) @ weights, math.nan


def slope_of(x: Float[Tensor, " row"], y: Float[Tensor, " row"]) -> float:
    """Least-squares slope."""
    centred = x - x.mean()
    return float((centred * y).sum() / centred.square().sum())


def identity_error(g: Float[Tensor, " offset"], rows: Sequence[int]) -> float:
    """Largest difference of the two sides of TV(t, 2t + 1) = 1 - Z_t / Z_(2t + 1)."""
    boundary = kernel_boundary(g)
    direct = [total_variation(g[: t + 1].softmax(0), g[: 2 * t + 2].softmax(0)) for t in rows]
    return max(abs(found - float(boundary.variation[t])) for found, t in zip(direct, rows, strict=True))


def rate(case: str, g: Float[Tensor, " offset"], law: float) -> float:
    """Measured speed of log TV over that of the law. Rows: to a tail of e^-12, or the last decade."""
    variation = kernel_boundary(g).variation
    if case == "linear":
        row = torch.arange(math.ceil(4 / law), math.ceil(12 / law))  # before, TV itself is bent by its own size
        return -slope_of(row.double(), variation[row].log()) / law
    row = torch.arange(len(variation) // 10, len(variation))
    return slope_of((row + 1.0).log().double(), variation[row].log()) / (1 - law)


@dataclass(frozen=True)
class CaseUnit(ExperimentUnit):
    """One kernel."""

    cell: CaseCell

    @property
    def cost(self) -> float:
        """Next to nothing."""
        return 0.01

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """The identity, and the law of the kind."""
        law = "limit" if self.cell.case == "bounded" else "rate"
        return [(self.cell, metric, self.cell.offsets) for metric in ("identity_error", law)]

    def measure(self, weights: Path | None) -> list[Measurement]:
        """From the weights themselves."""
        case, offsets = self.cell.case, self.cell.offsets
        g, law = drawn_kernel(case, offsets, self.seed)
        rows = [2**power - 1 for power in range(3, int(math.log2(offsets)))]
        last = 2 * float(kernel_boundary(g).variation[-1])
        found = last if case == "bounded" else rate(case, g, law)
        values = dict(zip(self.measures, (identity_error(g, rows), found), strict=True))
        return self.done(values)
