"""Interventions on every family that transformers' interface reaches, and on our own transformer.

What a change should do is computed again from plain captures, by dense formulas in the space before the rotation.
"""

import pytest
import torch

pytest.importorskip("transformers")

from transformers import masking_utils, modeling_utils

from families import FALLBACKS, FAMILIES, HEADS, LAYERS, tiny, tokens
from poskernel.attention.interventions.changes import LogitKernel, PlaneGain, Temperature, Translation
from poskernel.attention.interventions.controls import own_captures
from poskernel.attention.interventions.intervene import intervening
from poskernel.attention.interventions.planes import every_plane, rotary_planes
from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.attention.sources.rotary_probe import rotary_probes
from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError
from poskernel.kernel import StationaryKernel, constant, tabulated
from poskernel.models.transformer import Architecture, Norm, Transformer

OUTSIDE = [*FALLBACKS, "megatron_bert", "rembert", "mpnet", "roformer"]
INSIDE = [name for name in FAMILIES if name not in OUTSIDE]
ROTARY = [name for name in INSIDE if FAMILIES[name].rotary]
EVERY = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
SOME = [(0, 1), (0, 3), (1, 2)]
LENGTH = 20
BUMP = StationaryKernel(lambda offset: 2.0 * torch.exp(-((offset - 3.0) ** 2)), signed=True)


def text() -> torch.Tensor:
    return tokens(2, LENGTH)


def run(module: torch.nn.Module, given: torch.Tensor | None = None, **options: object) -> torch.Tensor:
    """A plain call of the measured part (of an encoder-decoder the encoder), not through the capture."""
    inner = HuggingFaceSource(module).module
    with torch.inference_mode():
        return inner(input_ids=text() if given is None else given, **options).last_hidden_state


def captured(module: torch.nn.Module, given: torch.Tensor | None = None) -> list[LayerCapture]:
    seen: list[LayerCapture] = []
    HuggingFaceSource(module).forward(text() if given is None else given, seen.append)
    return seen


def logits(capture: LayerCapture, head: int) -> torch.Tensor:
    everywhere = torch.arange(capture.length)
    return capture.logits(head, everywhere, everywhere)


def state(module: torch.nn.Module) -> object:
    """Everything about a model and transformers' registries that an intervention could leave behind."""
    parts = list(module.modules())
    return (
        [getattr(getattr(part, "config", None), "_attn_implementation", None) for part in parts],
        [sorted(vars(part)) for part in parts],
        [(len(part._forward_hooks), len(part._forward_pre_hooks)) for part in parts],
        sorted(modeling_utils.ALL_ATTENTION_FUNCTIONS),
        sorted(masking_utils.ALL_MASK_ATTENTION_FUNCTIONS),
        module.training,
    )


def test_enough_families_are_inside() -> None:
    assert len(INSIDE) >= 25
    assert len(ROTARY) >= 20


@pytest.mark.parametrize("family", INSIDE)
def test_a_change_of_nothing_is_the_models_own_output_bit_for_bit(family: str) -> None:
    module = tiny(family)
    plain, before = run(module), captured(module)
    rotary = rotary_planes(module)
    planes = every_plane(rotary, [head for head in EVERY if head[0] in rotary])
    nothing = [
        Temperature(EVERY, 1.0),
        LogitKernel(EVERY, constant(0.0)),
        PlaneGain(planes, 1.0, rotary),
        Translation(planes, 0.0, rotary),
    ]
    with intervening(module, *nothing):
        assert torch.equal(run(module), plain)
        for capture, other in zip(captured(module), before, strict=True):
            assert torch.equal(capture.query, other.query)
            assert torch.equal(capture.key, other.key)


@pytest.mark.parametrize("family", INSIDE)
def test_nothing_is_left_behind_error_or_not(family: str) -> None:
    module = tiny(family)
    plain, before = run(module), state(module)
    with intervening(module, Temperature(SOME, 2.0), LogitKernel(SOME, BUMP)):
        assert not torch.allclose(run(module), plain, atol=1e-3)
        assert state(module) != before
    with pytest.raises(KeyboardInterrupt), intervening(module, Temperature(SOME, 2.0)):
        run(module)
        raise KeyboardInterrupt
    assert state(module) == before
    assert torch.equal(run(module), plain)


@pytest.mark.parametrize("family", INSIDE)
def test_temperatures_and_kernels_change_logits_as_the_dense_formula_says(family: str) -> None:
    """Soft caps, biases, windows and sinks keep their place: logit = cap(gain x scale x q.k) + bias + kernel."""
    module = tiny(family)
    before = captured(module)[0]
    offset = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    with intervening(module, Temperature(SOME, 1.7), LogitKernel([(0, 1), (0, 2)], BUMP)):
        after, outside = captured(module), run(module)
        inside = HuggingFaceSource(module).forward(text(), lambda capture: None)
    for head in range(HEADS):
        product = before.query[:, head] @ before.key[:, before.key_head(head)].transpose(1, 2) * before.scale
        expected = product * (1.7 if (0, head) in SOME else 1.0)
        if before.softcap is not None:
            expected = before.softcap * torch.tanh(expected / before.softcap)
        if before.bias is not None:
            expected = expected + before.bias[:, head % before.bias.shape[1]]
        if head in (1, 2):
            expected = expected + BUMP.function(offset)
        allowed = before.allowed(head)
        difference = (logits(after[0], head) - expected).masked_fill(~allowed, 0)
        assert float(difference.abs().max()) < 1e-5 * max(1.0, float(expected.abs().max()))
        expected = expected.masked_fill(~allowed, float("-inf"))
        if before.sinks is not None:
            sink = before.sinks[head].expand(2, LENGTH, 1)
            expected = torch.cat([expected, sink], -1).softmax(-1)[..., :-1]
        else:
            expected = expected.softmax(-1)
        torch.testing.assert_close(after[0].pattern(head), expected, rtol=0, atol=2e-6)
    assert not torch.equal(captured(module)[1].key, after[1].key)  # the next layer reads another stream
    # Under the model's own attention and under the capture's, the change is the same.
    torch.testing.assert_close(outside, inside, rtol=0, atol=1e-5 * float(inside.abs().max().clamp(min=1)))


@pytest.mark.parametrize("family", ROTARY)
def test_a_gain_multiplies_the_planes_share_of_every_logit(family: str) -> None:
    """Against the projection of unrotated queries, replayed through the layer's own rotation."""
    module = tiny(family)
    before, probe = captured(module)[0], rotary_probes(HuggingFaceSource(module))[0]
    chosen, gain, head = tuple(range(0, len(probe.frequencies), 2)), 0.3, 1
    rotary = rotary_planes(module)
    with intervening(module, PlaneGain({(0, head): chosen}, gain, rotary)):
        after = captured(module)[0]
    with intervening(module, PlaneGain({(0, head): chosen}, gain**0.5, rotary, sides="both")):
        torch.testing.assert_close(captured(module)[0].query, after.query, rtol=1e-5, atol=1e-6)
    axes = probe.planes[list(chosen)].flatten(0, 1).to(before.query)
    share = before.unrotated_query @ axes.T @ axes
    share = before.rotation.rotate_queries(share) - before.rotation.rotate_queries(torch.zeros_like(share))
    group = before.key[:, before.key_head(head)].transpose(1, 2)
    expected = before.query[:, head] @ group + (gain - 1) * share[:, head] @ group
    got = after.query[:, head] @ group
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    others = [other for other in range(HEADS) if other != head]  # also those that share its key head
    assert torch.equal(after.query[:, others], before.query[:, others])
    assert torch.equal(after.key, before.key)


@pytest.mark.parametrize("family", ROTARY)
def test_a_translation_by_delta_shifts_g_by_delta(family: str) -> None:
    """For a constant token the logits are a function of t - s alone, which moves along the rows."""
    module, constant_text = tiny(family), torch.full((1, LENGTH), 7)
    before, rotary = captured(module, constant_text)[0], rotary_planes(module)
    planes = every_plane(rotary, [(0, 0), (0, 3)])
    with intervening(module, Translation(planes, 2.0, rotary)):
        after = captured(module, constant_text)[0]
    for head in (0, 3):
        plain, moved = logits(before, head)[0], logits(after, head)[0]
        size = float(plain.abs().max())
        torch.testing.assert_close(moved[2:], plain[:-2], rtol=0, atol=1e-5 * size)  # g'(d) = g(d - 2)
        assert float((moved - plain).abs().max()) > 1e-3 * size
    assert torch.equal(after.query[:, 1:3], before.query[:, 1:3])
    with intervening(module, Translation(planes, -0.37, rotary)):
        turned = captured(module)[0].query
    plain = captured(module)[0].query
    torch.testing.assert_close(turned.norm(dim=-1), plain.norm(dim=-1))
    back = Translation(planes, 0.37, rotary)
    with intervening(module, Translation(planes, -0.37, rotary)), intervening(module, back):
        torch.testing.assert_close(captured(module)[0].query, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", OUTSIDE)
def test_families_outside_the_interface_are_refused(family: str) -> None:
    sentence = r"cannot be intervened on: layer 0 \(\w*Attention\) computes attention outside transformers' attention"
    with pytest.raises(InputError, match=sentence), intervening(tiny(family), Temperature(SOME, 2.0)):
        pass


def test_heads_that_are_not_there_are_refused() -> None:
    sentence = r"head 4 of layer 1 is not in 'LlamaModel': it has layers 0 to 1 with heads"
    with pytest.raises(InputError, match=sentence), intervening(tiny("llama"), Temperature([(0, 0), (1, 4)], 2.0)):
        pass
    sentence = "head 0 of layer 2 is not in the transformer: it has layers 0 to 1"
    with pytest.raises(InputError, match=sentence), intervening(own("rope"), Temperature([(2, 0)], 2.0)):
        pass


def own(encoding: str, **changes: object) -> Transformer:
    torch.manual_seed(3)
    shape = {"width": 32, "layers": 2, "heads": 4, "vocabulary": 13, "train_length": 12, **changes}
    model = Transformer(Architecture(**shape), ENCODINGS[encoding])  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model.requires_grad_(False)


def own_text(length: int = 12) -> torch.Tensor:
    return torch.randint(0, 13, (16, length), generator=torch.Generator().manual_seed(4))


def own_captured(model: Transformer) -> list[LayerCapture]:
    seen: list[LayerCapture] = []
    model(own_text(), hook=own_captures(model, seen.append))
    return seen


@pytest.mark.parametrize("encoding", ["nope", "learned", "sinusoidal", "rope", "alibi", "t5", "xpos", "yarn"])
def test_our_own_transformer_is_itself_under_a_change_of_nothing(encoding: str) -> None:
    model = own(encoding)
    rows = torch.tensor([3, 7])
    plain, some, hooked = model(own_text()), model(own_text(), rows), model(own_text(), hook=lambda inputs: None)
    rotary = rotary_planes(model)
    assert (0 in rotary) == (encoding in ("rope", "xpos", "yarn"))
    planes = every_plane(rotary, [head for head in EVERY if head[0] in rotary])
    nothing = [Temperature(EVERY, 1.0), LogitKernel(EVERY, constant(0.0)), Translation(planes, 0.0, rotary)]
    before = sorted(vars(model))
    with intervening(model, *nothing, PlaneGain(planes, 1.0, rotary)):
        assert torch.equal(model(own_text()), plain)
        assert torch.equal(model(own_text(), rows), some)
        assert torch.equal(model(own_text(), hook=lambda inputs: None), hooked)
    with pytest.raises(ZeroDivisionError), intervening(model, Temperature(EVERY, 2.0)):
        assert not torch.allclose(model(own_text()), plain, atol=1e-3)
        torch.testing.assert_close(model(own_text(), rows), model(own_text())[:, rows])
        raise ZeroDivisionError
    assert sorted(vars(model)) == before
    assert torch.equal(model(own_text()), plain)


@pytest.mark.parametrize("encoding", ["rope", "alibi", "sinusoidal"])
def test_our_own_transformers_logits_change_as_the_dense_formula_says(encoding: str) -> None:
    model = own(encoding)
    before, offset = own_captured(model)[0], torch.arange(12)[:, None] - torch.arange(12)
    with intervening(model, Temperature([(0, 2)], 0.5)), intervening(model, LogitKernel([(0, 2), (0, 3)], BUMP)):
        after = own_captured(model)[0]
    for head, gain, added in ((0, 1, 0), (1, 1, 0), (2, 0.5, 1), (3, 1, 1)):
        product = before.query[:, head] @ before.key[:, head].transpose(1, 2) * before.scale * gain
        bias = 0 if before.bias is None else before.bias[0, head]
        torch.testing.assert_close(logits(after, head), product + bias + added * BUMP.function(offset))


def test_our_own_planes_are_those_of_the_encoding() -> None:
    model = own("rope")
    rotary = rotary_planes(model)
    torch.testing.assert_close(
        rotary[1].frequencies, 10000.0 ** -(torch.arange(4, dtype=torch.float64) / 4), rtol=1e-6, atol=0
    )
    before = own_captured(model)[0]
    with intervening(model, PlaneGain({(0, 1): (1,)}, 0.0, rotary)):
        after = own_captured(model)[0].query
    expected = before.query.clone()
    expected[:, 1, :, [1, 5]] = 0  # half-split: plane 1 holds dimensions 1 and 5 of a head's 8
    torch.testing.assert_close(after, expected, rtol=0, atol=1e-6)
    with pytest.raises(InputError, match="draws its positions, so its planes turn by no fixed angle"):
        rotary_planes(own("randomized"))


SYMBOLS, PLANES, AMPLITUDE = 10, 16, 6.0


def previous_token_head() -> Transformer:
    """One RoPE head whose constant query and key make g(d) = sum of cos(theta (d - 1)) with its peak at 1; it copies.

    The stream holds the token at a position in its first half (one-hot) and what the head read in its second.
    """
    model = Transformer(
        Architecture(width=2 * PLANES, layers=1, heads=1, mlp=False, norm=Norm.NONE, vocabulary=SYMBOLS),
        ENCODINGS["rope"],
    ).requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    place = torch.arange(SYMBOLS)
    model.embedding.weight[place, place] = 1
    frequencies = rotary_planes(model)[0].frequencies
    width, projection = 2 * PLANES, model.blocks[0].query_key_value
    # Query (1, 0) and key (cos theta, sin theta) in every plane: <R_t q, R_s k> = cos(theta (t - s - 1)).
    projection.bias[:PLANES] = AMPLITUDE
    projection.bias[width : width + PLANES] = AMPLITUDE * frequencies.cos()
    projection.bias[width + PLANES : 2 * width] = AMPLITUDE * frequencies.sin()
    projection.weight[2 * width + place, place] = 1
    model.blocks[0].output.weight[PLANES + place, place] = 1
    model.head.weight[place, PLANES + place] = 1
    return model


def test_the_circuit_test_on_a_previous_token_head_built_by_hand() -> None:
    """Translated by 1, the head attends two back and the model predicts the token two back."""
    model = previous_token_head()
    rotary = rotary_planes(model)
    given = torch.randint(0, SYMBOLS, (20, 24), generator=torch.Generator().manual_seed(2))
    rows = torch.arange(4, 24)

    def attended() -> tuple[torch.Tensor, float, float]:
        seen: list[LayerCapture] = []
        predicted = model(given, hook=own_captures(model, seen.append))[:, rows].argmax(-1)
        offset = rows - seen[0].pattern(0)[0, rows].argmax(-1)
        one, two = (float((predicted == given[:, rows - back]).float().mean()) for back in (1, 2))
        return offset, one, two

    planes = every_plane(rotary, [(0, 0)])
    offset, one, two = attended()
    assert offset.eq(1).all()
    assert one == 1
    assert two < 0.3  # by chance
    with intervening(model, Translation(planes, 1.0, rotary)):
        offset, one, two = attended()
        assert offset.eq(2).all()
        assert one < 0.3
        assert two == 1
    fast = {(0, 0): tuple(range(6))}  # the planes that tell offset 1 from its neighbours
    with intervening(model, PlaneGain(fast, 0.0, rotary)):
        assert attended()[1] < 0.6
    slow = {(0, 0): tuple(range(10, PLANES))}
    with intervening(model, PlaneGain(slow, 0.0, rotary)):
        assert attended()[1] == 1
    with intervening(model, LogitKernel([(0, 0)], 40.0 * tabulated(torch.eye(24)[3]))):
        assert attended()[0].eq(3).all()
    assert attended()[1] == 1
