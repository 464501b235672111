"""transformers' own registries: our attention and mask functions in them, and models switched to them and back."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

IMPLEMENTATION = "poskernel_capture"
INTERVENED = "_poskernel_intervened"
"""Attribute of a model under intervention: what changes its attention's operands, capture or not."""


@contextmanager
def registered(
    attention: Callable[..., Any], name: str = IMPLEMENTATION, mask: Callable[..., Any] | None = None
) -> Iterator[None]:
    """The attention function and a mask function (boolean masks) known to transformers by name, inside the block."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = ALL_ATTENTION_FUNCTIONS.get(name), ALL_MASK_ATTENTION_FUNCTIONS.get(name)
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask or mask_function("sdpa"))
    try:
        yield
    finally:
        for interface, function in zip((AttentionInterface, AttentionMaskInterface), before, strict=True):
            if function is None:
                interface._global_mapping.pop(name, None)
            else:
                interface.register(name, function)


def mask_function(name: str) -> Callable[..., Any]:
    """The registered function that makes the masks of an attention implementation."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    function: Callable[..., Any] = ALL_MASK_ATTENTION_FUNCTIONS[name]
    return function


def attention_function(name: str, module: Any) -> Callable[..., Any] | None:
    """What computes a module's attention under an implementation; None where its code has no eager function."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if name == "eager":
        return getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    function: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS[name]
    return function


def switched(module: Any, name: str) -> AbstractContextManager[None]:
    """The module on an implementation, inside the block; under an intervention that too, which goes on."""
    intervened = vars(module).get(INTERVENED)
    if intervened is None:
        return implementation(module, name)
    following: AbstractContextManager[None] = intervened.following(name)
    return following


@contextmanager
def implementation(module: Any, name: str) -> Iterator[None]:
    """The module's attention implementation set to `name`, and restored exactly, submodule by submodule, afterwards.

    A class that cannot be switched (it asks no interface, and reads its config itself) gets the name in its configs.
    """
    configs = {id(part.config): part.config for part in module.modules() if hasattr(part, "config")}
    before = [(config, getattr(config, "_attn_implementation_internal", None)) for config in configs.values()]
    try:
        if type(module)._can_set_attn_implementation():
            module.set_attn_implementation(name)
        else:
            for config, _ in before:
                config._attn_implementation_internal = name
        yield
    finally:
        for config, value in before:
            config._attn_implementation_internal = value
