"""Models and logits built by hand, measured from end to end: their numbers are known before."""

import numpy as np
import pytest
import torch

import poskernel
from captures import DROPPED, LENGTH, capture_of, estimate
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.models.transformer import Architecture, Norm, Transformer

WIDTH = 8


def hadamard(order):
    """Rows are balanced in every pair of columns but the first: each column's signs are independent of another's."""
    matrix = torch.ones(1, 1, dtype=torch.int64)
    while len(matrix) < order:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix


def test_a_hand_built_rotary_head_has_its_kernel_in_closed_form():
    """Two tokens of opposite content around chosen means, in texts in which every two positions are independent.

    Then the mean over texts of <q_t, k_s> is that of the means alone for t != s, exactly, and of the means and the
    content at offset 0.
    """
    shape = Architecture(width=WIDTH, layers=1, heads=1, mlp=False, norm=Norm.NONE, vocabulary=2)
    encoding = poskernel.parse_encoding("rope")
    model = Transformer(shape, encoding).double()
    generator = torch.Generator().manual_seed(4)
    mean, content = torch.randn(2, WIDTH, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        model.embedding.weight.copy_(torch.stack([mean + content, mean - content]))
    texts = (hadamard(32)[:, 1:] < 0).long()
    captured = []
    TransformerSource(model).forward(texts, captured.append)
    (result,) = estimate(captured, length=texts.shape[1], dropped=DROPPED, null=False)

    # Everything by hand from one constant text each: projections are affine, so tokens' vectors are means and contents.
    (capture,) = captured
    query, key = (part[:, 0] for part in capture.before_rotation())
    of = {token: (texts == token).nonzero()[0].tolist() for token in (0, 1)}
    vectors = [[side[tuple(of[token])] for token in (0, 1)] for side in (query, key)]
    (mean_query, own_query), (mean_key, own_key) = (((a + b) / 2, (a - b) / 2) for a, b in vectors)
    kept, half = texts.shape[1] - DROPPED, WIDTH // 2
    frequencies = 10000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
    planes = [torch.complex(part[:half], part[half:]) for part in (mean_query, mean_key)]
    expected = rebuilt(planes, frequencies, capture.scale, kept)
    expected[0] += capture.scale * float(own_query @ own_key)
    # Turns are tabulated in float32.
    torch.testing.assert_close(result.g, expected, rtol=1e-6, atol=1e-7)
    assert result.r2_plugin.value == pytest.approx(1, abs=1e-6)
    assert float(result.g.std()) > 0.01


def rebuilt(planes, frequencies, scale, offsets):
    """scale * sum over planes of Re(q conj(k) e^(i theta offset))."""
    phase = torch.arange(offsets, dtype=torch.float64)[:, None] * frequencies
    return scale * (planes[0] * planes[1].conj() * torch.polar(torch.ones_like(phase), phase)).real.sum(-1)


def test_noise_that_texts_share_has_its_r2_at_the_null():
    """A fixed matrix of independent numbers has no kernel: R2 is what offsets explain of it by their number alone."""
    generator, heads = torch.Generator().manual_seed(0), 60
    fixed = torch.randn(heads, LENGTH, LENGTH, generator=generator)
    logits = fixed + 0.1 * torch.randn(6, heads, LENGTH, LENGTH, generator=generator)
    results = estimate([capture_of(logits, torch.eye(LENGTH).expand(6, 1, -1, -1))])
    found, null = (np.array([getattr(one, name).value for one in results]) for name in ("r2", "null"))
    kept = LENGTH - DROPPED
    share = (kept - 1) / (kept * (kept + 1) / 2 - kept)
    error = np.hypot(found.std(), null.std()) / heads**0.5
    assert abs(found.mean() - null.mean()) < 4 * error
    assert found.mean() == pytest.approx(share, abs=4 * found.std() / heads**0.5 + 0.01)
    assert found.max() < 0.25
