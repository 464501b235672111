"""The recorded inputs are what queries and keys are projected from, in every kind of model."""

import pytest
import torch

from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.attention.sources.layer_inputs import recorded_inputs

transformers = pytest.importorskip("transformers")
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
TOKENS = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))


def captures(config):
    torch.manual_seed(0)
    source, found = HuggingFaceSource(transformers.AutoModel.from_config(config)), []
    source.forward(TOKENS, found.append)
    return source, found


@torch.inference_mode()
def test_a_llamas_inputs_give_its_unrotated_keys():
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2, intermediate_size=48)
    source, found = captures(config)
    for capture in found:
        keys = source.module.layers[capture.layer].self_attn.k_proj(capture.inputs)
        torch.testing.assert_close(keys.unflatten(-1, (2, 8)).transpose(1, 2), capture.unrotated_key)
    first = source.module.layers[0].input_layernorm(source.embedding()[TOKENS])
    torch.testing.assert_close(found[0].inputs, first)
    assert source.embedding().shape == (50, 32)


@torch.inference_mode()
def test_a_berts_inputs_give_its_keys():
    source, found = captures(transformers.BertConfig(**SIZES, intermediate_size=48))
    for capture in found:
        keys = source.module.encoder.layer[capture.layer].attention.self.key(capture.inputs)
        torch.testing.assert_close(keys.unflatten(-1, (4, 8)).transpose(1, 2), capture.key)


@torch.inference_mode()
def test_a_fallback_familys_inputs_give_its_keys():
    config = transformers.BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=50)
    source, found = captures(config)
    for capture in found:
        attention = source.module.h[capture.layer].self_attention
        _, keys, _ = attention._reshape(attention.query_key_value(capture.inputs))
        torch.testing.assert_close(keys, capture.key)


def test_the_hooks_are_gone_afterwards_and_nothing_is_kept():
    class ToyAttention(torch.nn.Module):
        def forward(self, values):
            return values

    module, into = torch.nn.Sequential(ToyAttention(), torch.nn.Identity()), {}
    with recorded_inputs(module, into):
        module(torch.ones(1, 2, 3))
        assert set(into) == {id(module[0])}
        assert into[id(module[0])].shape == (1, 2, 3)
    module(torch.ones(1, 2, 3))
    assert not into
    assert not module[0]._forward_pre_hooks
