"""Rotary planes as an intervention needs them: in the space of the queries and keys that attention receives."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.sources.capture import AttentionSource, LayerCapture
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.attention.sources.rotary_calls import RotaryCall, RotatedSide, Rotation
from poskernel.attention.sources.rotary_probe import PROBE_POSITIONS, probe_rotation
from poskernel.encodings.encoding import Rotation as Turns
from poskernel.errors import InputError
from poskernel.models.transformer import Transformer, rotate

Head = tuple[int, int]
"""(layer, query head), both from 0."""
CHANGING = ("dynamic", "longrope")
"""Rotary schemes whose frequencies change with the length of the sequence."""


@dataclass(frozen=True, eq=False)
class RotaryPlanes:
    """The planes that one layer's rotation turns, from the highest frequency to the lowest."""

    frequencies: Float[Tensor, " plane"]
    """Angle by which each plane turns from one position to the next, radians, float64."""
    planes: Float[Tensor, "plane 2 width"]
    """Orthonormal pair of each plane over the dimensions of a rotated query; the first turns towards the second."""
    only_length: int | None = None
    """The length that the frequencies hold for, where they change with it; None where they are fixed."""

    @property
    def wavelengths(self) -> Float[Tensor, " plane"]:
        """Positions in which each plane turns once."""
        return 2 * torch.pi / self.frequencies


def rotary_planes(model: Any, length: int = PROBE_POSITIONS) -> dict[int, RotaryPlanes]:
    """Planes of every layer whose rotation can be read; layers that rotate nothing are absent.

    `model` is a Hugging Face model, an attention source or our own transformer. `length` matters only where the
    frequencies change with it (dynamic NTK, LongRoPE): there they hold for sequences of that length alone.
    """
    if isinstance(model, Transformer):
        return own_planes(model, length)
    source = model if isinstance(model, AttentionSource) else HuggingFaceSource(model)
    length = min(length, source.position_limit or length)
    tokens = source.probe_tokens(1, length, torch.Generator().manual_seed(0))
    only_length = length if changes_with_length(source) else None
    found: dict[int, RotaryPlanes] = {}

    def consume(capture: LayerCapture) -> None:
        if capture.rotation is not None:
            found[capture.layer] = read_planes(capture.rotation, capture.query.shape[-1], only_length)

    with source.capturing():
        source.forward(tokens, consume)
    return found


def own_planes(model: Transformer, length: int) -> dict[int, RotaryPlanes]:
    """Planes of our own transformer, the same in every layer; none without a rotary encoding."""
    if model.encoding.drawn:
        raise InputError(
            f"the encoding '{model.encoding.name}' draws its positions, so its planes turn by no fixed angle: take "
            "another encoding."
        )
    with torch.no_grad():
        placement = model.position_module(torch.arange(length))
    if placement.query_rotation is None or placement.key_rotation is None:
        return {}
    width = model.architecture.head_width
    sides = [turned_side(turns, length, width) for turns in (placement.query_rotation, placement.key_rotation)]
    only_length = length if model.encoding.depends_on_length else None
    planes = read_planes(Rotation(*sides), width, only_length)
    return dict.fromkeys(range(model.architecture.layers), planes)


def turned_side(turns: Turns, length: int, width: int) -> RotatedSide:
    """The rotation of our own transformer in the form of a recorded call, so that one probe reads both."""
    turns = (turns[0].double(), turns[1].double())
    still = torch.zeros(1, length, 1, width)
    call = RotaryCall(lambda vectors: rotate(vectors, turns), (still,), {}, (still,))
    return RotatedSide(call, vector=0, head_axis=2, start=0, width=width)


def read_planes(rotation: Rotation, head_width: int, only_length: int | None = None) -> RotaryPlanes:
    """Planes of a rotation captured at consecutive positions from 0 on.

    The probe finds them among the vectors that enter the rotary function. Some functions also reorder the dimensions
    (DeepSeek), so each plane is carried to where attention sees it by R_0, which turns nothing.
    """
    probe = probe_rotation(rotation, head_width)
    start, width = rotation.query.start, rotation.query.width
    first = rotation.query.matrices()[0] / probe.factor
    planes = probe.planes.clone()
    planes[..., start : start + width] = probe.planes[..., start : start + width] @ first.T
    return RotaryPlanes(probe.frequencies, planes, only_length)


def changes_with_length(source: AttentionSource) -> bool:
    """Whether the config of a Hugging Face model names a rotary scheme whose frequencies change with the length."""
    return isinstance(source, HuggingFaceSource) and names_scheme(source.module.config.to_dict())


def names_scheme(settings: Any) -> bool:
    """Whether a changing scheme stands anywhere in nested rotary settings."""
    if not isinstance(settings, dict):
        return False
    return any(settings.get(name) in CHANGING for name in ("rope_type", "type")) or any(
        names_scheme(part) for part in settings.values()
    )


def every_plane(rotary: Mapping[int, RotaryPlanes], heads: Iterable[Head]) -> dict[Head, tuple[int, ...]]:
    """All planes of the given heads, as `PlaneGain` and `Translation` take them; InputError without a rotation."""
    return {head: tuple(range(len(layer_planes(rotary, head[0]).frequencies))) for head in heads}


def layer_planes(rotary: Mapping[int, RotaryPlanes], layer: int) -> RotaryPlanes:
    """The planes of a layer; InputError where it has none."""
    if layer not in rotary:
        raise InputError(
            f"layer {layer} has no rotary planes (it rotates nothing, or nothing that can be read): leave its heads "
            "out, or use a temperature, a mean filter or a logit kernel."
        )
    return rotary[layer]
