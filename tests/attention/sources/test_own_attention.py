"""A model's own attention: what its pass made it of, half precision in deep models, and models that give none."""

import functools
import sys

import pytest
import torch

transformers = pytest.importorskip("transformers")

import families  # noqa: E402
from poskernel.attention.atlas import analyze  # noqa: E402
from poskernel.attention.sources.capture import OwnAttention  # noqa: E402
from poskernel.attention.sources.huggingface import HuggingFaceSource  # noqa: E402
from poskernel.attention.sources.own_attention import (  # noqa: E402
    EAGER,
    code_of,
    failing_hook,
    reads_text,
    recorded_operands,
    with_operands,
)
from poskernel.attention.sources.self_test import largest_difference, self_test, weight_tolerance  # noqa: E402
from poskernel.errors import InputError, RunError  # noqa: E402

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 101,
    "max_position_embeddings": 128,
}
DEEP = 24


def deep(dtype, layers=DEEP, family="Llama"):
    """Many layers of large weights: rounding in one reaches the logits of those after it."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**SMALL, "num_hidden_layers": layers})
    module = getattr(transformers, f"{family}Model")(config).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8)
    return module.to(dtype)


def probe(source):
    return source.probe_tokens(2, 40, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2", "t5", "bert", "modernbert", "deepseek_v3"])
def test_operands_are_those_of_the_eager_pass(family):
    source = HuggingFaceSource(families.tiny(family))
    captures = []
    source.forward(probe(source), captures.append)
    own = source.own_attention(probe(source))
    assert len(own) == len(captures) == source.layers
    for capture, one in zip(captures, own, strict=True):
        torch.testing.assert_close(one.query, capture.query)
        torch.testing.assert_close(one.key, capture.key)
    for weights, one in zip(source.own_patterns(probe(source)), own, strict=True):
        assert torch.equal(weights, one.weights)


def test_the_eager_function_is_back_afterwards_error_or_not():
    module = families.tiny("llama")
    space = vars(sys.modules[type(module).__module__])
    before = space[EAGER]
    with pytest.raises(KeyboardInterrupt), recorded_operands(module, []):
        assert space[EAGER] is not before
        raise KeyboardInterrupt
    assert space[EAGER] is before


def test_operands_that_are_not_one_pair_a_layer_are_left_out():
    weights, pair = torch.ones(1, 1, 2, 2), (torch.zeros(1, 1, 2, 3), torch.ones(1, 1, 2, 3))
    (one,) = with_operands([weights], [pair])
    assert (one.query is pair[0], one.key is pair[1]) == (True, True)
    assert [one.query for one in with_operands([weights, weights], [pair])] == [None, None]
    assert OwnAttention(weights).key is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_deep_model_in_half_precision_passes_though_its_passes_drift_apart(dtype):
    source = HuggingFaceSource(deep(dtype))
    own = source.own_attention(probe(source))
    over = []
    source.forward(
        probe(source),
        lambda capture: over.append(
            largest_difference(capture, own[capture.layer].weights) / weight_tolerance(source, capture)
        ),
    )
    assert max(over) > 1  # the two passes differ by more than one layer's rounding
    result = self_test(source)
    assert result.causal
    assert result.pattern_error < 0.05


@pytest.mark.parametrize("wrong", ["scale", "queries", "keys of another head"])
def test_a_wrong_capture_is_refused_in_half_precision_too(wrong, monkeypatch):
    original = HuggingFaceSource.captured

    def captured(self, module, query, key, mask, scaling, options):
        if wrong == "scale":
            return original(self, module, query, key, mask, 1.5 * scaling, options)
        if wrong == "queries":
            return original(self, module, 1.05 * query, key, mask, scaling, options)
        return original(self, module, query, key.roll(1, 1), mask, scaling, options)

    monkeypatch.setattr(HuggingFaceSource, "captured", captured)
    message = r"layer 0 \(LlamaAttention\) has attention weights that differ by .*load the model as float32; tried"
    with pytest.raises(InputError, match=message):
        self_test(HuggingFaceSource(deep(torch.float16)))


def test_float32_gets_no_advice_on_precision(monkeypatch):
    original = HuggingFaceSource.captured
    monkeypatch.setattr(HuggingFaceSource, "captured", lambda self, *given: original(self, *given[:4], 0.3, *given[5:]))
    with pytest.raises(InputError, match=r"from those rebuilt; tried transformers"):
        self_test(HuggingFaceSource(deep(torch.float32, 2)))


@pytest.mark.parametrize("part", ["mlp.down_proj", "self_attn.o_proj"])
def test_what_is_not_finite_after_the_last_attention_is_a_broken_model(part):
    module = deep(torch.float32, 3)
    with torch.no_grad():
        module.layers[2].get_submodule(part).weight[0, 0] = float("nan")
    with pytest.raises(RunError, match=r"outputs that are not finite numbers after its 3 layers"):
        analyze(module, families.tokens(4, 32), sequences=4, length=32, dropped=4, layers=[0])


def test_models_of_something_else_than_text_are_refused_with_what_to_give():
    vision = transformers.ViTModel(transformers.ViTConfig(**{k: v for k, v in SMALL.items() if k != "vocab_size"}))
    with pytest.raises(InputError, match=r"reads pixel_values, no token ids \(ViTModel\): give a model of text"):
        HuggingFaceSource(vision)
    sizes = {"conv_dim": (8,), "conv_stride": (2,), "conv_kernel": (2,), "num_feat_extract_layers": 1}
    config = transformers.Wav2Vec2Config(
        **SMALL, **sizes, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, feat_extract_norm="layer"
    )
    with pytest.raises(InputError, match=r"reads input_values, no token ids \(Wav2Vec2Model\): give a model of text"):
        HuggingFaceSource(transformers.Wav2Vec2Model(config))
    assert not reads_text(vision)
    assert reads_text(families.tiny("llama"))


def boom(*given):
    raise RuntimeError("boom.\nand more")


class Boom:
    def __call__(self, *given):
        boom(*given)


@pytest.mark.parametrize("hook", [boom, functools.partial(boom), Boom(), Boom().__call__])
@pytest.mark.parametrize("when", ["register_forward_pre_hook", "register_forward_hook"])
def test_a_failing_hook_is_named_and_the_model_is_not_blamed(hook, when):
    module = families.tiny("llama")
    handle = getattr(module.layers[1], when)(hook)
    with pytest.raises(InputError, match=r"its hook (boom|Boom.__call__) raised RuntimeError: boom; mend the hook"):
        self_test(HuggingFaceSource(module))
    handle.remove()
    assert self_test(HuggingFaceSource(module)).causal


def test_a_failing_hook_of_all_modules_is_named():
    module = families.tiny("llama")
    handle = torch.nn.modules.module.register_module_forward_hook(boom)
    try:
        with pytest.raises(InputError, match="its hook boom raised RuntimeError"):
            self_test(HuggingFaceSource(module))
    finally:
        handle.remove()


def test_an_error_of_the_models_own_code_is_told_without_advice_that_does_not_help(monkeypatch):
    module = families.tiny("llama")
    module.layers[0].register_forward_hook(lambda *given: None)  # a hook that does nothing is not to blame
    monkeypatch.setattr(module.layers[1].mlp, "forward", boom)
    with pytest.raises(InputError, match="called with token ids alone it raised RuntimeError: boom; make that call"):
        self_test(HuggingFaceSource(module))


def test_no_code_no_hook():
    assert code_of(len) is None
    assert code_of(boom) is boom.__code__
    try:
        raise ValueError
    except ValueError as error:
        assert failing_hook(families.tiny("llama"), error) is None


def hooks_of(module):
    """Every hook of every part; transformers keeps its own from the first time that it is asked for attention."""
    return [
        hook
        for part in module.modules()
        for table in (part._forward_hooks, part._forward_pre_hooks)
        for hook in table.values()
    ]


@pytest.mark.parametrize("family", ["llama", "gemma2", "bloom", "gpt2", "t5"])
def test_no_hook_of_ours_stays(family):
    module = families.tiny(family)
    analyze(module, families.tokens(4, 32), sequences=4, length=32, dropped=4)
    after = hooks_of(module)
    assert all(hook.__module__.startswith("transformers.") for hook in after)
    assert self_test(HuggingFaceSource(module))
    assert hooks_of(module) == after  # nor does a second run add any


def test_the_hooks_that_stay_are_those_of_asking_the_model_for_its_attention():
    module, asked = families.tiny("llama"), families.tiny("llama")
    asked(families.tokens(), output_attentions=True)
    already = hooks_of(asked)
    for one in (module, asked):
        analyze(one, families.tokens(4, 32), sequences=4, length=32, dropped=4)
    assert hooks_of(asked) == already
    assert len(hooks_of(module)) == len(already)
