"""Content kernels, and the streamed bilinear regression against least squares on every pair written out."""

import numpy as np
import pytest
import torch

from poskernel.attention.content.content_kernels import (
    BilinearRegression,
    Components,
    LearnedKernel,
    embedding_cosine,
    quantile_edges,
    solve,
    token_match,
)
from poskernel.attention.content.pair_layout import PairLayout

LENGTH, COMPONENTS = 18, 3


def vectors(sequences=4, length=LENGTH, components=COMPONENTS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sequences, length, components, generator=generator, dtype=torch.float64)


def design(layout, given, query_terms=True):
    """Row-centred features of every pair, a column each, and the pairs' flat places."""
    offset = torch.arange(layout.length)[:, None] - torch.arange(layout.length)
    columns = [(offset == d).double().expand(len(given), -1, -1) for d in layout.offsets]
    size = given.shape[2]
    if query_terms:
        columns += [given[:, :, i, None] * given[:, None, :, j] for i in range(size) for j in range(size)]
    columns += [given[:, None, :, j].expand(-1, layout.length, -1) for j in range(size)]
    return torch.stack([layout.centred(column).flatten() for column in columns], 1)


@pytest.mark.parametrize(("causal", "window"), [(True, None), (True, 6), (False, None)])
@pytest.mark.parametrize("content", [True, False])
def test_the_streamed_regression_is_least_squares_on_all_pairs(causal, window, content):
    layout, given = PairLayout.of(LENGTH, 0, causal, window), vectors()
    logits = layout.centred(torch.randn(2, 4, LENGTH, LENGTH, dtype=torch.float64))
    regression = BilinearRegression(layout, COMPONENTS, 2)
    for part in (slice(0, 1), slice(1, 4)):
        regression.add_vectors(given[part])
        for head in range(2):
            regression.add_logits(head, logits[head, part], given[part])
    features = design(layout, given, query_terms=content)
    for head, kernel in enumerate(regression.kernels(content)):
        target = logits[head].flatten()
        expected = features @ torch.linalg.lstsq(features, target[:, None], driver="gelsd").solution[:, 0]
        offset_part = torch.zeros(LENGTH, LENGTH, dtype=torch.float64)
        for d, value in zip(layout.offsets.tolist(), kernel.profile, strict=True):
            offset_part += torch.diag(value.expand(LENGTH - abs(d)), -d)
        fitted = offset_part + kernel.content(given, given) + kernel.key_term(given)[:, None]
        np.testing.assert_allclose(layout.centred(fitted).flatten(), expected, atol=1e-6)
        assert content or not kernel.form.any()


@pytest.mark.parametrize("causal", [True, False])
def test_profiles_are_least_squares_on_offsets_alone(causal):
    layout = PairLayout.of(LENGTH, 0, causal, None)
    logits = layout.centred(torch.randn(3, LENGTH, LENGTH, dtype=torch.float64))
    regression = BilinearRegression(layout, COMPONENTS, 1)
    regression.add_vectors(vectors(3))
    regression.add_logits(0, logits, vectors(3))
    features = design(layout, vectors(3))[:, : len(layout.offsets)]
    solution = torch.linalg.lstsq(features, logits.flatten()[:, None], driver="gelsd").solution[:, 0]
    torch.testing.assert_close(regression.profiles()[0], solution - solution.mean(), atol=1e-6, rtol=1e-6)


def test_a_planted_kernel_is_recovered_and_its_rank_is_cut():
    layout, given = PairLayout.of(LENGTH, 0, True, None), vectors(6)
    form = torch.randn(COMPONENTS, 1, dtype=torch.float64) @ torch.randn(1, COMPONENTS, dtype=torch.float64)
    weights = torch.randn(COMPONENTS, dtype=torch.float64)
    logits = layout.centred(given @ form @ given.transpose(1, 2) + (given @ weights)[:, None])
    regression = BilinearRegression(layout, COMPONENTS, 1)
    regression.add_vectors(given)
    regression.add_logits(0, logits, given)
    kernel = regression.kernels()[0]
    torch.testing.assert_close(kernel.form, form, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(kernel.key_weights, weights, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(kernel.of_rank(1).form, form, atol=1e-6, rtol=1e-6)
    full = LearnedKernel(kernel.profile, torch.diag(torch.tensor([3.0, 2.0, 1.0]).double()), weights)
    assert full.of_rank(2).form.diagonal().tolist() == pytest.approx([3, 2, 0])
    assert full.of_rank(9).form.diagonal().tolist() == pytest.approx([3, 2, 1])


def test_fixed_kernels_by_hand():
    tokens = torch.tensor([[4, 7, 4]])
    assert token_match(tokens, tokens)[0].tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert token_match(tokens, torch.tensor([[7, 4]]))[0].tolist() == [[0, 1], [1, 0], [0, 1]]
    vectors = torch.tensor([[[2.0, 0.0], [1.0, 1.0], [0.0, -3.0]]])
    cosine = embedding_cosine(vectors, vectors)[0]
    root = 2**-0.5
    torch.testing.assert_close(cosine, torch.tensor([[1, root, 0], [root, 1, -root], [0, -root, 1]]).double())


def test_components_are_uncorrelated_with_unit_variance_whatever_the_unit_of_the_vectors():
    mixed = vectors(3, 40, 6) @ torch.randn(6, 6, dtype=torch.float64) * 1e4 + 7
    components = Components.of(mixed, 4)
    coordinates = components.of_vectors(mixed).flatten(0, 1)
    torch.testing.assert_close(coordinates.T @ coordinates / len(coordinates), torch.eye(4, dtype=torch.float64))
    values = torch.linalg.svdvals((mixed - mixed.mean((0, 1))).flatten(0, 1))
    kept = (mixed.flatten(0, 1) - components.mean) @ components.axes
    rebuilt = kept @ torch.linalg.pinv(components.axes)
    left = (mixed.flatten(0, 1) - components.mean - rebuilt).square().sum()
    assert left == pytest.approx(float((values[4:] ** 2).sum()), rel=1e-6)
    assert Components.of(mixed[..., :1].expand(-1, -1, 5), 4).axes.shape == (5, 1)


def test_features_that_never_occur_get_no_coefficient():
    normal = torch.diag(torch.tensor([2.0, 0.0, 4.0]).double())
    assert solve(normal, torch.tensor([[2.0], [0.0], [8.0]]).double())[:, 0].tolist() == pytest.approx([1, 0, 2])


@pytest.mark.parametrize("bins", [3, 6])
def test_content_bins_are_equally_filled_or_one_a_value(bins):
    values = torch.randn(600, dtype=torch.float64)
    index = torch.bucketize(values, quantile_edges(values, bins), right=True)
    assert index.bincount().tolist() == [600 // bins] * bins
    two = torch.tensor([0.0] * 95 + [1.0] * 5).double()
    index = torch.bucketize(two, quantile_edges(two, bins), right=True)
    assert len(set(index[:95].tolist())) == len(set(index[95:].tolist())) == 1
    assert index[0] != index[-1]
    assert index.max() < bins
    assert torch.bucketize(two, quantile_edges(torch.zeros(9).double(), bins)).max() < bins
