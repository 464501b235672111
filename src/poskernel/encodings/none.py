"""No positional encoding: the only kernel is the constant one."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.encodings.encoding import ModelShape, PositionModule, RelativeEncoding


@dataclass(frozen=True)
class Nope(RelativeEncoding):
    """NoPE: kappa(d) = c. Only the causal mask tells positions apart (arXiv 2305.19466)."""

    name = "nope"

    def basis(self, offset: Int[Tensor, " offset"]) -> Float[Tensor, "offset weight"]:
        """The constant 1."""
        return torch.ones(len(offset), 1, dtype=torch.float64)

    def module(self, shape: ModelShape) -> PositionModule:
        """Adds nothing."""
        return PositionModule()
