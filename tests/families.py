"""Tiny random models of every Hugging Face family that the tests go through: no network, milliseconds each."""

import copy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

LAYERS, WIDTH, HEADS, KEY_HEADS, VOCABULARY, WINDOW = 2, 32, 4, 2, 101, 9
SMALL: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 48,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 128,
}
GROUPED: dict[str, Any] = {**SMALL, "num_key_value_heads": KEY_HEADS, "head_dim": 8}
WINDOWED: dict[str, Any] = {**GROUPED, "sliding_window": WINDOW}
ONE_OF_EACH = ["sliding_attention", "full_attention"]
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SPREAD = 0.25
"""Least standard deviation of a weight matrix: attention is then far from uniform."""
MIXTURE = {"num_local_experts": 2, "num_experts_per_tok": 1}


@dataclass(frozen=True)
class Family:
    """How to build a family's tiny model, and what is known about it."""

    model: str
    config: str
    fields: dict[str, Any] = field(default_factory=dict)
    causal: bool = True
    rotary: bool = False
    """Whether every position enters through a rotation that the basis probe reads."""
    width: int = 8
    """Of the rotation, in dimensions of a head."""
    pairing: str = "half-split"
    windows: tuple[int | None, ...] = (None, None)
    """Of each layer."""
    without_rotation: tuple[int, ...] = ()
    """Layers that rotate nothing."""
    key_heads: int | None = None
    """Where not those of the config."""
    padding: str = "left"
    """The side that the self-test pads on."""


DECODERS = {
    "llama": Family("LlamaModel", "LlamaConfig", GROUPED, rotary=True),
    "mistral": Family("MistralModel", "MistralConfig", WINDOWED, rotary=True, windows=(WINDOW, WINDOW)),
    "mixtral": Family("MixtralModel", "MixtralConfig", {**GROUPED, **MIXTURE, "sliding_window": None}, rotary=True),
    "qwen2": Family("Qwen2Model", "Qwen2Config", GROUPED, rotary=True),
    "qwen3": Family("Qwen3Model", "Qwen3Config", GROUPED, rotary=True),
    "starcoder2": Family("Starcoder2Model", "Starcoder2Config", GROUPED, rotary=True),
    "gemma": Family("GemmaModel", "GemmaConfig", {**GROUPED, "head_dim": 16}, rotary=True, width=16),
    "gemma2": Family("Gemma2Model", "Gemma2Config", {**WINDOWED, "query_pre_attn_scalar": 13}, rotary=True,
                     windows=(WINDOW, None)),
    "gemma3": Family("Gemma3TextModel", "Gemma3TextConfig", {**WINDOWED, "layer_types": ONE_OF_EACH}, rotary=True,
                     windows=(WINDOW, None)),
    "gpt_neox": Family("GPTNeoXModel", "GPTNeoXConfig",
                       {**SMALL, "hidden_size": 64, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                                                         "partial_rotary_factor": 0.25}},
                       rotary=True, width=4),
    "phi": Family("PhiModel", "PhiConfig", SMALL, rotary=True, width=4),
    "phi3": Family("Phi3Model", "Phi3Config", SMALL, rotary=True),
    "stablelm": Family("StableLmModel", "StableLmConfig",
                       {**SMALL, "hidden_size": 64, "num_key_value_heads": HEADS}, rotary=True, width=4),
    "gptj": Family("GPTJModel", "GPTJConfig",
                   {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "rotary_dim": 4, "vocab_size": VOCABULARY,
                    "n_positions": 128}, rotary=True, pairing="interleaved", width=4),
    "codegen": Family("CodeGenModel", "CodeGenConfig",
                      {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "rotary_dim": 4, "vocab_size": VOCABULARY,
                       "n_positions": 128}, rotary=True, pairing="interleaved", width=4),
    "olmo2": Family("Olmo2Model", "Olmo2Config", GROUPED, rotary=True),
    "cohere": Family("CohereModel", "CohereConfig", GROUPED, rotary=True, pairing="interleaved"),
    "cohere2": Family("Cohere2Model", "Cohere2Config", {**WINDOWED, "layer_types": ONE_OF_EACH}, rotary=True,
                      pairing="interleaved", windows=(WINDOW, None), without_rotation=(1,)),
    "smollm3": Family("SmolLM3Model", "SmolLM3Config", {**GROUPED, "no_rope_layers": [1, 0]}, rotary=True,
                      without_rotation=(1,)),
    "granite": Family("GraniteModel", "GraniteConfig", {**GROUPED, "attention_multiplier": 0.3}, rotary=True),
    "gpt_oss": Family("GptOssModel", "GptOssConfig", {**WINDOWED, **MIXTURE, "layer_types": ONE_OF_EACH}, rotary=True,
                      windows=(WINDOW, None)),
    "deepseek_v2": Family("DeepseekV2Model", "DeepseekV2Config",
                          {**SMALL, "num_key_value_heads": HEADS, "kv_lora_rank": 8, "q_lora_rank": 8,
                           "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 2,
                           "num_experts_per_tok": 1, "first_k_dense_replace": 2}, rotary=True,
                          pairing="interleaved", width=4),
    "deepseek_v3": Family("DeepseekV3Model", "DeepseekV3Config",
                          {**SMALL, "num_key_value_heads": HEADS, "kv_lora_rank": 8, "q_lora_rank": 8,
                           "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 2,
                           "num_experts_per_tok": 1, "first_k_dense_replace": 2}, rotary=True,
                          pairing="interleaved", width=4),
    "llama4": Family("Llama4TextModel", "Llama4TextConfig",
                     {**GROUPED, **MIXTURE, "intermediate_size_mlp": 48, "moe_layers": [], "no_rope_layers": [1, 0],
                      "attention_chunk_size": 64}, rotary=True, pairing="interleaved", without_rotation=(1,)),
    "nanochat": Family("NanoChatModel", "NanoChatConfig", GROUPED, rotary=True),
    "gemma3n": Family("Gemma3nTextModel", "Gemma3nTextConfig",
                      {**WINDOWED, "layer_types": ONE_OF_EACH, "num_kv_shared_layers": 0, "altup_num_inputs": 2,
                       "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY, "laurel_rank": 4,
                       "activation_sparsity_pattern": [0.0, 0.0]},
                      rotary=True, windows=(WINDOW, None)),
    "gpt2": Family("GPT2Model", "GPT2Config",
                   {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": VOCABULARY, "n_positions": 128}),
    "gpt_bigcode": Family("GPTBigCodeModel", "GPTBigCodeConfig",
                          {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": VOCABULARY,
                           "n_positions": 128}),
    "opt": Family("OPTModel", "OPTConfig", {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": WIDTH}),
}  # fmt: skip
FALLBACKS = {
    "bloom": Family("BloomModel", "BloomConfig",
                    {"hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": VOCABULARY}),
    "mpt": Family("MptModel", "MptConfig",
                  {"d_model": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "vocab_size": VOCABULARY,
                   "max_seq_len": 128}),
    "falcon": Family("FalconModel", "FalconConfig",
                     {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
                      "vocab_size": VOCABULARY, "max_position_embeddings": 128, "alibi": False}, rotary=True,
                     key_heads=1),
    "falcon_grouped": Family("FalconModel", "FalconConfig",
                     {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
                      "num_kv_heads": KEY_HEADS, "new_decoder_architecture": True,
                      "vocab_size": VOCABULARY, "max_position_embeddings": 128, "alibi": False}, rotary=True),
    "falcon_alibi": Family("FalconModel", "FalconConfig",
                           {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
                            "vocab_size": VOCABULARY, "alibi": True, "multi_query": False,
                            "max_position_embeddings": 128}),
    "gpt_neo": Family("GPTNeoModel", "GPTNeoConfig",
                      {"hidden_size": WIDTH, "num_layers": LAYERS, "num_heads": HEADS, "vocab_size": VOCABULARY,
                       "attention_types": [[["local", "global"], 1]], "max_position_embeddings": 128,
                       "window_size": WINDOW}, windows=(WINDOW, None)),
    "xglm": Family("XGLMModel", "XGLMConfig",
                   {"d_model": WIDTH, "num_layers": LAYERS, "attention_heads": HEADS, "vocab_size": VOCABULARY,
                    "ffn_dim": 48, "max_position_embeddings": 128}),
}  # fmt: skip
T5 = {"d_model": WIDTH, "d_kv": 8, "d_ff": 48, "num_layers": LAYERS, "num_heads": HEADS, "vocab_size": VOCABULARY,
      "decoder_start_token_id": 0}  # fmt: skip
BART = {"d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS, "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": VOCABULARY,
        "max_position_embeddings": 128, "decoder_start_token_id": 2, "forced_eos_token_id": 2}  # fmt: skip
ENCODERS = {
    "bert": Family("BertModel", "BertConfig", SMALL, causal=False),
    "roberta": Family("RobertaModel", "RobertaConfig", {**SMALL, "pad_token_id": 1, "bos_token_id": 0}, causal=False),
    "distilbert": Family("DistilBertModel", "DistilBertConfig",
                         {"dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 48,
                          "vocab_size": VOCABULARY, "max_position_embeddings": 128}, causal=False),
    "albert": Family("AlbertModel", "AlbertConfig", {**SMALL, "embedding_size": 16}, causal=False),
    "electra": Family("ElectraModel", "ElectraConfig", {**SMALL, "embedding_size": 16}, causal=False),
    "modernbert": Family("ModernBertModel", "ModernBertConfig",
                         {**SMALL, "local_attention": 8, "layer_types": ONE_OF_EACH}, causal=False, rotary=True,
                         windows=(5, None)),
    "esm": Family("EsmModel", "EsmConfig",
                  {**SMALL, "position_embedding_type": "rotary", "mask_token_id": 3, "token_dropout": False},
                  causal=False, rotary=True),
    "t5": Family("T5EncoderModel", "T5Config", T5, causal=False),
    "megatron_bert": Family("MegatronBertModel", "MegatronBertConfig", SMALL, causal=False),
    "rembert": Family("RemBertModel", "RemBertConfig", {**SMALL, "input_embedding_size": 16}, causal=False),
    "mpnet": Family("MPNetModel", "MPNetConfig", {**SMALL, "pad_token_id": 1, "bos_token_id": 0}, causal=False),
    "roformer": Family("RoFormerModel", "RoFormerConfig", SMALL, causal=False, rotary=True, pairing="interleaved"),
    "bart": Family("BartModel", "BartConfig", BART, causal=False, padding="right"),
}  # fmt: skip
FAMILIES = {**DECODERS, **FALLBACKS, **ENCODERS}


@cache
def _built(family: str) -> torch.nn.Module:
    import transformers

    entry = FAMILIES[family]
    config = getattr(transformers, entry.config)(**copy.deepcopy({**SPECIAL, **entry.fields}))
    torch.manual_seed(0)
    module = getattr(transformers, entry.model)(config).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:  # norms and biases that do nothing would hide that they act
                parameter.add_(0.2 * torch.randn_like(parameter))
            else:
                parameter.mul_(max(1.0, SPREAD / float(parameter.std().clamp(min=1e-3))))
    return module


def tiny(family: str) -> Any:
    """A fresh copy of a family's model, random weights large enough that attention is not uniform."""
    return copy.deepcopy(_built(family))


def tokens(sequences: int = 2, length: int = 32, seed: int = 1) -> torch.Tensor:
    """Random tokens that are not special ones."""
    return torch.randint(4, VOCABULARY, (sequences, length), generator=torch.Generator().manual_seed(seed))


def loaded(family: str) -> Any:
    """A tiny model as loading gives it; every letter is a token."""
    from poskernel.attention.sources.huggingface import HuggingFaceSource
    from poskernel.attention.sources.loading import LoadedModel

    def encode(text: str) -> list[int]:
        return [4 + ord(letter) % (VOCABULARY - 4) for letter in text]

    return LoadedModel(HuggingFaceSource(tiny(family)), encode, "0" * 64, None, str)
