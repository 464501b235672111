"""Shuffled positions: the same logits at other pairs, and no kernel of the offset left."""

import pytest
import torch

from planted_content import PROFILE, TOKENS, PlantedSource, bilinear
from poskernel.attention.content.product import ProductSettings, fit_products
from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.shuffled import ShuffledSource
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.encodings import Rope
from poskernel.errors import InputError
from poskernel.models.transformer import Architecture, Transformer


def captured(source, tokens):
    captures = []
    hidden = source.forward(tokens, captures.append)
    return captures, hidden


def test_every_logit_is_that_of_the_pair_it_belongs_to() -> None:
    torch.manual_seed(0)
    source = TransformerSource(Transformer(Architecture(16, 2, 2, vocabulary=20), Rope()).eval())
    tokens, everywhere = torch.randint(0, 20, (3, 12)), torch.arange(12)
    shuffled = ShuffledSource(source, 12, 2, seed=0)
    assert shuffled.order[:2].tolist() == [0, 1] and sorted(shuffled.order.tolist()) == list(range(12))
    assert shuffled.order.tolist() != list(range(12))
    (plain, hidden), (moved, moved_hidden) = captured(source, tokens), captured(shuffled, shuffled.shuffled(tokens))
    for one, other in zip(plain, moved, strict=True):
        expected = one.logits(1, everywhere, everywhere)[:, shuffled.order][:, :, shuffled.order]
        torch.testing.assert_close(other.logits(1, everywhere, everywhere), expected)
        torch.testing.assert_close(other.inputs, one.inputs[:, shuffled.order])
        with pytest.raises(InputError, match="positions are shuffled"):
            other.before_rotation()
    torch.testing.assert_close(moved_hidden, hidden[:, shuffled.order])
    torch.testing.assert_close(shuffled.forward(shuffled.shuffled(tokens), None), moved_hidden)
    patterns = shuffled.own_patterns(shuffled.shuffled(tokens))
    torch.testing.assert_close(patterns[0], source.own_patterns(tokens)[0][:, :, shuffled.order][..., shuffled.order])
    assert shuffled.tried() == source.tried() and shuffled.layer_class(0) == source.layer_class(0)
    assert torch.equal(shuffled.embedding(), source.embedding())


def test_content_stays_and_position_goes() -> None:
    source = PlantedSource([[lambda x: 3 * PROFILE + 0.3 * bilinear(x)]])
    shuffled = ShuffledSource(source, TOKENS.shape[1], 2, seed=1)
    settings = ProductSettings(2, ("token",), components=6)
    plain = fit_products(source, TOKENS, settings=settings)[0]
    null = fit_products(shuffled, shuffled.shuffled(TOKENS), settings=settings)[0]
    assert plain.r2("position").value > 0.2 > 0.1 > null.r2("position").value
    assert null.r2("content").value > 0.5 * plain.r2("content").value > 0.05


def test_a_bias_moves_too_and_a_window_is_refused() -> None:
    shuffled = ShuffledSource(PlantedSource([[bilinear]]), 4, 0, seed=0)
    bias = torch.arange(16.0).view(1, 1, 4, 4)
    zero = torch.zeros(1, 1, 4, 2)
    capture = LayerCapture(0, zero, zero, 1.0, torch.arange(4), True, bias=bias)
    torch.testing.assert_close(shuffled.moved(capture).bias, bias[:, :, shuffled.order][..., shuffled.order])
    with pytest.raises(InputError, match="does not attend all earlier positions"):
        shuffled.moved(LayerCapture(0, zero, zero, 1.0, torch.arange(4), True, window=2))
