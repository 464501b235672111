"""Rotary encodings as Hugging Face configurations write them: JSON in, an encoding out.

Names and rules are those of transformers 5. What a rope_type does not read is an error, and so is a value that another
one contradicts; nothing that changes a frequency is made up, except a rope_theta of 10000 and a head_dim of 32.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from poskernel.encodings.encoding import Encoding
from poskernel.encodings.rotary import PartialRope, ProportionalRope, Rope
from poskernel.encodings.rotary_scaling import DynamicNtk, LinearInterpolation, Llama3, LongRope, Yarn
from poskernel.errors import InputError, lookup

NESTED = ("rope_parameters", "rope_scaling")
"""Where the parameters of the rotation may stand together; either name, or beside the others."""
LENGTH, ORIGINAL = "max_position_embeddings", "original_max_position_embeddings"
CONTEXT = ("rope_theta", "head_dim", "partial_rotary_factor", LENGTH, ORIGINAL, "rope_type", "type")
"""What a configuration may hold whatever its rope_type."""
READ: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    "longrope": ("factor", "attention_factor", "short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "proportional": (),
}
"""What each rope_type reads besides."""


def from_config(text: str) -> Encoding:
    """The rotary encoding of a configuration's JSON; InputError names the key that is unknown or makes no sense."""
    config = RotaryConfig(flattened(text))
    config.check_keys()
    return READERS[config.kind](config)


def flattened(text: str) -> dict[str, Any]:
    """Every key of the JSON beside the others; InputError where one is given twice."""
    try:
        config = json.loads(text, object_pairs_hook=without_repeats)
    except json.JSONDecodeError as error:
        raise InputError(
            f"the encoding '{text}' is no valid JSON ({error.msg} at column {error.colno}): mend it."
        ) from None
    groups = {name: config.pop(name) for name in NESTED if name in config}
    for name, group in groups.items():
        if group is None:
            continue
        if not isinstance(group, dict):
            raise InputError(
                f"the encoding's JSON has rope parameters '{group}': give an object with rope_type and what it reads."
            )
        for key, value in group.items():
            if isinstance(value, dict):
                raise InputError(f"{name} differ by kind of layer ('{key}'): give those of one kind.")
            if key in config and config[key] != value:
                raise InputError(
                    f"{key} of the encoding's JSON is both '{config[key]}' and, in {name}, '{value}': give one."
                )
            config[key] = value
    return config


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; InputError where a key stands in it twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InputError(f"{key} stands twice in the encoding's JSON: give it once.")
        found[key] = value
    return found


@dataclass(frozen=True)
class RotaryConfig:
    """The values of a configuration, read one by one."""

    values: dict[str, Any]

    @property
    def kind(self) -> str:
        """rope_type, or type as older configurations call it."""
        given = {str(self.values[key]) for key in ("rope_type", "type") if key in self.values}
        if len(given) > 1:
            raise InputError(f"rope_type and type of the encoding's JSON are {' and '.join(sorted(given))}: give one.")
        kind = next(iter(given), "default")
        lookup(READ, kind, "rope_type")
        return kind

    def check_keys(self) -> None:
        """InputError for a key that nothing reads, or that this rope_type does not."""
        kind, everything = self.kind, dict.fromkeys((*CONTEXT, *(key for keys in READ.values() for key in keys)))
        for key in self.values:
            lookup(everything, key, "key of the encoding's JSON")
            if key not in CONTEXT and key not in READ[kind]:
                read = ", ".join(READ[kind]) or "no further key"
                raise InputError(f"rope_type '{kind}' does not read '{key}', it reads {read}: leave '{key}' out.")
        if self.fraction != 1 and kind not in ("default", "proportional"):
            raise InputError(
                f"rope_type '{kind}' has no kernel family here with partial_rotary_factor {self.fraction}: give the "
                "turned width as head_dim instead."
            )

    def number(self, key: str, default: float | None = None) -> float:
        """A number, int or float; InputError names what is none, and what is missing without a default."""
        if key not in self.values and default is None:
            raise InputError(f"rope_type '{self.kind}' needs {key}: give it in the encoding's JSON.")
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{key} of the encoding's JSON is '{value}': give a number.")
        return float(value)

    def whole(self, key: str) -> int:
        """A whole number of at least 1, int or float."""
        value = self.number(key)
        if not (math.isfinite(value) and value == int(value) and value >= 1):
            raise InputError(f"{key} of the encoding's JSON is {value}: give a whole number of at least 1.")
        return int(value)

    def divisors(self, key: str) -> tuple[float, ...]:
        """A list of numbers."""
        value = self.values.get(key)
        if not (isinstance(value, list) and value) or any(
            isinstance(item, bool) or not isinstance(item, int | float) for item in value
        ):
            raise InputError(
                f"{key} of the encoding's JSON is '{value}': give a list of numbers, one a pair; "
                "longrope:factor=4,original=8192 does without."
            )
        return tuple(float(item) for item in value)

    @property
    def fraction(self) -> float:
        """Turned share of the head."""
        return self.number("partial_rotary_factor", 1.0)

    @property
    def base(self) -> float:
        """rope_theta."""
        return self.number("rope_theta", 1e4)

    def frequencies(self, default: int = 16) -> int:
        """Half of head_dim."""
        width = self.number("head_dim", 2.0 * default)
        if width % 2 or not 2 <= width < math.inf:
            raise InputError(f"head_dim is {width}: give an even whole number.")
        return int(width) // 2

    @property
    def original(self) -> int:
        """The trained length; without one, the longest position stands for it, as in transformers."""
        if ORIGINAL not in self.values and LENGTH not in self.values:
            raise InputError(f"rope_type '{self.kind}' needs {ORIGINAL}: give the length the model was trained at.")
        length = self.whole(LENGTH) if LENGTH in self.values else None
        original = self.whole(ORIGINAL) if ORIGINAL in self.values else length
        assert original is not None
        if length is not None and length < original:
            raise InputError(f"{LENGTH} is {length}, less than {ORIGINAL} {original}: give the extended length.")
        return original

    @property
    def dynamic_original(self) -> int:
        """The trained length of dynamic scaling, for which transformers reads the longest position."""
        original = self.original
        if LENGTH in self.values and self.whole(LENGTH) != original:
            raise InputError(
                f"dynamic scaling starts at {LENGTH}, which is {self.whole(LENGTH)}, and {ORIGINAL} is {original}: "
                "give one of them."
            )
        return original

    @property
    def extension(self) -> float:
        """factor, or the ratio of the two lengths; InputError where they disagree."""
        ratio = self.whole(LENGTH) / self.original if LENGTH in self.values and ORIGINAL in self.values else None
        if "factor" not in self.values and ratio is not None:
            return ratio
        factor = self.number("factor")
        # A ratio of 1 says that the longest position has not been raised, not that nothing is extended.
        if ratio is not None and ratio != 1 and not math.isclose(ratio, factor):
            raise InputError(
                f"factor is {factor} but {LENGTH} / {ORIGINAL} is {ratio:g}: make them agree, or leave {LENGTH} out."
            )
        return factor


def read_default(config: RotaryConfig) -> Encoding:
    """RoPE, of part of the head where partial_rotary_factor says so."""
    if config.fraction != 1:
        return PartialRope(config.fraction, base=config.base, frequencies=config.frequencies())
    return Rope(base=config.base, frequencies=config.frequencies())


def read_yarn(config: RotaryConfig) -> Encoding:
    """YaRN: attention_factor outright, or mscale and mscale_all_dim together, or neither."""
    scales = [key for key in ("mscale", "mscale_all_dim") if key in config.values]
    mscale, mscale_all_dim, attention = 1.0, 0.0, 1.0
    if "attention_factor" in config.values:
        if scales:
            raise InputError(
                f"attention_factor and {scales[0]} are both given: attention_factor alone counts, give one."
            )
        mscale, attention = 0.0, config.number("attention_factor")
    elif scales:
        if len(scales) == 1:
            raise InputError(f"{scales[0]} does nothing alone: give mscale and mscale_all_dim, or neither.")
        mscale, mscale_all_dim = (config.number(key) for key in scales)
        if not (mscale > 0 and mscale_all_dim > 0):
            raise InputError(
                f"mscale is {mscale} and mscale_all_dim {mscale_all_dim}: give positive numbers, or neither."
            )
    truncate = config.values.get("truncate", True)
    if not isinstance(truncate, bool):
        raise InputError(f"truncate of the encoding's JSON is '{truncate}': give true or false.")
    return Yarn(
        config.extension, config.original, base=config.base, frequencies=config.frequencies(),
        fast=config.number("beta_fast", 32.0), slow=config.number("beta_slow", 1.0), truncate=truncate,
        mscale=mscale, mscale_all_dim=mscale_all_dim, attention=attention,
    )  # fmt: skip


def read_longrope(config: RotaryConfig) -> Encoding:
    """LongRoPE with its two lists, whose length is half of head_dim."""
    short, long = config.divisors("short_factor"), config.divisors("long_factor")
    outright = "attention_factor" in config.values
    return LongRope(
        config.extension, config.original, base=config.base, frequencies=config.frequencies(len(long)),
        short=short, long=long, own_attention=not outright, attention=config.number("attention_factor", 1.0),
    )  # fmt: skip


def read_llama3(config: RotaryConfig) -> Encoding:
    """Llama 3.1's scaling; its factor is not the ratio of the lengths."""
    return Llama3(
        config.number("factor"), config.original, low=config.number("low_freq_factor"),
        high=config.number("high_freq_factor"), base=config.base, frequencies=config.frequencies(),
    )  # fmt: skip


READERS: dict[str, Callable[[RotaryConfig], Encoding]] = {
    "default": read_default,
    "linear": lambda config: LinearInterpolation(
        config.number("factor"), base=config.base, frequencies=config.frequencies()
    ),
    "dynamic": lambda config: DynamicNtk(
        config.number("factor"), config.dynamic_original, base=config.base, frequencies=config.frequencies()
    ),
    "yarn": read_yarn,
    "longrope": read_longrope,
    "llama3": read_llama3,
    "proportional": lambda config: ProportionalRope(
        config.number("partial_rotary_factor"), base=config.base, frequencies=config.frequencies()
    ),
}
"""One reader a rope_type of READ."""
