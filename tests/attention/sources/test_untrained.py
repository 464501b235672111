"""The same architecture with new weights: same shapes, other numbers, reproducible, and nothing else changed."""

import pytest
import torch

pytest.importorskip("transformers")

import transformers

from poskernel.attention.atlas import analyze
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.attention.sources.untrained import anew, reinitialised, untrained_source
from poskernel.encodings import parse_encoding
from poskernel.errors import InputError
from poskernel.models.transformer import Architecture, Transformer

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 40}


def llama():
    return transformers.LlamaModel(transformers.LlamaConfig(**SIZES, num_key_value_heads=1)).eval()


def trained(seed=0):
    """A Llama whose weights are far from any initialisation."""
    torch.manual_seed(seed)
    module = llama()
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(3).add_(0.05)
    return module


def test_the_class_and_config_stay_and_the_weights_are_new_and_follow_the_seed():
    module = trained()
    first, again, other = (reinitialised(module, seed) for seed in (1, 1, 2))
    assert type(first) is type(module)
    assert first.config.to_dict() == module.config.to_dict()
    assert first.config is not module.config
    assert [weight.shape for weight in first.parameters()] == [weight.shape for weight in module.parameters()]
    name = "layers.0.self_attn.q_proj.weight"
    assert torch.equal(first.get_parameter(name), again.get_parameter(name))
    assert not torch.equal(first.get_parameter(name), other.get_parameter(name))
    assert float(first.get_parameter(name).detach().std()) == pytest.approx(module.config.initializer_range, rel=0.2)
    assert float(module.get_parameter(name).detach().mean()) == pytest.approx(0.05, abs=0.02)


def test_the_global_random_state_is_left_alone():
    module = trained()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    reinitialised(module, 1)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_source_keeps_its_name_and_type():
    source = untrained_source(HuggingFaceSource(trained().bfloat16(), "tiny"), 0)
    assert (source.name, source.dtype, source.layers, source.heads) == ("tiny, untrained", torch.bfloat16, 2, 2)


@pytest.mark.parametrize(
    "module",
    [
        lambda: transformers.BertModel(transformers.BertConfig(**SIZES, max_position_embeddings=64)),
        lambda: transformers.GPT2Model(transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=40)),
        lambda: transformers.T5Model(
            transformers.T5Config(d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, vocab_size=40)
        ),
    ],
    ids=["bert", "gpt2", "t5"],
)
def test_other_families_are_built_anew_too(module):
    source = HuggingFaceSource(module().eval())
    tokens = torch.randint(1, 40, (4 * 24,), generator=torch.Generator().manual_seed(0))
    atlas = analyze(source, tokens, 4, 24, dropped=2, measures=["untrained"], null=False)
    for report in atlas.heads.values():
        assert report.untrained is not None
        assert not torch.equal(report.untrained.g, report.estimate.g)


def test_analyze_puts_the_untrained_numbers_beside_the_trained():
    source = HuggingFaceSource(trained(), "tiny")
    tokens = torch.randint(0, 40, (8 * 40,), generator=torch.Generator().manual_seed(0))
    steps = []
    atlas = analyze(source, tokens, 8, 40, dropped=4, measures="untrained", progress=lambda *step: steps.append(step))
    row = atlas.document()["heads"][0]
    # A rotary model has a high R2 whatever its weights; its signal says that nothing is there yet.
    assert row["signal_untrained"] < 0.1 * row["signal"]
    assert row["share_untrained"] is not None
    assert row["r2_untrained"] is None or row["r2_untrained"] != row["r2"]
    assert steps[-3:] == [("untrained layers", 1, 2), ("untrained layers", 2, 2), ("untrained", 1, 1)]
    again = analyze(HuggingFaceSource(trained(), "tiny"), tokens, 8, 40, dropped=4, measures="untrained", seed=1)
    assert again.document()["heads"][0]["signal_untrained"] != row["signal_untrained"]
    assert atlas.heads[0, 0].estimate.r2 == again.heads[0, 0].estimate.r2


def test_our_own_transformers_are_built_anew():
    torch.manual_seed(0)
    model = Transformer(Architecture(width=16, layers=2, heads=2, vocabulary=40), parse_encoding("rope")).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3)
    tokens = torch.randint(0, 40, (6 * 24,), generator=torch.Generator().manual_seed(0))
    before = torch.random.get_rng_state()
    atlas = analyze(model, tokens, 6, 24, dropped=2, measures="untrained")
    assert torch.equal(torch.random.get_rng_state(), before)
    first, again, other = (anew(model, seed) for seed in (0, 0, 1))
    assert first.embedding.weight.dtype == torch.float64
    assert first.encoding == model.encoding
    assert torch.equal(first.embedding.weight, again.embedding.weight)
    assert not torch.equal(first.embedding.weight, other.embedding.weight)
    alone = analyze(first, tokens, 6, 24, dropped=2)
    for name, report in atlas.heads.items():
        assert report.untrained is not None
        torch.testing.assert_close(report.untrained.g, alone.heads[name].estimate.g)


def test_what_cannot_be_built_from_its_config_is_said():
    class Particular(transformers.LlamaModel):
        def __init__(self, config, part):
            super().__init__(config)

    with pytest.raises(InputError, match=r"Particular cannot be built from its config alone .*leave out the measure"):
        reinitialised(Particular(transformers.LlamaConfig(**SIZES), 1), 0)
