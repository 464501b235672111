"""Captures of our own transformers: every kind of encoding passes the self-test that a downloaded model must pass."""

import pytest
import torch

from poskernel.attention.content.product import ProductSettings, fit_products
from poskernel.attention.sources.self_test import self_test
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.encodings import parse_encoding
from poskernel.models.training import initial_model
from poskernel.models.transformer import Architecture, Norm

ENCODINGS = ["nope", "learned", "sinusoidal", "rope", "alibi", "t5", "shaw", "xpos"]
TOKENS = torch.randint(0, 12, (4, 16), generator=torch.Generator().manual_seed(0))


def source(encoding="rope", **shape):
    architecture = Architecture(width=32, layers=2, heads=4, train_length=64, **shape)
    return TransformerSource(initial_model(architecture, parse_encoding(encoding), 0))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("causal", [True, False])
def test_every_encoding_passes_the_self_test(encoding, causal):
    if encoding == "xpos" and not causal:
        pytest.skip("xPos is causal by definition")
    given = source(encoding, causal=causal)
    assert self_test(given).causal == causal


def test_captures_rebuild_the_attention_of_relative_vectors_and_biases():
    for encoding in ("shaw", "alibi"):
        given, captures = source(encoding), []
        given.forward(TOKENS, captures.append)
        for capture, own in zip(captures, given.own_patterns(TOKENS), strict=True):
            assert capture.bias is not None
            for head in range(4):
                torch.testing.assert_close(capture.pattern(head), own[:, head])


@torch.inference_mode()
@pytest.mark.parametrize("norm", ["layer", "rms", "none"])
def test_inputs_and_unrotated_vectors_are_those_of_the_projection(norm):
    given, captures = source("rope", norm=Norm(norm)), []
    given.forward(TOKENS, captures.append)
    for capture in captures:
        block = given.model.blocks[capture.layer]
        projected = block.query_key_value(capture.inputs).unflatten(-1, (3, 4, 8)).transpose(1, 3)
        torch.testing.assert_close(projected[:, :, 0], capture.unrotated_query)
        torch.testing.assert_close(projected[:, :, 1], capture.unrotated_key)
        torch.testing.assert_close(capture.rotation.rotate_keys(capture.unrotated_key), capture.key)
    assert not block.attention_norm._forward_hooks
    torch.testing.assert_close(given.embedding(), given.model.embedding.weight.detach())


def test_the_product_fits_see_that_a_first_layer_knows_tokens_alone():
    given = source("nope")
    tokens = torch.randint(0, 12, (8, 40), generator=torch.Generator().manual_seed(1))
    fits = fit_products(given, tokens, [0], ProductSettings(dropped=0, kernels=("token", "input")))
    for fit in fits:
        # Without positions the logits of layer 0 are bilinear in the tokens' embeddings (the norm bends them a little).
        assert fit.r2("additive").value > 0.99
        assert abs(fit.r2("position").value) < 0.1
