"""One pass and who reads it: kernels, other consumers, batches."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import families
from captures import dense
from planted_source import PositionSource, stream
from poskernel.attention.measuring import Subject, even_batches, measure
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.attention.sources.loading import load


def subject(sequences=8, **settings):
    return Subject(PositionSource(), stream(60 * sequences).view(sequences, 60), [1], dropped=4, **settings)


def test_consumers_see_the_layers_of_the_same_pass():
    seen, steps = [], []
    chosen = subject(20, step=lambda *step: steps.append(step))
    kernels = measure(chosen, [lambda capture: seen.append((capture.layer, len(capture.query)))])
    assert [(kernel.layer, kernel.head) for kernel in kernels] == [(1, 0), (1, 1), (1, 2)]
    assert seen == [(0, 10), (1, 10), (0, 10), (1, 10)]
    assert steps == [("layers", done, 4) for done in range(1, 5)]
    assert chosen.source.passes == 2
    alone = measure(subject(20))
    assert all(torch.equal(one.g, other.g) for one, other in zip(kernels, alone, strict=True))


def test_layers_beyond_the_last_one_measured_are_not_computed():
    seen, steps = [], []
    chosen = replace(subject(20, step=lambda *step: steps.append(step)), layers=[0])
    kernels = measure(chosen, [lambda capture: seen.append(capture.layer)])
    assert seen == [0, 0]
    assert steps == [("layers", 1, 2), ("layers", 2, 2)]
    both = measure(replace(subject(20), layers=[0, 1]))
    assert all(torch.equal(one.g, other.g) for one, other in zip(kernels, both[:3], strict=True))


def test_a_model_is_as_before_after_a_pass_that_ended_early(tiny_llama):
    source = load(str(tiny_llama)).source
    tokens = torch.randint(0, source.vocabulary, (4, 24), generator=torch.Generator().manual_seed(0))
    before, implementation = source.forward(tokens, None), source.module.config._attn_implementation
    measure(Subject(source, tokens, [0], dropped=2))
    assert source.module.config._attn_implementation == implementation
    assert torch.equal(source.forward(tokens, None), before)
    captures = []
    source.forward(tokens, captures.append)
    assert [capture.layer for capture in captures] == list(range(source.layers))


def test_a_subject_knows_its_sizes():
    assert subject().heads == {1: 3}
    assert subject().length == 60
    assert measure(subject(null=False))[0].null is None
    assert measure(subject())[0].null is not None


@pytest.mark.parametrize("sequences", [4, 15, 16, 17, 31, 33, 40, 63, 64, 65])
def test_batches_are_even_but_for_the_last(sequences):
    tokens = torch.arange(3 * sequences).view(sequences, 3)
    batches = even_batches(tokens)
    assert torch.equal(torch.cat(batches), tokens)
    sizes = [len(batch) for batch in batches]
    assert len(sizes) == math.ceil(sequences / 16)
    assert all(size % 2 == 0 for size in sizes[:-1])
    assert max(sizes) <= 16
    assert max(sizes) - min(sizes) <= 3


def softmax_inputs(module, tokens, monkeypatch):
    """[layer][sequence, head, query, key] that the model's own eager attention gives to its softmax."""
    seen, softmax = [], torch.nn.functional.softmax

    def watched(values, *arguments, **options):
        if values.ndim == 4 and values.shape[-2:] == (tokens.shape[1],) * 2:
            seen.append(values.detach())
        return softmax(values, *arguments, **options)

    with monkeypatch.context() as patched, torch.no_grad():
        patched.setattr(torch.nn.functional, "softmax", watched)
        module(tokens)
    return seen


@pytest.mark.parametrize("family", ["gemma2", "bloom", "gpt_neo"])
def test_heads_of_a_live_model_equal_dense_loops_on_what_its_softmax_is_given(family, monkeypatch):
    pytest.importorskip("transformers")
    module, tokens, dropped = families.tiny(family).double(), families.tokens(4, 20), 3
    if family == "gemma2":
        module.set_attn_implementation("eager")
        for layer in module.layers:  # a cap that bends the logits of a tiny model
            layer.self_attn.attn_logit_softcapping = 3.0
    logits = softmax_inputs(module, tokens, monkeypatch)
    assert len(logits) == 2
    found = measure(Subject(HuggingFaceSource(module), tokens, [0, 1], dropped=dropped, null=False))
    for kernel in found:
        given = logits[kernel.layer][:, kernel.head]
        given = given.masked_fill(given < -1e30, 0)  # masked pairs, of which no number is made
        if family == "bloom":  # its row over keys stands for a bias of the offset: 0 at each query's own key
            given = given - 4.0 ** -(kernel.head + 1) * torch.arange(20)[:, None]
        expected = dense(given.numpy(), dropped, families.FAMILIES[family].windows[kernel.layer])
        for name, value in expected.items():
            measured = getattr(kernel, name)
            measured = measured.value if hasattr(measured, "value") else measured
            if name.startswith("r2") and math.isnan(measured):  # of a variance that is estimated below 0
                continue
            np.testing.assert_allclose(np.asarray(measured), value, rtol=1e-4, atol=1e-6, err_msg=name)
