"""Settings applied to live models: the frequencies they then turn by are those that the screen works with."""

import json

import pytest
import torch

pytest.importorskip("transformers")

from families import tiny, tokens
from poskernel.attention.extension.live import applied, parameters_of
from poskernel.attention.extension.measurement import open_rotary
from poskernel.attention.extension.planes import PlaneBasis
from poskernel.attention.extension.settings import NONE, parse_setting
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.attention.sources.rotary_probe import probe_rotation
from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError

SETTINGS = [
    "none", "linear:4", "linear:2.5", "ntk:4", "dynamic:2,original=24", "yarn:4", "yarn:factor=8,original=64",
    "yarn:4,truncate=false,fast=20", "yarn:4,attention=1.3", "longrope:4,original=24", "llama3:8,original=96",
    "base:1e6", "base:x4", "rope:scale=0.5",
    '{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32}',
    '{"type": "linear", "factor": 2}',
    '{"rope_scaling": {"type": "dynamic", "factor": 2}, "max_position_embeddings": 24, "rope_theta": 5000}',
    '{"rope_parameters": {"rope_type": "longrope", "factor": 2, "short_factor": [1, 1, 1, 1.5], "long_factor": '
    '[1, 2, 3, 4], "original_max_position_embeddings": 24}}',
]  # fmt: skip


def live_turnings(source, length):
    """Rates and factors of every layer, read from what the model does to basis vectors in a sequence of that length."""
    found = {}

    def consume(capture):
        if capture.rotation is not None:
            probe = probe_rotation(capture.rotation, capture.query.shape[-1])
            found[capture.layer] = PlaneBasis.of(probe, capture).own

    source.forward(tokens(1, length), consume)
    return found


def check(source, setting, length):
    for layer, expected in setting.turnings(length).items():
        live = live_turnings(source, length)[layer]
        torch.testing.assert_close(live.rates, expected.rates, rtol=2e-5, atol=1e-9)
        assert live.factor == pytest.approx(expected.factor, abs=1e-5)


@pytest.mark.parametrize("text", SETTINGS)
def test_a_llama_turns_as_predicted_in_long_and_then_in_short_inputs(text):
    model = open_rotary(tiny("llama"))
    setting = parse_setting(text, model.kinds, 24)
    with applied(model.source, setting):
        for length in (40, 16, 40, 8):
            check(model.source, setting, length)
    check(model.source, parse_setting(NONE, model.kinds, 24), 40)


@pytest.mark.parametrize("family", ["gpt_neox", "phi", "cohere", "qwen3", "deepseek_v2", "gemma3"])
@pytest.mark.parametrize(
    "text", ["yarn:4,original=32", "llama3:4,original=64", "linear:4", "dynamic:2,original=24", "ntk:4"]
)
def test_other_families_turn_as_predicted(family, text):
    model = open_rotary(tiny(family))
    setting = parse_setting(text, model.kinds, 32)
    with applied(model.source, setting):
        check(model.source, setting, 40)


def test_kinds_of_layers_get_their_own_settings():
    model = open_rotary(tiny("gemma3"))
    values = {"sliding_attention": {"rope_type": "linear", "factor": 3}, "full_attention": {"rope_type": "yarn",
              "factor": 4.0, "original_max_position_embeddings": 32}}  # fmt: skip
    setting = parse_setting(json.dumps({"rope_parameters": values}), model.kinds, 64)
    assert set(setting.changed) == set(values)
    assert setting.changed["sliding_attention"].base == 1e4 and setting.changed["full_attention"].base == 1e6
    with applied(model.source, setting):
        check(model.source, setting, 40)


def test_the_model_is_as_before_also_after_an_error():
    model = open_rotary(tiny("llama"))
    before = model.source.forward(tokens(), None)
    setting = parse_setting("linear:4", model.kinds, 24)
    with pytest.raises(RuntimeError, match="stop"), applied(model.source, setting):
        assert not torch.equal(model.source.forward(tokens(), None), before)
        raise RuntimeError("stop")
    assert torch.equal(model.source.forward(tokens(), None), before)


def test_what_cannot_be_applied_is_said():
    model = open_rotary(tiny("llama"))
    with pytest.raises(InputError, match="no rope_type for 'xpos'"):
        parameters_of(ENCODINGS["xpos"], model.kinds[0], {})
    gpt2 = HuggingFaceSource(tiny("gpt2"))
    with (
        pytest.raises(InputError, match="no rotary embedding"),
        applied(gpt2, parse_setting("linear:4", model.kinds, 24)),
    ):
        pass
