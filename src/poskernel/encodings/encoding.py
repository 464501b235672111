"""What a positional encoding is to the rest of the package: a kernel family before training, a module inside a model.

To add one, subclass `RelativeEncoding` (give `basis`) or `AbsoluteEncoding` (give `features`) as a frozen dataclass
and put an instance into ENCODINGS. To train it as well, give `module`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.encodings.family import BilinearFamily, KernelFamily, RelativeFamily
from poskernel.errors import InputError
from poskernel.specification import describe

Rotation = tuple[Float[Tensor, "position plane"], Float[Tensor, "position plane"]]
"""Cosines and sines that turn the planes (k, k + width / 2) of a vector, half-split as in Llama."""


@dataclass(frozen=True, eq=False)
class Placement:
    """Where position enters one forward pass: parts an encoding does not use are None."""

    embedding: Float[Tensor, "position width"] | None = None
    """Added to the token embeddings."""
    query_rotation: Rotation | None = None
    key_rotation: Rotation | None = None
    """Applied to queries and keys before their product."""
    bias: Float[Tensor, "head query key"] | None = None
    """Added to the scaled logits, in nats."""
    key_vectors: Float[Tensor, "query key head_width"] | None = None
    """Added to each key as one query sees it, in every head: the query's product with them joins the logits."""


class PositionModule(nn.Module):
    """The encoding inside a transformer: positions to a placement. This one does nothing (NoPE)."""

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """Placement of a sequence at these positions."""
        return Placement()

    @contextmanager
    def drawing_from(self, generator: torch.Generator) -> Iterator[None]:
        """While open, whatever is drawn in forward passes comes from this generator; nothing is drawn here."""
        yield


@dataclass(frozen=True)
class ModelShape:
    """What an encoding must know of the model around it."""

    width: int
    heads: int
    train_length: int

    @property
    def head_width(self) -> int:
        """Width of one head's queries and keys."""
        return self.width // self.heads


class Encoding(ABC):
    """A positional encoding: a frozen dataclass whose fields are its parameters."""

    name: ClassVar[str]
    depends_on_length: ClassVar[bool] = False
    """Whether the family itself changes with the evaluated length (dynamic NTK, LongRoPE)."""
    relative: ClassVar[bool] = False
    """Whether every kernel is a function of the offset alone."""
    no_kernel: ClassVar[str] = ""
    """Why no kernel is defined before training; empty where one is."""
    drawn: ClassVar[bool] = False
    """Whether something is drawn at random at every length: alpha is then the mean over `test_draws` draws."""
    test_draws: int = 1
    reach_horizon: ClassVar[int] = 4096
    """How far `reach` is searched by default."""
    longest: int = 1 << 18
    """Longest length it is evaluated to: a day's pass over every pair, unless a subclass knows better."""

    @abstractmethod
    def family(self, train_length: int, length: int) -> KernelFamily:
        """The kernels one positional head can realize when trained at train_length and evaluated at length.

        Raises InputError where no kernel is defined before training.
        """

    def drawn_family(self, train_length: int, length: int, draw: int) -> KernelFamily:
        """The family under one test draw, 0 to test_draws - 1: the family itself where nothing is drawn."""
        return self.family(train_length, length)

    @property
    def weight_meaning(self) -> str:
        """What the weights stand for: they can be evaluated under another encoding that means the same by them."""
        return self.name

    @property
    def trains(self) -> bool:
        """Whether it has a model side."""
        return type(self).module is not Encoding.module

    def module(self, shape: ModelShape) -> PositionModule:
        """The encoding's part of a transformer; InputError where only the theory is defined."""
        raise InputError(f"encoding '{self.name}' has no model side: give it a `module` to train with it.")

    @property
    def effective(self) -> str:
        """Name and every parameter as applied."""
        return describe(self, self.name)


class RelativeEncoding(Encoding):
    """An encoding whose kernels depend on the offset alone, linear in their weights."""

    relative = True
    reach_horizon = 1_000_000
    longest = 10_000_000  # vectors of one entry a position

    @abstractmethod
    def basis(self, offset: Int[Tensor, " offset"]) -> Float[Tensor, "offset weight"]:
        """Basis functions of the kernel family at these offsets, one column a weight."""

    def bounded_weights(self) -> tuple[int, ...]:
        """Indices of the weights that stay at or below 0."""
        return ()

    def family(self, train_length: int, length: int) -> KernelFamily:
        """The span of the basis."""
        return RelativeFamily(self.basis, self.name, self.bounded_weights())


class AbsoluteEncoding(Encoding):
    """An encoding that gives each position features: kernels are bilinear in them."""

    @abstractmethod
    def features(self, position: Int[Tensor, " position"], train_length: int) -> Float[Tensor, "position feature"]:
        """Features of these positions for a head trained at train_length, one column a feature."""

    def family(self, train_length: int, length: int) -> KernelFamily:
        """phi W phi'."""
        return BilinearFamily(lambda position: self.features(position, train_length), self.name)


MOST_FEATURES = 4096
"""More frequencies than any head has planes; the weights of an absolute family grow with their square."""


def require_positive(value: float, what: str) -> None:
    """InputError unless a parameter is a finite positive number."""
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{what} is {value}: give a positive number.")


def require_count(value: int, what: str) -> None:
    """InputError unless a parameter is a whole number of 1 to MOST_FEATURES."""
    if isinstance(value, bool) or value != int(value) or not 1 <= value <= MOST_FEATURES:
        raise InputError(f"{what} is {value}: give a whole number of 1 to {MOST_FEATURES}.")


def geometric_frequencies(base: float, count: int) -> Float[Tensor, " frequency"]:
    """base^(-k / count), k = 0 ... count - 1, in radians a position (count = rotary width / 2)."""
    return float(base) ** (-torch.arange(count, dtype=torch.float64) / count)
