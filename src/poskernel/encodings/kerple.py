"""KERPLE: biases that fall with the offset like a conditionally positive definite kernel (arXiv 2205.09921)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.encodings.encoding import (
    Encoding,
    ModelShape,
    Placement,
    PositionModule,
    RelativeEncoding,
    require_positive,
)
from poskernel.encodings.family import DTYPE, KernelFamily
from poskernel.encodings.nonlinear import NonlinearFamily


@dataclass(frozen=True)
class KerpleLog(RelativeEncoding):
    """KERPLE, logarithmic: kappa(d) = -r1 ln(1 + r2 d), r1 and r2 positive. Its argmax is the query itself."""

    name = "kerple-log"
    rate: float = 1.0
    """r2, held fixed: then the family is linear in -r1, which stays at or below 0."""
    free_rate: bool = False
    """Fit r2 as well, through softplus: a family that is not linear. A model trains it in any case."""

    def __post_init__(self) -> None:
        require_positive(self.rate, "rate of kerple-log")

    def basis(self, offset: Int[Tensor, " offset"]) -> Float[Tensor, "offset weight"]:
        """ln(1 + r2 d)."""
        return torch.log1p(self.rate * offset.double())[:, None]

    def bounded_weights(self) -> tuple[int, ...]:
        """-r1."""
        return (0,)

    def family(self, train_length: int, length: int) -> KernelFamily:
        """The span of the logarithm; with a free rate, r1 and r2 through softplus."""
        if not self.free_rate:
            return super().family(train_length, length)
        return NonlinearFamily(self.logits, torch.tensor([0.0, softplus_inverse(self.rate)], dtype=DTYPE), self.name)

    @property
    def weight_meaning(self) -> str:
        """The rate is a weight, or none."""
        return "kerple-log with a free rate" if self.free_rate else self.name

    def logits(
        self, weights: Float[Tensor, "kernel 2"], query: Int[Tensor, " pair"], key: Int[Tensor, " pair"]
    ) -> Float[Tensor, "kernel pair"]:
        """-r1 ln(1 + r2 d) with r = softplus(weight)."""
        return logarithmic(nn.functional.softplus(weights), (query - key).to(weights.dtype))

    def module(self, shape: ModelShape) -> PositionModule:
        """r1 and r2 of every head, trained through softplus; r1 starts anywhere from 0 to 1, r2 about the rate."""
        return KerpleBias(shape.heads, self.rate)


@dataclass(frozen=True)
class KerplePower(Encoding):
    """KERPLE, power: kappa(d) = -r1 d^r2, r1 > 0, 0 < r2 < 2. Its argmax is the query itself."""

    name = "kerple-power"
    relative = True
    reach_horizon = 1_000_000
    longest = 10_000_000

    def family(self, train_length: int, length: int) -> KernelFamily:
        """Two weights, r1 = softplus and r2 = 2 sigmoid of them; a fit starts at r1 = ln 2, r2 = 1."""
        return NonlinearFamily(self.logits, torch.zeros(2, dtype=DTYPE), self.name)

    def logits(
        self, weights: Float[Tensor, "kernel 2"], query: Int[Tensor, " pair"], key: Int[Tensor, " pair"]
    ) -> Float[Tensor, "kernel pair"]:
        """-r1 d^r2."""
        return power(power_parameters(weights), (query - key).to(weights.dtype))

    def module(self, shape: ModelShape) -> PositionModule:
        """r1 and r2 of every head, trained through softplus and twice a sigmoid; r1 starts from 0 to 1, r2 about 1."""
        return KerpleBias(shape.heads, None)


def logarithmic(parameters: Float[Tensor, "kernel 2"], offset: Float[Tensor, "*pair"]) -> Float[Tensor, "kernel *pair"]:
    """-r1 ln(1 + r2 d) of every (r1, r2)."""
    first, second = (part.reshape(-1, *[1] * offset.ndim) for part in parameters.unbind(1))
    return -first * torch.log1p(second * offset)


def power(parameters: Float[Tensor, "kernel 2"], offset: Float[Tensor, "*pair"]) -> Float[Tensor, "kernel *pair"]:
    """-r1 d^r2 of every (r1, r2); offset 0 is set apart, where the logarithm in the gradient has no value."""
    first, second = (part.reshape(-1, *[1] * offset.ndim) for part in parameters.unbind(1))
    return -first * (second * offset.clamp(min=1).log()).exp() * (offset > 0)


def power_parameters(weights: Float[Tensor, "kernel 2"]) -> Float[Tensor, "kernel 2"]:
    """r1 = softplus, r2 = 2 sigmoid, which is 2 - 2 exp(-softplus): between 0 and 2."""
    return torch.stack([nn.functional.softplus(weights[:, 0]), 2 * weights[:, 1].sigmoid()], dim=1)


def softplus_inverse(value: float) -> float:
    """The x with ln(1 + e^x) = value."""
    return value + math.log(-math.expm1(-value))


class KerpleBias(PositionModule):
    """The bias of every head, from two trained numbers each; power where no rate is given, else logarithmic."""

    def __init__(self, heads: int, rate: float | None) -> None:
        super().__init__()
        self.is_power = rate is None
        second = 0.0 if rate is None else softplus_inverse(rate)
        first = torch.rand(heads).clamp(min=1e-3).expm1().log()  # softplus of it is uniform
        self.weights = nn.Parameter(torch.stack([first, second + 0.5 * torch.randn(heads)], dim=1))

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """Bias on every pair; future keys repeat offset 0, for the mask."""
        offset = (position[:, None] - position).clamp(min=0).float()
        if self.is_power:
            return Placement(bias=power(power_parameters(self.weights), offset))
        return Placement(bias=logarithmic(nn.functional.softplus(self.weights), offset))
