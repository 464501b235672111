"""Capture of Hugging Face families: tiny random models, no network."""

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

from transformers import masking_utils, modeling_utils  # noqa: E402

import families  # noqa: E402
from poskernel.attention.atlas import analyze  # noqa: E402
from poskernel.attention.sources import rotary_calls  # noqa: E402
from poskernel.attention.sources.huggingface import HuggingFaceSource  # noqa: E402
from poskernel.attention.sources.interface import IMPLEMENTATION  # noqa: E402
from poskernel.attention.sources.rotary_probe import rotary_probes  # noqa: E402
from poskernel.attention.sources.self_test import self_test  # noqa: E402
from poskernel.errors import InputError, RunError  # noqa: E402

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 101,
    "max_position_embeddings": 128,
}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 8}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODERS = {
    "llama": ("LlamaModel", "LlamaConfig", GROUPED),
    "mistral": ("MistralModel", "MistralConfig", {**GROUPED, "sliding_window": 9}),
    "qwen2": ("Qwen2Model", "Qwen2Config", GROUPED),
    "qwen3": ("Qwen3Model", "Qwen3Config", GROUPED),
    "gemma": ("GemmaModel", "GemmaConfig", {**GROUPED, "head_dim": 16}),
    "gemma2": ("Gemma2Model", "Gemma2Config", {**GROUPED, "sliding_window": 9, "query_pre_attn_scalar": 13}),
    "gemma3": ("Gemma3TextModel", "Gemma3TextConfig", {**GROUPED, "sliding_window": 9, "sliding_window_pattern": 2}),
    "gpt_neox": ("GPTNeoXModel", "GPTNeoXConfig", {**SMALL, "rotary_pct": 0.25}),
    "phi": ("PhiModel", "PhiConfig", SMALL),
    "gpt_oss": (
        "GptOssModel",
        "GptOssConfig",
        {**GROUPED, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 9},
    ),
    "gpt2": (
        "GPT2Model",
        "GPT2Config",
        {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 101, "n_positions": 128},
    ),
    "opt": (
        "OPTModel",
        "OPTConfig",
        {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32},
    ),
}
ENCODERS = {
    "bert": ("BertModel", "BertConfig", SMALL),
    "modernbert": (
        "ModernBertModel",
        "ModernBertConfig",
        {**SMALL, "local_attention": 8, "global_attn_every_n_layers": 2},
    ),
}
ROTARY = ("llama", "qwen2", "qwen3", "gemma", "gpt_neox", "phi", "mistral")


def tiny(family):
    """A randomly initialised model of a family, weights large enough that attention is not uniform."""
    model, config, fields = {**DECODERS, **ENCODERS}[family]
    torch.manual_seed(0)
    module = getattr(transformers, model)(getattr(transformers, config)(**{**SPECIAL, **fields})).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4)
    return module


def tokens(sequences=4, length=48, seed=1):
    return torch.randint(3, 101, (sequences, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("family", [*DECODERS, *ENCODERS])
def test_self_test_passes_and_knows_the_direction(family):
    source = HuggingFaceSource(tiny(family))
    result = self_test(source)
    assert result.causal == (family in DECODERS)
    assert result.pattern_error < 1e-5
    assert result.output_error < 1e-5


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss", "gpt2", "bert"])
def test_capture_leaves_the_model_exactly_as_it_was(family):
    module = tiny(family).train()
    module.set_attn_implementation("eager" if family in ("gemma2", "gpt_oss") else "sdpa")
    before = module.config._attn_implementation
    module.eval()
    plain = module(tokens()).last_hidden_state
    module.train()
    source = HuggingFaceSource(module)
    source.forward(tokens(), lambda capture: None)
    self_test(source)
    assert module.config._attn_implementation == before
    assert module.training
    assert IMPLEMENTATION not in modeling_utils.ALL_ATTENTION_FUNCTIONS
    assert IMPLEMENTATION not in masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    module.eval()
    assert torch.equal(module(tokens()).last_hidden_state, plain)


def test_capture_is_undone_when_the_consumer_fails():
    module = tiny("llama")
    before = module.config._attn_implementation

    def fail(capture):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        HuggingFaceSource(module).forward(tokens(), fail)
    assert module.config._attn_implementation == before
    assert IMPLEMENTATION not in modeling_utils.ALL_ATTENTION_FUNCTIONS


def test_capture_hands_out_what_the_layer_uses():
    module = tiny("mistral")
    seen = []
    HuggingFaceSource(module).forward(tokens(), seen.append)
    assert [capture.layer for capture in seen] == [0, 1, 2]
    capture = seen[1]
    assert capture.query.shape == (4, 4, 48, 8)
    assert capture.key.shape == (4, 2, 48, 8)  # grouped queries: key heads are not repeated
    assert [capture.key_head(head) for head in range(4)] == [0, 0, 1, 1]
    assert (capture.causal, capture.window, capture.mask) == (True, 9, None)
    assert capture.scale == pytest.approx(8**-0.5)


def test_scaling_is_the_layers_own_and_caps_are_seen():
    seen = []
    HuggingFaceSource(tiny("gemma2")).forward(tokens(), seen.append)
    assert seen[0].scale == pytest.approx(13**-0.5)
    assert seen[0].softcap == 50.0
    assert {capture.window for capture in seen} == {9, None}


def test_without_our_mask_function_causality_would_be_lost_and_the_self_test_notices(monkeypatch):
    """transformers gives no mask for a name that only AttentionInterface knows; here a window is silently ignored."""
    monkeypatch.setattr(transformers.AttentionMaskInterface, "register", lambda *arguments: None)
    with pytest.raises(
        InputError, match=r"layer \d \(MistralAttention\).*differ by .*tried transformers' AttentionInterface"
    ):
        self_test(HuggingFaceSource(tiny("mistral")))


def test_a_wrong_scale_is_noticed(monkeypatch):
    original = HuggingFaceSource.captured

    def captured(self, module, query, key, mask, scaling, options):
        return original(self, module, query, key, mask, 0.3, options)

    monkeypatch.setattr(HuggingFaceSource, "captured", captured)
    with pytest.raises(InputError, match=r"layer 0 \(LlamaAttention\) has attention weights that differ"):
        self_test(HuggingFaceSource(tiny("llama")))


@pytest.mark.parametrize("family", [name for name in DECODERS if name != "gpt_oss"])
def test_analyze_reads_every_head(family):
    atlas = analyze(tiny(family), tokens(4, 48), sequences=4, length=48, dropped=4)
    assert list(atlas.heads) == [(layer, head) for layer in range(3) for head in range(4)]
    frame = atlas.to_frame()
    np.testing.assert_array_less(0, frame["first_mass"])
    assert frame["signal_plugin"].gt(0).all()


@pytest.mark.parametrize("family", ROTARY)
def test_constant_token_under_rotary_has_r2_one(family):
    """Pre-rotary vectors are equal at every position, so the logits are exactly Toeplitz, up to float32."""
    atlas = analyze(tiny(family), torch.full((4, 48), 7), sequences=4, length=48, dropped=4)
    for report in atlas.heads.values():
        if report.estimate.signal_plugin > 1e-3:
            assert report.estimate.r2.value == pytest.approx(1, abs=1e-4)
            assert report.estimate.share.value == pytest.approx(1, abs=1e-4)


def test_learned_positions_are_not_stationary():
    atlas = analyze(tiny("gpt2"), torch.full((4, 48), 7), sequences=4, length=48, dropped=4)
    assert max(report.estimate.r2.value for report in atlas.heads.values()) < 0.9


GROUPED_TWO = {**GROUPED, "num_hidden_layers": 2}
REFUSED = {
    "deberta": ("DebertaV2Model", "DebertaV2Config", SMALL,
                r"layer 0 \(DisentangledSelfAttention\) adds products of content with learned relative positions"),
    "xlnet": ("XLNetModel", "XLNetConfig", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48,
                                            "vocab_size": 101},
              r"layer 0 \(XLNetRelativeAttention\) adds products of content with relative positions"),
    "gpt": ("OpenAIGPTModel", "OpenAIGPTConfig", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 101},
            r"layer 0 \(Attention\) computes attention in a way of its own, which is not covered .*; tried transf"),
    "diffllama": ("DiffLlamaModel", "DiffLlamaConfig", GROUPED_TWO,
                  r"layer 0 \(DiffLlamaAttention\) called attention more than once in one forward pass; tried"),
    "lfm2": ("Lfm2Model", "Lfm2Config", {**GROUPED_TWO, "layer_types": ["conv", "full_attention"]},
             r"called attention 1 times for 2 layers \(tried .*\); models that mix attention with other layers"),
}  # fmt: skip


@pytest.mark.parametrize("family", REFUSED)
def test_what_cannot_be_captured_is_refused_with_layer_class_and_reason(family):
    model, config, fields, message = REFUSED[family]
    module = getattr(transformers, model)(getattr(transformers, config)(**{**SPECIAL, **fields}))
    with pytest.raises(InputError, match=message):
        self_test(HuggingFaceSource(module))


def test_broken_weights_name_the_layer():
    module = tiny("llama")
    with torch.no_grad():
        module.layers[1].self_attn.k_proj.weight[0, 0] = float("nan")
    with pytest.raises(RunError, match=r"keys that are not finite numbers in layer 1 \(LlamaAttention\)"):
        HuggingFaceSource(module).forward(tokens(), lambda capture: None)
    with pytest.raises(RunError, match="layer 1"):
        analyze(module, tokens(), sequences=4, length=48, dropped=4)


def test_other_modules_are_refused():
    with pytest.raises(InputError, match="a Linear is no Hugging Face model"):
        HuggingFaceSource(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("family", ["gpt2", "opt", "roberta", "bert", "bart", "gpt_neo", "mpnet"])
def test_a_learned_table_of_positions_sets_the_limit(family):
    source = HuggingFaceSource(families.tiny(family))
    limit = 126 if family in ("roberta", "mpnet") else 128  # two rows of RoBERTa's table are the padding's
    assert source.position_limit == limit
    source.forward(families.tokens(1, limit), lambda capture: None)
    with pytest.raises(InputError, match=f"has learned {limit} positions, not {limit + 1}: give sequences of at most"):
        source.forward(families.tokens(1, limit + 1), lambda capture: None)


@pytest.mark.parametrize("family", ["llama", "falcon", "bloom", "t5"])
def test_without_a_table_longer_sequences_run(family):
    seen = []
    HuggingFaceSource(families.tiny(family)).forward(families.tokens(1, 150), seen.append)
    assert seen[0].length == 150


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_left_padding_without_explicit_positions_would_be_noticed(family, monkeypatch):
    """Their default positions count the padding; RoBERTa counts without it by itself."""
    monkeypatch.setattr(HuggingFaceSource, "counted_from_zero", lambda self, tokens: False)
    with pytest.raises(InputError, match=r"5 masked tokens of padding change its outputs or its attention weights by"):
        self_test(HuggingFaceSource(families.tiny(family)))
    assert self_test(HuggingFaceSource(families.tiny("roberta"))).padding == "left"


def test_positions_are_given_only_where_they_mean_the_models_own():
    given = families.tokens(1, 2)
    assert HuggingFaceSource(families.tiny("gpt2")).counted_from_zero(given)
    assert not HuggingFaceSource(families.tiny("roberta")).counted_from_zero(given)
    assert not HuggingFaceSource(families.tiny("t5")).counted_from_zero(given)


def test_albert_uses_one_module_for_every_layer_and_is_indexed_by_calls():
    module = families.tiny("albert")
    seen = []
    HuggingFaceSource(module).forward(families.tokens(), seen.append)
    assert [capture.layer for capture in seen] == [0, 1]
    assert not torch.equal(seen[0].query, seen[1].query)


def test_a_weighted_normalisation_after_the_rotation_is_said_and_not_inverted():
    torch.manual_seed(0)
    config = transformers.HunYuanDenseV1Config(**{**SPECIAL, **GROUPED_TWO})
    module = transformers.HunYuanDenseV1Model(config).eval()
    plain = []
    HuggingFaceSource(module).forward(families.tokens(), plain.append)
    assert plain[0].rotation is not None  # weights of one: a rescaling, which commutes with the rotation
    with torch.no_grad():
        module.layers[0].self_attn.query_layernorm.weight[:4] = 2
    seen = []
    HuggingFaceSource(module).forward(families.tokens(), seen.append)
    assert seen[0].unreadable == "its queries are no rescaled output of the rotary function that it called"
    assert seen[0].rotation is seen[0].unrotated_query is seen[0].unrotated_key is None
    assert self_test(HuggingFaceSource(module)).pattern_error < 1e-5  # queries and keys themselves are right


def test_a_rotation_that_no_function_shows_is_said(monkeypatch):
    module = families.tiny("llama")
    monkeypatch.setattr(rotary_calls, "MARK", "turn_by_another_name")
    seen = []
    HuggingFaceSource(module).forward(families.tokens(), seen.append)
    assert "calls no function named apply_rotary" in seen[0].unreadable
    assert seen[0].rotation is None


def test_unrotated_vectors_are_what_the_projections_gave():
    module = families.tiny("llama")
    projected = {}
    for name in ("q_proj", "k_proj"):
        getattr(module.layers[0].self_attn, name).register_forward_hook(
            lambda part, arguments, output, name=name: projected.update({name: output})
        )
    seen = []
    HuggingFaceSource(module).forward(families.tokens(), seen.append)
    for name, unrotated in (("q_proj", seen[0].unrotated_query), ("k_proj", seen[0].unrotated_key)):
        assert torch.equal(unrotated, projected[name].unflatten(-1, (-1, 8)).transpose(1, 2))


def test_dynamic_scaling_is_read_at_the_length_that_is_asked_for():
    """Dynamic NTK: the base grows with the sequence beyond the trained length."""
    scaled = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    module = transformers.LlamaModel(
        transformers.LlamaConfig(
            **{**SPECIAL, **GROUPED_TWO, "max_position_embeddings": 16, "rope_parameters": scaled, "head_dim": 8}
        )
    )
    source = HuggingFaceSource(module)
    source.position_limit = None
    short, long = (rotary_probes(source, length)[0].frequencies for length in (16, 32))
    width, plain = 8, torch.arange(0, 8, 2, dtype=torch.float64) / 8
    torch.testing.assert_close(short, 10000.0**-plain, rtol=1e-5, atol=0)
    base = 10000.0 * (2.0 * 32 / 16 - 1.0) ** (width / (width - 2))
    torch.testing.assert_close(long, base**-plain, rtol=1e-5, atol=0)


def test_special_tokens_stay_out_of_probes():
    source = HuggingFaceSource(families.tiny("roberta"))
    assert {0, 1, 2} <= source.special
    probe = source.probe_tokens(20, 40, torch.Generator().manual_seed(0))
    assert not source.special & set(probe.flatten().tolist())


def test_double_precision_stays_double():
    module = families.tiny("llama").double()
    seen = []
    output = HuggingFaceSource(module).forward(families.tokens(), seen.append)
    assert output.dtype == seen[0].query.dtype == torch.float64
    result = self_test(HuggingFaceSource(module))
    assert result.padding_error < 1e-12
    assert result.pattern_error < 1e-6  # the family's own softmax is float32


def test_captures_in_one_block_switch_the_model_once():
    source = HuggingFaceSource(families.tiny("bloom"))
    seen = []
    with source.capturing():
        for _ in range(2):
            source.forward(families.tokens(), seen.append)
        source.forward(families.tokens(), None)
    assert [capture.layer for capture in seen] == [0, 1, 0, 1]


def test_a_model_that_does_not_run_on_tokens_is_refused_with_its_own_reason():
    config = transformers.XmodConfig(**{**SPECIAL, **SMALL, "languages": ["en_XX", "de_DE"]})
    with pytest.raises(InputError, match=r"called with token ids alone it raised ValueError: Input language unknown"):
        self_test(HuggingFaceSource(transformers.XmodModel(config)))


@pytest.mark.parametrize("family", ["llama", "llama4", "gpt2", "falcon", "t5"])
def test_the_output_layer_is_left_out_and_the_capture_is_that_of_the_base(family):
    entry = families.FAMILIES[family]
    names = {"llama4": "Llama4ForCausalLM", "t5": "T5ForConditionalGeneration", "gpt2": "GPT2LMHeadModel"}
    whole = names.get(family, entry.model.replace("Model", "ForCausalLM"))
    torch.manual_seed(0)
    config = getattr(transformers, entry.config)(**{**SPECIAL, **entry.fields})
    source = HuggingFaceSource(getattr(transformers, whole)(config).eval())
    assert source.module.get_output_embeddings() is None
    assert self_test(source).causal == entry.causal


def test_padding_is_the_token_that_the_embedding_keeps_for_it():
    config = transformers.MPNetConfig(**{**SMALL, "pad_token_id": 0})  # the code's own padding is token 1
    assert HuggingFaceSource(transformers.MPNetModel(config)).pad == 1
    assert self_test(HuggingFaceSource(transformers.MPNetModel(config).eval())).padding == "left"
