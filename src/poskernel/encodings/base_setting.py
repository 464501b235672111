"""`base:1e6` and `base:x4`: plain RoPE by its base alone, outright or as a multiple of the base it had."""

from collections.abc import Callable

from poskernel.encodings.rotary import Rope
from poskernel.errors import InputError
from poskernel.specification import parse_specification

BASE = "base"


def base_of(text: str, value: str, own: Callable[[], float]) -> float:
    """The base that `1e6` or `x4` names, where `own()` is the one it was; InputError for what is no base."""
    try:
        number = float(value.removeprefix("x"))
    except ValueError:
        raise InputError(f"the base of setting '{text}' is '{value}': give a number, or x4 for four times.") from None
    if not value.startswith("x"):
        return number
    if not number > 1:
        raise InputError(f"the setting '{text}' multiplies the base by {number:g}: give more than 1.")
    return number * own()


def rope_with_base(text: str) -> Rope:
    """The RoPE of `base:1e6`, `base:x4` (times the default base) or `base:1e6,frequencies=32`."""
    _, _, assignments = text.strip().partition(":")
    value, _, others = assignments.partition(",")
    if not value.strip():
        raise InputError(f"the setting '{text.strip()}' has no base: write base:1e6, or base:x4 for four times.")
    number = base_of(text.strip(), value.strip().removeprefix("base="), lambda: Rope.base)
    return parse_specification({BASE: Rope()}, f"{BASE}:{number!r}" + (f",{others}" if others else ""), "encoding")
