"""Fits and residuals of every head, by the kernels that the source can give."""

import pytest

from planted_content import DROPPED, PROFILE, TOKENS, PlantedSource, bilinear, noise
from poskernel.attention.content.content_kernels import INPUT, KERNELS
from poskernel.attention.content.head_products import gives_inputs, head_products
from poskernel.attention.content.product import ProductSettings, fit_products

HEADS = [
    lambda vectors: PROFILE * bilinear(vectors) + 0.1 * noise(vectors),
    lambda vectors: PROFILE + bilinear(vectors),
]


def inputs_missing(source):
    """The same source without the inputs of its layers."""
    forward = source.forward

    def without(tokens, consume):
        said, source.says = source.says, False
        try:
            return forward(tokens, consume)
        finally:
            source.says = said

    source.forward = without
    return source


def test_every_head_has_its_fits_and_what_two_of_them_leave():
    source = PlantedSource([HEADS, HEADS])
    found = head_products(source, TOKENS, [1], DROPPED)
    assert [(each.layer, each.head) for each in found] == [(1, 0), (1, 1)]
    expected = fit_products(source, TOKENS, [1], ProductSettings(DROPPED))
    for each in found:
        assert tuple(each.fits) == KERNELS
        assert set(each.cross_terms) == {"additive", "product"}
        for fit in expected:
            if fit.head == each.head:
                assert each.fits[fit.kernel].r2("product").value == pytest.approx(fit.r2("product").value)
    product, additive = found
    assert product.fits["token"].r2("product").value > product.fits["token"].r2("additive").value + 0.1
    assert additive.fits["token"].r2("additive").value == pytest.approx(1, abs=1e-3)


def test_without_the_layers_input_its_kernel_is_left_out():
    source = inputs_missing(PlantedSource([HEADS]))
    assert not gives_inputs(source, TOKENS[:1], [0])
    assert gives_inputs(PlantedSource([HEADS]), TOKENS[:1], [0])
    (first, _) = head_products(source, TOKENS, [0], DROPPED)
    assert tuple(first.fits) == tuple(name for name in KERNELS if name != INPUT)
