"""Transformers whose attention is kept from mixing content with position, in training as well as afterwards.

Two things can be taken away, alone or together. `apart`: a head's logits are the product of its queries and keys as
they are, before any rotation, plus one kernel of the offset, that of the vectors that all its queries and all its keys
share (the biases of the projection), rotated. So nothing in them depends on content and offset together: they are the
projection of RoPE's logits onto sums k_c(x, y) + g(d), with g in the span of the same frequencies. `frozen`: queries
and keys of every layer are made of what enters the first layer, so that nothing that earlier layers mixed reaches a
kernel; values are made of the whole stream as ever.
"""

from dataclasses import replace
from enum import StrEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.encodings import Encoding, Placement
from poskernel.encodings.encoding import Rotation
from poskernel.errors import InputError
from poskernel.models.transformer import (
    Architecture,
    AttentionHook,
    AttentionInputs,
    Block,
    Transformer,
    rotate,
)


class Ablation(StrEnum):
    """What attention is kept from."""

    NONE = "none"
    APART = "apart"
    """Content and offset together in a logit."""
    FROZEN = "frozen"
    """What earlier layers made, in queries and keys."""
    BOTH = "apart and frozen"

    @property
    def apart(self) -> bool:
        """Whether content and offset stand apart in the logits."""
        return self in (Ablation.APART, Ablation.BOTH)

    @property
    def frozen(self) -> bool:
        """Whether queries and keys of all layers come from the first one's input."""
        return self in (Ablation.FROZEN, Ablation.BOTH)


class AblatedTransformer(Transformer):
    """A rotary transformer under an ablation: the same weights and initial values as the plain one.

    Raises InputError for an encoding other than a rotary one.
    """

    def __init__(self, architecture: Architecture, encoding: Encoding, ablation: Ablation) -> None:
        super().__init__(architecture, encoding)
        placed = self.position_module(torch.arange(2))
        if placed.query_rotation is None or placed.key_rotation is None:
            raise InputError(f"'{encoding.name}' rotates nothing that could be ablated: give a rotary encoding.")
        self.ablation = ablation

    def fresh(self, encoding: Encoding | None = None) -> "AblatedTransformer":
        """With the same ablation."""
        return AblatedTransformer(self.architecture, self.encoding if encoding is None else encoding, self.ablation)

    def stream(
        self,
        tokens: Int[Tensor, "batch position"],
        placement: Placement,
        position: Int[Tensor, " position"],
        rows: Int[Tensor, " row"] | None,
    ) -> Float[Tensor, "batch row width"]:
        """The stream after all blocks, at the given rows."""
        whole = self.hooked_stream(tokens, placement, position, lambda given: None)
        return whole if rows is None else whole.index_select(1, rows)

    def hooked_stream(
        self,
        tokens: Int[Tensor, "batch position"],
        placement: Placement,
        position: Int[Tensor, " position"],
        hook: AttentionHook,
    ) -> Float[Tensor, "batch position width"]:
        """As ever; the hook sees what the ablation leaves."""
        first = self.embed(tokens, placement)

        def ablated(given: AttentionInputs) -> AttentionInputs:
            left = self.ablated(given, first, placement)
            return hook(left) or left

        return super().hooked_stream(tokens, placement, position, ablated)

    def ablated(
        self, given: AttentionInputs, first: Float[Tensor, "batch position width"], placement: Placement
    ) -> AttentionInputs:
        """One layer's attention inputs, out of the plain ones and what enters the first layer."""
        block = self.blocks[given.layer]
        assert isinstance(block, Block)
        query, key = given.unrotated_query, given.unrotated_key
        if self.ablation.frozen and given.layer:
            query, key = (part.transpose(1, 2) for part in block.project(first)[:2])
        if not self.ablation.apart:
            used_query, used_key = headed(query, placement.query_rotation), headed(key, placement.key_rotation)
            return replace(given, query=used_query, key=used_key, unrotated_query=query, unrotated_key=key)
        kernel = shared_kernel(block, placement, given.scale)
        bias = kernel if given.bias is None else given.bias + kernel
        return replace(given, query=query, key=key, unrotated_query=query, unrotated_key=key, bias=bias)


def headed(
    vectors: Float[Tensor, "batch head position width"], rotation: Rotation | None
) -> Float[Tensor, "batch head position width"]:
    """Rotated, heads before positions as attention has them."""
    assert rotation is not None
    return rotate(vectors.transpose(1, 2), rotation).transpose(1, 2)


def shared_kernel(block: Block, placement: Placement, scale: float) -> Float[Tensor, "head query key"]:
    """Logits of what all queries and all keys of a head share: a function of the offset, in nats."""
    assert placement.query_rotation is not None and placement.key_rotation is not None
    query, key, _ = block.query_key_value.bias.view(3, 1, block.heads, block.head_width)
    query, key = rotate(query, placement.query_rotation), rotate(key, placement.key_rotation)
    return scale * torch.einsum("qhw,khw->hqk", query, key)
