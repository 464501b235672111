"""Randomized positions: every sequence stands at a sorted random sample of a long range of positions.

A head that was trained on such samples has seen large offsets in short sequences. What its kernel does at a length is
an expectation over samples.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.encodings.absolute import Learned, Sinusoidal
from poskernel.encodings.bias import T5, Alibi, Shaw
from poskernel.encodings.encoding import Encoding, ModelShape, Placement, PositionModule, require_count
from poskernel.encodings.family import BilinearFamily, KernelFamily, LinearFamily
from poskernel.encodings.kerple import KerpleLog
from poskernel.encodings.none import Nope
from poskernel.encodings.rotary import Rope
from poskernel.errors import InputError, lookup
from poskernel.kernel import PositionalKernel
from poskernel.random_streams import random_stream

INNER: dict[str, Encoding] = {
    encoding.name: encoding
    for encoding in (Nope(), Rope(), Sinusoidal(), Learned(), Alibi(), T5(), Shaw(), KerpleLog())
}
"""Encodings that positions can be randomized for, at their defaults."""
LONGEST_TABLE = 128
"""Positions beyond which a free weight for every pair of learned ones no longer fits a quick fit."""


@dataclass(frozen=True)
class Randomized(Encoding):
    """Randomized positions (arXiv 2305.16843): kappa(p_i, p_j) of an inner encoding, p a sorted sample of 0 ... N - 1.

    The kernel is selected on the mean loss over `train_draws` samples; alpha at a length is the mean over `test_draws`
    fresh samples of that length. A model draws a sample in every forward pass.
    """

    name = "randomized"
    depends_on_length = True
    drawn = True
    inner: str = "rope"
    """Name of the encoding inside: nope, rope, sinusoidal, learned, alibi, t5, shaw or kerple-log."""
    positions: int = 2048
    """N: positions are drawn from 0 to N - 1; no sequence can be longer."""
    train_draws: int = 16
    test_draws: int = 32
    seed: int = 0
    """Seed of the draws; a model's come from its own initialisation instead."""

    def __post_init__(self) -> None:
        lookup(INNER, self.inner, "inner encoding of 'randomized'")
        for name in ("positions", "train_draws", "test_draws"):
            require_count(getattr(self, name), f"{name} of the randomized encoding")

    @property
    def longest(self) -> int:  # type: ignore[override]  # here a field says so
        """Longest sequence: one at every position."""
        return self.positions

    @property
    def weight_meaning(self) -> str:
        """Those of the inner encoding, at random positions."""
        return f"{self.name} {self.inner}"

    def family(self, train_length: int, length: int) -> KernelFamily:
        """Kernels on the training draws of a length, all at once."""
        return self.sampled(length, [f"training positions/{length}/{draw}" for draw in range(self.train_draws)])

    def drawn_family(self, train_length: int, length: int, draw: int) -> KernelFamily:
        """Kernels on one fresh draw of a length."""
        return self.sampled(length, [f"test positions/{length}/{draw}"])

    def sampled(self, length: int, purposes: list[str]) -> KernelFamily:
        """Kernels on one sample of positions a purpose."""
        if self.inner == "learned" and self.positions > LONGEST_TABLE:
            raise InputError(
                f"randomized learned positions have {self.positions}^2 weights: give positions of at most "
                f"{LONGEST_TABLE}."
            )
        # The inner encoding is trained at every position of the range: nothing is clamped or extended.
        inner = cast(LinearFamily, INNER[self.inner].family(self.positions, self.positions))
        samples = [sorted_sample(self.positions, length, random_stream(self.seed, purpose)) for purpose in purposes]
        return SampledFamily(inner, torch.stack(samples))

    def module(self, shape: ModelShape) -> PositionModule:
        """The inner encoding's module at positions drawn anew in every forward pass."""
        inner = INNER[self.inner].module(replace(shape, train_length=self.positions))
        return RandomizedPositions(inner, self.positions)


def sorted_sample(positions: int, length: int, generator: torch.Generator) -> Int[Tensor, " position"]:
    """`length` distinct positions of 0 ... positions - 1, uniformly drawn, in order; InputError if there are fewer."""
    if length > positions:
        raise InputError(f"a sequence of {length} has no room in {positions} positions: give the encoding more.")
    return torch.randperm(positions, generator=generator)[:length].sort().values


@dataclass(frozen=True, eq=False)
class SampledFamily(KernelFamily):
    """The kernels of a linear family on grids whose positions are samples: one grid a draw."""

    inner: LinearFamily
    position: Int[Tensor, "draw position"]

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]  # the inner family has it
        """Shape of the inner family's weights."""
        return self.inner.shape

    @property
    def draws(self) -> int:  # type: ignore[override]  # the samples tell
        """Number of samples."""
        return self.position.shape[0]

    def kernels(self, weights: Float[Tensor, "..."]) -> list[PositionalKernel]:
        """The inner kernel at each sample."""
        return [MovedKernel(self.inner.kernel(weights), sample) for sample in self.position]

    def kernel(self, weights: Float[Tensor, "..."]) -> PositionalKernel:
        """The inner kernel at the one sample there is; InputError where there are more."""
        if self.draws > 1:
            raise InputError(f"{self.draws} draws of positions give as many kernels: ask for that of one draw.")
        return self.kernels(weights)[0]

    def grid_logits(self, weights: Float[Tensor, "kernel ..."], length: int) -> Float[Tensor, "kernel *draw query key"]:
        """Logits on every sample's grid, an axis of draws where there are several."""
        if isinstance(self.inner, BilinearFamily):
            products = (self._features.flatten(0, 1) @ weights).unflatten(1, (self.draws, -1))
            logits = products @ self._features.mT
        else:
            logits = (weights @ self._design.T).unflatten(1, (self.draws, length, length))
        return logits if self.draws > 1 else logits[:, 0]

    def pull_back(
        self, weights: Float[Tensor, "kernel ..."], gradient: Float[Tensor, "kernel *draw query key"]
    ) -> Float[Tensor, "kernel ..."]:
        """The adjoint, summed over the draws."""
        if isinstance(self.inner, BilinearFamily):
            by_draw = gradient.reshape(len(weights), self.draws, *gradient.shape[-2:])
            return self._features.flatten(0, 1).T @ (by_draw @ self._features).flatten(1, 2)
        return gradient.flatten(1) @ self._design

    def upper_bounds(self) -> Float[Tensor, " weight"]:
        """Those of the inner family."""
        return self.inner.upper_bounds()

    @cached_property
    def _features(self) -> Float[Tensor, "draw position feature"]:
        assert isinstance(self.inner, BilinearFamily)
        return self.inner.values(self.position.flatten()).unflatten(0, self.position.shape)

    @cached_property
    def _design(self) -> Float[Tensor, "pair weight"]:
        # Keys after their query repeat offset 0: the mask removes them.
        query, key = self.position[:, :, None].expand(-1, -1, self.position.shape[1]), self.position[:, None, :]
        return self.inner.design(query.flatten(), torch.minimum(query, key).flatten())


@dataclass(frozen=True, eq=False, repr=False)
class MovedKernel(PositionalKernel):
    """A kernel whose positions 0, 1, ... stand at other positions of an inner kernel."""

    inner: PositionalKernel
    position: Int[Tensor, " position"]

    @property
    def horizon(self) -> int:  # type: ignore[override]  # the sample says how far it goes
        """Number of positions in the sample."""
        return len(self.position)

    def logits(self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]) -> Float[Tensor, "query key"]:
        """The inner kernel's logits between the moved positions."""
        return self.inner.logits(self.position[query], self.position[key])


class RandomizedPositions(PositionModule):
    """An inner module at a new sorted sample of 0 ... positions - 1 in every forward pass.

    The generator is the module's own and seeded when it is made, from the stream that initialises weights; its state
    is saved with them.
    """

    def __init__(self, inner: PositionModule, positions: int) -> None:
        super().__init__()
        self.inner, self.positions = inner, positions
        self.generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """The inner placement at the sample's entries for these positions."""
        sample = sorted_sample(self.positions, int(position.max()) + 1, self.generator).to(position.device)
        placement: Placement = self.inner(sample[position])
        return placement

    @contextmanager
    def drawing_from(self, generator: torch.Generator) -> Iterator[None]:
        """While open, samples come from this generator and the module's own stays as it is."""
        own, self.generator = self.generator, generator
        try:
            yield
        finally:
            self.generator = own

    def get_extra_state(self) -> Tensor:
        """State of the generator, so that a model read from its weights goes on where it was."""
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Put the generator where it was."""
        self.generator.set_state(state.cpu())
