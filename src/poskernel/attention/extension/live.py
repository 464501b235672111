"""A setting applied to the live model itself: what predictions are compared with.

A rotary embedding of transformers computes its frequencies from the config when it is made; one made from a changed
config, put in the place of the old one, turns the model as that config would. Weights are shared, nothing is copied.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from poskernel.attention.extension.rotary_layers import EVERY, ORIGINAL, LayerKind, kind_parameters
from poskernel.attention.extension.settings import Setting
from poskernel.attention.sources.capture import AttentionSource
from poskernel.encodings import DynamicNtk, LinearInterpolation, Llama3, LongRope, Ntk, Rope, RotaryEncoding, Yarn
from poskernel.errors import InputError

MARK = "RotaryEmbedding"


@contextmanager
def applied(source: AttentionSource, setting: Setting) -> Iterator[None]:
    """The source's own module under a setting; as before afterwards. InputError where it cannot be changed so."""
    module = getattr(source, "module", None)
    if not setting.changed:
        yield
        return
    if module is None or getattr(module, "config", None) is None:
        raise InputError(f"'{source.name}' is no Hugging Face model: '{setting.text}' cannot be applied to it.")
    places = [
        (parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if MARK in type(child).__name__
    ]
    if not places:
        raise InputError(
            f"'{source.name}' has no rotary embedding of its own: '{setting.text}' cannot be applied to it."
        )
    config = changed_config(module.config, setting)
    device = next(module.parameters()).device
    try:
        for parent, name, child in places:
            setattr(parent, name, type(child)(config=config).to(device))
        yield
    finally:
        for parent, name, child in places:
            setattr(parent, name, child)


def changed_config(config: Any, setting: Setting) -> Any:
    """A copy of a model's config with the setting's rotary parameters."""
    changed = copy.deepcopy(config)
    own: Mapping[str, Any] = getattr(config, "rope_parameters", None) or {}
    nested = kind_parameters({"rope_parameters": own})
    if nested is None:
        if len(setting.kinds) != len(setting.changed):
            raise InputError(
                f"'{setting.text}' changes some layers alone, which this model's config cannot say: give one for all."
            )
        kind = setting.kinds[0]
        changed.rope_parameters = parameters_of(setting.changed[kind.name], kind, own)
    else:
        parameters = {name: dict(values) for name, values in nested.items()}
        for kind in setting.kinds:
            if kind.name in setting.changed:
                names = list(parameters) if kind.name == EVERY else [kind.name]
                for name in names:
                    parameters[name] = parameters_of(setting.changed[kind.name], kind, parameters[name])
        changed.rope_parameters = parameters
    dynamic = [encoding for encoding in setting.changed.values() if isinstance(encoding, DynamicNtk)]
    if dynamic:
        changed.max_position_embeddings = dynamic[0].original  # where transformers begins to scale
    return changed


def parameters_of(encoding: RotaryEncoding, kind: LayerKind, own: Mapping[str, Any]) -> dict[str, Any]:
    """An encoding as rotary parameters of transformers; the turned part of a head stays the model's own."""
    found: dict[str, Any] = {"rope_theta": encoding.base}
    if own.get("partial_rotary_factor") is not None:
        found["partial_rotary_factor"] = own["partial_rotary_factor"]
    match encoding:
        case Rope():
            found |= {"rope_type": "default"} if encoding.scale == 1 else {
                "rope_type": "linear", "factor": 1 / encoding.scale}  # fmt: skip
        case LinearInterpolation():
            found |= {"rope_type": "linear", "factor": encoding.factor}
        case Ntk():  # transformers has no name for it: it is RoPE with a grown base
            grown = encoding.base * encoding.factor ** (kind.pairs / (kind.pairs - 1))
            found |= {"rope_type": "default", "rope_theta": grown}
        case DynamicNtk():
            found |= {"rope_type": "dynamic", "factor": encoding.factor}
        case Yarn():
            found |= {
                "rope_type": "yarn", "factor": encoding.factor, ORIGINAL: encoding.original,
                "beta_fast": encoding.fast, "beta_slow": encoding.slow, "truncate": encoding.truncate,
                "attention_factor": encoding.attention_factor,
            }  # fmt: skip
        case LongRope():
            short, long = (encoding.divisors(kind.pairs, length).tolist() for length in (1, encoding.original + 1))
            found |= {
                "rope_type": "longrope", "factor": encoding.factor, ORIGINAL: encoding.original,
                "short_factor": short, "long_factor": long, "attention_factor": encoding.attention_factor,
            }  # fmt: skip
        case Llama3():
            found |= {
                "rope_type": "llama3", "factor": encoding.factor, ORIGINAL: encoding.original,
                "low_freq_factor": encoding.low, "high_freq_factor": encoding.high,
            }  # fmt: skip
        case _:
            raise InputError(f"transformers has no rope_type for '{encoding.name}': choose another setting.")
    return found


def rotary_embeddings(module: nn.Module) -> list[nn.Module]:
    """The rotary embeddings of a live model."""
    return [part for part in module.modules() if MARK in type(part).__name__]
