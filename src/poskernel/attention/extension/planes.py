"""Vectors of a rotary head as complex numbers, one a plane: before its rotation, plane by plane.

A plane (first, second) that turns by theta a position holds x = <u, first> + i <u, second>; turned at position t it is
x e^{i theta t}. What does not turn is cut into planes as well, at rate 0: then every product of a query and a key is
one sum over planes, whatever part of a head turns.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.rotary_probe import RotaryProbe

ALIGNED = 1e-6
"""A plane whose vectors leave the axes by less than this is a pair of dimensions."""


@dataclass(frozen=True, eq=False)
class Turning:
    """How a layer turns its planes: radians a position of each, and the attention factor a on all of them."""

    rates: Float[Tensor, " plane"]
    factor: float = 1.0

    def same_as(self, other: "Turning") -> bool:
        """Whether both turn every plane alike."""
        return self.factor == other.factor and torch.equal(self.rates, other.rates)


@dataclass(frozen=True, eq=False)
class PlaneBasis:
    """The planes of a layer's turned block, in the order of its pairs of dimensions, and how it turns them now."""

    pairs: Float[Tensor, "plane 2 width"]
    """Orthonormal, over the dimensions of the block alone."""
    own: Turning
    """Rate 0 where a plane of the block stands still (p-RoPE)."""
    shift: int = 0
    """First dimension of the block within what the layer's rotary function takes (GPT-NeoX: its part that turns)."""

    @classmethod
    def of(cls, probe: RotaryProbe, capture: LayerCapture) -> "PlaneBasis":
        """From a layer's probe and any capture of it."""
        assert capture.rotation is not None
        start, width = capture.rotation.query.start, capture.rotation.query.width
        turned = probe.planes[..., start : start + width]
        held = (turned.abs() > ALIGNED).any(0).any(0).nonzero().flatten().tolist()
        shift = 0
        if held and held == list(range(held[0], held[0] + 2 * len(turned))):
            # What turns is a part of its own: the rest stands outside, and no attention factor stretches it.
            shift, width = held[0], len(held)
            turned = turned[..., shift : shift + width]
        still = still_planes(turned, width, probe.pairing)
        pairs = torch.cat([turned, still])
        rates = torch.cat([probe.frequencies, torch.zeros(len(still), dtype=torch.float64)])
        # The first dimension of a pair counts the pairs under every layout; frequencies need not fall (LongRoPE).
        order = (pairs.abs() > ALIGNED).any(1).double().argmax(1).argsort(stable=True)
        return cls(pairs[order], Turning(rates[order], probe.factor), shift)

    def read(
        self, vectors: Float[Tensor, "*batch width"], start: int
    ) -> tuple[Complex[Tensor, "*batch plane"], Complex[Tensor, "*batch rest"]]:
        """Planes of the block, and of what lies outside it; `start` is where the layer's rotary function begins."""
        start, width = start + self.shift, self.pairs.shape[-1]
        block, outside = vectors[..., start : start + width].double(), [vectors[..., :start]]
        outside.append(vectors[..., start + width :])
        rest = torch.cat(outside, -1).double()
        if rest.shape[-1] % 2:
            rest = torch.cat([rest, torch.zeros_like(rest[..., :1])], -1)
        half = rest.shape[-1] // 2
        turned = torch.complex(block @ self.pairs[:, 0].T, block @ self.pairs[:, 1].T)
        return turned, torch.complex(rest[..., :half].contiguous(), rest[..., half:].contiguous())


def still_planes(turned: Float[Tensor, "plane 2 width"], width: int, pairing: str) -> Float[Tensor, "still 2 width"]:
    """Planes of the block that do not turn, paired as those that do."""
    basis = turned.flatten(0, 1)
    left_out = torch.eye(width, dtype=torch.float64) - basis.T @ basis
    number = width - len(basis)
    diagonal = left_out.diagonal()
    if bool(((diagonal < ALIGNED) | (diagonal > 1 - ALIGNED)).all()):
        vectors = torch.eye(width, dtype=torch.float64)[diagonal > 0.5]
    else:
        vectors = torch.linalg.eigh(left_out).eigenvectors[:, width - number :].T
    first, second = (vectors[0::2], vectors[1::2]) if pairing == "interleaved" else vectors.chunk(2) if number else (
        vectors, vectors)  # fmt: skip
    return torch.stack([first, second], 1)
