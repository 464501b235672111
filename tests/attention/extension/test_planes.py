"""Vectors as planes: products of complex numbers are the products of vectors, whatever turns and whatever does not."""

import pytest
import torch

from poskernel.attention.extension.planes import PlaneBasis, Turning, still_planes
from poskernel.attention.sources.rotary_probe import probe_rotation
from rotary_captures import FREQUENCIES, noisy


def test_products_over_planes_are_products_of_vectors():
    capture = noisy(1, torch.Generator().manual_seed(0))
    basis = PlaneBasis.of(probe_rotation(capture.rotation, 8), capture)
    torch.testing.assert_close(basis.own.rates, FREQUENCIES, rtol=1e-9, atol=0)
    assert basis.own.factor == pytest.approx(1)
    vectors = torch.randn(2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    query, rest = basis.read(vectors[0], 0)
    key, _ = basis.read(vectors[1], 0)
    assert rest.shape == (5, 0)
    torch.testing.assert_close((query * key.conj()).real.sum(-1), (vectors[0] * vectors[1]).sum(-1))


def test_what_lies_outside_the_block_is_read_as_planes_too():
    capture = noisy(1, torch.Generator().manual_seed(0))
    basis = PlaneBasis.of(probe_rotation(capture.rotation, 8), capture)
    wide = torch.randn(2, 5, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (query, query_rest), (key, key_rest) = basis.read(wide[0], 2), basis.read(wide[1], 2)
    assert query_rest.shape == (5, 2)  # three dimensions, one of them without a partner
    total = (query * key.conj()).real.sum(-1) + (query_rest * key_rest.conj()).real.sum(-1)
    torch.testing.assert_close(total, (wide[0] * wide[1]).sum(-1))


@pytest.mark.parametrize(("pairing", "expected"), [("half-split", [(2, 6), (3, 7)]), ("interleaved", [(4, 5), (6, 7)])])
def test_still_planes_are_paired_as_those_that_turn(pairing, expected):
    turned = [(0, 4), (1, 5)] if pairing == "half-split" else [(0, 1), (2, 3)]
    axes = torch.eye(8, dtype=torch.float64)
    found = still_planes(torch.stack([axes[list(pair)] for pair in turned]), 8, pairing)
    assert [tuple(plane.argmax(1).tolist()) for plane in found] == expected


def test_still_planes_of_any_orientation_complete_the_block():
    basis = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3)))[0].T
    found = still_planes(basis[:2].reshape(1, 2, 6), 6, "other")
    whole = torch.cat([basis[:2], found.flatten(0, 1)])
    torch.testing.assert_close(whole @ whole.T, torch.eye(6, dtype=torch.float64))
    assert still_planes(basis.reshape(3, 2, 6), 6, "half-split").shape == (0, 2, 6)


def test_turnings_are_compared_by_rates_and_factor():
    assert Turning(FREQUENCIES).same_as(Turning(FREQUENCIES.clone()))
    assert not Turning(FREQUENCIES).same_as(Turning(FREQUENCIES, 1.1))
    assert not Turning(FREQUENCIES).same_as(Turning(2 * FREQUENCIES))
