"""Families outside the attention interface: their own parts give what the model itself computes."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers")

from families import FALLBACKS as FAMILIES
from families import FAMILIES as ALL
from families import HEADS, WINDOW, tiny, tokens
from poskernel.attention.atlas import analyze
from poskernel.attention.sources import fallbacks
from poskernel.attention.sources.fallbacks import FALLBACKS, fallback_of, sdpa_patterns, split_additive
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.attention.sources.self_test import self_test
from poskernel.errors import InputError


def captured(module, given):
    seen = []
    HuggingFaceSource(module).forward(given, seen.append)
    return seen


def test_every_fallback_is_a_family_of_the_matrix():
    covered = {type(part).__name__ for family in ALL for part in tiny(family).modules()}
    assert set(FALLBACKS) <= covered


def test_families_of_the_interface_have_no_fallback():
    assert all(fallback_of(tiny(family)) is not None for family in FAMILIES)
    assert fallback_of(tiny("llama")) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_output_equals_rebuilt_weights_times_the_models_own_values(family):
    """Independent of any reported weights: what the layer's output projection received."""
    module, given = tiny(family), tokens()
    received, values = [], []
    name = next(iter({"dense", "out_proj"} & {part for part, _ in layer_of(module).named_children()}))
    for layer in layers_of(module):
        getattr(layer, name).register_forward_pre_hook(lambda part, arguments: received.append(arguments[0]))
        layer.register_forward_hook(lambda part, arguments, output: values.append(value_of(part)))
        for child in ("query_key_value", "Wqkv", "v_proj"):
            if hasattr(layer, child):
                getattr(layer, child).register_forward_hook(
                    lambda part, arguments, output, layer=layer: setattr(layer, "seen", output)
                )
    layers = captured(module, given)
    for capture, value, own in zip(layers, values[-len(layers) :], received[-len(layers) :], strict=True):
        pattern = torch.stack([capture.pattern(head) for head in range(HEADS)], 1)
        expected = (pattern @ value).transpose(1, 2).flatten(2)
        torch.testing.assert_close(expected, own.reshape(expected.shape), rtol=1e-4, atol=1e-5)


def layers_of(module):
    return [part for part in module.modules() if type(part).__name__ in FALLBACKS]


def layer_of(module):
    return layers_of(module)[0]


def value_of(layer):
    """Values [batch, head, position, width] by each family's documented layout, written out here once more."""
    kind, seen = type(layer).__name__, layer.seen
    if kind == "BloomAttention":
        return seen.unflatten(-1, (HEADS, 3, -1))[..., 2, :].transpose(1, 2)
    if kind == "MptAttention":
        return seen.chunk(3, -1)[2].unflatten(-1, (HEADS, -1)).transpose(1, 2)
    if kind == "FalconAttention":
        if layer.new_decoder_architecture:  # two key heads, each with its two queries, a key and a value
            grouped = seen.unflatten(-1, (2, 4, -1))[..., 3, :]
            return grouped.repeat_interleave(2, 2).transpose(1, 2)
        if layer.multi_query:
            return seen.unflatten(-1, (HEADS + 2, -1))[..., -1:, :].transpose(1, 2).expand(-1, HEADS, -1, -1)
        return seen.unflatten(-1, (HEADS, 3, -1))[..., 2, :].transpose(1, 2)
    return seen.unflatten(-1, (HEADS, -1)).transpose(1, 2)


@pytest.mark.parametrize("family", ["bloom", "mpt", "falcon_alibi"])
def test_alibi_is_a_bias_that_falls_with_distance_by_the_familys_slopes(family):
    """Minus slope x offset at every pair: 2^-2, 2^-4, 2^-6, 2^-8 for four heads, however the family writes it."""
    capture = captured(tiny(family), tokens(1))[0]
    seen = capture.bias.expand(1, HEADS, 32, 32)[0].tril()
    scale = 8**-0.5 if family == "falcon_alibi" else 1.0  # Falcon scales its bias with its logits
    slopes = scale * torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])[:, None, None]
    position = torch.arange(32)
    # Falcon makes its bias in bfloat16, of values up to slope x 31.
    tolerance = {"rtol": 0, "atol": 0.02} if family == "falcon_alibi" else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(seen, -slopes * (position[:, None] - position).tril(), **tolerance)


@pytest.mark.parametrize("family", ["bloom", "mpt", "falcon_alibi"])
def test_of_one_token_everywhere_alibi_has_its_slope_and_r2_one(family):
    atlas = analyze(tiny(family), torch.full((4, 48), 7), sequences=4, length=48, dropped=4)
    first = [atlas.head(0, head) for head in range(HEADS)]
    scale = 8**-0.5 if family == "falcon_alibi" else 1.0
    for head, report in enumerate(first):
        g, slope = report.estimate.g, scale * 4.0 ** -(head + 1)
        assert report.estimate.r2.value == pytest.approx(1, abs=1e-3)
        assert float(g[0] - g[20]) == pytest.approx(20 * slope, rel=2e-2)


def test_falcons_own_eager_path_adds_alibi_twice_so_the_fused_one_is_followed():
    """The reason for the departure: were transformers mended, this test would say that it can go."""
    module, given = tiny("falcon_alibi"), tokens(1)
    source = HuggingFaceSource(module)
    fused = source.own_patterns(given)[0]
    module.config._attn_implementation_internal = "eager"
    with torch.no_grad():
        eager = module(given, output_attentions=True).attentions[0]
    assert float((fused - eager).abs().max()) > 1e-3
    capture = captured(module, given)[0]  # also of a model that was loaded for its eager path
    assert module.config._attn_implementation == "eager"
    rebuilt = torch.stack([capture.pattern(head) for head in range(HEADS)], 1)
    torch.testing.assert_close(rebuilt, fused, rtol=0, atol=1e-5)
    twice = capture.bias * 2
    logits = torch.stack([capture.logits(head, torch.arange(32), torch.arange(32)) for head in range(HEADS)], 1)
    doubled = (logits - capture.bias + twice).masked_fill(~capture.allowed(0), float("-inf")).softmax(-1)
    torch.testing.assert_close(doubled, eager, rtol=0, atol=1e-5)


def test_clipped_projections_of_mpt_are_clipped_in_the_capture():
    module = tiny("mpt")
    for layer in layers_of(module):
        layer.clip_qkv = 0.5
    assert self_test(HuggingFaceSource(module)).pattern_error < 1e-5
    assert float(captured(module, tokens())[0].query.abs().max()) == 0.5


def test_local_layers_of_gpt_neo_have_their_window():
    assert [capture.window for capture in captured(tiny("gpt_neo"), tokens())] == [WINDOW, None]


def test_a_wrong_reading_is_refused(monkeypatch):
    wrong = fallbacks.Fallback(("query_key_value",), lambda call: replace(fallbacks.bloom(call), scale=0.1))
    monkeypatch.setitem(FALLBACKS, "BloomAttention", wrong)
    with pytest.raises(InputError, match=r"layer 0 \(BloomAttention\) has attention weights that.*tried hooks"):
        self_test(HuggingFaceSource(tiny("bloom")))


@pytest.mark.parametrize("family", FAMILIES)
def test_hooks_are_gone_afterwards_also_when_the_consumer_fails(family):
    module = tiny(family)
    plain = module(tokens()).last_hidden_state
    before = module.config._attn_implementation

    def fail(capture):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        HuggingFaceSource(module).forward(tokens(), fail)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert module.config._attn_implementation == before
    assert torch.equal(module(tokens()).last_hidden_state, plain)


def test_additive_masks_come_apart():
    low = torch.finfo(torch.float32).min
    allowed, bias = split_additive(torch.tensor([[[[0.0, low], [0.0, 0.0]]]]))
    assert allowed.tolist() == [[[[True, False], [True, True]]]]
    assert bias is None
    allowed, bias = split_additive(torch.tensor([[[[0.5, low], [-1e4, float("-inf")]]]]))
    assert allowed.tolist() == [[[[True, False], [True, False]]]]
    assert bias.tolist() == [[[[0.5, 0.0], [-1e4, 0.0]]]]
    assert split_additive(None) == (None, None)
    boolean = torch.ones(1, 1, 2, 2, dtype=torch.bool)
    assert split_additive(boolean)[0] is boolean


def test_fused_attention_tells_its_weights_and_is_put_back():
    fused = torch.nn.functional.scaled_dot_product_attention
    query, key, value = torch.randn(3, 1, 2, 5, 4)
    found = []
    with sdpa_patterns(found):
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.7)
    logits = (0.7 * query @ key.transpose(2, 3)).masked_fill(~torch.ones(5, 5).tril().bool(), float("-inf"))
    torch.testing.assert_close(found[0], logits.softmax(-1))
    torch.testing.assert_close(output, logits.softmax(-1) @ value)
    assert torch.nn.functional.scaled_dot_product_attention is fused
