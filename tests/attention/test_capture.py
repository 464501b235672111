"""The self-test of any source, and a capture's own arithmetic."""

import math

import pytest
import torch

from poskernel.attention.capture import AttentionSource, LayerCapture, self_test
from poskernel.errors import InputError


class ToySource(AttentionSource):
    """Two layers of one head over an embedding; each fault breaks one thing."""

    name, layers, heads, vocabulary, position_limit, dtype = "toy", 2, 1, 13, None, torch.float32

    def __init__(self, fault=None, causal=True):
        generator = torch.Generator().manual_seed(0)
        self.embedding = torch.randn(13, 6, generator=generator)
        self.fault, self.causal = fault, causal

    def layer(self, hidden, layer, consume=None, leak=False):
        causal = self.causal and not (self.fault == "one layer sees the future" and layer == 1)
        capture = LayerCapture(layer, hidden[:, None], hidden[:, None], 0.5, torch.arange(hidden.shape[1]), causal)
        pattern = capture.pattern(0)
        if consume is not None and not (self.fault == "silent layer" and layer == 1):
            consume(capture)
            if self.fault == "two calls":
                consume(capture)
        after = hidden + pattern @ hidden
        if self.fault == "leak":
            after = after + hidden[:, -1:] * 0.1
        if self.fault == "changed output" and consume is not None and layer == 1:
            after = after + 0.1
        return after, pattern[:, None] * (0.99 if self.fault == "other pattern" else 1)

    def forward(self, tokens, consume):
        hidden = self.embedding[tokens]
        for layer in range(2):
            hidden, _ = self.layer(hidden, layer, consume)
        return hidden

    def own_patterns(self, tokens):
        if self.fault == "no patterns":
            return []
        hidden, patterns = self.embedding[tokens], []
        for layer in range(2):
            hidden, pattern = self.layer(hidden, layer)
            patterns.append(pattern.repeat(1, 2, 1, 1) if self.fault == "other heads" else pattern)
        return patterns

    def layer_class(self, layer):
        return "ToyAttention"

    def tried(self):
        return "a toy"


@pytest.mark.parametrize("causal", [True, False])
def test_a_faithful_source_passes(causal):
    result = self_test(ToySource(causal=causal))
    assert result.causal == causal
    assert result.pattern_error == result.output_error == 0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("silent layer", r"layer 1 \(ToyAttention\) was never called through it; tried a toy"),
        ("two calls", r"layer 0 \(ToyAttention\) called attention twice"),
        ("other pattern", r"layer 0 \(ToyAttention\) has attention weights that differ by"),
        ("other heads", r"layer 0 \(ToyAttention\) reports 2 heads of attention, not the 1 captured"),
        ("no patterns", r"layer 0 \(ToyAttention\) reports no attention weights of its own"),
        ("changed output", r"'toy' cannot be analysed: capturing changes its output"),
        ("leak", r"a changed last token changes earlier outputs"),
        (
            "one layer sees the future",
            r"layer 1 \(ToyAttention\) differs from layer 0 in whether a query sees later keys",
        ),
    ],
)
def test_an_unfaithful_source_is_refused_with_the_reason(fault, message):
    with pytest.raises(InputError, match=message):
        self_test(ToySource(fault))


def test_probe_stays_within_the_models_positions():
    source = ToySource()
    source.position_limit = 7
    lengths = []
    forward = source.forward
    source.forward = lambda tokens, consume: (lengths.append(tokens.shape[1]), forward(tokens, consume))[1]
    self_test(source)
    assert set(lengths) == {7}


def test_logits_and_pattern_by_hand():
    query = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]])
    key = torch.tensor([[[[1.0, 0.0], [0.5, 1.0]]]])
    bias = torch.tensor([[[[0.0, 0.0], [0.25, 0.0]]]])
    capture = LayerCapture(0, query, key, 0.1, torch.arange(2), True, bias=bias, softcap=2.0)
    last = torch.tensor([1])
    logits = capture.logits(1, last, torch.arange(2))[0, 0]
    expected = [2 * math.tanh(0.7 / 2) + 0.25, 2 * math.tanh(1.15 / 2)]
    torch.testing.assert_close(logits, torch.tensor(expected))
    torch.testing.assert_close(capture.pattern(1)[0, 1], torch.tensor(expected).softmax(0))
    assert capture.pattern(1)[0, 0].tolist() == [1, 0]
    assert not capture.bilinear
