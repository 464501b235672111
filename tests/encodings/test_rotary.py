import math

import pytest
import torch
from torch import Tensor

from poskernel.encodings import ModelShape, Rope
from poskernel.errors import InputError


def rotate(vector: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the planes (k, k + width / 2) of one vector at every position."""
    cosine, sine = rotation
    left, right = vector.chunk(2)
    return torch.cat([left * cosine - right * sine, left * sine + right * cosine], dim=1)


def products(encoding: Rope, width: int, length: int, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of one query vector against one key vector, everywhere, and the two vectors."""
    generator = torch.Generator().manual_seed(3)
    query, key = torch.randn(2, width, generator=generator)
    placement = encoding.module(ModelShape(width, 1, 20))(torch.arange(first, first + length))
    assert placement.query_rotation is not None
    assert placement.key_rotation is not None
    assert placement.embedding is None
    assert placement.bias is None
    logits = rotate(query, placement.query_rotation) @ rotate(key, placement.key_rotation).T
    return logits.double(), query.double(), key.double()


def test_the_basis_is_cosines_then_sines() -> None:
    basis = Rope(base=100.0, frequencies=2, scale=0.5).basis(torch.tensor([0, 3]))
    assert basis[0].tolist() == [1, 1, 0, 0]
    assert basis[1].tolist() == pytest.approx([math.cos(1.5), math.cos(0.15), math.sin(1.5), math.sin(0.15)])


@pytest.mark.parametrize(
    "encoding", [Rope(frequencies=4), Rope(base=1e6, frequencies=4), Rope(frequencies=4, scale=0.3)]
)
def test_rotated_products_are_a_kernel_of_the_family(encoding: Rope) -> None:
    """Model and theory agree: q'R(i)'R(j)k is a sum of a_k cos(theta_k d) + b_k sin(theta_k d), a, b from q, k."""
    logits, query, key = products(encoding, 8, 40)
    (q1, q2), (k1, k2) = query.chunk(2), key.chunk(2)
    weights = torch.cat([q1 * k1 + q2 * k2, q1 * k2 - q2 * k1])
    expected = encoding.family(20, 40).kernel(weights).transfer(40)
    seen = expected.isfinite()
    torch.testing.assert_close(logits[seen], expected[seen], atol=2e-5, rtol=0)


def test_rotated_products_do_not_change_with_a_common_shift() -> None:
    near, far = products(Rope(), 32, 30)[0], products(Rope(), 32, 30, first=100_000)[0]
    torch.testing.assert_close(near, far, atol=1e-4, rtol=0)


def test_rotation_keeps_norms() -> None:
    rotation = Rope().module(ModelShape(64, 4, 20))(torch.arange(50)).query_rotation
    assert rotation is not None
    cosine, sine = rotation
    assert cosine.shape == (50, 8)
    torch.testing.assert_close(cosine**2 + sine**2, torch.ones(50, 8))


def test_a_scale_is_a_stretch_of_positions() -> None:
    torch.testing.assert_close(
        Rope(scale=0.5).basis(torch.arange(0, 40, 2)), Rope().basis(torch.arange(20)), atol=1e-14, rtol=0
    )


def test_an_odd_head_cannot_rotate() -> None:
    with pytest.raises(InputError, match="needs an even head width, got 3"):
        Rope().module(ModelShape(12, 4, 20))
