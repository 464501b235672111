"""What every source must pass on load, and that each fault is noticed."""

from dataclasses import replace

import pytest
import torch

from poskernel.attention.sources.capture import AttentionSource, LayerCapture, OwnAttention
from poskernel.attention.sources.rotary_calls import Rotation
from poskernel.attention.sources.self_test import PADDING, drifted, output_tolerance, self_test, weight_tolerance
from poskernel.errors import InputError, RunError


class ToySource(AttentionSource):
    """Two layers of one head over an embedding; each fault breaks one thing."""

    name, layers, heads, vocabulary, position_limit, dtype = "toy", 2, 1, 13, None, torch.float32

    def __init__(self, fault=None, causal=True, pads=False):
        generator = torch.Generator().manual_seed(0)
        self.embedding = torch.randn(13, 6, generator=generator)
        self.fault, self.causal, self.pads = fault, causal, pads

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
        if self.fault == "not finite" and layer == 1:
            after = after / 0
        return after, pattern[:, None] * (0.99 if self.fault == "other pattern" else 1)

    def forward(self, tokens, consume):
        hidden = self.embedding[tokens]
        for layer in range(2):
            hidden, _ = self.layer(hidden, layer, consume)
        return hidden

    def padded(self, tokens, padding, side, consume):
        """Every token also carries a feature of its position, counted from its sequence's own start."""
        if not self.pads:
            return None
        length, kept = tokens.shape[1], slice(padding, None) if side == "left" else slice(None, tokens.shape[1])
        mask = torch.zeros(1, 1, length + padding, length + padding, dtype=torch.bool)
        mask[..., kept, kept] = torch.ones(length, length).tril().bool() if self.causal else True
        if self.fault == "padding seen":
            mask[..., kept, :] |= torch.arange(length + padding) == (0 if side == "left" else length)
        hidden = torch.zeros(len(tokens), length + padding, 6)
        hidden[:, kept] = self.embedding[tokens]
        if self.fault == "places counted" and side == "left":
            hidden = hidden.roll(1, -1)
        for layer in range(2):
            capture = LayerCapture(
                layer, hidden[:, None], hidden[:, None], 0.5, torch.arange(length + padding), True, mask=mask
            )
            consume(capture)
            hidden = hidden + capture.pattern(0).nan_to_num() @ hidden
        return hidden

    @property
    def counts_positions(self):
        return self.fault != "places counted"

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
    assert result.padding is result.padding_error is result.rotation_error is None  # a toy takes no mask


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("silent layer", r"it called attention 1 times for 2 layers \(tried a toy\); models that mix"),
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


def test_outputs_that_are_not_finite_are_a_broken_model():
    with pytest.raises(RunError, match="'toy' gave outputs that are not finite numbers after its 2 layers"):
        self_test(ToySource("not finite"))


def test_probe_stays_within_the_models_positions():
    source = ToySource()
    source.position_limit = 7
    lengths = []
    forward = source.forward
    source.forward = lambda tokens, consume: (lengths.append(tokens.shape[1]), forward(tokens, consume))[1]
    self_test(source)
    assert max(lengths) == 7
    assert min(lengths) == 6  # the one that is padded


@pytest.mark.parametrize("causal", [True, False])
def test_padding_that_changes_nothing_passes(causal):
    result = self_test(ToySource(causal=causal, pads=True))
    assert result.padding == "left"
    assert result.padding_error < 1e-6


@pytest.mark.parametrize("causal", [True, False])
def test_padding_that_is_seen_is_refused(causal):
    with pytest.raises(InputError, match=rf"{PADDING} masked tokens of padding change .* by .*tried a toy"):
        self_test(ToySource("padding seen", causal, pads=True))


@pytest.mark.parametrize("causal", [True, False])
def test_a_model_that_counts_places_and_takes_no_positions_is_padded_on_the_right(causal):
    assert self_test(ToySource("places counted", causal, pads=True)).padding == "right"


def test_a_model_that_takes_positions_and_moves_under_padding_is_refused(monkeypatch):
    monkeypatch.setattr(ToySource, "counts_positions", True)
    with pytest.raises(InputError, match="masked tokens of padding"):
        self_test(ToySource("places counted", pads=True))


class TurnedSource(ToySource):
    """The toy with a rotation, replayed rightly or not."""

    def forward(self, tokens, consume):
        def turned(capture):
            rotation = Turn(1.0 if self.fault is None else 1.01)
            consume(replace(capture, rotation=rotation, unrotated_query=-capture.query, unrotated_key=-capture.key))

        return super().forward(tokens, None if consume is None else turned)


class Turn(Rotation):
    """Half a turn, times a size."""

    def __init__(self, size):
        object.__setattr__(self, "size", size)

    def rotate_queries(self, vectors):
        return -self.size * vectors

    rotate_keys = rotate_queries


def test_a_rotation_is_replayed_and_compared(monkeypatch):
    assert self_test(TurnedSource()).rotation_error == 0
    with pytest.raises(InputError, match=r"layer 0 \(ToyAttention\) has a rotation that differs by 1.0e-02 when it is"):
        self_test(TurnedSource("size"))


def test_half_precision_widens_what_counts_as_rounding_and_float32_does_not():
    source = ToySource()
    captures = []
    source.forward(torch.arange(8)[None], captures.append)
    assert weight_tolerance(source, captures[0]) == output_tolerance(source) == 1e-4
    source.dtype = torch.bfloat16
    logits = captures[0].logits(0, torch.arange(8), torch.arange(8)).abs().max()
    assert weight_tolerance(source, captures[0]) == pytest.approx(2**-7 * (1 + logits.item() / 2))
    assert output_tolerance(source) == 0.125
    source.dtype = torch.float64
    assert weight_tolerance(source, captures[0]) == output_tolerance(source) == 1e-4


def test_passes_drift_apart_by_a_few_roundings_a_layer_and_only_in_half_precision():
    source, captures = ToySource(), []
    source.forward(torch.arange(8)[None], captures.append)

    def excused(layer, epsilons):
        capture = captures[layer]
        own = OwnAttention(capture.pattern(0)[:, None], capture.query * (1 + epsilons * 2**-7), capture.key)
        return drifted(source, capture, own)

    assert not excused(0, 1)  # float32: what rounding explains is within the tolerance of weights
    source.dtype = torch.bfloat16
    assert [excused(0, 1.9), excused(0, 2.1), excused(1, 3.9), excused(1, 4.3)] == [True, False, True, False]
    assert not drifted(source, captures[0], OwnAttention(captures[0].pattern(0)[:, None]))
    halved = OwnAttention(captures[0].pattern(0)[:, None], captures[0].query[..., :3], captures[0].key[..., :3])
    assert not drifted(source, captures[0], halved)


@pytest.mark.parametrize("fault", ["other pattern", "leak"])
def test_what_half_precision_may_explain_is_said_with_the_remedy(fault, monkeypatch):
    monkeypatch.setattr(ToySource, "dtype", torch.float16)
    with pytest.raises(InputError, match="float16 may be too coarse for it: load the model as float32"):
        self_test(ToySource(fault))
