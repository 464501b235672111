"""Gram variants against their definitions by dense loops: what each sample expects, what the plug-in is."""

import itertools

import numpy as np
import pytest
import torch

from captures import DROPPED, LENGTH, random_capture
from poskernel.attention.estimators.moments import HeadView, PairGrid
from poskernel.attention.estimators.variants import VARIANTS, variant_views, whitened, whitening

KEPT = LENGTH - DROPPED


def view_of(sequences=6, causal=True, **settings):
    capture = random_capture(sequences, causal=causal, **settings)
    return HeadView(capture, 2, DROPPED, PairGrid.of(LENGTH, DROPPED, capture.window, causal))


def grams(view):
    """The logits of every sample, [sample, query, key], all pairs of kept positions."""
    everywhere = torch.arange(KEPT)
    return view.capture.logits(0, everywhere, everywhere).numpy()


def definition(name, query, key, bias):
    """A variant's plug-in Gram from its definition, one sequence at a time."""
    n, length = query.shape[0], query.shape[1]
    if name == "mean":
        return query.mean(0) @ key.mean(0).T + bias
    if name == "centred":
        centred = query - query.mean(0), key - key.mean(0)
        return sum(centred[0][x] @ centred[1][x].T for x in range(n)) / n
    if name == "global":
        flat = query - query.mean((0, 1)), key - key.mean((0, 1))
        return sum(flat[0][x] @ flat[1][x].T for x in range(n)) / n + bias
    roots = []
    for vectors in (query, key):
        rows = (vectors - vectors.mean((0, 1))).reshape(n * length, -1)
        values, directions = np.linalg.eigh(rows.T @ rows / len(rows))
        roots.append(rows @ directions @ np.diag(values**-0.5) @ directions.T)
    left, right = (part.reshape(n, length, -1) for part in roots)
    return sum(left[x] @ right[x].T for x in range(n)) / n / np.sqrt(query.shape[2])


def a_bias(batch=1):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(batch, 4, LENGTH, LENGTH, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("bias", [None, a_bias(), a_bias(6)], ids=["no bias", "bias", "a bias a sequence"])
def test_the_plug_in_gram_is_the_definition(name, bias):
    view = view_of(bias=bias)
    query, key = (part.numpy() for part in view.vectors())
    added = 0.0 if bias is None else bias[:, 2, DROPPED:, DROPPED:].mean(0).numpy()
    (found,) = grams(variant_views(view, VARIANTS[name])[1])
    np.testing.assert_allclose(found, definition(name, query, key, added), atol=1e-10)


def test_raw_is_mean_plus_centred_in_every_sample_and_in_the_plug_in():
    view = view_of()
    query, key = view.vectors()
    raw = (query @ key.transpose(1, 2)).numpy()
    (means, mean), (contents, content) = (
        tuple(grams(part) for part in variant_views(view, VARIANTS[name])) for name in ("mean", "centred")
    )
    np.testing.assert_allclose((mean + content)[0], raw.mean(0), atol=1e-10)
    np.testing.assert_allclose(means + contents, (raw[:3] + raw[3:]) / 2, atol=1e-10)


def test_samples_average_over_every_pairing_to_the_unbiased_estimates():
    """Over all ordered pairs of sequences the samples are the U-statistics of mean and covariance."""
    view = view_of(4)
    query, key = (part.numpy() for part in view.vectors())
    products = np.einsum("xti,ysi->xyts", query, key)
    pairs = list(itertools.permutations(range(4), 2))
    mean = np.mean([products[x, y] for x, y in pairs], 0)
    covariance = products[range(4), range(4)].mean(0) - mean
    found = {name: [] for name in VARIANTS}
    for x, y in pairs:
        capture = view.capture
        two = type(capture)(0, capture.query[[x, y]], capture.key[[x, y]], capture.scale, capture.positions, True)
        for name in ("mean", "centred", "global"):
            found[name] += list(grams(variant_views(HeadView(two, 2, DROPPED, view.grid), VARIANTS[name])[0]))
    np.testing.assert_allclose(np.mean(found["mean"], 0), mean, atol=1e-10)
    np.testing.assert_allclose(np.mean(found["centred"], 0), covariance, atol=1e-10)
    # <q_t - mean q, k_s - mean k> with every mean taken from another sequence, up to one number.
    expected = mean + covariance - mean.mean(0, keepdims=True) - mean.mean(1, keepdims=True)
    difference = np.mean(found["global"], 0) - expected
    np.testing.assert_allclose(difference, difference[0, 0], atol=1e-10)


def test_an_odd_sequence_is_in_the_plug_in_alone():
    samples, whole = variant_views(view_of(7), VARIANTS["mean"])
    assert samples.capture.query.shape[0] == 3
    query, key = (part.numpy() for part in view_of(7).vectors())
    np.testing.assert_allclose(grams(whole)[0], query.mean(0) @ key.mean(0).T, atol=1e-10)


@pytest.mark.parametrize("causal", [True, False])
def test_views_keep_the_grid_and_nothing_more_is_dropped(causal):
    for part in variant_views(view_of(causal=causal, window=9), VARIANTS["mean"]):
        assert (part.dropped, part.grid.length, part.grid.window, part.grid.causal) == (0, KEPT, 9, causal)
        assert (part.capture.causal, part.capture.window) == (causal, 9)


def test_whitened_vectors_have_the_identity_as_their_covariance():
    query, key = view_of().vectors()
    for part in (query @ whitening(query), key @ whitening(key)):
        rows = part.flatten(0, 1)
        torch.testing.assert_close((rows - rows.mean(0)).T @ (rows - rows.mean(0)) / len(rows), torch.eye(8).double())


def test_whitening_leaves_out_directions_that_do_not_vary():
    query = view_of().vectors()[0].clone()
    query[..., 0], query[..., 1] = 3.0, query[..., 2]
    rows = (query @ whitening(query)).flatten(0, 1)
    values = torch.linalg.eigvalsh((rows - rows.mean(0)).T @ (rows - rows.mean(0)) / len(rows))
    torch.testing.assert_close(values, torch.tensor([0.0, 0, 1, 1, 1, 1, 1, 1]).double(), atol=1e-8, rtol=0)
    constant = torch.ones(2, 5, 3)
    assert whitening(constant).eq(0).all()
    assert whitened((constant, constant))[0].eq(0).all()


def test_every_variant_says_what_it_means():
    assert all(variant.meaning for variant in VARIANTS.values())
