"""The structured sums against a dense design matrix, one row a pair."""

import pytest
import torch

from content_pairs import arrays, dense_features, statistics_of
from poskernel.attention.content.pair_layout import PairLayout
from poskernel.attention.content.pair_statistics import OffsetBasis

LENGTH, DROPPED = 60, 6


@pytest.mark.parametrize(("causal", "window"), [(True, None), (True, 7), (False, None), (False, 9)])
def test_statistics_equal_a_dense_design(causal, window):
    layout = PairLayout.of(LENGTH, DROPPED, causal, window)
    profile = torch.randn(len(layout.offsets), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    basis = OffsetBasis.of(layout, profile)
    logits, content, key_term, bins = arrays(layout)
    found = statistics_of(basis, logits, content, key_term, bins)
    features = dense_features(basis, content, key_term, bins)
    target = layout.centred(logits)[:, layout.mask.bool()]
    assert basis.features == features.shape[2]
    torch.testing.assert_close(found.normal, features.transpose(1, 2) @ features, atol=1e-9, rtol=1e-10)
    torch.testing.assert_close(found.moment, torch.einsum("xpf,xp->xf", features, target), atol=1e-9, rtol=1e-10)
    torch.testing.assert_close(found.square, target.square().sum(1))
    coefficients = torch.randn(basis.features, dtype=torch.float64)
    left = (target - features @ coefficients).square().sum(1)
    torch.testing.assert_close(found.residual(coefficients), left)
    raw = content[:, layout.mask.bool()]
    torch.testing.assert_close(found.kernel_sums[:, 1], raw.sum(1))
    torch.testing.assert_close(found.kernel_sums[:, 2], raw.square().sum(1))


def test_sums_add_up_over_batches():
    layout = PairLayout.of(LENGTH, DROPPED, True, None)
    basis = OffsetBasis.of(layout, torch.zeros(len(layout.offsets), dtype=torch.float64))
    given = arrays(layout)
    whole = statistics_of(basis, *given).summed()
    parts = [statistics_of(basis, *(part[rows] for part in given)).summed() for rows in (slice(0, 1), slice(1, 3))]
    for one, other in zip(whole.parts, parts[0].plus(parts[1]).parts, strict=True):
        torch.testing.assert_close(one, other)
