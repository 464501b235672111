"""One short pass over text: the closed forms of every rotary head of a model, and how its layers turn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.attention.atlas import check_length, opened, present_device
from poskernel.attention.closed_form import ClosedFormEstimator, LayerForms
from poskernel.attention.extension.planes import PlaneBasis, Turning
from poskernel.attention.extension.rotary_layers import LayerKind, live_kinds
from poskernel.attention.sources.capture import AttentionSource, LayerCapture
from poskernel.attention.sources.rotary_probe import PROBE_POSITIONS, RotaryProbe, probe_rotation
from poskernel.attention.sources.self_test import self_test
from poskernel.attention.sources.windows import windows
from poskernel.errors import InputError

Progress = Callable[[str, int, int], None]
BATCH = 8
"""Sequences that pass through the model at once."""
SHORTEST = 16
FEWEST = 4
"""Sequences that a bootstrap needs at least."""


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """A model whose rotary layers are known: what settings are read against."""

    source: AttentionSource
    encode: Callable[[str], list[int]] | None
    weights_digest: str | None
    quantization: str | None
    probes: Mapping[int, RotaryProbe]
    kinds: Sequence[LayerKind]
    without: Sequence[int]
    """Layers that rotate nothing."""
    trained_length: int | None
    softcap: bool


def open_rotary(model: Any, device: str = "auto", step: Progress | None = None) -> OpenedModel:
    """Open a model, test its capture and read how its layers turn; InputError where none does, and for encoders."""
    say = step or (lambda what, done, total: None)
    source, encode, (digest, quantization), _ = opened(model)
    source.to(present_device(device))
    say("self-test", 0, 1)
    if not self_test(source).causal:
        raise InputError(
            f"'{source.name}' sees later keys (an encoder): extend is about the contexts of causal models."
        )
    facts: dict[int, LayerCapture] = {}
    probes: dict[int, RotaryProbe] = {}
    bases: dict[int, PlaneBasis] = {}

    def consume(capture: LayerCapture) -> None:
        facts[capture.layer] = capture
        capture.before_rotation()
        if capture.rotation is not None:
            probes[capture.layer] = probe_rotation(capture.rotation, capture.query.shape[-1])
            bases[capture.layer] = PlaneBasis.of(probes[capture.layer], capture)

    length = min(PROBE_POSITIONS, source.position_limit or PROBE_POSITIONS)
    source.forward(source.probe_tokens(1, length, torch.Generator().manual_seed(0)), consume)
    if not probes:
        raise InputError(f"'{source.name}' has no rotary layers: it has {positions_of(source, facts)}.")
    turnings: dict[int, Turning] = {layer: basis.own for layer, basis in bases.items()}
    windows = window_of_layers(source, facts)
    widths = {layer: facts[layer].query.shape[-1] for layer in probes}
    config = config_of(source)
    kinds = live_kinds(config, turnings, {layer: windows[layer] for layer in probes}, widths, length)
    return OpenedModel(
        source, encode, digest, quantization, probes, kinds, [layer for layer in facts if layer not in probes],
        trained_length(config, source), any(capture.softcap is not None for capture in facts.values()),
    )  # fmt: skip


def config_of(source: AttentionSource) -> dict[str, Any] | None:
    """The text config of a Hugging Face source as a dict; None for other sources."""
    config = getattr(getattr(source, "module", None), "config", None)
    if config is None or not hasattr(config, "get_text_config"):
        return None
    found: dict[str, Any] = config.get_text_config(decoder=True).to_dict()
    return found


def trained_length(config: Mapping[str, Any] | None, source: AttentionSource) -> int | None:
    """The length that a model was trained at: before any extension that its config declares."""
    if config is not None:
        for place in (config, config.get("rope_parameters") or {}, config.get("rope_scaling") or {}):
            value = place.get("original_max_position_embeddings")
            if isinstance(value, int | float) and value:
                return int(value)
    return source.position_limit


def window_of_layers(source: AttentionSource, facts: Mapping[int, LayerCapture]) -> dict[int, int | None]:
    """The window of each layer: a probe is shorter than most windows, so a config's is taken where it names one."""
    config = config_of(source) or {}
    types, width = config.get("layer_types"), config.get("sliding_window")
    found = {layer: capture.window for layer, capture in facts.items()}
    for layer in found:
        if (width and types is not None and layer < len(types) and "sliding" in types[layer]) or (
            width and types is None and config.get("use_sliding_window", True)
        ):
            found[layer] = int(width)
    return found


def positions_of(source: AttentionSource, facts: Mapping[int, LayerCapture]) -> str:
    """Where position enters a model without rotation, in words."""
    if any(capture.bias is not None for capture in facts.values()):
        return "a bias on its logits (ALiBi or a table of distances)"
    if getattr(source, "table", None) is not None:
        return f"a learned table of {source.position_limit} positions"
    return "positions in its embeddings, or none"


def measure_forms(
    model: OpenedModel,
    tokens: Int[Tensor, "sequence position"],
    dropped: int,
    turnings: Mapping[str, Mapping[int, Turning]],
    step: Progress | None = None,
) -> list[LayerForms]:
    """The closed forms of every rotary layer on these sequences; g of each sequence is kept under every turning."""
    check_sequences(model.source, tokens.shape[0], tokens.shape[1], dropped)
    estimator = ClosedFormEstimator(model.probes, tokens.shape[1], dropped, turnings=turnings)
    batches, say = tokens.split(BATCH), step or (lambda what, done, total: None)
    for index, batch in enumerate(batches):

        def consume(capture: LayerCapture, index: int = index) -> None:
            estimator.consume(capture)
            say("layers", index * model.source.layers + capture.layer + 1, len(batches) * model.source.layers)

        model.source.forward(batch, consume)
    window = {layer: kind.window for kind in model.kinds for layer in kind.layers}
    return [with_window(forms, window[forms.layer]) for forms in estimator.layers()]


def with_window(forms: LayerForms, window: int | None) -> LayerForms:
    """The forms with the window that the layer has, also where the sequences were shorter than it."""
    from dataclasses import replace

    return replace(forms, window=window)


def check_sequences(source: AttentionSource, sequences: int, length: int, dropped: int) -> None:
    """InputError for sizes that leave nothing to measure."""
    if sequences < FEWEST:
        raise InputError(f"{sequences} sequences are too few for a bootstrap: take {FEWEST} or more.")
    if length < SHORTEST:
        raise InputError(f"measured length {length} leaves nothing to measure: give {SHORTEST} or more.")
    if not 0 <= dropped <= length // 2:
        raise InputError(f"dropping {dropped} of {length} positions leaves too few: drop 0 to {length // 2}.")
    check_length(source, length)


def text_windows(
    model: OpenedModel, text: str | Tensor | None, sequences: int, length: int
) -> tuple[Int[Tensor, "sequence position"], str]:
    """Consecutive windows of the text, and its digest."""
    return windows(model.source.name, model.encode, text, sequences, length, model.source.vocabulary)
