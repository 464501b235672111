"""The one value everything here produces or consumes: the positional kernel of an attention head.

A kernel maps a query position i and a key position j to a logit in nats. An encoding with weights, a fit, a captured
head and a closed form all give a `PositionalKernel`; predicted against measured is a subtraction.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from poskernel.errors import InputError

ENTRIES_PER_BLOCK = 1 << 20
"""Logits evaluated at a time where a kernel has no profile: 8 MB in float64, whatever the length."""
GLANCE = 4
"""Values that a kernel shows of itself."""


class PositionalKernel(ABC):
    """Logits of one attention head over (query, key) positions, in nats; positions count from 0."""

    horizon: int | None = None
    """Positions it is known for: 0 to horizon - 1; None where it is known for every position."""

    @abstractmethod
    def logits(self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]) -> Float[Tensor, "query key"]:
        """Logits in nats of every query position against every key position, causal or not."""

    def profile(self, length: int) -> Float[Tensor, " offset"] | None:
        """The kernel as a function of the offset (query - key), 0 to length - 1; None where it is not stationary."""
        return None

    def transfer(self, length: int) -> Float[Tensor, "query key"]:
        """The same kernel on the grid of a given length: the simulation transfer operator of the realizability paper.

        Keys after their query hold -inf. It acts on the kernel, not on a block of values: two kernels that agree on
        a short grid may differ on a longer one. Raises InputError beyond the horizon.
        """
        self.require(length)
        positions = torch.arange(length)
        return mask_future(self.logits(positions, positions), positions)

    def row_blocks(self, length: int, first: int = 0) -> Iterator[tuple[Int[Tensor, " row"], Float[Tensor, "row key"]]]:
        """Query rows `first` to length - 1 with their causal logits, a block at a time (keys after a query: -inf)."""
        self.require(length)
        for query in torch.arange(first, length).split(max(1, ENTRIES_PER_BLOCK // length)):
            yield query, mask_future(self.logits(query, torch.arange(int(query[-1]) + 1)), query)

    def g(self, length: int) -> Float[Tensor, " offset"]:
        """Stationary kernel g(offset) in nats.

        The mean of the causal logits along each diagonal, offsets 0 to length - 1.
        """
        self.require(length)
        exact = self.profile(length)
        if exact is not None:
            return exact
        total = torch.zeros(length, dtype=torch.float64)
        for query, block in self.row_blocks(length):
            offset = query[:, None] - torch.arange(block.shape[1])
            seen = offset >= 0
            total.index_add_(0, offset[seen], block[seen].double())
        return total / torch.arange(length, 0, -1)

    def stationarity(self, length: int, row_centred: bool = True) -> float:
        """R2: share of the variance of the causal logits that g(offset) explains, over all causal pairs.

        `row_centred` removes each row's mean from the logits and from g first: softmax ignores it. nan for a kernel
        without variance, for which a share means nothing.
        """
        profile = self.g(length)
        residual, variance, power, mean, pairs = 0.0, 0.0, 0.0, 0.0, length * (length + 1) / 2
        if not row_centred:
            mean = float((profile * torch.arange(length, 0, -1)).sum() / pairs)
        for query, block in self.row_blocks(length):
            offset = query[:, None] - torch.arange(block.shape[1])
            seen = offset >= 0
            logits = torch.where(seen, block, 0).double()
            fitted = torch.where(seen, profile[offset.clamp(min=0)], 0).double()
            power += float((logits**2).sum())
            if row_centred:
                count = (query + 1)[:, None]
                logits = torch.where(seen, logits - logits.sum(1, keepdim=True) / count, 0)
                fitted = torch.where(seen, fitted - fitted.sum(1, keepdim=True) / count, 0)
            residual += float(((logits - fitted) ** 2).sum())
            variance += float(torch.where(seen, (logits - mean) ** 2, 0).sum())
        # A spread below 1e-13 of the size of the logits is rounding.
        return 1 - residual / variance if variance > 1e-26 * power else float("nan")

    def spectrum(self, length: int) -> Complex[Tensor, " frequency"]:
        """One-sided DFT of g(offset), 0 to length - 1, in nats; frequency k stands for 2 pi k / length a position."""
        return torch.fft.rfft(self.g(length))

    def attention(self, length: int) -> Float[Tensor, "query key"]:
        """Softmax of the causal logits: the attention pattern of a head that sees position alone."""
        return self.transfer(length).softmax(-1)

    def require(self, length: int) -> None:
        """Raise InputError where the kernel is not known up to that length."""
        if length < 1:
            raise InputError(f"a grid of length {length} holds no position: give a length of at least 1.")
        if self.horizon is not None and length > self.horizon:
            raise InputError(
                f"the kernel is known for {self.horizon} positions, not for {length}: measure it at a longer length."
            )

    def __repr__(self) -> str:
        """What kind it is, for how many positions, and where it is stationary its first values: never whole arrays."""
        known = "every position" if self.horizon is None else f"{self.horizon} positions"
        profile = self.profile(min(GLANCE, GLANCE if self.horizon is None else self.horizon))
        values = "" if profile is None else f", g = {', '.join(f'{value:.3g}' for value in profile.tolist())}, ... nats"
        return f"{type(self).__name__} of {known}{values}"

    def __add__(self, other: "PositionalKernel") -> "PositionalKernel":
        return CombinedKernel(self, other, operator.add)

    def __sub__(self, other: "PositionalKernel") -> "PositionalKernel":
        return CombinedKernel(self, other, operator.sub)

    def __mul__(self, other: "PositionalKernel | float") -> "PositionalKernel":
        return CombinedKernel(self, other if isinstance(other, PositionalKernel) else constant(other), operator.mul)

    __rmul__ = __mul__


@dataclass(frozen=True, eq=False, repr=False)
class StationaryKernel(PositionalKernel):
    """A kernel of the offset alone: logits(i, j) = function(i - j)."""

    function: Callable[[Int[Tensor, "*shape"]], Float[Tensor, "*shape"]]
    horizon: int | None = None
    signed: bool = False
    """Whether the function is defined at negative offsets, keys after their query (encoders)."""

    def logits(self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]) -> Float[Tensor, "query key"]:
        """Evaluates each distinct offset once; keys after their query hold 0 unless the function is signed."""
        low, high = int(query.min() - key.max()), int(query.max() - key.min())
        if self.signed:
            return self.function(torch.arange(low, high + 1))[query[:, None] - key - low]
        # A causal profile says nothing of keys after their query; the mask will, so 0 stands there.
        values = self.function(torch.arange(max(0, low), max(0, high) + 1))
        return torch.cat([values.new_zeros(max(0, -low)), values])[query[:, None] - key - low]

    def profile(self, length: int) -> Float[Tensor, " offset"]:
        """function(0), ..., function(length - 1)."""
        self.require(length)
        return self.function(torch.arange(length))


@dataclass(frozen=True, eq=False, repr=False)
class BilinearKernel(PositionalKernel):
    """A kernel of absolute positions: logits = phi(i) W phi(j)', with features phi and weights W."""

    features: Callable[[Int[Tensor, " position"]], Float[Tensor, "position feature"]]
    weights: Float[Tensor, "feature feature"]
    horizon: int | None = None

    def logits(self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]) -> Float[Tensor, "query key"]:
        """phi(query) W phi(key)'."""
        return (self.features(query) @ self.weights) @ self.features(key).T

    def row_blocks(self, length: int, first: int = 0) -> Iterator[tuple[Int[Tensor, " row"], Float[Tensor, "row key"]]]:
        """As for every kernel, with the features evaluated once and the mask written where a block can need it."""
        self.require(length)
        keys = self.features(torch.arange(length))
        queries, keys = keys[first:] @ self.weights, keys.T.contiguous()
        for query in torch.arange(first, length).split(max(1, ENTRIES_PER_BLOCK // length)):
            start, stop = int(query[0]), int(query[-1]) + 1
            block = queries[start - first : stop - first] @ keys[:, :stop]
            block[:, start:].masked_fill_(
                torch.ones(stop - start, stop - start, dtype=torch.bool).triu_(1), float("-inf")
            )
            yield query, block


@dataclass(frozen=True, eq=False, repr=False)
class GridKernel(PositionalKernel):
    """A kernel given by its values on a grid: a measured Gram matrix, a counterexample."""

    values: Float[Tensor, "length length"]

    @property
    def horizon(self) -> int:  # type: ignore[override]  # here the grid itself says how far it is known
        """Side of the grid."""
        return self.values.shape[0]

    def logits(self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]) -> Float[Tensor, "query key"]:
        """Entries of the grid."""
        return self.values[query][:, key]


@dataclass(frozen=True, eq=False, repr=False)
class CombinedKernel(PositionalKernel):
    """Sum, difference or product of two kernels, entry by entry."""

    left: PositionalKernel
    right: PositionalKernel
    combine: Callable[[Tensor, Tensor], Tensor]

    @property
    def horizon(self) -> int | None:  # type: ignore[override]  # the shorter of the two parts
        """The shorter horizon of the two parts."""
        known = [part.horizon for part in (self.left, self.right) if part.horizon is not None]
        return min(known) if known else None

    def logits(self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]) -> Float[Tensor, "query key"]:
        """The two parts' logits, combined."""
        return self.combine(self.left.logits(query, key), self.right.logits(query, key))

    def profile(self, length: int) -> Float[Tensor, " offset"] | None:
        """Combination of the two profiles; None unless both parts are stationary."""
        left, right = self.left.profile(length), self.right.profile(length)
        return None if left is None or right is None else self.combine(left, right)


def constant(value: float) -> StationaryKernel:
    """The kernel that is the same at every pair: attention without position."""
    return StationaryKernel(lambda offset: torch.full(offset.shape, float(value), dtype=torch.float64), signed=True)


def tabulated(values: Float[Tensor, " offset"], first: int = 0) -> StationaryKernel:
    """A stationary kernel from its values at offsets first, first + 1, ...; its horizon is the number from 0 on.

    `first` is 0, or 1 - horizon where keys after their query have values too (encoders); else InputError.
    """
    horizon = values.shape[0] + first
    if first not in (0, 1 - horizon):
        raise InputError(f"{values.shape[0]} offsets cannot start at {first}: start at 0, or as far below as they end.")
    return StationaryKernel(lambda offset: values[offset - first], horizon=horizon, signed=first < 0)


def mask_future(logits: Float[Tensor, "query key"], query: Int[Tensor, " query"]) -> Float[Tensor, "query key"]:
    """Logits with -inf where the key (0, 1, ... by column) lies after its query."""
    return logits.masked_fill(torch.arange(logits.shape[1]) > query[:, None], float("-inf"))
