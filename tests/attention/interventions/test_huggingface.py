"""Hugging Face models under intervention: against edited weights and masks; captures, caches, padding, nesting."""

import pytest
import torch

pytest.importorskip("transformers")

import transformers

from families import GROUPED, SPECIAL, tiny, tokens
from poskernel.attention.atlas import analyze
from poskernel.attention.interventions.bands import Band, outside_bands
from poskernel.attention.interventions.changes import LogitKernel, MeanFilter, PlaneGain, Temperature, Translation
from poskernel.attention.interventions.controls import position_means
from poskernel.attention.interventions.huggingface import joined, own_implementation
from poskernel.attention.interventions.intervene import intervening
from poskernel.attention.interventions.planes import every_plane, rotary_planes
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.attention.sources.interface import IMPLEMENTATION, INTERVENED
from poskernel.attention.sources.self_test import self_test
from poskernel.errors import InputError
from poskernel.kernel import GridKernel, tabulated

EVERY = [(layer, head) for layer in range(2) for head in range(4)]
LENGTH = 20


def run(module: torch.nn.Module, **options: object) -> torch.Tensor:
    with torch.inference_mode():
        return module(input_ids=tokens(2, LENGTH), **options).last_hidden_state


def language_model() -> torch.nn.Module:
    torch.manual_seed(0)
    module = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SPECIAL, **GROUPED, "eos_token_id": None}))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(8 if parameter.ndim > 1 else 1)
    return module.eval()


@pytest.mark.parametrize(("family", "rows"), [("llama", [2, 6]), ("cohere", [4, 5]), ("qwen3", [2, 6])])
def test_a_plane_gain_is_that_of_the_query_projections_rows(family: str, rows: list[int]) -> None:
    """Half-split and interleaved plane 2 of head 3; Qwen3 normalises queries first, so its norm's weights get it."""
    module, edited = tiny(family), tiny(family)
    rotary, heads = rotary_planes(module), [(1, 3)]
    with torch.no_grad():
        if family == "qwen3":  # the norm's weights are shared by the heads
            heads = [(1, head) for head in range(4)]
            edited.layers[1].self_attn.q_norm.weight[rows] *= 0.4
        else:
            edited.layers[1].self_attn.q_proj.weight[torch.tensor(rows) + 24] *= 0.4
    with intervening(module, PlaneGain(dict.fromkeys(heads, (2,)), 0.4, rotary)):
        torch.testing.assert_close(run(module), run(edited), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(run(module), run(edited), atol=1e-3)


def test_a_temperature_is_a_smaller_query_projection() -> None:
    module, edited = tiny("gpt2"), tiny("gpt2")
    with torch.no_grad():
        for part in (edited.h[0].attn.c_attn.weight, edited.h[0].attn.c_attn.bias):
            part[..., 8:16] *= 0.5
    with intervening(module, Temperature([(0, 1)], 0.5)):
        torch.testing.assert_close(run(module), run(edited), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(run(module), run(edited), atol=1e-3)


@pytest.mark.parametrize("family", ["gpt2", "bert", "llama"])
def test_a_mean_filter_keeps_all_bands_bit_for_bit_and_one_band_filters_the_means(family: str) -> None:
    module, given = tiny(family), tokens(4, LENGTH)
    means = position_means(module, given)
    with intervening(module, MeanFilter(EVERY, means, list(Band), short=4.0)):
        kept = run(module)
    assert torch.equal(kept, run(module))
    with intervening(module, MeanFilter(EVERY, means, [Band.MIDDLE], short=4.0)):
        after = position_means(module, given)
    for before, filtered in ((means.query[0], after.query[0]), (means.key[0], after.key[0])):
        for head in range(len(before)):
            expected = before[head] - outside_bands(before[head], [Band.MIDDLE], 4.0)
            torch.testing.assert_close(filtered[head], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "bert", "gpt2"])
def test_a_kernel_in_every_head_is_an_additive_mask_of_the_users(family: str) -> None:
    module = tiny(family)
    values = torch.randn(LENGTH, LENGTH, generator=torch.Generator().manual_seed(3))
    hidden = torch.ones(LENGTH, LENGTH).triu(1).bool() if family != "bert" else torch.zeros(LENGTH, LENGTH).bool()
    mask = values.masked_fill(hidden, torch.finfo(torch.float32).min)[None, None].expand(2, 1, -1, -1)
    expected = run(module, attention_mask=mask.clone())
    with intervening(module, LogitKernel(EVERY, GridKernel(values))):
        torch.testing.assert_close(run(module), expected, rtol=1e-5, atol=1e-5)
    module.set_attn_implementation("eager")
    with intervening(module, LogitKernel(EVERY, GridKernel(values))):
        torch.testing.assert_close(run(module), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "implementation"),
    [(family, "eager") for family in ("llama", "gemma2", "gpt_oss", "bert", "gpt2")]
    + [(family, "sdpa") for family in ("llama", "bert", "gpt2")],
)
def test_the_models_own_implementation_goes_on(family: str, implementation: str) -> None:
    module = tiny(family)
    module.set_attn_implementation(implementation)
    plain = run(module)
    with intervening(module, Temperature(EVERY, 1.0)):
        assert torch.equal(run(module), plain)
        assert own_implementation(HuggingFaceSource(module)) not in ("eager", "sdpa", IMPLEMENTATION)
    assert module.config._attn_implementation == implementation


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    module = tiny("llama").to(dtype)
    plain, rotary = run(module), rotary_planes(module)
    planes = every_plane(rotary, EVERY)
    with intervening(module, PlaneGain(planes, 1.0, rotary), Temperature(EVERY, 1.0)):
        assert torch.equal(run(module), plain)
    with intervening(module, LogitKernel(EVERY, tabulated(-1e4 * torch.arange(20.0)))):
        alone = run(module)
    assert alone.isfinite().all()
    assert not torch.equal(alone, plain)


def test_blocks_nest_and_models_do_not_mix() -> None:
    first, second, rotary = tiny("llama"), tiny("mistral"), rotary_planes(tiny("llama"))
    plain, other = run(first), run(second)
    gain, turn = PlaneGain({(0, 1): (0, 1)}, 0.2, rotary), Translation({(1, 2): (0, 3)}, 1.0, rotary)
    with intervening(first, gain, turn):
        both = run(first)
    with intervening(first, gain):
        one = run(first)
        with intervening(first, turn), intervening(second, Temperature(EVERY, 3.0)):
            assert torch.equal(run(first), both)
            assert not torch.equal(run(second), other)
            with pytest.raises(RuntimeError), intervening(first, Temperature(EVERY, 9.0)):
                raise RuntimeError
            assert torch.equal(run(first), both)
        assert torch.equal(run(first), one)
        assert torch.equal(run(second), other)
    assert torch.equal(run(first), plain)
    assert not torch.equal(both, one)


def test_captures_and_whole_analyses_inside_see_the_changed_model() -> None:
    module, given = language_model(), tokens(4, 32)
    with intervening(module, Temperature(EVERY, 2.0)):
        assert self_test(HuggingFaceSource(module)).pattern_error < 1e-5
        hotter = analyze(module, given, sequences=4, length=32, dropped=4).to_frame()
    plain = analyze(module, given, sequences=4, length=32, dropped=4).to_frame()
    first = plain["layer"] == 0  # deeper layers read another stream
    ratio = hotter["signal_plugin"][first] / plain["signal_plugin"][first]
    assert ratio.to_numpy() == pytest.approx(2.0, rel=1e-4)


def test_an_intervention_inside_a_capture_is_applied_once() -> None:
    source, seen = HuggingFaceSource(tiny("llama")), []
    source.forward(tokens(2, LENGTH), seen.append)
    with source.capturing():
        with intervening(source, Temperature(EVERY, 3.0)):
            source.forward(tokens(2, LENGTH), seen.append)
        source.forward(tokens(2, LENGTH), seen.append)
    torch.testing.assert_close(seen[2].query, 3 * seen[0].query)
    assert torch.equal(seen[4].query, seen[0].query)
    assert INTERVENED not in vars(source.module)


def test_encoders_share_a_config_with_their_decoder_which_is_let_be() -> None:
    module, given = tiny("bart"), tokens(2, LENGTH)
    states = HuggingFaceSource(module).module(input_ids=given)

    def decoded() -> torch.Tensor:
        with torch.inference_mode():
            return module(encoder_outputs=states, decoder_input_ids=given).last_hidden_state

    plain = decoded()
    with intervening(module, Temperature(EVERY, 5.0)):
        assert torch.equal(decoded(), plain)


def test_generation_with_a_key_cache_is_that_without() -> None:
    module, rotary = language_model(), rotary_planes(language_model())
    options = {"max_new_tokens": 8, "do_sample": False, "attention_mask": torch.ones(2, LENGTH, dtype=torch.int64)}
    given = tokens(2, LENGTH)
    plain = module.generate(given, **options)
    changes = [Translation(every_plane(rotary, EVERY), 1.0, rotary), Temperature([(0, 2)], 2.0)]
    with intervening(module, *changes):
        cached = module.generate(given, **options)
        assert torch.equal(cached, module.generate(given, use_cache=False, **options))
    assert not torch.equal(cached, plain)
    kernel = LogitKernel([(1, 0)], tabulated(torch.linspace(0, 1, 64)))
    with intervening(module, kernel):
        assert module.generate(given, use_cache=False, **options).shape == (2, LENGTH + 8)
        with pytest.raises(
            InputError, match=r"LlamaAttention attends 21 keys from 1 queries \(a key cache\).*use_cache"
        ):
            module.generate(given, **options)
    assert torch.equal(module.generate(given, **options), plain)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_padding_is_allowed_where_positions_do_not_matter_or_are_known(implementation: str) -> None:
    module, given = tiny("llama"), tokens(2, LENGTH)
    module.set_attn_implementation(implementation)
    filled = torch.cat([torch.zeros(2, 3, dtype=torch.int64), given], 1)
    mask = torch.cat([torch.zeros(2, 3), torch.ones(2, LENGTH)], 1).long()
    left = {"attention_mask": mask, "position_ids": torch.arange(-3, LENGTH).clamp(min=0)[None]}
    kernel = LogitKernel(EVERY, tabulated(torch.linspace(0, 3, LENGTH + 3)))
    with torch.inference_mode():
        with intervening(module, Temperature(EVERY, 2.0)):
            padded = module(input_ids=filled, **left).last_hidden_state[:, 3:]
            torch.testing.assert_close(padded, run(module), rtol=1e-4, atol=1e-4)
        with intervening(module, kernel):
            right = module(input_ids=torch.cat([given, filled[:, :3]], 1), attention_mask=mask.flip(1))
            torch.testing.assert_close(right.last_hidden_state[:, :LENGTH], run(module), rtol=1e-4, atol=1e-4)
            with pytest.raises(
                InputError, match="counts positions from the first token, which is masked: pad on the r"
            ):
                module(input_ids=filled, **left)


def test_other_implementations_take_what_needs_no_mask() -> None:
    module = tiny("llama")
    expected, own = run(module), transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS["sdpa"]
    masks = transformers.masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    transformers.AttentionInterface.register("someones", own)
    transformers.AttentionMaskInterface.register("someones", masks["sdpa"])
    try:
        module.set_attn_implementation("someones")
        with intervening(module, Temperature(EVERY, 1.0)):
            assert torch.equal(run(module), expected)
        sentence = "which the attention implementation 'someones' does not take"
        with (
            intervening(module, LogitKernel(EVERY, tabulated(torch.ones(LENGTH)))),
            pytest.raises(InputError, match=sentence),
        ):
            run(module)
    finally:
        transformers.AttentionInterface._global_mapping.pop("someones")
        transformers.AttentionMaskInterface._global_mapping.pop("someones")


def test_layers_that_cannot_be_told_are_refused() -> None:
    hybrid = {**SPECIAL, **GROUPED, "layer_types": ["conv", "full_attention"]}
    module = transformers.Lfm2Model(transformers.Lfm2Config(**hybrid))
    sentence = "called attention 1 times for 2 layers; models that mix attention with other layers are not covered"
    with intervening(module, Temperature([(0, 0)], 2.0)), pytest.raises(InputError, match=sentence):
        run(module)
    twice = transformers.DiffLlamaModel(transformers.DiffLlamaConfig(**{**SPECIAL, **GROUPED})).eval()
    sentence = "called attention 4 times for 2 layers"
    with intervening(twice, Temperature([(0, 0)], 2.0)), pytest.raises(InputError, match=sentence):
        run(twice)


def test_masks_are_joined_whatever_their_form() -> None:
    added = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    lowest = torch.finfo(torch.float32).min
    hidden = torch.tensor([[[[1.0, lowest], [3.0, 4.0]]]])
    allowed = torch.tensor([[[[True, False], [True, True]]]])
    assert torch.equal(joined(None, added, causal=False), added)
    assert torch.equal(joined(None, added, causal=True), hidden)
    assert torch.equal(joined(allowed, added, causal=False), hidden)
    additive = torch.zeros(1, 1, 2, 2).masked_fill(~allowed, lowest)
    assert torch.equal(joined(additive, added, causal=True), hidden)
    halves = torch.full((1, 1, 2, 2), -100.0, dtype=torch.float16)
    additive = torch.zeros(1, 1, 2, 2, dtype=torch.float16).masked_fill(~allowed, torch.finfo(torch.float16).min)
    assert joined(additive, halves, causal=True).isfinite().all()
