"""Absolute encodings: positions get features, learned or sinusoidal, that are added to the token embedding."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.encodings.encoding import (
    AbsoluteEncoding,
    ModelShape,
    Placement,
    PositionModule,
    geometric_frequencies,
    require_count,
    require_positive,
)
from poskernel.encodings.family import BilinearFamily
from poskernel.errors import InputError
from poskernel.random_streams import random_stream

ROWS_PER_BLOCK = 256
"""Random rows that are drawn together."""


@dataclass(frozen=True)
class Learned(AbsoluteEncoding):
    """Learned absolute positions, the index clamped: phi(i) = one-hot(min(i, train_length - 1))."""

    name = "learned"

    def features(self, position: Int[Tensor, " position"], train_length: int) -> Float[Tensor, "position feature"]:
        """One column a trained position; every later position shares the last one's."""
        return nn.functional.one_hot(position.clamp(max=train_length - 1), train_length).double()

    def module(self, shape: ModelShape) -> PositionModule:
        """A trained table of train_length rows."""
        return LearnedTable(shape.train_length, shape.width)


class LearnedTable(PositionModule):
    """Trained rows for the positions 0 to length - 1; later positions read the last row."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(length, width)

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """Rows of the table."""
        return Placement(embedding=self.table(position.clamp(max=self.table.num_embeddings - 1)))


@dataclass(frozen=True)
class LearnedGaussian(AbsoluteEncoding):
    """Learned absolute positions, extended by fresh ones: v_i fixed below train_length, drawn anew after.

    Kernels are v_i W v_j' with v_i ~ N(0, identity): what happens beyond the training length is a matter of chance.
    Theory only. Source: proposition 2 of the realizability paper.
    """

    name = "learned-iid"
    drawn = True
    features_per_position: int = 32
    """Length of every v_i."""
    test_draws: int = 32
    """Draws of the new rows that alpha is the mean of."""
    seed: int = 0
    """Seed of the trained rows and of every draw."""

    def __post_init__(self) -> None:
        require_count(self.features_per_position, "number of features of learned-iid")
        require_count(self.test_draws, "number of test draws of learned-iid")

    def features(self, position: Int[Tensor, " position"], train_length: int) -> Float[Tensor, "position feature"]:
        """v_i, the new ones of the first draw."""
        return self.rows(position, train_length, 0)

    def rows(
        self, position: Int[Tensor, " position"], train_length: int, draw: int
    ) -> Float[Tensor, "position feature"]:
        """v_i under one draw: the same below train_length whatever the draw, and never another for more positions."""
        length = max(int(position.max()) + 1, train_length) if len(position) else train_length
        parts = [self.gaussian("trained rows", train_length), self.gaussian(f"new rows/{draw}", length - train_length)]
        return torch.cat(parts)[position]

    def gaussian(self, purpose: str, rows: int) -> Float[Tensor, "row feature"]:
        """The first rows of one stream of Gaussians."""
        # Whole blocks are drawn: the start of a longer draw need not be the shorter one.
        size = (ROWS_PER_BLOCK, self.features_per_position)
        blocks = [torch.empty(0, self.features_per_position, dtype=torch.float64)]
        for block in range(-(-rows // ROWS_PER_BLOCK)):
            stream = random_stream(self.seed, f"{purpose}/{block}")
            blocks.append(torch.randn(size, dtype=torch.float64, generator=stream))
        return torch.cat(blocks)[:rows]

    def drawn_family(self, train_length: int, length: int, draw: int) -> BilinearFamily:
        """V W V' with the new rows of one draw."""
        return BilinearFamily(lambda position: self.rows(position, train_length, draw), self.name)


@dataclass(frozen=True)
class Sinusoidal(AbsoluteEncoding):
    """Sinusoidal positions (Vaswani et al. 2017).

    Phi(i) = [sin(theta_k i), cos(theta_k i)], theta_k = base^(-k/frequencies).
    """

    name = "sinusoidal"
    base: float = 1e4
    frequencies: int = 16

    def __post_init__(self) -> None:
        require_positive(self.base, "base of the sinusoidal encoding")
        require_count(self.frequencies, "number of frequencies of the sinusoidal encoding")

    def features(self, position: Int[Tensor, " position"], train_length: int) -> Float[Tensor, "position feature"]:
        """Sines, then cosines."""
        return sinusoids(position, geometric_frequencies(self.base, self.frequencies))

    def module(self, shape: ModelShape) -> PositionModule:
        """The fixed table of the model's own width (width / 2 frequencies), added to the embedding."""
        if shape.width % 2:
            raise InputError(f"a sinusoidal encoding needs an even model width, got {shape.width}: give an even one.")
        return SinusoidalTable(geometric_frequencies(self.base, shape.width // 2))


class SinusoidalTable(PositionModule):
    """Fixed sinusoids; phases are computed in float64."""

    def __init__(self, frequency: Float[Tensor, " frequency"]) -> None:
        super().__init__()
        self.frequency: Tensor
        self.register_buffer("frequency", frequency, persistent=False)

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """Sinusoids of these positions, float32."""
        return Placement(embedding=sinusoids(position, self.frequency).float())


def sinusoids(
    position: Int[Tensor, " position"], frequency: Float[Tensor, " frequency"]
) -> Float[Tensor, "position feature"]:
    """[sin(theta_k i), cos(theta_k i)] in float64."""
    phase = position.double()[:, None] * frequency.double()
    return torch.cat([phase.sin(), phase.cos()], dim=1)
