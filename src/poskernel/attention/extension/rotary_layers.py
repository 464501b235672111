"""Which layers of a model turn their queries and keys, in which kinds, by which encoding: from its config, and checked.

A config may keep one set of rotary parameters or one for each kind of layer (Gemma 3), under `rope_parameters`, or as
older ones do under `rope_scaling` beside `rope_theta`.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from poskernel.attention.extension.planes import Turning
from poskernel.encodings import Rope, RotaryEncoding, parse_encoding
from poskernel.errors import InputError

EVERY = "rotary"
"""Name of the kind where a model has one."""
ORIGINAL, LENGTH = "original_max_position_embeddings", "max_position_embeddings"
GROUPS = ("rope_parameters", "rope_scaling")
READ = (
    *("rope_theta", "rope_type", "type", "factor", ORIGINAL, "attention_factor", "beta_fast", "beta_slow", "mscale"),
    *("mscale_all_dim", "truncate", "short_factor", "long_factor", "low_freq_factor", "high_freq_factor"),
    "partial_rotary_factor",
)
"""Keys that a model's own parameters are read from; other keys say nothing of its frequencies."""
AGREES = 1e-5
"""Relative difference of a config's frequency and that of the live module, which is float32."""


@dataclass(frozen=True, eq=False)
class LayerKind:
    """Layers that turn alike: their planes, window, and encoding as they are."""

    name: str
    layers: tuple[int, ...]
    pairs: int
    head_width: int
    window: int | None = None
    own: RotaryEncoding | None = None
    """None where the frequencies follow no encoding that is known."""
    turning: Turning | None = None
    """Read from the live module; None where there is a config alone."""

    @property
    def factor(self) -> float:
        """The attention factor as it is."""
        return 1.0 if self.turning is None else self.turning.factor


def kind_parameters(config: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """The parameters of each kind of layer, where a config tells them apart."""
    for group in GROUPS:
        nested = config.get(group)
        if isinstance(nested, dict) and any(isinstance(value, dict) for value in nested.values()):
            return {name: value for name, value in nested.items() if isinstance(value, dict)}
    return None


def rotary_parameters(config: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
    """The rotary parameters of a kind of layer (None: of all), with what a config keeps beside them."""
    nested = kind_parameters(config)
    found: dict[str, Any] = {}
    if nested is not None:
        found = dict(nested.get(kind or "", {}))
    else:
        for group in GROUPS:
            found |= config.get(group) or {}
        if kind == "sliding_attention" and "rope_local_base_freq" in config:
            found = {"rope_theta": config["rope_local_base_freq"]}  # Gemma 3 before transformers 5
    for name in ("rope_theta", "partial_rotary_factor", ORIGINAL):
        if config.get(name) is not None:
            found.setdefault(name, config[name])
    for old in ("rotary_emb_base", "rotary_pct"):
        if config.get(old) is not None:
            found.setdefault({"rotary_emb_base": "rope_theta", "rotary_pct": "partial_rotary_factor"}[old], config[old])
    return {name: value for name, value in found.items() if name in READ and value is not None}


def encoding_of(parameters: Mapping[str, Any], pairs: int) -> RotaryEncoding:
    """The encoding of rotary parameters for a block of `pairs` planes; InputError as for inline JSON."""
    encoding = parse_encoding(json.dumps({**parameters, "head_dim": 2 * pairs}))
    assert isinstance(encoding, RotaryEncoding)
    return encoding


def own_encoding(parameters: Mapping[str, Any], pairs: int, length: int | None) -> RotaryEncoding:
    """The encoding that a model's own config describes."""
    values = dict(parameters)
    scheme = values.get("rope_type", values.get("type", "default"))
    if scheme != "proportional":
        values.pop("partial_rotary_factor", None)  # the pairs say it
    if scheme == "default":
        values = {"rope_theta": values.get("rope_theta", 1e4)}
    elif scheme == "linear":
        values.pop(ORIGINAL, None)
    if scheme in ("dynamic", "yarn", "llama3", "longrope") and length is not None:
        if scheme == "dynamic":
            values[ORIGINAL] = length  # what transformers reads
        elif ORIGINAL not in values:
            values[ORIGINAL] = length
        elif "factor" not in values:
            values[LENGTH] = length
    return encoding_of(values, pairs)


def agreeing(encoding: RotaryEncoding, turning: Turning, pairs: int, length: int) -> bool:
    """Whether an encoding turns as the live module was seen to."""
    rates = encoding.plane_rates(pairs, length)
    close = torch.isclose(rates, turning.rates, rtol=AGREES, atol=1e-12).all()
    return bool(close) and abs(encoding.attention_factor / turning.factor - 1) < AGREES


def described(
    config: Mapping[str, Any] | None, kind: str | None, turning: Turning, probe_length: int
) -> RotaryEncoding | None:
    """The encoding of a live kind of layers: its config's if that is how it turns, else plain RoPE if that is."""
    pairs = len(turning.rates)
    candidates: list[RotaryEncoding] = []
    if config is not None:
        with suppress(InputError):  # what cannot be read cannot be compared with the live module, which decides
            candidates.append(own_encoding(rotary_parameters(config, kind), pairs, config.get(LENGTH)))
    slowest = float(turning.rates[-1])
    if pairs > 1 and slowest > 0:
        # The slowest plane tells the base best: it turns by base^(-(pairs - 1) / pairs).
        candidates.append(Rope(base=slowest ** (-pairs / (pairs - 1)), frequencies=pairs))
    return next((each for each in candidates if agreeing(each, turning, pairs, probe_length)), None)


def live_kinds(
    config: Mapping[str, Any] | None,
    turnings: Mapping[int, Turning],
    windows: Mapping[int, int | None],
    head_widths: Mapping[int, int],
    probe_length: int,
) -> list[LayerKind]:
    """The kinds of a live model's rotary layers: those that its config names, and within them those that turn alike."""
    types: Sequence[str] | None = (config or {}).get("layer_types")
    groups: list[tuple[str, list[int]]] = []
    for layer, turning in turnings.items():
        name = types[layer] if types is not None and layer < len(types) else EVERY
        for known, members in groups:
            same = turnings[members[0]]
            if known == name and len(same.rates) == len(turning.rates) and same.same_as(turning) \
                    and windows[members[0]] == windows[layer]:  # fmt: skip
                members.append(layer)
                break
        else:
            groups.append((name, [layer]))
    names = [name for name, _ in groups]
    if len(groups) == 1:
        names = [EVERY]
    found = []
    for place, ((type_name, members), name) in enumerate(zip(groups, names, strict=True)):
        turning = turnings[members[0]]
        unique = name if names.count(name) == 1 else f"{name} {names[:place].count(name) + 1}"
        own = described(config, type_name if types is not None else None, turning, probe_length)
        found.append(
            LayerKind(
                unique, tuple(members), len(turning.rates), head_widths[members[0]], windows[members[0]], own, turning
            )
        )
    return found


def config_kinds(config: Mapping[str, Any]) -> list[LayerKind]:
    """The kinds of a model's rotary layers from its config alone; InputError where it has none, saying what it has."""
    text = config.get("text_config")
    if isinstance(text, dict) and "num_attention_heads" in text:
        config = text
    if not any(config.get(name) is not None for name in (*GROUPS, "rope_theta", "rotary_dim", "rotary_pct")):
        raise InputError(f"the config has no rotary layers: it has {positions_of(config)}; extend is about RoPE.")
    layers = int(config.get("num_hidden_layers") or config.get("n_layer") or 1)
    types = config.get("layer_types")
    nested = kind_parameters(config)
    names: list[str] = list(types)[:layers] if types else [EVERY] * layers
    if types is None and "rope_local_base_freq" in config:
        every = int(config.get("sliding_window_pattern") or 6)
        names = ["full_attention" if (layer + 1) % every == 0 else "sliding_attention" for layer in range(layers)]
    if nested is not None and types is None:
        names = [next(iter(nested))] * layers
    found = []
    for name in dict.fromkeys(names):
        parameters = rotary_parameters(config, name if name != EVERY else None)
        width = head_width(config)
        pairs = int(config.get("rotary_dim") or config.get("qk_rope_head_dim") or turned_width(parameters, width)) // 2
        if pairs < 1:
            raise InputError(f"the config turns {2 * pairs} of a head's {width} dimensions: mend its rotary fields.")
        members = tuple(layer for layer, kind in enumerate(names) if kind == name)
        own = own_encoding(parameters, pairs, config.get(LENGTH))
        window = config.get("sliding_window") if "sliding" in name else None
        unique = name if len(set(names)) > 1 else EVERY
        found.append(LayerKind(unique, members, pairs, width, window, own))
    return found


def head_width(config: Mapping[str, Any]) -> int:
    """Dimensions of a head; InputError where the config does not say."""
    if config.get("head_dim"):
        return int(config["head_dim"])
    width = config.get("hidden_size") or config.get("n_embd") or config.get("d_model")
    heads = config.get("num_attention_heads") or config.get("n_head")
    if not width or not heads:
        raise InputError("the config says neither head_dim nor hidden_size and num_attention_heads: add head_dim.")
    return int(width) // int(heads)


def turned_width(parameters: Mapping[str, Any], width: int) -> int:
    """Dimensions of the turned block; proportional RoPE keeps the planes that stand still in it."""
    if parameters.get("rope_type") == "proportional":
        return width
    return int(width * float(parameters.get("partial_rotary_factor", 1.0)))


def positions_of(config: Mapping[str, Any]) -> str:
    """What a config without rotary parameters says of positions, in words."""
    if config.get("alibi"):
        return "ALiBi"
    if config.get("relative_attention_num_buckets"):
        return "bucketed relative biases"
    if config.get("position_embedding_type"):
        return f"position_embedding_type '{config['position_embedding_type']}'"
    if config.get(LENGTH) or config.get("n_positions"):
        return f"{config.get(LENGTH) or config.get('n_positions')} positions and no rotary field (learned positions?)"
    return "no field about positions"
