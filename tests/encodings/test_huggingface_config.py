"""Configurations in the form of Hugging Face: what real ones say, and what contradicts itself."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel.encodings import (
    DynamicNtk,
    Encoding,
    LinearInterpolation,
    Llama3,
    LongRope,
    PartialRope,
    ProportionalRope,
    Rope,
    Yarn,
    parse_encoding,
)
from poskernel.encodings.huggingface_config import READ, READERS
from poskernel.errors import InputError

LINEAR = {"rope_type": "linear", "factor": 4}
DYNAMIC = {"type": "dynamic", "factor": 2}
YARN = {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 8192}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8,
    "low_freq_factor": 1,
    "high_freq_factor": 4,
    "original_max_position_embeddings": 8192,
}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1, 1.5],
    "long_factor": [2, 3.5],
    "original_max_position_embeddings": 4096,
}


def without(parameters: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in parameters.items() if key not in keys}


@pytest.mark.parametrize(
    ("config", "encoding"),
    [
        ({}, Rope()),
        ({"rope_scaling": None}, Rope()),
        ({"rope_theta": 500000, "head_dim": 128}, Rope(base=5e5, frequencies=64)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, Rope(base=1e6)),
        ({"rope_theta": 1000000, "max_position_embeddings": 32768, "head_dim": 64}, Rope(base=1e6, frequencies=32)),
        ({"rope_type": "linear", "factor": 4}, LinearInterpolation(4.0)),
        ({"rope_scaling": {"type": "linear", "factor": 4}, "head_dim": 64}, LinearInterpolation(4.0, frequencies=32)),
        ({"rope_scaling": DYNAMIC, "max_position_embeddings": 2048}, DynamicNtk(2.0, 2048)),
        ({"rope_scaling": {**DYNAMIC, "original_max_position_embeddings": 2048.0}}, DynamicNtk(2.0, 2048)),
        ({"rope_scaling": YARN}, Yarn(4.0, 8192)),
        ({"rope_scaling": YARN, "max_position_embeddings": 32768}, Yarn(4.0, 8192)),
        ({"rope_scaling": YARN, "max_position_embeddings": 8192}, Yarn(4.0, 8192)),  # not raised yet
        ({"rope_scaling": without(YARN, "factor"), "max_position_embeddings": 32768}, Yarn(4.0, 8192)),
        (
            {"rope_parameters": without(YARN, "original_max_position_embeddings"), "max_position_embeddings": 8192},
            Yarn(4.0, 8192),
        ),
        (
            {"rope_scaling": {**YARN, "beta_fast": 16, "beta_slow": 2, "truncate": False, "rope_theta": 150000}},
            Yarn(4.0, 8192, base=1.5e5, fast=16.0, slow=2.0, truncate=False),
        ),
        (
            {"rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.5}},
            Yarn(4.0, 8192, mscale=0.707, mscale_all_dim=0.5),
        ),
        ({"rope_scaling": {**YARN, "attention_factor": 1}}, Yarn(4.0, 8192, mscale=0.0, attention=1.0)),
        (
            {"rope_scaling": LONGROPE, "max_position_embeddings": 131072},
            LongRope(32.0, 4096, frequencies=2, short=(1.0, 1.5), long=(2.0, 3.5)),
        ),
        (
            {"rope_scaling": {**LONGROPE, "factor": 8, "attention_factor": 1.2}, "head_dim": 4},
            LongRope(8.0, 4096, frequencies=2, short=(1.0, 1.5), long=(2.0, 3.5), own_attention=False, attention=1.2),
        ),
        # Llama 3.1: the factor is 8 though the context grows sixteenfold.
        (
            {"rope_scaling": LLAMA3, "rope_theta": 500000.0, "head_dim": 128, "max_position_embeddings": 131072},
            Llama3(8.0, 8192, base=5e5, frequencies=64),
        ),
        ({"partial_rotary_factor": 0.25, "head_dim": 64}, PartialRope(0.25, frequencies=32)),
        ({"partial_rotary_factor": 1}, Rope()),
        (
            {"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}},
            ProportionalRope(0.25, base=1e6),
        ),
    ],
)
def test_what_real_configurations_say(config: dict[str, Any], encoding: Encoding) -> None:
    found = parse_encoding(json.dumps(config))
    assert found == encoding
    assert parse_encoding(found.effective) == encoding


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"rope_theta": "big"}, "rope_theta of the encoding's JSON is 'big': give a number"),
        ({"rope_theta": True}, "rope_theta of the encoding's JSON is 'True': give a number"),
        ({"rope_theta": float("nan")}, "base of RoPE is nan"),
        ({"head_dim": 7}, "head_dim is 7.0: give an even whole number"),
        ({"head_dim": None}, "head_dim of the encoding's JSON is 'None': give a number"),
        ({"head_dim": float("inf")}, "head_dim is inf: give an even whole number"),
        ({"hidden_size": 5}, "unknown key of the encoding's JSON 'hidden_size'"),
        ({"rope_thet": 5}, "unknown key .* 'rope_thet': did you mean 'rope_theta'"),
        ({"rope_scaling": "linear"}, "rope parameters 'linear': give an object"),
        ({"rope_scaling": {"rope_type": "llama-3"}}, "unknown rope_type 'llama-3': did you mean 'llama3'"),
        ({"rope_scaling": {"rope_type": "su"}}, "unknown rope_type 'su': choose from default, linear, dynamic"),
        ({"rope_scaling": {"rope_type": "yarn", "type": "linear"}}, "rope_type and type .* are linear and yarn"),
        ({"rope_scaling": {**LINEAR, "factor": 0.5}}, "factor of linear interpolation is 0.5: give 1 or more"),
        ({"rope_scaling": {**LINEAR, "partial": 0.5}}, "unknown key .* 'partial'"),
        ({"rope_scaling": without(LINEAR, "factor")}, "rope_type 'linear' needs factor: give it"),
        ({"factor": 4}, "rope_type 'default' does not read 'factor', it reads no further key: leave 'factor' out"),
        ({"rope_scaling": {**LINEAR, "beta_fast": 3}}, "'linear' does not read 'beta_fast', it reads factor"),
        ({"rope_scaling": {**LLAMA3, "beta_fast": 3}}, "'llama3' does not read 'beta_fast'"),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6}}, "rope_theta .* is both '10000.0' and, in"),
        ({"rope_scaling": LINEAR, "rope_parameters": YARN}, "rope_type of the encoding's JSON is both"),
        ({"rope_parameters": {"full_attention": LINEAR}}, "differ by kind of layer .'full_attention'.: give"),
        ({"rope_scaling": DYNAMIC}, "rope_type 'dynamic' needs original_max_position_embeddings: give the length"),
        (
            {"rope_scaling": {**DYNAMIC, "original_max_position_embeddings": 20}, "max_position_embeddings": 40},
            "dynamic scaling starts at max_position_embeddings, which is 40, and .* is 20: give one of them",
        ),
        ({"rope_scaling": without(YARN, "factor")}, "rope_type 'yarn' needs factor"),
        ({"rope_scaling": without(YARN, "original_max_position_embeddings")}, "'yarn' needs original_max_position_emb"),
        ({"rope_scaling": {**YARN, "original_max_position_embeddings": 2.5}}, "is 2.5: give a whole number"),
        ({"rope_scaling": {**YARN, "original_max_position_embeddings": 0}}, "is 0.0: give a whole number"),
        ({"rope_scaling": YARN, "max_position_embeddings": 65536}, "factor is 4.0 but .* is 8: make them agree"),
        ({"rope_scaling": YARN, "max_position_embeddings": 4096}, "is 4096, less than original"),
        ({"rope_scaling": {**YARN, "mscale": 1}}, "mscale does nothing alone: give mscale and mscale_all_dim"),
        ({"rope_scaling": {**YARN, "mscale": 0, "mscale_all_dim": 1}}, "mscale is 0.0 and mscale_all_dim 1.0"),
        ({"rope_scaling": {**YARN, "mscale": 1, "attention_factor": 1.1}}, "attention_factor and mscale are both"),
        ({"rope_scaling": {**YARN, "attention_factor": 0}}, "attention of YaRN is 0.0: give a positive number"),
        ({"rope_scaling": {**YARN, "truncate": 1}}, "truncate of the encoding's JSON is '1': give true or false"),
        ({"rope_scaling": YARN, "partial_rotary_factor": 0.5}, "'yarn' has no kernel family .* head_dim instead"),
        ({"rope_scaling": without(LONGROPE, "short_factor"), "factor": 2}, "short_factor .* 'None': give a list"),
        ({"rope_scaling": {**LONGROPE, "long_factor": [1, "x"]}, "factor": 2}, "long_factor .*: give a list"),
        ({"rope_scaling": {**LONGROPE, "long_factor": []}, "factor": 2}, "long_factor .*: give a list"),
        ({"rope_scaling": LONGROPE, "factor": 2, "head_dim": 8}, "LongRoPE has 2 divisors for 4 pairs"),
        ({"rope_scaling": without(LLAMA3, "low_freq_factor")}, "'llama3' needs low_freq_factor"),
        ({"rope_scaling": {**LLAMA3, "low_freq_factor": 4}}, "low of llama3 scaling is 4.0 and high 4.0"),
        ({"rope_type": "proportional"}, "'proportional' needs partial_rotary_factor"),
        ({"partial_rotary_factor": 0}, "turned fraction of partial RoPE is 0.0"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_named(config: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_encoding(json.dumps(config))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no valid JSON .*: mend it"),
        ('{"rope_theta": 1e4} and more', "is no valid JSON"),
        ('{"rope_theta": 1e4, "rope_theta": 1e6}', "rope_theta stands twice in the encoding's JSON: give it once"),
        ('{"rope_scaling": {"factor": 1, "factor": 2}}', "factor stands twice"),
    ],
)
def test_what_is_no_json_is_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_encoding(text)


def test_every_type_has_a_reader() -> None:
    assert READ.keys() == READERS.keys()


@given(st.sampled_from(["linear", "dynamic"]), st.integers(1, 64), st.integers(2, 64), st.integers(2, 10**6))
def test_a_given_value_is_never_overridden(kind: str, factor: int, pairs: int, base: int) -> None:
    nested = {"type": kind, "factor": factor}
    context = {"rope_theta": base, "head_dim": 2 * pairs, "max_position_embeddings": 77}
    found = parse_encoding(json.dumps({**context, "rope_scaling": nested}))
    assert isinstance(found, LinearInterpolation | DynamicNtk)
    assert (found.factor, found.base, found.frequencies) == (factor, base, pairs)
    if isinstance(found, DynamicNtk):
        assert found.original == 77
