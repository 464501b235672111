"""Families whose attention never asks transformers' attention interface: captured from their own parts.

A hook on the projections hands over what they computed, the attention module's own split gives queries and keys, and
the arguments it was called with give bias and mask. Modules are known by their class's name and used as they are;
nothing here imports transformers.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.rotary_calls import RotaryCall

Emit = Callable[[nn.Module, dict[str, Tensor], dict[str, Any]], None]
"""Called as emit(attention module, outputs of its projections, its arguments by name)."""
CROSS = ("key_value_states", "encoder_hidden_states")
"""Arguments that only cross-attention gets."""


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of a fallback family's attention: its module, what its projections gave, its arguments by name."""

    layer: int
    module: Any
    projected: Mapping[str, Tensor]
    arguments: Mapping[str, Any]
    rotary: Sequence[RotaryCall]

    def capture(self, query: Tensor, key: Tensor, scale: float, **parts: Any) -> LayerCapture:
        """The layer's capture; decoders all."""
        return LayerCapture.assembled(self.layer, query, key, scale, True, calls=self.rotary, **parts)


@dataclass(frozen=True)
class Fallback:
    """How one family's attention is read."""

    projections: tuple[str, ...]
    """Children of the attention module whose outputs are needed."""
    read: Callable[[AttentionCall], LayerCapture]
    implementation: str = "eager"
    """Attention implementation in which the model is run and compared with."""


def bloom(call: AttentionCall) -> LayerCapture:
    """BLOOM: one fused projection; the bias is a row over keys, the same for every query."""
    query, key, _ = call.module._reshape(call.projected["query_key_value"])
    batch, heads, length, _ = query.shape
    slopes = call.arguments["alibi"].view(batch, heads, 1, length) * call.module.beta
    allowed, extra = split_additive(call.arguments.get("attention_mask"))
    assert extra is None  # BLOOM's mask hides, and nothing else
    bias = from_own_key(slopes.expand(-1, -1, length, -1))
    return call.capture(query, key, call.module.inv_norm_factor, mask=allowed, bias=bias)


def mpt(call: AttentionCall) -> LayerCapture:
    """MPT: one fused projection, clipped where the config says so; the end of a row of biases over keys."""
    module, fused = call.module, call.projected["Wqkv"]
    if module.clip_qkv:
        fused = fused.clamp(-module.clip_qkv, module.clip_qkv)
    query, key, _ = (part.unflatten(-1, (module.n_heads, -1)).transpose(1, 2) for part in fused.chunk(3, dim=2))
    length, bias = query.shape[2], call.arguments["position_bias"]
    hidden = call.arguments.get("attention_mask")
    if bias is not None:
        bias = bias[None, :, max(0, bias.shape[1] - length) :, max(0, bias.shape[2] - length) :]
        bias = from_own_key(bias.expand(-1, -1, length, -1))
    return call.capture(query, key, module.softmax_scale, mask=None if hidden is None else ~hidden, bias=bias)


def gpt_neo(call: AttentionCall) -> LayerCapture:
    """GPT-Neo: separate projections, no scale; local layers keep their window in a buffer of the module."""
    module = call.module
    query, key = (
        module._split_heads(call.projected[name], module.num_heads, module.head_dim) for name in ("q_proj", "k_proj")
    )
    length = query.shape[2]
    allowed, _ = split_additive(call.arguments.get("attention_mask"))
    near = module.bias[:, :, :length, :length]
    return call.capture(query, key, 1.0, mask=near if allowed is None else near & allowed)


def xglm(call: AttentionCall) -> LayerCapture:
    """XGLM: separate projections, queries scaled before the product."""
    module = call.module
    query, key = (
        call.projected[name].unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for name in ("q_proj", "k_proj")
    )
    allowed, _ = split_additive(call.arguments.get("attention_mask"))
    return call.capture(query, key, module.scaling, mask=allowed)


def falcon(call: AttentionCall) -> LayerCapture:
    """Falcon: one fused projection; rotary outputs, or ALiBi inside the mask as the model's sdpa path has it.

    Its eager path adds the ALiBi bias a second time, so that one is not followed.
    """
    module, mask = call.module, call.arguments.get("attention_mask")
    query, key, _ = (part.transpose(1, 2) for part in module._split_heads(call.projected["query_key_value"]))
    if call.arguments.get("alibi") is None:
        query, key = call.rotary[-1].outputs
    bias = None
    if mask is not None and mask.dtype != torch.bool:
        mask, bias = split_additive(mask)
    bias = None if bias is None else from_own_key(bias)
    return call.capture(query, key, module.inv_norm_factor, mask=mask, bias=bias)


def bert_like(call: AttentionCall) -> LayerCapture:
    """BERT's relatives: separate projections; RoFormer's are rotated by a method, MPNet adds a bias that all share."""
    module, (query, key) = call.module, call.projected.values()
    heads, calls = module.num_attention_heads, []
    query, key = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (query, key))
    if call.arguments.get("sinusoidal_pos") is not None:
        rotate = partial(module.apply_rotary_position_embeddings, call.arguments["sinusoidal_pos"])
        calls.append(RotaryCall(rotate, (query, key), {}, rotate(query, key)))
        query, key = calls[0].outputs
    allowed, _ = split_additive(call.arguments.get("attention_mask"))
    bias, scale = call.arguments.get("position_bias"), query.shape[-1] ** -0.5
    return LayerCapture.assembled(call.layer, query, key, scale, False, mask=allowed, bias=bias, calls=calls)


FALLBACKS: Mapping[str, Fallback] = {
    "BloomAttention": Fallback(("query_key_value",), bloom),
    "MptAttention": Fallback(("Wqkv",), mpt),
    "GPTNeoSelfAttention": Fallback(("q_proj", "k_proj"), gpt_neo),
    "XGLMAttention": Fallback(("q_proj", "k_proj"), xglm),
    "FalconAttention": Fallback(("query_key_value",), falcon, "sdpa"),
    "RoFormerSelfAttention": Fallback(("query", "key"), bert_like),
    "MegatronBertSelfAttention": Fallback(("query", "key"), bert_like),
    "RemBertSelfAttention": Fallback(("query", "key"), bert_like),
    "MPNetSelfAttention": Fallback(("q", "k"), bert_like),
}
"""By the class that computes attention."""

REFUSED: Mapping[str, str] = {
    "DisentangledSelfAttention": "adds products of content with learned relative positions (disentangled attention)",
    "XLNetRelativeAttention": "adds products of content with relative positions, in two streams",
}
"""Why these are not captured."""


def fallback_of(module: nn.Module) -> Fallback | None:
    """The fallback for a model's attention; None where it has none."""
    names = {type(part).__name__ for part in module.modules()}
    return next((fallback for name, fallback in FALLBACKS.items() if name in names), None)


def refused_because(module: nn.Module) -> str | None:
    """What a family does that cannot be captured, if it is known; None otherwise."""
    names = {type(part).__name__ for part in module.modules()}
    return next((reason for name, reason in REFUSED.items() if name in names), None)


@contextmanager
def hooked(module: nn.Module, emit: Emit) -> Iterator[None]:
    """Every self-attention of the module hands its projections' outputs and its arguments to `emit`, in call order."""
    projected: dict[str, Tensor] = {}
    handles = []

    def keep(name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        return lambda part, arguments, output: projected.update({name: output})

    def hand_out(part: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
        named = inspect.signature(part.forward).bind(*arguments, **options).arguments
        named = {**named, **named.get("kwargs", {})}
        if all(named.get(name) is None for name in CROSS):
            emit(part, dict(projected), named)
        projected.clear()

    try:
        for part in module.modules():
            fallback = FALLBACKS.get(type(part).__name__)
            if fallback is not None:
                for name in fallback.projections:
                    handles.append(getattr(part, name).register_forward_hook(keep(name)))
                handles.append(part.register_forward_hook(hand_out, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def from_own_key(bias: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query key"]:
    """ALiBi written as one row over keys, as the bias of the offset that it stands for: 0 at each query's own key.

    A softmax ignores what is constant in a row, but a mean along a diagonal does not: of slope x key it is half of
    slope x offset, as later keys have the shorter diagonals.
    """
    return bias - bias.diagonal(dim1=2, dim2=3)[..., None]


def split_additive(
    mask: Tensor | None,
) -> tuple[Bool[Tensor, "batch head query key"] | None, Float[Tensor, "batch head query key"] | None]:
    """(which pairs attend, what is added to them) of an additive mask; None for a mask or a bias that does nothing."""
    if mask is None:
        return None, None
    if mask.dtype == torch.bool:
        return mask, None
    allowed = mask > torch.finfo(mask.dtype).min / 2
    bias = mask.masked_fill(~allowed, 0)
    return allowed, bias if bool(bias.any()) else None


@contextmanager
def sdpa_patterns(patterns: list[Float[Tensor, "batch head query key"]]) -> Iterator[None]:
    """Every fused attention call of torch also appends its weights: what it gives when the values are an identity.

    The model's own call, its own mask and scale: the independent witness where a model has no other path to weights.
    """
    fused = torch.nn.functional.scaled_dot_product_attention

    def watched(query: Tensor, key: Tensor, value: Tensor, *arguments: Any, **options: Any) -> Tensor:
        identity = torch.eye(key.shape[-2], dtype=value.dtype, device=value.device)
        patterns.append(fused(query, key, identity.expand(*key.shape[:-1], -1), *arguments, **options))
        return fused(query, key, value, *arguments, **options)

    torch.nn.functional.scaled_dot_product_attention = watched
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = fused
