"""A Hugging Face model under intervention: its own attention, called with changed queries, keys and masks.

The model is switched to a name of ours whose attention and mask functions call those it had, so that a change of
nothing gives its own output bit for bit. While a capture is on, its attention function asks for the same changes, so
captures see what the layers then use.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from poskernel.attention.interventions.changes import Intervention, Operands
from poskernel.attention.sources.capture import refusal
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.attention.sources.interface import (
    IMPLEMENTATION,
    INTERVENED,
    attention_function,
    implementation,
    mask_function,
    registered,
)
from poskernel.errors import InputError

PREFIX = "poskernel_intervention_"
ADDITIVE = ("sdpa", "eager", IMPLEMENTATION)
"""Implementations that take a mask of every pair, so that kernels can join it and padding can be seen."""


class Intervened:
    """One module's running interventions: set as an attribute of the module, where captures find it."""

    def __init__(self, source: HuggingFaceSource) -> None:
        self.source = source
        self.parts = {id(part) for part in source.module.modules()}
        self.changes: tuple[Intervention, ...] = ()
        self.own = own_implementation(source)
        self.calls = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """The module on our functions, its attention calls counted; as before afterwards."""
        module = self.source.module
        name = f"{PREFIX}{id(module):x}"
        hooks = [
            module.register_forward_pre_hook(lambda *arguments: self.begin()),
            module.register_forward_hook(lambda *arguments: self.end()),
        ]
        setattr(module, INTERVENED, self)
        try:
            if self.own == IMPLEMENTATION:  # inside `capturing`: its function asks for the changes
                yield
            else:
                with registered(self.attention, name, self.mask), implementation(module, name):
                    yield
        finally:
            delattr(module, INTERVENED)
            for hook in hooks:
                hook.remove()

    @contextmanager
    def following(self, name: str) -> Iterator[None]:
        """The changes before another implementation than the module's own."""
        own, self.own = self.own, name
        try:
            yield
        finally:
            self.own = own

    def begin(self) -> None:
        """A forward pass begins."""
        self.calls = 0

    def end(self) -> None:
        """A forward pass ends: InputError unless each layer called attention once, as nothing else tells layers."""
        if self.calls != self.source.layers:
            raise InputError(
                f"'{self.source.name}' cannot be intervened on: it called attention {self.calls} times for "
                f"{self.source.layers} layers; models that mix attention with other layers are not covered."
            )

    def mask(self, *arguments: Any, **options: Any) -> Any:
        """The mask as the module's own implementation makes it."""
        return mask_function(self.own)(*arguments, **options)

    def attention(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: Any,
    ) -> Any:
        """The module's own attention function on the changed operands."""
        function = attention_function(self.own, module)
        if function is None:
            raise refusal(self.source, self.calls, f"has no function for the attention implementation {self.own}")
        query, key, attention_mask = self.changed(module, query, key, attention_mask, options)
        return function(module, query, key, value, attention_mask, **options)

    def changed(
        self, module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries, keys and mask of the next layer after every change; a decoder beside its encoder is let be."""
        if id(module) not in self.parts:
            return query, key, mask
        layer, self.calls = self.calls, self.calls + 1
        chosen = [change for change in self.changes if any(at == layer for at, _ in change.chosen)]
        if any(change.positional for change in chosen):
            self.require_positions(module, query, key, mask)
        operands = Operands(layer, query, key, torch.arange(key.shape[2]))
        for change in chosen:
            operands = change.apply(operands)
        if operands.added is not None:
            declared = options.get("is_causal")
            causal = bool(getattr(module, "is_causal", True) if declared is None else declared)
            mask = joined(mask, operands.added.to(query), causal)
        return operands.query, operands.key, mask

    def require_positions(self, module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None) -> None:
        """InputError where the position of a query or a key is not its place in the call."""
        kind = "a mean filter or a logit kernel"
        if self.own not in ADDITIVE:
            raise InputError(
                f"{kind} needs a mask of every pair, which the attention implementation '{self.own}' does not take: "
                'load the model with attn_implementation="sdpa".'
            )
        if key.shape[2] != query.shape[2]:
            raise InputError(
                f"{kind} needs every position in one pass, and {type(module).__name__} attends {key.shape[2]} keys "
                f"from {query.shape[2]} queries (a key cache): call the model with use_cache=False."
            )
        if mask is not None:
            first = mask[..., 0, 0]
            seen = first if mask.dtype == torch.bool else first > torch.finfo(mask.dtype).min / 2
            if not bool(seen.all()):
                raise InputError(f"{kind} counts positions from the first token, which is masked: pad on the right.")


def joined(
    mask: Tensor | None, added: Float[Tensor, "1 head query key"], causal: bool
) -> Float[Tensor, "batch head query key"]:
    """A mask, boolean or additive or None for what `causal` says, as an additive one with `added` where it allows."""
    lowest = torch.finfo(added.dtype).min
    if mask is None:
        allowed = torch.ones(added.shape[-2:], dtype=torch.bool, device=added.device)
        return added.masked_fill(~(allowed.tril() if causal else allowed), lowest)
    if mask.dtype == torch.bool:
        return torch.where(mask, added, lowest)
    return torch.where(mask > lowest / 2, mask + added, mask)


def own_implementation(source: HuggingFaceSource) -> str:
    """The attention implementation that the module is on; InputError where it asks no interface or several."""
    module = source.module
    if source.fallback is not None or not type(module)._can_set_attn_implementation():
        raise InputError(
            f"'{source.name}' cannot be intervened on: layer 0 ({source.layer_class(0)}) computes attention outside "
            "transformers' attention interface, so its queries, keys and logits cannot be replaced; take a model of a "
            "family that goes through it (Llama, GPT-NeoX, GPT-2, BERT and most others)."
        )
    names = sorted({str(part.config._attn_implementation) for part in module.modules() if hasattr(part, "config")})
    if len(names) != 1:
        raise InputError(
            f"'{source.name}' cannot be intervened on: its parts use the attention implementations "
            f'{" and ".join(names)}: load it with one, such as attn_implementation="sdpa".'
        )
    return names[0]


@contextmanager
def intervened(source: HuggingFaceSource, changes: Sequence[Intervention]) -> Iterator[None]:
    """The source's module under the changes, after those of any block around this one."""
    running: Intervened | None = vars(source.module).get(INTERVENED)
    if running is None:
        running = Intervened(source)
        with running.running():
            running.changes = tuple(changes)
            yield
        return
    before = running.changes
    running.changes = (*before, *changes)
    try:
        yield
    finally:
        running.changes = before
