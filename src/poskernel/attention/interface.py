"""transformers' own registries: our attention and mask functions in them, and models switched to them and back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

IMPLEMENTATION = "poskernel_capture"


@contextmanager
def registered(attention: Callable[..., Any]) -> Iterator[None]:
    """The attention function and a boolean mask function known to transformers under our name, inside the block."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = ALL_ATTENTION_FUNCTIONS.get(IMPLEMENTATION), ALL_MASK_ATTENTION_FUNCTIONS.get(IMPLEMENTATION)
    AttentionInterface.register(IMPLEMENTATION, attention)
    AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
    try:
        yield
    finally:
        for interface, function in zip((AttentionInterface, AttentionMaskInterface), before, strict=True):
            if function is None:
                interface._global_mapping.pop(IMPLEMENTATION, None)
            else:
                interface.register(IMPLEMENTATION, function)


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
