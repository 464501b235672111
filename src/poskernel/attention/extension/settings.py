"""RoPE settings in words, and as each kind of a model's rotary layers would turn under them.

`yarn:4`, `linear:2`, `base:1e6`, `base:x4`, `none`, or inline JSON in the form of a Hugging Face config. What a text
leaves open is the model's own: its base, its number of planes and the length it was trained at.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poskernel.attention.extension.planes import Turning
from poskernel.attention.extension.rotary_layers import ORIGINAL, LayerKind, encoding_of, kind_parameters
from poskernel.encodings import ENCODINGS, Rope, RotaryEncoding, parse_encoding
from poskernel.encodings.base_setting import BASE, base_of
from poskernel.errors import InputError, lookup

NONE = "none"
SCALINGS = ("linear", "ntk", "dynamic", "yarn", "longrope", "llama3")
TYPES = (NONE, BASE, *SCALINGS, "rope")
EXAMPLES = "none, linear:4, ntk:4, dynamic:4, yarn:4, longrope:4, llama3:4, base:1e6, base:x4 or inline JSON"


@dataclass(frozen=True)
class Setting:
    """A setting as applied: the encoding of each kind of rotary layers that it changes; the others stay as they are."""

    text: str
    changed: Mapping[str, RotaryEncoding]
    kinds: Sequence[LayerKind]

    @property
    def depends_on_length(self) -> bool:
        """Whether some layer turns otherwise in a sequence of another length."""
        return any((encoding := self.encoding(kind)) and encoding.depends_on_length for kind in self.kinds)

    def encoding(self, kind: LayerKind) -> RotaryEncoding | None:
        """What turns the layers of a kind; None where they turn in a way of their own that has no name here."""
        return self.changed.get(kind.name, kind.own)

    def turning(self, kind: LayerKind, length: int) -> Turning:
        """Rates and factor of a kind's layers in a sequence of that length."""
        encoding = self.changed.get(kind.name)
        if encoding is None and (kind.own is None or not kind.own.depends_on_length):
            assert kind.turning is not None
            return kind.turning
        encoding = encoding or kind.own
        assert encoding is not None
        return Turning(encoding.plane_rates(kind.pairs, length), encoding.attention_factor)

    def turnings(self, length: int) -> dict[int, Turning]:
        """The turning of every rotary layer."""
        return {
            layer: turning for kind in self.kinds for turning in [self.turning(kind, length)] for layer in kind.layers
        }

    @property
    def effective(self) -> dict[str, Any]:
        """What is applied to each kind of layers, for the echo."""
        found: dict[str, Any] = {}
        for kind in self.kinds:
            encoding = self.encoding(kind)
            found[kind.name] = {
                "encoding": "the model's own frequencies" if encoding is None else encoding.effective,
                "changed": kind.name in self.changed,
                "attention_factor": kind.factor if encoding is None else encoding.attention_factor,
                "layers": list(kind.layers),
                "window": kind.window,
            }
        return found


def parse_setting(text: str, kinds: Sequence[LayerKind], trained_length: int | None) -> Setting:
    """The setting a text names, for a model with these kinds of rotary layers; InputError names what is wrong."""
    if text.lstrip().startswith("{"):
        return Setting(text.strip(), from_json(text, kinds, trained_length), kinds)
    name = text.strip().partition(":")[0]
    lookup(dict.fromkeys(TYPES), name, "setting")
    if name == NONE:
        if text.strip() != NONE:
            raise InputError(f"the setting '{text}' gives parameters to none: write none alone.")
        return Setting(NONE, {}, kinds)
    changed = {kind.name: named_encoding(text.strip(), kind, trained_length) for kind in extended_kinds(kinds)}
    return Setting(text.strip(), changed, kinds)


def automatic_settings(trained_length: int | None, length: int) -> list[str]:
    """The settings of `auto`: the model as it is, and every scaling by the power of two that reaches the length."""
    trained, factor = trained_length or length, 2
    while factor * trained < length:
        factor *= 2
    return [NONE, *(f"{kind}:{factor}" for kind in SCALINGS), f"{BASE}:x{factor}"]


def extended_kinds(kinds: Sequence[LayerKind]) -> list[LayerKind]:
    """The kinds that a setting without kinds of its own changes.

    Where a model has layers with a sliding window and layers without, those without: a window's offsets do not grow
    with the context, and such models leave their windows' layers alone themselves (Gemma 3).
    """
    without = [kind for kind in kinds if kind.window is None]
    return without or list(kinds)


def named_encoding(text: str, kind: LayerKind, trained_length: int | None) -> RotaryEncoding:
    """The encoding of `yarn:4` and its like, with the kind's own base and planes where the text gives none."""
    name, colon, values = text.partition(":")
    if name == BASE:
        return with_base(text, values.strip(), kind)
    if name in SCALINGS and not colon:
        raise InputError(f"the setting '{text}' has no factor: write {text}:4.")
    encoding = parse_encoding(text)
    assert isinstance(encoding, RotaryEncoding)
    given = given_fields(name, values)
    changes: dict[str, Any] = {}
    if "frequencies" in given and encoding.frequencies != kind.pairs:
        raise InputError(
            f"the setting '{text}' turns {encoding.frequencies} planes and the model's {kind.name} layers "
            f"{kind.pairs}: leave frequencies out."
        )
    changes["frequencies"] = kind.pairs
    if "base" not in given:
        changes["base"] = own_base(text, kind)
    if hasattr(encoding, "original") and "original" not in given:
        changes["original"] = original_length(text, trained_length)
    return checked(text, replace(encoding, **changes))  # type: ignore[type-var]  # every encoding is a dataclass


def with_base(text: str, value: str, kind: LayerKind) -> RotaryEncoding:
    """Plain RoPE with a new base: `1e6` outright, `x4` times the model's own."""
    return Rope(base=base_of(text, value, lambda: own_base(text, kind)), frequencies=kind.pairs)


def given_fields(name: str, values: str) -> set[str]:
    """Names of the parameters that a text gives; a bare value stands for the first field."""
    first = next(iter(ENCODINGS[name].__dataclass_fields__))  # type: ignore[attr-defined]  # every encoding is one
    return {part.partition("=")[0].strip() if "=" in part else first for part in values.split(",") if part}


def from_json(text: str, kinds: Sequence[LayerKind], trained_length: int | None) -> dict[str, RotaryEncoding]:
    """The encodings of a Hugging Face config's rotary parameters, one set for all layers or one a kind of layer."""
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"the setting '{text}' is no valid JSON ({error.msg} at column {error.colno}): mend it."
        ) from None
    parameters = kind_parameters(config)
    if parameters is not None:
        for name in parameters:
            lookup({kind.name: kind for kind in kinds}, name, "kind of rotary layers")
        pairs = [(kind, parameters[kind.name]) for kind in kinds if kind.name in parameters]
    else:
        pairs = [(kind, config) for kind in extended_kinds(kinds)]
    return {kind.name: completed(text, values, kind, trained_length) for kind, values in pairs}


def completed(text: str, values: Mapping[str, Any], kind: LayerKind, trained_length: int | None) -> RotaryEncoding:
    """The encoding of rotary parameters, with the model's own in the places of those left out."""
    flat = dict(values)
    for group in ("rope_parameters", "rope_scaling"):
        nested = flat.pop(group, None)
        if isinstance(nested, dict):
            flat |= nested
    fraction = flat.pop("partial_rotary_factor", None) if flat.get("rope_type") != "proportional" else None
    if fraction is not None and int(fraction * kind.head_width) != 2 * kind.pairs:
        raise InputError(
            f"partial_rotary_factor {fraction} of the setting turns {int(fraction * kind.head_width)} of a head's "
            f"{kind.head_width} dimensions and the model {2 * kind.pairs}: leave it out."
        )
    width = flat.pop("head_dim", None)
    if width is not None and width not in (kind.head_width, 2 * kind.pairs):
        raise InputError(f"head_dim {width} of the setting is not the model's {kind.head_width}: leave it out.")
    kind_of_scaling = flat.get("rope_type", flat.get("type", "default"))
    if "rope_theta" not in flat:
        flat["rope_theta"] = own_base(text, kind)
    needs = kind_of_scaling in ("dynamic", "yarn", "longrope", "llama3")
    if needs and ORIGINAL not in flat and "max_position_embeddings" not in flat:
        flat[ORIGINAL] = original_length(text, trained_length)
    return checked(text, encoding_of(flat, kind.pairs))


def own_base(text: str, kind: LayerKind) -> float:
    """The base of a kind's layers as they are; InputError where their frequencies have none."""
    if kind.own is None:
        raise InputError(
            f"the frequencies of the {kind.name} layers follow no base that is known, so '{text}' cannot be applied "
            "to them: give base=..., or rope_theta in JSON."
        )
    return kind.own.base


def original_length(text: str, trained_length: int | None) -> int:
    """The trained length; InputError where the model does not say it."""
    if trained_length is None:
        raise InputError(f"the model does not say its trained length, which '{text}' starts from: give original=8192.")
    return trained_length


def checked(text: str, encoding: RotaryEncoding) -> RotaryEncoding:
    """The encoding; InputError for a factor that extends nothing."""
    factor = getattr(encoding, "factor", None)
    if factor is not None and factor <= 1:
        raise InputError(f"the factor of setting '{text}' is {factor:g}: give more than 1.")
    return encoding
