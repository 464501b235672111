"""Encodings that add a bias by offset to the attention logits: ALiBi, T5's buckets, Shaw's clipped offsets."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.encodings.encoding import ModelShape, Placement, PositionModule, RelativeEncoding, require_count
from poskernel.errors import InputError


@dataclass(frozen=True)
class Alibi(RelativeEncoding):
    """ALiBi (arXiv 2108.12409): kappa(d) = c + s d with s <= 0."""

    name = "alibi"
    free_slope: bool = False
    """Lift s <= 0: a rising kernel then solves `first`, never `prev`. Theory only."""

    def basis(self, offset: Int[Tensor, " offset"]) -> Float[Tensor, "offset weight"]:
        """1 and d."""
        return torch.stack([torch.ones(len(offset), dtype=torch.float64), offset.double()], dim=1)

    def bounded_weights(self) -> tuple[int, ...]:
        """The slope, unless freed."""
        return () if self.free_slope else (1,)

    def module(self, shape: ModelShape) -> PositionModule:
        """The fixed slopes of the ALiBi paper, added after the 1/sqrt(head width) scale.

        `free_slope` changes theory only.
        """
        return SlopeBias(alibi_slopes(shape.heads))


class SlopeBias(PositionModule):
    """-slope x offset, one slope a head."""

    def __init__(self, slope: Float[Tensor, " head"]) -> None:
        super().__init__()
        self.slope: Tensor
        self.register_buffer("slope", slope.float(), persistent=False)

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """Bias on every pair; future keys are for the mask."""
        offset = (position[:, None] - position).float()
        return Placement(bias=-self.slope[:, None, None] * offset)


def alibi_slopes(heads: int) -> Float[Tensor, " head"]:
    """2^(-8 h / H) for a power of two H; else those of the power of two below, then every other one of the next."""
    if heads < 1:
        raise ValueError(f"{heads} heads have no slopes: give at least 1.")
    power = 1 << int(math.log2(heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    slopes += [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)][: heads - power]
    return torch.tensor(slopes, dtype=torch.float64)


@dataclass(frozen=True)
class T5(RelativeEncoding):
    """T5's relative bias (arXiv 1910.10683): kappa(d) = b[bucket(d)], causal.

    The first half of the buckets hold one offset each, the others share the offsets up to max_distance by their
    logarithm, and the last one holds every offset beyond: offsets in one bucket tie.
    """

    name = "t5"
    buckets: int = 32
    max_distance: int = 128
    """Offset from which all share the last bucket at the latest."""

    def __post_init__(self) -> None:
        require_count(self.buckets, "number of buckets of T5")
        if self.buckets % 2:
            raise InputError(f"number of buckets of T5 is {self.buckets}: give an even number, half are exact.")
        if not self.max_distance > self.buckets // 2:
            raise InputError(
                f"max_distance of T5 is {self.max_distance}: give more than the {self.buckets // 2} exact offsets."
            )

    def bucket(self, offset: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Bucket of each offset, 0 to buckets - 1."""
        exact = self.buckets // 2
        ratio = (offset.double().clamp(min=1) / exact).log() / math.log(self.max_distance / exact)
        # An offset that stands exactly on an edge must not fall below it by rounding; no other comes as near.
        shared = exact + (exact * ratio + 1e-9).floor().long()
        return torch.where(offset < exact, offset.clamp(min=0), shared.clamp(max=self.buckets - 1))

    def basis(self, offset: Int[Tensor, " offset"]) -> Float[Tensor, "offset weight"]:
        """One indicator a bucket."""
        return nn.functional.one_hot(self.bucket(offset), self.buckets).double()

    def module(self, shape: ModelShape) -> PositionModule:
        """A trained table [bucket, head], added after the 1/sqrt(head width) scale."""
        return BucketBias(self, shape)


class BucketBias(PositionModule):
    """One trained bias a bucket and head; it starts as small as T5's own."""

    def __init__(self, encoding: T5, shape: ModelShape) -> None:
        super().__init__()
        self.encoding = encoding
        self.table = nn.Parameter(torch.randn(encoding.buckets, shape.heads) * shape.width**-0.5)

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """Bias on every pair; future keys share the bucket of offset 0, for the mask."""
        bucket = self.encoding.bucket(position[:, None] - position)
        return Placement(bias=self.table[bucket].permute(2, 0, 1))


@dataclass(frozen=True)
class Shaw(RelativeEncoding):
    """Clipped relative positions (arXiv 1803.02155): kappa(d) = a[min(d, clip)], causal. Offsets from clip on tie."""

    name = "shaw"
    clip: int = 16
    """K of the paper."""

    def __post_init__(self) -> None:
        require_count(self.clip, "clip of Shaw")

    def basis(self, offset: Int[Tensor, " offset"]) -> Float[Tensor, "offset weight"]:
        """clip + 1 indicators."""
        return nn.functional.one_hot(offset.clamp(0, self.clip), self.clip + 1).double()

    def module(self, shape: ModelShape) -> PositionModule:
        """clip + 1 trained vectors that are added to the keys, shared by all heads and layers."""
        return ClippedKeyVectors(self.clip, shape.head_width)


class ClippedKeyVectors(PositionModule):
    """Trained vectors a[clip(d, 0, K)], added to the key at offset d."""

    def __init__(self, clip: int, head_width: int) -> None:
        super().__init__()
        self.clip = clip
        self.table = nn.Parameter(torch.randn(clip + 1, head_width) * head_width**-0.5)

    def forward(self, position: Int[Tensor, " position"]) -> Placement:
        """A vector for every pair; future keys have that of offset 0, for the mask."""
        return Placement(key_vectors=self.table[(position[:, None] - position).clamp(0, self.clip)])
