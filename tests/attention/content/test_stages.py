"""Stages of a block: planted positions are found at their share, noise has none, and hooks see the block."""

import math

import pytest
import torch

from planted_content import TOKENS, PlantedSource, bilinear
from poskernel.attention.content.stages import (
    STAGES,
    StageSums,
    layer_kernels,
    offset_profile,
    recorded_stages,
    spectrum,
    stage_kernels,
    stage_vectors,
    stationary_share,
    variation,
)
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.encodings import Rope, Sinusoidal
from poskernel.errors import InputError
from poskernel.models.transformer import Architecture, Transformer

LENGTH, WIDTH, SEQUENCES = 24, 6, 400
GENERATOR = torch.Generator().manual_seed(0)
ANGLES = 0.5 * torch.arange(LENGTH)[:, None].double()
CIRCLE = torch.cat([ANGLES.cos(), ANGLES.sin(), torch.zeros(LENGTH, WIDTH - 2)], 1)


def sums_of(positions, noise=1.0):
    """Both halves of sequences that have some vectors at their positions, and noise of their own."""
    drawn = positions + noise * torch.randn(2, SEQUENCES, *positions.shape, generator=GENERATOR, dtype=torch.float64)
    halves = StageSums(*positions.shape), StageSums(*positions.shape)
    for half, vectors in zip(halves, drawn, strict=True):
        for part in vectors.split(150):
            half.add(part)
    return halves


def source_of(encoding, **shape):
    torch.manual_seed(0)
    return TransformerSource(Transformer(Architecture(16, 2, 2, vocabulary=20, **shape), encoding).eval())


def test_the_kernel_is_that_of_different_sequences_centred_over_positions() -> None:
    vectors = torch.randn(4, 5, 3, generator=GENERATOR, dtype=torch.float64)
    sums = StageSums(5, 3)
    sums.add(vectors[:1])
    sums.add(vectors[1:])
    gram = torch.zeros(5, 5, dtype=torch.float64)
    for x in range(4):
        for y in range(4):
            if x != y:
                gram += vectors[x] @ vectors[y].T / 12
    torch.testing.assert_close(sums.kernel, gram - gram.mean(0) - gram.mean(1)[:, None] + gram.mean())


def test_a_planted_circle_is_positional_at_its_share_and_stationary() -> None:
    stages = {stage: sums_of(CIRCLE) for stage in STAGES}
    found = list(layer_kernels(3, stages))
    assert [each.stage for each in found] == list(STAGES) and {each.layer for each in found} == {3}
    planted = float((CIRCLE - CIRCLE.mean(0)).square().sum(1).mean())
    for each in found:
        assert each.share == pytest.approx(planted / (planted + WIDTH), abs=0.01)
        assert each.stationary > 0.9
        assert each.noise < 0.1
    assert math.isnan(found[0].change) and all(each.change < 0.1 for each in found[1:])


def test_positions_that_are_no_function_of_the_offset_are_told_apart() -> None:
    marked = torch.zeros(LENGTH, WIDTH).double()
    marked[4, 0] = marked[9, 0] = 4.0
    assert next(layer_kernels(0, {"stream": sums_of(marked, 0.3)})).stationary < 0.4


def test_another_frequency_is_a_change_and_noise_has_no_share() -> None:
    fast = torch.cat([(4 * ANGLES).cos(), (4 * ANGLES).sin(), torch.zeros(LENGTH, WIDTH - 2)], 1)
    _, second = layer_kernels(0, {"stream": sums_of(CIRCLE, 0.3), "attention": sums_of(fast, 0.3)})
    assert second.change > 0.8 > 0.1 > second.noise
    nothing = next(layer_kernels(0, {"stream": sums_of(torch.zeros(LENGTH, WIDTH).double())}))
    assert abs(nothing.share) < 0.01


def test_profiles_spectra_and_their_distance() -> None:
    kernel = torch.cos(0.5 * (torch.arange(12)[:, None] - torch.arange(12))).double()
    torch.testing.assert_close(offset_profile(kernel), torch.cos(0.5 * torch.arange(1, 6)).double())
    assert stationary_share(kernel, kernel) == pytest.approx(1)
    assert math.isnan(stationary_share(0 * kernel, kernel))
    lines = [spectrum(torch.cos(2 * math.pi * turns / 32 * torch.arange(32).double())) for turns in (2, 12)]
    assert float(lines[0].sum()) == pytest.approx(1) and int(lines[0].argmax()) == 1
    assert variation(lines[0], lines[0]) == 0 and variation(lines[0], lines[1]) > 0.95


@pytest.mark.parametrize("encoding", [Rope(), Sinusoidal()], ids=["rope", "sinusoidal"])
def test_hooks_see_a_block_of_ours(encoding) -> None:
    source, tokens = source_of(encoding), torch.randint(0, 20, (3, 10))
    with recorded_stages(source) as seen:
        source.forward(tokens, lambda capture: None)
    found = stage_vectors(source, seen)
    assert set(found) == {(layer, stage) for layer in range(2) for stage in STAGES}
    torch.testing.assert_close(found[0, "sum"], found[1, "stream"])
    torch.testing.assert_close(source.model.norm(found[1, "sum"]), source.forward(tokens, None))
    with recorded_stages(source) as later:
        pass
    source.forward(tokens, lambda capture: None)
    assert not later


def test_positions_enter_a_sinusoidal_stream_and_not_a_rotary_one() -> None:
    tokens = torch.randint(0, 20, (48, 24))
    shares = {
        name: next(each.share for each in stage_kernels(source_of(encoding), tokens, 2) if each.stage == "stream")
        for name, encoding in (("sinusoidal", Sinusoidal()), ("rope", Rope()))
    }
    assert shares["sinusoidal"] > 0.1 > 0.03 > abs(shares["rope"])


def test_a_block_of_llama_is_seen_and_others_are_refused() -> None:
    transformers = pytest.importorskip("transformers")
    from poskernel.attention.sources.huggingface import HuggingFaceSource

    def module(name):
        config = getattr(transformers, f"{name}Config")(
            hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
            head_dim=8, vocab_size=50, max_position_embeddings=64,
        )  # fmt: skip
        torch.manual_seed(0)
        return HuggingFaceSource(getattr(transformers, f"{name}Model")(config).eval(), name)

    tokens, source = torch.randint(3, 50, (8, 12)), module("Llama")
    found = stage_kernels(source, tokens, 2)
    assert [(each.layer, each.stage) for each in found] == [(layer, stage) for layer in range(2) for stage in STAGES]
    # Gemma-2 has norms after attention and MLP: they do not add up.
    with pytest.raises(InputError, match="are not known as an attention and an MLP"):
        stage_kernels(module("Gemma2"), tokens, 2)
    with pytest.raises(InputError, match="are not known as an attention and an MLP"):
        stage_kernels(PlantedSource([[bilinear]]), TOKENS, 2)
    with pytest.raises(InputError, match="are not known as an attention and an MLP"):
        stage_kernels(source_of(Rope(), mlp=False), tokens, 2)
    with pytest.raises(InputError, match="7 sequences leave no four in each half"):
        stage_kernels(source, tokens[:7], 2)
