"""Positional encodings: for each, the kernels a head can realize and what stands inside a model."""

import json
import math
from typing import Any

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
    "STUDY_ENCODINGS",
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

STUDY_ENCODINGS = tuple(ENCODINGS[name] for name in ("nope", "learned", "sinusoidal", "rope", "alibi"))
"""The five encodings of the realizability paper: what a screen looks at unless told otherwise."""

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
    nested = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(nested, dict):
        raise InputError(
            f"the encoding's JSON has rope parameters '{nested}': give an object with rope_type and factor."
        )
    merged = {**config, **nested}
    known = ("rope_theta", "head_dim", "rope_parameters", "rope_scaling", "rope_type", "type", "factor")
    unknown = [key for key in merged if key not in known]
    if unknown:
        raise InputError(f"the encoding's JSON has the unknown key '{unknown[0]}': use {', '.join(known)}.")
    kind = merged.get("rope_type", merged.get("type", "default"))
    if kind not in ROPE_TYPES:
        raise InputError(f"rope_type '{kind}' has no kernel family here: use {' or '.join(ROPE_TYPES)}.")
    factor, base, width = (
        config_number(merged, key, default)
        for key, default in (("factor", 1.0), ("rope_theta", 1e4), ("head_dim", 32.0))
    )
    if kind == "linear" and not 1 <= factor < math.inf:
        raise InputError(f"the linear factor is {factor}: give 1 or more.")
    if width % 2 or not 2 <= width < math.inf:
        raise InputError(f"head_dim is {width}: give an even whole number.")
    scale = 1 / factor if kind == "linear" else 1.0
    return Rope(base=base, frequencies=int(width) // 2, scale=scale)


def config_number(config: dict[str, Any], key: str, default: float) -> float:
    """A number of a configuration, int or float; InputError names what is none."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{key} of the encoding's JSON is '{value}': give a number.")
    return float(value)
