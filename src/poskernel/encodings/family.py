"""Kernel families: the positional kernels that an encoding lets one head realize, indexed by weights.

Most families are linear maps from weights to logits. `grid_logits` and `pull_back` (gradients by the logits to
gradients by the weights) are all that a gradient-based selection rule needs of any family; the `design` of a linear one
writes its map as a matrix, for linear and quadratic programmes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.errors import InputError
from poskernel.kernel import BilinearKernel, PositionalKernel, StationaryKernel

DTYPE = torch.float64
SHORT = 100
"""No horizon ends before it: features that are no numbers here have a wrong formula."""


def checked(
    values: Tensor, asked: Int[Tensor, " position"], what: str, unit: str, width: int | None = None
) -> Float[Tensor, "position weight"]:
    """An encoding's output at the positions or offsets asked for, in float64.

    `unit` says which of the two they are. InputError where it is complex, wrongly shaped, not finite, of another width.
    """
    rows = len(asked)
    if values.is_complex():
        raise InputError(f"{what} is complex ({values.dtype}): give its real and imaginary parts as two columns.")
    if values.ndim != 2 or values.shape[0] != rows or values.shape[1] < 1:
        raise InputError(f"{what} has shape {tuple(values.shape)} for {rows} positions: give ({rows}, features).")
    if width is not None and values.shape[1] != width:
        raise InputError(
            f"{what} has {values.shape[1]} columns for {rows} positions but {width} for position 0 alone: give every "
            "position the same columns."
        )
    values = values.to(DTYPE)
    if not bool(values.isfinite().all()):
        row, column = (int(index) for index in (~values.isfinite()).nonzero()[0])
        where = int(asked[row])
        raise InputError(
            f"{what} is {values[row, column]} at {unit} {where}, column {column}: mend the encoding's formula"
            f"{stop_short(where)}."
        )
    return values


def stop_short(where: int) -> str:
    """The other remedy for features that are no numbers far out: a round horizon that ends before them."""
    if where <= SHORT:
        return ""
    unit = 10 ** (len(str(where - 1)) - 2)
    below = (where - 1) // unit * unit
    return f", or stay below that with a shorter horizon (horizon={below})"


class KernelFamily(ABC):
    """All kernels of one encoding at one pair of training and evaluation lengths, indexed by their weights."""

    shape: tuple[int, ...]
    """Shape of one kernel's weights."""
    draws: int = 1
    """Random draws of the positions that every grid is evaluated on: then logits have one more axis."""

    @abstractmethod
    def kernel(self, weights: Float[Tensor, "..."]) -> PositionalKernel:
        """The kernel with these weights, of shape `shape`; InputError where several draws give several kernels."""

    def kernels(self, weights: Float[Tensor, "..."]) -> list[PositionalKernel]:
        """The kernel of each draw."""
        return [self.kernel(weights)]

    @abstractmethod
    def grid_logits(self, weights: Float[Tensor, "kernel ..."], length: int) -> Float[Tensor, "kernel *draw query key"]:
        """Logits of many kernels on the grid of a length, in nats, unmasked."""

    @abstractmethod
    def pull_back(
        self, weights: Float[Tensor, "kernel ..."], gradient: Float[Tensor, "kernel *draw query key"]
    ) -> Float[Tensor, "kernel ..."]:
        """Gradient by the grid's logits to gradient by the weights, at these weights; future keys must hold 0."""

    def start(self) -> Float[Tensor, "..."]:
        """Weights a gradient-based rule starts from, of shape `shape`."""
        return torch.zeros(self.shape, dtype=DTYPE)

    def upper_bounds(self) -> Float[Tensor, " weight"]:
        """Largest admissible value of each flattened weight: inf where the encoding leaves it free."""
        return torch.full((self.size,), float("inf"), dtype=DTYPE)

    @property
    def size(self) -> int:
        """Number of weights."""
        return int(torch.tensor(self.shape).prod())


class LinearFamily(KernelFamily):
    """A family whose logits are linear in the weights: programmes and closed forms apply."""

    @abstractmethod
    def grid_gradient(self, gradient: Float[Tensor, "kernel query key"]) -> Float[Tensor, "kernel ..."]:
        """Adjoint of `grid_logits`: gradient by the logits to gradient by the weights; future keys must hold 0."""

    @abstractmethod
    def design(self, query: Int[Tensor, " pair"], key: Int[Tensor, " pair"]) -> Float[Tensor, "pair weight"]:
        """The rows of the linear map from flattened weights to the logits of these pairs."""

    def pull_back(
        self, weights: Float[Tensor, "kernel ..."], gradient: Float[Tensor, "kernel query key"]
    ) -> Float[Tensor, "kernel ..."]:
        """The adjoint, the same at all weights."""
        return self.grid_gradient(gradient)


@dataclass(frozen=True, eq=False)
class RelativeFamily(LinearFamily):
    """Kernels of the offset: kappa(d) = sum_k w_k basis_k(d)."""

    basis: Callable[[Int[Tensor, " offset"]], Tensor]
    name: str
    nonpositive: tuple[int, ...] = ()
    """Indices of weights that the encoding keeps at or below 0."""
    shape: tuple[int, ...] = field(init=False)
    _tables: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        first = torch.arange(1)
        object.__setattr__(self, "shape", (checked(self.basis(first), first, self._what, "offset").shape[1],))

    def values(self, offset: Int[Tensor, " offset"]) -> Float[Tensor, "offset weight"]:
        """Basis functions at these offsets, checked."""
        return checked(self.basis(offset), offset, self._what, "offset", self.shape[0])

    @property
    def _what(self) -> str:
        return f"basis of encoding '{self.name}'"

    def kernel(self, weights: Float[Tensor, " weight"]) -> PositionalKernel:
        """Stationary kernel with these weights.

        Offsets are evaluated in blocks, so memory does not grow with the basis.
        """

        def evaluate(offset: Int[Tensor, " offset"]) -> Float[Tensor, " offset"]:
            return torch.cat([self.values(block) @ weights for block in offset.split(1 << 16)])

        return StationaryKernel(evaluate)

    def _table(self, length: int) -> Float[Tensor, "offset weight"]:
        # One evaluation serves every step of a fit; the family is immutable, so the length is the whole key.
        if length not in self._tables:
            self._tables[length] = self.values(torch.arange(length))
        return self._tables[length]

    def grid_logits(self, weights: Float[Tensor, "kernel weight"], length: int) -> Float[Tensor, "kernel query key"]:
        """kappa(i - j); pairs with the key after its query repeat offset 0 and are for the mask to remove."""
        return (weights @ self._table(length).T).index_select(1, causal_offsets(length)).unflatten(1, (length, length))

    def grid_gradient(self, gradient: Float[Tensor, "kernel query key"]) -> Float[Tensor, "kernel weight"]:
        """Sums along the diagonals, times the basis."""
        kernels, length = gradient.shape[:2]
        diagonal = torch.zeros(kernels, length, dtype=DTYPE)
        diagonal.index_add_(1, causal_offsets(length), gradient.reshape(kernels, -1))
        return diagonal @ self._table(length)

    def design(self, query: Int[Tensor, " pair"], key: Int[Tensor, " pair"]) -> Float[Tensor, "pair weight"]:
        """basis(query - key)."""
        return self.values(query - key)

    def upper_bounds(self) -> Float[Tensor, " weight"]:
        """0 for the weights kept non-positive."""
        bounds = super().upper_bounds()
        bounds[list(self.nonpositive)] = 0.0
        return bounds


@dataclass(frozen=True, eq=False)
class BilinearFamily(LinearFamily):
    """Kernels of absolute positions: phi(i) W phi(j)' with a free square W."""

    features: Callable[[Int[Tensor, " position"]], Tensor]
    name: str
    shape: tuple[int, ...] = field(init=False)
    _tables: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        first = torch.arange(1)
        width = checked(self.features(first), first, self._what, "position").shape[1]
        object.__setattr__(self, "shape", (width, width))

    def values(self, position: Int[Tensor, " position"]) -> Float[Tensor, "position feature"]:
        """Features at these positions, checked."""
        return checked(self.features(position), position, self._what, "position", self.shape[0])

    @property
    def _what(self) -> str:
        return f"features of encoding '{self.name}'"

    def kernel(self, weights: Float[Tensor, "feature feature"]) -> PositionalKernel:
        """Bilinear kernel with these weights."""
        return BilinearKernel(self.values, weights)

    def _table(self, length: int) -> Float[Tensor, "position feature"]:
        if length not in self._tables:
            self._tables[length] = self.values(torch.arange(length))
        return self._tables[length]

    def grid_logits(
        self, weights: Float[Tensor, "kernel feature feature"], length: int
    ) -> Float[Tensor, "kernel query key"]:
        """Phi W Phi'."""
        phi = self._table(length)
        return phi @ weights @ phi.T

    def grid_gradient(self, gradient: Float[Tensor, "kernel query key"]) -> Float[Tensor, "kernel feature feature"]:
        """Phi' G Phi."""
        phi = self._table(gradient.shape[1])
        return phi.T @ gradient @ phi

    def design(self, query: Int[Tensor, " pair"], key: Int[Tensor, " pair"]) -> Float[Tensor, "pair weight"]:
        """phi(query) x phi(key), flattened as W is."""
        return (self.values(query)[:, :, None] * self.values(key)[:, None, :]).flatten(1)


@lru_cache(maxsize=8)
def causal_offsets(length: int) -> Int[Tensor, " pair"]:
    """query - key of every pair of a grid, row by row, 0 where the key lies after its query."""
    position = torch.arange(length)
    return (position[:, None] - position).clamp(min=0).flatten()
