"""Every family of `families`: what is captured is what the model computes, and the rotation is what the config says."""

import pytest
import torch

pytest.importorskip("transformers")

from families import FAMILIES, HEADS, tiny, tokens
from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.attention.sources.rotary_probe import RotaryProbe, rotary_probes
from poskernel.attention.sources.self_test import self_test

ROTARY = [name for name, family in FAMILIES.items() if family.rotary]
MIXED_BY_SINKS = ("gpt_oss",)
"""A sink takes a share that falls with the number of keys, so deeper layers see positions in a constant text."""


def captured(source: HuggingFaceSource, given: torch.Tensor) -> list[LayerCapture]:
    seen: list[LayerCapture] = []
    source.forward(given, seen.append)
    return seen


def rotary_parameters(module: torch.nn.Module, layer: int) -> dict:
    """The config's rotary parameters of a layer; some configs keep one set for each kind of layer."""
    parameters = getattr(module.config, "rope_parameters", None) or {}
    kinds = getattr(module.config, "layer_types", None) or [None] * (layer + 1)
    nested = parameters.get(kinds[layer])
    return nested if isinstance(nested, dict) else parameters


def configured_frequencies(module: torch.nn.Module, layer: int, width: int) -> torch.Tensor:
    """Closed form of the default scheme; families without the field in their config have 10000 in their code."""
    parameters = rotary_parameters(module, layer)
    if parameters.get("rope_type", "default") == "default":
        base = float(parameters.get("rope_theta", 10000.0))
        return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return module.rotary_emb.inv_freq.double()


@pytest.mark.parametrize("family", FAMILIES)
def test_rebuilt_patterns_and_padding_pass_the_self_test(family):
    result = self_test(HuggingFaceSource(tiny(family)))
    assert result.causal == FAMILIES[family].causal
    assert result.pattern_error < 1e-5
    assert result.output_error < 1e-5
    assert result.padding == FAMILIES[family].padding
    assert result.padding_error < 1e-5
    assert (result.rotation_error is not None) == FAMILIES[family].rotary
    assert (result.rotation_error or 0) < 1e-6


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_windows_and_direction(family):
    entry, module = FAMILIES[family], tiny(family)
    layers = captured(HuggingFaceSource(module), tokens())
    assert [capture.layer for capture in layers] == [0, 1]
    assert tuple(capture.window for capture in layers) == entry.windows  # 32 tokens reach beyond every window
    for capture in layers:
        assert capture.mask is None
        assert capture.causal == entry.causal
        assert capture.heads == HEADS
        assert capture.key.shape[1] == (entry.key_heads or getattr(module.config, "num_key_value_heads", HEADS))
        assert (capture.rotation is not None) == (entry.rotary and capture.layer not in entry.without_rotation)
        assert capture.unreadable is None
        # Were attention uniform, a wrong scale or bias would show in nothing above.
        assert float(capture.pattern(0)[:, -1].max()) > 1.3 / capture.allowed(0)[0, -1].sum()


@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_is_refused_nowhere_and_captured_in_float32(family):
    module = tiny(family).to(torch.bfloat16)
    result = self_test(HuggingFaceSource(module))
    assert result.pattern_error < 0.1
    assert {capture.query.dtype for capture in captured(HuggingFaceSource(module), tokens())} == {torch.float32}


@pytest.mark.parametrize("family", ROTARY)
def test_recovered_frequencies_are_the_configs(family):
    entry, module = FAMILIES[family], tiny(family)
    probes = rotary_probes(HuggingFaceSource(module))
    assert list(probes) == [layer for layer in range(2) if layer not in entry.without_rotation]
    for layer, probe in probes.items():
        expected = configured_frequencies(module, layer, entry.width)
        torch.testing.assert_close(probe.frequencies, expected, rtol=1e-5, atol=0)
        assert probe.width == entry.width
        assert probe.pairing == entry.pairing
        assert probe.stationarity_error < 5e-7
        scaled = getattr(getattr(module, "rotary_emb", None), "attention_scaling", 1.0)
        assert probe.factor == pytest.approx(scaled, abs=1e-6)
        check_planes(probe, entry.pairing)


def check_planes(probe: RotaryProbe, pairing: str) -> None:
    """Plane k holds dimensions k and k + width / 2, or 2 k and 2 k + 1, from the first rotated one on."""
    held = [plane.abs().gt(1e-6).any(0).nonzero().flatten().tolist() for plane in probe.planes]
    first, planes = held[0][0], len(held)
    if pairing == "interleaved":
        assert held == [[first + 2 * k, first + 2 * k + 1] for k in range(planes)]
    else:
        assert held == [[k, k + held[0][1] - held[0][0]] for k in range(planes)]
    flat = probe.planes.flatten(0, 1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(2 * planes, dtype=torch.float64))


def departure(capture: LayerCapture) -> float:
    """Largest difference between logits on one diagonal, over the largest logit."""
    everywhere = torch.arange(capture.length)
    worst, size = 0.0, 1e-30
    for head in range(capture.heads):
        logits = capture.logits(head, everywhere, everywhere)[0].double()
        size = max(size, float(logits.abs().max()))
        for offset in range(capture.length):
            diagonal = logits.diagonal(-offset)
            worst = max(worst, float(diagonal.max() - diagonal.min()))
    return worst / size


@pytest.mark.parametrize("family", ROTARY)
def test_a_constant_token_is_toeplitz_and_its_unrotated_vectors_know_no_position(family):
    for capture in captured(HuggingFaceSource(tiny(family)), torch.full((1, 40), 7)):
        if capture.layer > 0 and family in MIXED_BY_SINKS:
            continue
        assert departure(capture) < 5e-6
        if capture.rotation is not None:
            for vectors in (capture.unrotated_query, capture.unrotated_key):
                spread = (vectors - vectors[:, :, :1]).abs().max()
                assert float(spread) < 1e-5 * float(vectors.abs().max())


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gptj", "deepseek_v3"])
def test_the_toeplitz_floor_of_half_precision_is_that_of_its_cosines(family):
    first = captured(HuggingFaceSource(tiny(family).to(torch.bfloat16)), torch.full((1, 40), 7))[0]
    assert 1e-4 < departure(first) < 5e-2


@pytest.mark.parametrize("family", ["gpt2", "opt", "gpt_neo", "bert", "xglm"])
def test_absolute_positions_are_not_toeplitz(family):
    assert departure(captured(HuggingFaceSource(tiny(family)), torch.full((1, 40), 7))[0]) > 1e-2
