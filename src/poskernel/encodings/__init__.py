"""Positional encodings: for each, the kernels a head can realize and what stands inside a model."""

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
from poskernel.encodings.huggingface_config import from_config
from poskernel.encodings.none import Nope
from poskernel.encodings.rotary import PartialRope, ProportionalRope, Rope, RotaryEncoding, XPos
from poskernel.encodings.rotary_scaling import DynamicNtk, LinearInterpolation, Llama3, LongRope, Ntk, Yarn
from poskernel.specification import parse_specification

__all__ = [
    "ENCODINGS",
    "STUDY_ENCODINGS",
    "AbsoluteEncoding",
    "Alibi",
    "BilinearFamily",
    "DynamicNtk",
    "Encoding",
    "KernelFamily",
    "Learned",
    "LinearInterpolation",
    "Llama3",
    "LongRope",
    "ModelShape",
    "Nope",
    "Ntk",
    "PartialRope",
    "Placement",
    "PositionModule",
    "ProportionalRope",
    "RelativeEncoding",
    "RelativeFamily",
    "Rope",
    "RotaryEncoding",
    "Sinusoidal",
    "XPos",
    "Yarn",
    "parse_encoding",
]

ROTARY_VARIANTS = (
    *(LinearInterpolation(), Ntk(), DynamicNtk(), Yarn(), LongRope(), Llama3()),
    *(PartialRope(), ProportionalRope(), XPos()),
)
ENCODINGS: dict[str, Encoding] = {
    encoding.name: encoding for encoding in (Nope(), Learned(), Sinusoidal(), Rope(), Alibi(), *ROTARY_VARIANTS)
}

STUDY_ENCODINGS = tuple(ENCODINGS[name] for name in ("nope", "learned", "sinusoidal", "rope", "alibi"))
"""The five encodings of the realizability paper: what a screen looks at unless told otherwise."""


def parse_encoding(text: str) -> Encoding:
    """The encoding a text names.

    `rope`, `rope:base=1e6,frequencies=32`, or inline JSON in the form of a Hugging Face config.
    """
    return from_config(text) if text.lstrip().startswith("{") else parse_specification(ENCODINGS, text, "encoding")
