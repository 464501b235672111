"""Our functions in transformers' registries, and models switched to an implementation and back."""

import pytest

transformers = pytest.importorskip("transformers")

from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS  # noqa: E402
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: E402

from families import tiny  # noqa: E402
from poskernel.attention.sources.interface import IMPLEMENTATION, implementation, registered  # noqa: E402


def test_functions_are_known_inside_the_block_alone_also_when_it_fails():
    def attention():
        pass

    with pytest.raises(KeyboardInterrupt), registered(attention):
        assert ALL_ATTENTION_FUNCTIONS[IMPLEMENTATION] is attention
        assert IMPLEMENTATION in ALL_MASK_ATTENTION_FUNCTIONS
        raise KeyboardInterrupt
    assert IMPLEMENTATION not in ALL_ATTENTION_FUNCTIONS
    assert IMPLEMENTATION not in ALL_MASK_ATTENTION_FUNCTIONS


def test_blocks_within_each_other_give_back_what_was_there():
    def outer():
        pass

    def inner():
        pass

    with registered(outer):
        with registered(inner):
            assert ALL_ATTENTION_FUNCTIONS[IMPLEMENTATION] is inner
        assert ALL_ATTENTION_FUNCTIONS[IMPLEMENTATION] is outer
        assert IMPLEMENTATION in ALL_MASK_ATTENTION_FUNCTIONS


@pytest.mark.parametrize("family", ["llama", "t5", "falcon", "bloom"])
def test_an_implementation_holds_in_every_config_and_is_restored(family):
    module = tiny(family)
    configs = [part.config for part in module.modules() if hasattr(part, "config")]
    before = [config._attn_implementation_internal for config in configs]
    with pytest.raises(KeyboardInterrupt), implementation(module, "eager"):
        assert {config._attn_implementation for config in configs} == {"eager"}
        raise KeyboardInterrupt
    assert [config._attn_implementation_internal for config in configs] == before
