"""Hugging Face models as attention sources: the only module that imports transformers.

Capture needs no code per family: an attention function and a mask function registered under our own name see every
layer's queries and keys. Both are needed: without the mask function a causal model silently loses its causality.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.attention.capture import AttentionSource, Consumer, LayerCapture, check_finite
from poskernel.errors import InputError, MissingExtraError

IMPLEMENTATION = "poskernel_capture"
BEYOND_SDPA = ("softcap", "s_aux")
"""Arguments that torch's fused attention cannot honour: with them the family's eager function computes the output."""


def import_transformers() -> Any:
    """The transformers package; MissingExtraError where it is not installed."""
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError("reading a Hugging Face model", "hf") from error
    return transformers


class HuggingFaceSource(AttentionSource):
    """A live Hugging Face module as a source: decoders without their output layer, encoders as they are.

    The module is put in eval mode and switched to our attention function only inside `capturing`.
    """

    def __init__(self, module: nn.Module, name: str | None = None) -> None:
        import_transformers()
        config = getattr(module, "config", None)
        if config is None or not hasattr(module, "set_attn_implementation"):
            raise InputError(
                f"a {type(module).__name__} is no Hugging Face model: give a transformers PreTrainedModel, a folder, "
                "a .gguf file, package:NAME or a hub id."
            )
        self.name = name or type(module).__name__
        text_config = config.get_text_config(decoder=True)
        # The output layer over the vocabulary would need more memory than all the rest, and changes no attention.
        base = getattr(module, "base_model", None)
        self.module: Any = base if isinstance(base, nn.Module) else module
        self.layers = int(getattr(text_config, "num_hidden_layers", 0))
        self.heads = int(getattr(text_config, "num_attention_heads", None) or 0)
        if not self.layers or not self.heads:
            raise InputError(
                f"'{self.name}' has no attention layers or heads in its config ({type(module).__name__}): "
                "give a Transformer."
            )
        self.vocabulary = int(text_config.vocab_size)
        self.position_limit = position_limit(text_config)
        self.dtype = next(module.parameters()).dtype
        self.consume: Consumer | None = None
        self.calls = 0

    def to(self, device: str) -> None:
        """Move the module."""
        self.module.to(device)

    def forward(
        self, tokens: Int[Tensor, "batch position"], consume: Consumer | None
    ) -> Float[Tensor, "batch position width"]:
        """Last hidden states of the model without its output layer, on the CPU."""
        if consume is None:
            hidden: Tensor = self.run(tokens).last_hidden_state
            return hidden.cpu()
        with self.capturing():
            self.consume, self.calls = consume, 0
            try:
                hidden = self.run(tokens).last_hidden_state
                return hidden.cpu()
            finally:
                self.consume = None

    def run(self, tokens: Int[Tensor, "batch position"], **options: Any) -> Any:
        """One forward pass without gradients, dropout or key cache."""
        training = self.module.training
        self.module.eval()
        accepts = self.module.forward.__code__.co_varnames
        if "use_cache" in accepts or "kwargs" in accepts:
            options["use_cache"] = False
        try:
            with torch.inference_mode():
                return self.module(input_ids=tokens.to(next(self.module.parameters()).device), **options)
        finally:
            self.module.train(training)

    def own_patterns(self, tokens: Int[Tensor, "batch position"]) -> Sequence[Float[Tensor, "batch head query key"]]:
        """Attention weights that the family's eager attention reports."""
        with implementation(self.module, "eager", self):
            attentions = self.run(tokens, output_attentions=True).attentions
        return [weights.cpu() for weights in attentions or () if weights is not None]

    def layer_class(self, layer: int) -> str:
        """The layer's attention class, found by its name."""
        # Wrappers (BertAttention around BertSelfAttention) share the layer: the module without another inside computes.
        names = [
            type(part).__name__
            for part in self.module.modules()
            if "Attention" in type(part).__name__
            and not any("Attention" in type(child).__name__ for child in part.children())
        ]
        return names[min(layer, len(names) - 1)] if names else type(self.module).__name__

    def tried(self) -> str:
        """The two registrations."""
        return "transformers' AttentionInterface and AttentionMaskInterface"

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Our attention function in place of the model's; the model's own is back afterwards, error or not."""
        with registered(self), implementation(self.module, IMPLEMENTATION, self):
            yield

    def attention(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        **options: Any,
    ) -> tuple[Tensor, None]:
        """The registered function: hands on the capture, then computes the layer's output as the model would."""
        capture = self.captured(module, query, key, attention_mask, scaling, options)
        self.calls += 1
        if self.consume is not None:
            check_finite(self, capture)
            self.consume(capture)
        return self.output(module, query, key, value, attention_mask, scaling, options), None

    def captured(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        mask: Tensor | None,
        scaling: float | None,
        options: dict[str, Any],
    ) -> LayerCapture:
        """The layer's capture from the arguments of its attention call."""
        length = query.shape[2]
        if key.shape[2] != length:
            raise InputError(
                f"'{self.name}' cannot be analysed: {type(module).__name__} attends {key.shape[2]} keys from {length} "
                "queries (cross-attention or a key cache), and only self-attention is measured."
            )
        # Estimates are made on the CPU in float64, which not every accelerator has.
        query, key, mask = query.cpu(), key.cpu(), None if mask is None else mask.cpu()
        bias, sinks = (None if part is None else part.cpu() for part in map(options.get, ("position_bias", "s_aux")))
        declared = options.get("is_causal")
        causal = bool(getattr(module, "is_causal", True) if declared is None else declared)
        kept, window = mask, None
        if mask is not None:
            causal, window, stationary = read_mask(mask)
            kept = None if stationary else mask
        return LayerCapture(
            layer=self.calls,
            query=query,
            key=key,
            scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
            positions=torch.arange(length),
            causal=causal,
            window=window,
            mask=kept,
            bias=bias,
            softcap=options.get("softcap"),
            sinks=sinks,
        )

    def output(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        scaling: float | None,
        options: dict[str, Any],
    ) -> Tensor:
        """Attention output, [batch, position, head, width]: fused where exact, else the family's eager function."""
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        if all(options.get(name) is None for name in BEYOND_SDPA):
            output: Tensor = ALL_ATTENTION_FUNCTIONS["sdpa"](
                module, query, key, value, mask, scaling=scaling, **options
            )[0]
            return output
        eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        if eager is None:
            raise InputError(
                f"'{self.name}' cannot be analysed: {type(module).__name__} uses {' or '.join(BEYOND_SDPA)} and its "
                "module has no eager attention function to compute them."
            )
        length = query.shape[2]
        everything = torch.ones(1, 1, length, length, dtype=torch.bool, device=query.device)
        allowed = everything.tril() if mask is None else mask
        added = torch.zeros_like(allowed, dtype=query.dtype).masked_fill(~allowed, torch.finfo(query.dtype).min)
        # One sequence at a time: the eager function holds a few squares of side T for every head.
        parts = [
            eager(
                module, query[i : i + 1], key[i : i + 1], value[i : i + 1], row, scaling=scaling, dropout=0.0, **options
            )[0]
            for i, row in enumerate(added.expand(query.shape[0], -1, -1, -1).split(1))
        ]
        return torch.cat(parts)


def read_mask(mask: Tensor) -> tuple[bool, int | None, bool]:
    """(causal, window, whether those two say everything) of a boolean attention mask [batch, head, query, key]."""
    length = mask.shape[-1]
    position = torch.arange(length, device=mask.device)
    offset = position[:, None] - position
    causal = not bool((mask & (offset < 0)).any())
    reach = int((mask[0, 0] * (offset + 1)).max())
    window = reach if reach < length else None
    expected = (offset < (window or length)) & (offset >= 0 if causal else offset > -(window or length))
    return causal, window, bool((mask == expected).all())


def position_limit(config: Any) -> int | None:
    """Positions that the model was built for; None where its config sets no limit."""
    for name in ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"):
        if getattr(config, name, None):
            return int(getattr(config, name))
    return None


@contextmanager
def registered(source: HuggingFaceSource) -> Iterator[None]:
    """Our attention and mask functions known to transformers under our name, for the time of the block."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = ALL_ATTENTION_FUNCTIONS.get(IMPLEMENTATION), ALL_MASK_ATTENTION_FUNCTIONS.get(IMPLEMENTATION)
    AttentionInterface.register(IMPLEMENTATION, source.attention)
    AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
    try:
        yield
    finally:
        for interface, function in zip((AttentionInterface, AttentionMaskInterface), before, strict=True):
            if function is None:
                interface._global_mapping.pop(IMPLEMENTATION, None)
            else:
                interface.register(IMPLEMENTATION, function)


@contextmanager
def implementation(module: Any, name: str, source: AttentionSource) -> Iterator[None]:
    """The module's attention implementation set to `name`, and restored exactly, submodule by submodule, afterwards."""
    configs = {id(part.config): part.config for part in module.modules() if hasattr(part, "config")}
    before = [(config, getattr(config, "_attn_implementation_internal", None)) for config in configs.values()]
    try:
        if type(module)._can_set_attn_implementation():
            module.set_attn_implementation(name)
        elif name == IMPLEMENTATION:
            raise InputError(
                f"'{source.name}' cannot be analysed: layer 0 ({source.layer_class(0)}) never calls {source.tried()}, "
                f"which {type(module).__name__} does not support; models of this family are not covered yet."
            )
        yield
    finally:
        for config, value in before:
            config._attn_implementation_internal = value
