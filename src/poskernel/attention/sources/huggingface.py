"""Hugging Face models as attention sources: with loading, the only module that imports transformers.

Capture needs no code per family: an attention function and a mask function registered under our own name see every
layer's queries and keys. Both are needed: without the mask function a causal model silently loses its causality. The
rotary functions of the model's code are recorded beside them. Families outside the interface go through `fallbacks`.
"""

import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.attention.sources.capture import (
    AttentionSource,
    Consumer,
    LayerCapture,
    OwnAttention,
    Side,
    check_finite,
    on_cpu,
    refusal,
)
from poskernel.attention.sources.fallbacks import (
    AttentionCall,
    fallback_of,
    hooked,
    refused_because,
    sdpa_patterns,
    split_additive,
)
from poskernel.attention.sources.interface import IMPLEMENTATION, INTERVENED, implementation, registered, switched
from poskernel.attention.sources.layer_inputs import recorded_inputs
from poskernel.attention.sources.module_facts import position_limit, position_table, special_tokens
from poskernel.attention.sources.own_attention import failure, recorded_operands, with_operands
from poskernel.attention.sources.rotary_calls import RotaryCall, recorded_rotary
from poskernel.errors import InputError, MissingExtraError, RunError

BEYOND_SDPA = ("softcap", "s_aux")
"""Arguments that torch's fused attention cannot honour: with them the family's eager function computes the output."""
SEVERAL_CALLS = "called attention more than once in one forward pass"
NO_FUNCTION = "it has a rotary embedding, yet calls no function named apply_rotary that could be replayed"


def import_transformers() -> Any:
    """The transformers package; MissingExtraError where it is not installed."""
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError("reading a Hugging Face model", "hf") from error
    return transformers


class HuggingFaceSource(AttentionSource):
    """A live Hugging Face module as a source: decoders without their output layer, encoders as they are.

    Of an encoder-decoder (T5, BART) the encoder is measured: what it computes needs no target text.

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
        # The output layer over the vocabulary would need more memory than all the rest, and changes no attention.
        base = getattr(module, "base_model", None)
        inner: Any = base if isinstance(base, nn.Module) else module
        both = bool(getattr(config, "is_encoder_decoder", False)) and hasattr(inner, "get_encoder")
        if inner is module and not both and module.get_output_embeddings() is not None:
            inner = getattr(module, "model", module)  # Llama-4's text model does not name its base
        self.module: Any = (inner.get_encoder() if both else None) or inner
        text_config = config.get_text_config(encoder=True) if both else config.get_text_config(decoder=True)
        self.layers = int(getattr(text_config, "num_hidden_layers", 0))
        self.heads = int(getattr(text_config, "num_attention_heads", None) or 0)
        if not self.layers or not self.heads:
            raise InputError(
                f"'{self.name}' has no attention layers or heads in its config ({type(module).__name__}): "
                "give a Transformer."
            )
        reads = getattr(self.module, "main_input_name", "input_ids")
        if reads != "input_ids":
            raise InputError(
                f"'{self.name}' reads {reads}, no token ids ({type(module).__name__}): give a model of text."
            )
        vocabulary = getattr(text_config, "vocab_size", None)
        if not vocabulary:
            raise InputError(
                f"'{self.name}' has no vocabulary in its config ({type(module).__name__}): give a model of text."
            )
        self.vocabulary = int(vocabulary)
        self.table = position_table(self.module)
        self.position_limit = position_limit(text_config, self.table)
        self.dtype = next(module.parameters()).dtype
        embedded = getattr(self.module.get_input_embeddings(), "padding_idx", None)
        self.pad = int(embedded if embedded is not None else getattr(config, "pad_token_id", None) or 0)
        self.special = special_tokens(config.to_dict()) | {self.pad}
        self.fallback = fallback_of(self.module)
        reason = refused_because(self.module)
        if reason is not None:
            raise refusal(self, 0, f"{reason}: no capture of queries, keys and a bias is what it computes")
        self.consume: Consumer | None = None
        self.active = False
        self.calls = 0
        self.caller: nn.Module | None = None
        self.rotary: list[RotaryCall] = []
        self.inputs: dict[int, Tensor] = {}
        self.rotates: bool | None = None
        self.takes_positions: bool | None = None

    def to(self, device: str) -> None:
        """Move the module."""
        self.module.to(device)

    def forward(
        self, tokens: Int[Tensor, "batch position"], consume: Consumer | None
    ) -> Float[Tensor, "batch position width"]:
        """Last hidden states of the model without its output layer, on the CPU."""
        return self.consumed(consume, tokens)

    def padded(
        self, tokens: Int[Tensor, "batch position"], padding: int, side: Side, consume: Consumer
    ) -> Float[Tensor, "batch padded width"] | None:
        """With masked tokens on one side; positions are given explicitly where the model takes them as it counts."""
        accepted = inspect.signature(self.module.forward).parameters
        if "attention_mask" not in accepted:
            return None
        batch, length = tokens.shape
        filling = torch.full((batch, padding), self.pad)
        mask = torch.cat([torch.zeros_like(filling), torch.ones_like(tokens)], 1)
        parts, start = [filling, tokens], -padding
        if side == "right":
            parts, mask, start = [tokens, filling], mask.flip(1), 0
        options = {"attention_mask": mask}
        if self.counted_from_zero(tokens[:, :1].expand(-1, min(2, length))):
            options["position_ids"] = torch.arange(start, start + length + padding).clamp(0, length - 1)[None]
        return self.consumed(consume, torch.cat(parts, 1), **options)

    def counted_from_zero(self, tokens: Int[Tensor, "batch position"]) -> bool:
        """Whether positions given as 0, 1, ... are those that the model takes by itself (RoBERTa's start higher)."""
        if self.takes_positions is None:
            self.takes_positions = "position_ids" in inspect.signature(self.module.forward).parameters
            if self.takes_positions:
                given = self.run(tokens, position_ids=torch.arange(tokens.shape[1])[None]).last_hidden_state
                self.takes_positions = torch.equal(given, self.run(tokens).last_hidden_state)
        return self.takes_positions

    @property
    def counts_positions(self) -> bool:
        """Whether the model takes positions, however it numbers them."""
        return "position_ids" in inspect.signature(self.module.forward).parameters

    def consumed(
        self, consume: Consumer | None, tokens: Int[Tensor, "batch position"], **options: Tensor
    ) -> Float[Tensor, "batch position width"]:
        """Last hidden states of one forward pass whose captures go to `consume`, on the CPU, halves as float32."""
        if consume is None:
            hidden: Tensor = self.run(tokens, **options).last_hidden_state
            return on_cpu(hidden)
        with self.capturing():
            self.consume, self.calls, self.caller = consume, 0, None
            self.rotary.clear()
            try:
                hidden = self.run(tokens, **options).last_hidden_state
                return on_cpu(hidden)
            finally:
                self.consume = None
                self.rotary.clear()

    def run(self, tokens: Int[Tensor, "batch position"], **options: Any) -> Any:
        """One forward pass without gradients, dropout or key cache; InputError beyond a learned table of positions."""
        if self.table is not None and tokens.shape[1] > self.table:
            raise InputError(
                f"'{self.name}' has learned {self.table} positions, not {tokens.shape[1]}: "
                f"give sequences of at most {self.table} tokens."
            )
        training = self.module.training
        self.module.eval()
        device = next(self.module.parameters()).device
        accepts = inspect.signature(self.module.forward).parameters
        if "use_cache" in accepts or any(part.kind is part.VAR_KEYWORD for part in accepts.values()):
            options["use_cache"] = False
        placed = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in options.items()}
        path = self.fallback.implementation if self.fallback is not None else None
        try:
            with torch.inference_mode(), nullcontext() if path is None else implementation(self.module, path):
                return self.module(input_ids=tokens.to(device), **placed)
        finally:
            self.module.train(training)

    def own_patterns(self, tokens: Int[Tensor, "batch position"]) -> Sequence[Float[Tensor, "batch head query key"]]:
        """Attention weights that the family's eager attention reports, or that its fused attention uses."""
        return [own.weights for own in self.own_attention(tokens)]

    def own_attention(self, tokens: Int[Tensor, "batch position"]) -> Sequence[OwnAttention]:
        """Those weights, with the queries and keys that the eager function made them of."""
        patterns: list[Tensor] = []
        operands: list[tuple[Tensor, Tensor]] = []
        fused = self.fallback is not None and self.fallback.implementation == "sdpa"
        eager = self.fallback is None and type(self.module)._can_set_attn_implementation()
        path = sdpa_patterns(patterns) if fused else switched(self.module, "eager") if eager else nullcontext()
        try:
            with recorded_operands(self.module, operands), path:
                output = self.run(tokens, output_attentions=not fused)
        except (InputError, RunError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a model's own code can fail in any way
            raise InputError(f"'{self.name}' cannot be analysed: {failure(self.module, error)}") from error
        reported = patterns if fused else getattr(output, "attentions", None) or ()
        return with_operands([on_cpu(weights) for weights in reported if weights is not None], operands)

    def probe_tokens(self, sequences: int, length: int, generator: torch.Generator) -> Int[Tensor, "sequence position"]:
        """Random tokens; special ones (padding, masks, image places) give way to their next ordinary neighbour."""
        tokens = super().probe_tokens(sequences, length, generator)
        ordinary = [token for token in range(self.vocabulary) if token not in self.special]
        if not ordinary:
            return tokens
        for token in self.special & set(tokens.flatten().tolist()):
            tokens[tokens == token] = next((other for other in ordinary if other > token), ordinary[0])
        return tokens

    def embedding(self) -> Float[Tensor, "vocabulary width"]:
        """The table of the model's input embeddings."""
        return on_cpu(self.module.get_input_embeddings().weight)

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
        """The two registrations, or the hooks of a family outside the interface."""
        if self.fallback is not None:
            return f"hooks on {' and '.join(self.fallback.projections)} and the arguments of its attention"
        return "transformers' AttentionInterface and AttentionMaskInterface"

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Our attention function in place of the model's; the model's own is back afterwards, error or not."""
        if self.active:  # several captures in one block
            yield
            return
        self.check_rotation()
        hooks = hooked(self.module, self.hooked_attention) if self.fallback is not None else self.interface()
        with recorded_rotary(self.module, self.rotary), recorded_inputs(self.module, self.inputs), hooks:
            self.active = True
            try:
                yield
            finally:
                self.active = False

    @contextmanager
    def interface(self) -> Iterator[None]:
        """The module on our attention and mask functions; InputError for a family that asks no such function."""
        if not type(self.module)._can_set_attn_implementation():
            own = f"computes attention in a way of its own, which is not covered ({type(self.module).__name__})"
            raise refusal(self, 0, own)
        with registered(self.attention), implementation(self.module, IMPLEMENTATION):
            yield

    def check_rotation(self) -> None:
        """Find out once whether a model with a rotary embedding calls a function that can be recorded."""
        if self.rotates is None:
            calls: list[RotaryCall] = []
            with recorded_rotary(self.module, calls):
                self.run(self.probe_tokens(1, 2, torch.Generator().manual_seed(0)))
            embedded = any("Rotary" in type(part).__name__ for part in self.module.modules())
            self.rotates = bool(calls) or not embedded

    def hand_on(self, module: nn.Module, capture: LayerCapture) -> None:
        """A finished capture goes to the consumer, and the next layer begins."""
        if self.calls >= self.layers or (module is self.caller and getattr(module, "layer_idx", None) is not None):
            raise refusal(self, min(self.calls, self.layers) - 1, SEVERAL_CALLS)
        self.calls, self.caller = self.calls + 1, module
        self.rotary.clear()
        entered = self.inputs.get(id(module))
        self.inputs.clear()
        check_finite(self, capture)
        assert self.consume is not None
        self.consume(capture if entered is None else replace(capture, inputs=on_cpu(entered)))

    def hooked_attention(self, module: nn.Module, projected: dict[str, Tensor], arguments: dict[str, Any]) -> None:
        """What the hooks of a family outside the interface call."""
        if self.consume is not None and self.fallback is not None:
            call = AttentionCall(self.calls, module, projected, arguments, tuple(self.rotary))
            self.hand_on(module, self.fallback.read(call))

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
        intervened = vars(self.module).get(INTERVENED)
        if intervened is not None:
            query, key, attention_mask = intervened.changed(module, query, key, attention_mask, options)
        if self.consume is not None:
            self.hand_on(module, self.captured(module, query, key, attention_mask, scaling, options))
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
        declared = options.get("is_causal")
        mask, added = split_additive(mask)
        biases = [part for part in (options.get("position_bias"), added) if part is not None]
        return LayerCapture.assembled(
            layer=self.calls,
            query=query,
            key=key,
            scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
            causal=bool(getattr(module, "is_causal", True) if declared is None else declared),
            mask=mask,
            bias=sum(biases[1:], biases[0]) if biases else None,
            softcap=options.get("softcap"),
            sinks=options.get("s_aux"),
            calls=self.rotary,
            unreadable=None if self.rotates else NO_FUNCTION,
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
        added = everything.tril() if mask is None else mask
        if added.dtype == torch.bool:
            added = torch.zeros_like(added, dtype=query.dtype).masked_fill(~added, torch.finfo(query.dtype).min)
        # One sequence at a time: the eager function holds a few squares of side T for every head.
        parts = [
            eager(
                module, query[i : i + 1], key[i : i + 1], value[i : i + 1], row, scaling=scaling, dropout=0.0, **options
            )[0]
            for i, row in enumerate(added.expand(query.shape[0], -1, -1, -1).split(1))
        ]
        return torch.cat(parts)
