"""Positional encodings: for each, the kernels a head can realize and what stands inside a model."""

from poskernel.encodings.absolute import Learned, LearnedGaussian, Sinusoidal
from poskernel.encodings.base_setting import BASE, rope_with_base
from poskernel.encodings.bias import T5, Alibi, Shaw
from poskernel.encodings.content import Cope
from poskernel.encodings.encoding import (
    AbsoluteEncoding,
    Encoding,
    ModelShape,
    Placement,
    PositionModule,
    RelativeEncoding,
)
from poskernel.encodings.family import BilinearFamily, KernelFamily, LinearFamily, RelativeFamily
from poskernel.encodings.fire import Fire
from poskernel.encodings.huggingface_config import from_config
from poskernel.encodings.kerple import KerpleLog, KerplePower
from poskernel.encodings.none import Nope
from poskernel.encodings.nonlinear import NonlinearFamily
from poskernel.encodings.randomized import Randomized
from poskernel.encodings.rotary import PartialRope, ProportionalRope, Rope, RotaryEncoding, XPos
from poskernel.encodings.rotary_scaling import DynamicNtk, LinearInterpolation, Llama3, LongRope, Ntk, Yarn
from poskernel.specification import parse_specification

__all__ = [
    "ENCODINGS",
    "STUDY_ENCODINGS",
    "T5",
    "AbsoluteEncoding",
    "Alibi",
    "BilinearFamily",
    "Cope",
    "DynamicNtk",
    "Encoding",
    "Fire",
    "KernelFamily",
    "KerpleLog",
    "KerplePower",
    "Learned",
    "LearnedGaussian",
    "LinearFamily",
    "LinearInterpolation",
    "Llama3",
    "LongRope",
    "ModelShape",
    "NonlinearFamily",
    "Nope",
    "Ntk",
    "PartialRope",
    "Placement",
    "PositionModule",
    "ProportionalRope",
    "Randomized",
    "RelativeEncoding",
    "RelativeFamily",
    "Rope",
    "RotaryEncoding",
    "Shaw",
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
    encoding.name: encoding
    for encoding in (
        *(Nope(), Learned(), Sinusoidal(), Rope(), Alibi(), *ROTARY_VARIANTS),
        *(T5(), Shaw(), KerpleLog(), KerplePower(), Fire(), Randomized(), LearnedGaussian(), Cope()),
    )
}

STUDY_ENCODINGS = tuple(ENCODINGS[name] for name in ("nope", "learned", "sinusoidal", "rope", "alibi"))
"""The five encodings of the realizability paper: what a screen looks at unless told otherwise."""


def parse_encoding(text: str) -> Encoding:
    """The encoding a text names.

    `rope`, `rope:base=1e6,frequencies=32`, inline JSON in the form of a Hugging Face config, or `base:1e6` and
    `base:x4` for RoPE with another base, outright or as a multiple of the default one.
    """
    if text.lstrip().startswith("{"):
        return from_config(text)
    if text.strip().partition(":")[0] == BASE:
        return rope_with_base(text)
    return parse_specification(ENCODINGS, text, "encoding")
