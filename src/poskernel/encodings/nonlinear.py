"""Families whose kernels are no linear function of their weights: fitted by gradients alone, which autograd gives."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.encodings.family import DTYPE, KernelFamily
from poskernel.errors import InputError
from poskernel.kernel import PositionalKernel

PAIRS_AT_A_TIME = 1 << 15
"""Pairs evaluated together where a kernel is wanted alone: a network's hidden layer of them stays in the cache."""

PairFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Weights (kernel, ...) and causal pairs (query, key) to logits (kernel, pair), differentiable by the weights."""


@dataclass(frozen=True, eq=False)
class NonlinearFamily(KernelFamily):
    """Kernels given by a function of weights, query and key."""

    function: PairFunction
    first_weights: Float[Tensor, "..."]
    """Where a gradient-based rule starts."""
    name: str
    stationary_until: int | None = None
    """Positions below this see a function of the offset alone; None where all do."""

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]  # the starting weights have it
        """Shape of the starting weights."""
        return tuple(self.first_weights.shape)

    def start(self) -> Float[Tensor, "..."]:
        """The starting weights."""
        return self.first_weights.to(DTYPE)

    def kernel(self, weights: Float[Tensor, "..."]) -> PositionalKernel:
        """The kernel with these weights, evaluated pair by pair."""
        return PairKernel(partial(self.values, weights), self.stationary_until)

    def values(
        self, weights: Float[Tensor, "..."], query: Int[Tensor, " pair"], key: Int[Tensor, " pair"]
    ) -> Float[Tensor, " pair"]:
        """Logits of causal pairs under one kernel; InputError where one is no finite number."""
        parts = zip(query.split(PAIRS_AT_A_TIME), key.split(PAIRS_AT_A_TIME), strict=True)
        with torch.no_grad():
            values = torch.cat([self.function(weights[None], *part)[0] for part in parts])
        if not bool(values.isfinite().all()):
            pair = int((~values.isfinite()).nonzero()[0, 0])
            raise InputError(
                f"kernel of encoding '{self.name}' is {values[pair]} at query {query[pair]}, key {key[pair]}: "
                "mend the encoding's formula."
            )
        return values

    def grid_logits(self, weights: Float[Tensor, "kernel ..."], length: int) -> Float[Tensor, "kernel query key"]:
        """The function at every pair; pairs with the key after its query repeat offset 0, for the mask to remove."""
        position = torch.arange(length)
        query, key = position[:, None].expand(length, length), position.expand(length, length)
        pairs = query.flatten(), torch.minimum(query, key).flatten()
        return self.function(weights, *pairs).unflatten(1, (length, length))

    def pull_back(
        self, weights: Float[Tensor, "kernel ..."], gradient: Float[Tensor, "kernel query key"]
    ) -> Float[Tensor, "kernel ..."]:
        """By autograd, at these weights."""
        with torch.enable_grad():
            at = weights.detach().requires_grad_()
            (pulled,) = torch.autograd.grad(self.grid_logits(at, gradient.shape[1]), at, gradient)
        return pulled


@dataclass(frozen=True, eq=False, repr=False)
class PairKernel(PositionalKernel):
    """A kernel known pair by pair, and perhaps a function of the offset alone where no position is far out."""

    function: Callable[[Int[Tensor, " pair"], Int[Tensor, " pair"]], Float[Tensor, " pair"]]
    """Logits of causal pairs (query, key)."""
    stationary_until: int | None
    """Positions below this see a function of the offset alone; None where all do."""
    horizon: int | None = None

    def logits(self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]) -> Float[Tensor, "query key"]:
        """Every causal pair; keys after their query hold 0, since nothing is said of them."""
        every_query, every_key = query[:, None].expand(-1, len(key)), key.expand(len(query), -1)
        causal = every_key <= every_query
        values = torch.zeros(causal.shape, dtype=DTYPE)
        values[causal] = self.function(every_query[causal], every_key[causal])
        return values

    def profile(self, length: int) -> Float[Tensor, " offset"] | None:
        """The function of the offset, where every position below the length sees one."""
        self.require(length)
        if self.stationary_until is not None and length > self.stationary_until:
            return None
        offset = torch.arange(length)
        return self.function(offset, torch.zeros_like(offset))
