"""Positional encodings: for each, the kernels a head can realize and what stands inside a model."""

import json

from poskernel.encodings.absolute import Learned, Sinusoidal
from poskernel.encodings.bias import Alibi
from poskernel.encodings.encoding import (
    AbsoluteEncoding,
    Encoding,
    ModelShape,
    Placement,
    PositionModule,
    RelativeEncoding,
)
from poskernel.encodings.family import BilinearFamily, KernelFamily, RelativeFamily
from poskernel.encodings.none import Nope
from poskernel.encodings.rotary import Rope
from poskernel.errors import InputError
from poskernel.specification import parse_specification

__all__ = [
    "ENCODINGS",
    "AbsoluteEncoding",
    "Alibi",
    "BilinearFamily",
    "Encoding",
    "KernelFamily",
    "Learned",
    "ModelShape",
    "Nope",
    "Placement",
    "PositionModule",
    "RelativeEncoding",
    "RelativeFamily",
    "Rope",
    "Sinusoidal",
    "parse_encoding",
]

ENCODINGS: dict[str, Encoding] = {
    encoding.name: encoding for encoding in (Nope(), Learned(), Sinusoidal(), Rope(), Alibi())
}

ROPE_TYPES = ("default", "linear")
"""Types of a Hugging Face rotary configuration that a family exists for."""


def parse_encoding(text: str) -> Encoding:
    """The encoding a text names.

    `rope`, `rope:base=1e6,frequencies=32`, or inline JSON in the form of a Hugging Face config.
    """
    return from_config(text) if text.lstrip().startswith("{") else parse_specification(ENCODINGS, text, "encoding")


def from_config(text: str) -> Encoding:
    """RoPE as a Hugging Face config writes it: rope_theta, head_dim, rope_parameters, rope_scaling; ints or floats."""
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"the encoding '{text}' is no valid JSON ({error.msg} at column {error.colno}): mend it."
        ) from None
    known = ("rope_theta", "head_dim", "rope_parameters", "rope_scaling", "rope_type", "type", "factor")
    unknown = [key for key in config if key not in known]
    if unknown:
        raise InputError(f"the encoding's JSON has the unknown key '{unknown[0]}': use {', '.join(known)}.")
    nested = config.get("rope_parameters") or config.get("rope_scaling") or {}
    merged = {**config, **nested}
    kind = merged.get("rope_type", merged.get("type", "default"))
    if kind not in ROPE_TYPES:
        raise InputError(f"rope_type '{kind}' has no kernel family here: use {' or '.join(ROPE_TYPES)}.")
    factor = float(merged.get("factor", 1.0))
    if kind == "linear" and factor < 1:
        raise InputError(f"the linear factor is {factor}: give 1 or more.")
    width = merged.get("head_dim", 32)
    if width != int(width) or int(width) % 2 or width < 2:
        raise InputError(f"head_dim is {width}: give an even whole number.")
    scale = 1 / factor if kind == "linear" else 1.0
    return Rope(base=float(merged.get("rope_theta", 1e4)), frequencies=int(width) // 2, scale=scale)
