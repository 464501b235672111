"""Encodings that add a bias by offset to the attention logits."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.encodings.encoding import ModelShape, Placement, PositionModule, RelativeEncoding


@dataclass(frozen=True)
class Alibi(RelativeEncoding):
    """ALiBi (arXiv 2108.12409): kappa(d) = c + s d with s <= 0."""

    name = "alibi"
    free_slope: bool = False
    """Lift s <= 0: a rising kernel then solves `first`, never `prev`. Theory only."""

    def basis(self, offset: Int[Tensor, " offset"]) -> Float[Tensor, "offset weight"]:
        """1 and d."""
        return torch.stack([torch.ones(len(offset), dtype=torch.float64), offset.double()], dim=1)

    def bounded_weights(self) -> tuple[int, ...]:
        """The slope, unless freed."""
        return () if self.free_slope else (1,)

    def module(self, shape: ModelShape) -> PositionModule:
        """The fixed slopes of the ALiBi paper, added after the 1/sqrt(head width) scale.

        `free_slope` changes theory only.
        """
        return SlopeBias(alibi_slopes(shape.heads))


class SlopeBias(PositionModule):
    """-slope x offset, one slope a head."""

    def __init__(self, slope: Float[Tensor, " head"]) -> None:
        super().__init__()
        self.slope: Tensor
        self.register_buffer("slope", slope.float(), persistent=False)

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """Bias on every pair; future keys are for the mask."""
        offset = (position[:, None] - position).float()
        return Placement(bias=-self.slope[:, None, None] * offset)


def alibi_slopes(heads: int) -> Float[Tensor, " head"]:
    """2^(-8 h / H) for a power of two H; else those of the power of two below, then every other one of the next."""
    if heads < 1:
        raise ValueError(f"{heads} heads have no slopes: give at least 1.")
    power = 1 << int(math.log2(heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    slopes += [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)][: heads - power]
    return torch.tensor(slopes, dtype=torch.float64)
