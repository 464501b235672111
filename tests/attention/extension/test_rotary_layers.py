"""Kinds of rotary layers: of configs new and old, and of live models, where the module has the last word."""

import pytest
import torch

from poskernel.attention.extension.planes import Turning
from poskernel.attention.extension.rotary_layers import (
    config_kinds,
    described,
    live_kinds,
    own_encoding,
    rotary_parameters,
)
from poskernel.encodings import DynamicNtk, Llama3, LongRope, Rope, Yarn
from poskernel.errors import InputError

LLAMA = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3, "max_position_embeddings": 2048}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rope_theta": 5e5}, Rope(base=5e5, frequencies=8)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, Rope(base=5e5, frequencies=8)),
        ({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
          "high_freq_factor": 4, "original_max_position_embeddings": 512}},
         Llama3(8.0, 512, base=5e5, frequencies=8)),
        ({"rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "factor": 2}}, DynamicNtk(2.0, 2048, frequencies=8)),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}},
         Yarn(4.0, 512, frequencies=8)),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1] * 8, "long_factor": [4] * 8},
          "original_max_position_embeddings": 512},
         LongRope(4.0, 512, frequencies=8, short=(1.0,) * 8, long=(4.0,) * 8)),
        ({"rope_theta": 1e4, "head_dim": 32}, Rope(frequencies=16)),
        ({"rotary_pct": 0.25, "rotary_emb_base": 1e5}, Rope(base=1e5, frequencies=2)),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, Rope(frequencies=4)),
    ],
)  # fmt: skip
def test_configs_new_and_old(changes, expected):
    (found,) = config_kinds({**LLAMA, **changes})
    assert found.own == expected and found.layers == (0, 1, 2) and found.name == "rotary"


def test_kinds_of_layers_new_and_old():
    new = {
        **LLAMA, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "sliding_window": 128,
        "rope_parameters": {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}},
    }  # fmt: skip
    old = {**LLAMA, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 3, "sliding_window": 128}
    for config in (new, old):
        local, full = config_kinds(config)
        assert (local.name, local.layers, local.window, local.own.base) == ("sliding_attention", (0, 1), 128, 1e4)
        assert (full.name, full.layers, full.window, full.own.base) == ("full_attention", (2,), None, 1e6)
    (inner,) = config_kinds({"text_config": {**LLAMA, "rope_theta": 1e5}})
    assert inner.own.base == 1e5


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**LLAMA, "alibi": True}, "has ALiBi"),
        ({"relative_attention_num_buckets": 32}, "bucketed relative biases"),
        ({"position_embedding_type": "absolute"}, "'absolute'"),
        ({"n_positions": 1024}, "1024 positions and no rotary field"),
        ({}, "no field about positions"),
        ({"rope_theta": 1e4}, "add head_dim"),
    ],
)
def test_configs_without_rotary_layers_say_what_they_have(config, words):
    with pytest.raises(InputError, match=words):
        config_kinds(config)


def test_the_live_module_has_the_last_word():
    turning = Turning(Rope(base=3e4, frequencies=8).rates(8, 1))
    wrong = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    assert described(wrong, None, turning, 16).base == pytest.approx(3e4)
    assert described({"rope_parameters": {"rope_type": "mystery"}}, None, turning, 16).base == pytest.approx(3e4)
    scaled = Turning(Yarn(4.0, 64, frequencies=8).rates(8, 1), 1.2)
    assert described(wrong, None, scaled, 16) is None
    assert described(None, None, Turning(turning.rates.flip(0)), 16) is None


def test_layers_that_turn_alike_are_one_kind():
    slow, fast = Turning(Rope(base=1e6, frequencies=4).rates(4, 1)), Turning(Rope(frequencies=4).rates(4, 1))
    widths = dict.fromkeys(range(4), 8)
    turnings, windows = {0: fast, 1: slow, 2: fast, 3: slow}, {0: 9, 1: None, 2: 9, 3: None}
    types = {"layer_types": ["sliding_attention", "full_attention"] * 2}
    found = live_kinds(types, turnings, windows, widths, 16)
    assert [(kind.name, kind.layers) for kind in found] == [("sliding_attention", (0, 2)), ("full_attention", (1, 3))]
    unnamed = live_kinds(None, turnings, windows, widths, 16)
    assert [kind.name for kind in unnamed] == ["rotary 1", "rotary 2"]
    assert unnamed[1].own.base == pytest.approx(1e6)


def test_what_stands_beside_the_group_belongs_to_it():
    config = {"rope_theta": 7e4, "rope_scaling": {"type": "linear", "factor": 2}, "partial_rotary_factor": 0.5}
    assert rotary_parameters(config, None) == {
        "type": "linear", "factor": 2, "rope_theta": 7e4, "partial_rotary_factor": 0.5}  # fmt: skip
    assert torch.equal(own_encoding(rotary_parameters(config, None), 4, 64).rates(4, 1), (
        7e4 ** (-torch.arange(4, dtype=torch.float64) / 4)) / 2)  # fmt: skip
