"""FIRE: a small network reads the logarithm of the offset, relative to that of the query's own position."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.encodings.encoding import (
    Encoding,
    ModelShape,
    Placement,
    PositionModule,
    require_count,
    require_positive,
)
from poskernel.encodings.nonlinear import NonlinearFamily

START_SEED = 0
"""Seed of the network that a fit starts from: PyTorch's default initialisation of two linear layers."""


@dataclass(frozen=True)
class Fire(Encoding):
    """FIRE (arXiv 2310.04418).

    kappa(i, j) = f(psi(i - j) / psi(max(threshold, i))), psi(x) = ln(scale x + 1), f a network with one hidden layer
    of ReLUs and biases. Below the threshold every query has the same normaliser and the kernel is one of the offset.
    """

    name = "fire"
    reach_horizon = 1024  # the network is evaluated at every pair
    width: int = 32
    """Hidden units of f."""
    scale: float = 0.1
    """c of the paper. The family holds it; a model starts from it and trains its own."""
    threshold: float = 512.0
    """L of the paper, in positions. The family holds it; a model starts from it and trains its own."""

    def __post_init__(self) -> None:
        require_count(self.width, "width of FIRE")
        require_positive(self.scale, "scale of FIRE")
        require_positive(self.threshold, "threshold of FIRE")

    def family(self, train_length: int, length: int) -> NonlinearFamily:
        """Weights: the hidden units' slopes, biases and output weights, then one output bias."""
        return NonlinearFamily(self.logits, network_start(self.width), self.name, int(self.threshold) + 1)

    def logits(
        self, weights: Float[Tensor, "kernel weight"], query: Int[Tensor, " pair"], key: Int[Tensor, " pair"]
    ) -> Float[Tensor, "kernel pair"]:
        """f at each pair. Pairs share few values of its argument, and each is evaluated once."""
        argument, index = relative_position(query.double(), key.double(), self.scale, self.threshold).unique(
            return_inverse=True
        )
        slope, bias, output = weights[:, : 3 * self.width].unflatten(1, (3, self.width)).unbind(1)
        hidden = (argument[:, None] * slope[:, None] + bias[:, None]).relu()
        values = (hidden @ output[:, :, None])[:, :, 0] + weights[:, -1:]
        return values.index_select(1, index)

    def module(self, shape: ModelShape) -> PositionModule:
        """One network with an output a head; scale and threshold are trained too, as in the paper."""
        return FireBias(self, shape.heads)


def relative_position(query: Tensor, key: Tensor, scale: float | Tensor, threshold: float | Tensor) -> Tensor:
    """psi(offset) / psi(max(threshold, query)); at least one position is counted, so nothing divides by zero."""
    slope, least = (torch.as_tensor(value, dtype=query.dtype).abs() for value in (scale, threshold))
    normaliser = torch.maximum(query, least).clamp(min=1)
    offset = (query - key).clamp(min=0)
    return torch.log1p(slope * offset) / torch.log1p(slope * normaliser)


def network_start(width: int) -> Float[Tensor, " weight"]:
    """The starting weights of a fit: uniform in +-1 / sqrt(inputs) for each layer, from START_SEED."""
    generator = torch.Generator().manual_seed(START_SEED)

    def uniform(count: int, inputs: int) -> Tensor:
        return (2 * torch.rand(count, generator=generator, dtype=torch.float64) - 1) / inputs**0.5

    return torch.cat([uniform(2 * width, 1), uniform(width, width), uniform(1, width)])


class FireBias(PositionModule):
    """f as a bias, one output a head."""

    def __init__(self, encoding: Fire, heads: int) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(1, encoding.width), nn.ReLU(), nn.Linear(encoding.width, heads))
        self.scale = nn.Parameter(torch.tensor(float(encoding.scale)))
        # A factor on the threshold is trained, not the threshold: one step of an optimiser should mean something.
        self.threshold_factor = nn.Parameter(torch.tensor(1.0))
        self.threshold = float(encoding.threshold)

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """Bias on every pair; future keys repeat offset 0, for the mask."""
        place = position.float()
        argument = relative_position(place[:, None], place, self.scale, self.threshold * self.threshold_factor)
        return Placement(bias=self.network(argument[..., None]).permute(2, 0, 1))
