"""Interventions: a model whose attention works with changed queries, keys and logits, inside a `with` block::

    rotary = rotary_planes(model)
    with intervening(model, Translation({(3, 4): (0, 1, 2)}, delta=1.0, rotary=rotary)):
        model(tokens)

Whatever is called inside (the model with its output layer, a capture, `analyze`) sees the changed model; afterwards,
error or not, the model is as it was. A change of nothing (gain 1, shift 0, all bands kept, a zero kernel) gives the
model's own output bit for bit. Blocks nest: the inner changes follow the outer ones. Not for several threads at once.

Key caches and generation: gains, translations and temperatures act on each query as it comes, so they hold there too;
mean filters and logit kernels need every position in one pass and refuse a cache, and padding on the left.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.interventions.changes import Intervention, Operands
from poskernel.attention.interventions.huggingface import intervened
from poskernel.attention.sources.capture import AttentionSource
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.encodings import Placement
from poskernel.errors import InputError
from poskernel.models.transformer import AttentionHook, AttentionInputs, Transformer


@contextmanager
def intervening(model: Any, *interventions: Intervention) -> Iterator[None]:
    """The model under interventions, in their order, inside the block.

    `model` is a live Hugging Face model, a source of one, or our own transformer. Raises InputError for heads that the
    model does not have and for models whose attention cannot be changed (those outside transformers' interface).
    """
    if isinstance(model, Transformer):
        architecture = model.architecture
        check_chosen("the transformer", interventions, architecture.layers, architecture.heads)
        with own_intervened(model, interventions):
            yield
        return
    source = model if isinstance(model, AttentionSource) else HuggingFaceSource(model)
    if not isinstance(source, HuggingFaceSource):
        raise InputError(f"'{source.name}' cannot be intervened on: only Hugging Face models and our own can.")
    check_chosen(f"'{source.name}'", interventions, source.layers, source.heads)
    with intervened(source, interventions):
        yield


def check_chosen(name: str, interventions: Sequence[Intervention], layers: int, heads: int) -> None:
    """InputError for a head that a model does not have."""
    for intervention in interventions:
        for layer, head in sorted(intervention.chosen):
            if not (0 <= layer < layers and 0 <= head < heads):
                raise InputError(
                    f"head {head} of layer {layer} is not in {name}: it has layers 0 to {layers - 1} with heads 0 to "
                    f"{heads - 1}."
                )


@contextmanager
def own_intervened(model: Transformer, interventions: Sequence[Intervention]) -> Iterator[None]:
    """Our own transformer with the changes ahead of any hook that a caller gives."""
    before = vars(model).get("place")
    place = model.place

    def changed(inputs: AttentionInputs) -> AttentionInputs:
        operands = Operands(inputs.layer, inputs.query, inputs.key, inputs.position)
        for intervention in interventions:
            operands = intervention.apply(operands)
        bias = inputs.bias
        if operands.added is not None:
            added = operands.added[0].to(operands.query)
            bias = added if bias is None else bias + added
        return replace(inputs, query=operands.query, key=operands.key, bias=bias)

    def placed(
        tokens: Int[Tensor, "batch position"],
        placement: Placement,
        position: Int[Tensor, " position"],
        rows: Int[Tensor, " row"] | None = None,
        hook: AttentionHook | None = None,
    ) -> Float[Tensor, "batch row vocabulary"]:
        # The model computes a little otherwise (other roundings) where a hook is consulted: not for nothing.
        if all(intervention.idle(tokens.shape[1]) for intervention in interventions):
            return place(tokens, placement, position, rows, hook)
        return place(tokens, placement, position, rows, followed(changed, hook))

    vars(model)["place"] = placed
    try:
        yield
    finally:
        if before is None:
            del vars(model)["place"]
        else:
            vars(model)["place"] = before


def followed(first: AttentionHook, second: AttentionHook | None) -> AttentionHook:
    """One hook after another: the second sees what the first gave."""

    def both(inputs: AttentionInputs) -> AttentionInputs | None:
        given = first(inputs) or inputs
        return given if second is None else (second(given) or given)

    return both
