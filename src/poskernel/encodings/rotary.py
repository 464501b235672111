"""Rotary encodings: queries and keys turn with their position, so a head's kernel is a sum of cosines of the offset."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.encodings.encoding import (
    ModelShape,
    Placement,
    PositionModule,
    RelativeEncoding,
    Rotation,
    geometric_frequencies,
    require_count,
    require_positive,
)
from poskernel.errors import InputError


@dataclass(frozen=True)
class Rope(RelativeEncoding):
    """RoPE (arXiv 2104.09864).

    Kappa(d) = sum_k a_k cos(theta_k d) + b_k sin(theta_k d), theta_k = scale base^(-k/frequencies).
    """

    name = "rope"
    base: float = 1e4
    frequencies: int = 16
    scale: float = 1.0
    """Factor on every frequency: 1/s is linear position interpolation by s."""

    def __post_init__(self) -> None:
        require_positive(self.base, "base of RoPE")
        require_count(self.frequencies, "number of frequencies of RoPE")
        require_positive(self.scale, "frequency scale of RoPE")

    def basis(self, offset: Int[Tensor, " offset"]) -> Float[Tensor, "offset weight"]:
        """Cosines, then sines."""
        phase = offset.double()[:, None] * (self.scale * geometric_frequencies(self.base, self.frequencies))
        return torch.cat([phase.cos(), phase.sin()], dim=1)

    def module(self, shape: ModelShape) -> PositionModule:
        """Rotates the whole head, with head_width / 2 frequencies of the same base and scale."""
        if shape.head_width % 2:
            raise InputError(f"RoPE needs an even head width, got {shape.head_width}: change the width or the heads.")
        return RotaryTable(self.scale * geometric_frequencies(self.base, shape.head_width // 2))


class RotaryTable(PositionModule):
    """Rotation by position times frequency; phases are computed in float64."""

    def __init__(self, frequency: Float[Tensor, " frequency"]) -> None:
        super().__init__()
        self.frequency: Tensor
        self.register_buffer("frequency", frequency, persistent=False)

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """The same rotation for queries and keys, float32."""
        phase = position.double()[:, None] * self.frequency.double()
        rotation: Rotation = (phase.cos().float(), phase.sin().float())
        return Placement(query_rotation=rotation, key_rotation=rotation)
