"""The sparse autoencoder finds a dictionary that was planted, and refuses what it cannot learn from."""

import pytest
import torch

from planted_content import TOKENS, PlantedSource, cosine
from poskernel.attention.content.sparse_autoencoder import (
    AutoencoderRecipe,
    fit_autoencoder,
    layer_inputs,
    revive,
    top_codes,
)
from poskernel.errors import InputError

FEATURES, ACTIVE, WIDTH = 24, 2, 16


def planted(rows, seed=0):
    """Vectors of two features each, strengths of 1 to 2, off an origin; and which features they have."""
    generator = torch.Generator().manual_seed(seed)
    dictionary = torch.nn.functional.normalize(
        torch.randn(FEATURES, WIDTH, generator=torch.Generator().manual_seed(9)), dim=1
    )
    chosen = torch.rand(rows, FEATURES, generator=generator).topk(ACTIVE).indices
    strength = 1 + torch.rand(rows, ACTIVE, generator=generator)
    vectors = torch.einsum("rk,rkw->rw", strength, dictionary[chosen])
    return 7 * vectors + 3.0, dictionary, chosen


def test_a_planted_dictionary_is_recovered():
    vectors, dictionary, _ = planted(4000)
    recipe = AutoencoderRecipe(features=2 * FEATURES, active=ACTIVE, steps=600, batch=256, learning_rate=1e-2)
    found = fit_autoencoder(vectors, recipe)
    likeness = (dictionary @ found.dictionary).max(1).values
    assert (likeness > 0.9).float().mean() > 0.9
    fresh, _, chosen = planted(500, seed=1)
    assert found.explained(fresh) > 0.9
    assert ((found.codes(fresh) > 0).sum(1) <= ACTIVE).all()
    # The strongest feature of a vector is one that it was made of.
    nearest = (dictionary @ found.dictionary).argmax(0)[found.strongest(fresh)]
    assert (nearest[:, None] == chosen).any(1).float().mean() > 0.9


def test_vectors_without_structure_are_not_rebuilt():
    noise = torch.randn(2000, WIDTH, generator=torch.Generator().manual_seed(0))
    recipe = AutoencoderRecipe(features=2 * FEATURES, active=ACTIVE, steps=200, batch=256)
    assert fit_autoencoder(noise, recipe).explained(torch.randn(500, WIDTH)) < 0.6


def test_the_same_seed_gives_the_same_one_and_scale_does_not_matter():
    vectors, _, _ = planted(200)
    recipe = AutoencoderRecipe(features=FEATURES, active=ACTIVE, steps=20, batch=64)
    one, same, scaled = (fit_autoencoder(rows, recipe) for rows in (vectors, vectors, vectors * 8))
    assert torch.equal(one.dictionary, same.dictionary)
    torch.testing.assert_close(one.codes(vectors), scaled.codes(8 * vectors))
    torch.testing.assert_close(one.dictionary.norm(dim=0), torch.ones(FEATURES))
    assert not torch.equal(one.dictionary, fit_autoencoder(vectors, recipe, seed=1).dictionary)


def test_codes_are_the_largest_and_never_negative():
    codes = top_codes(torch.tensor([[3.0, -1.0, 2.0, 0.5], [-3.0, -1.0, -2.0, 1.0]]), 2)
    assert codes.tolist() == [[3.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 1.0]]


def test_dead_features_point_at_what_is_rebuilt_worst():
    batch = torch.tensor([[1.0, 0.0], [0.0, 5.0]])
    parts = [torch.zeros(2), torch.zeros(2, 3), torch.zeros(3, 2)]
    revive(parts, torch.tensor([False, True, False]), batch, torch.tensor([0.1, 4.0]))
    assert parts[1].T.tolist() == parts[2].tolist() == [[0, 0], [0, 1], [0, 0]]


def test_what_it_cannot_learn_from_is_refused():
    with pytest.raises(InputError, match="5 active of 4 features"):
        AutoencoderRecipe(features=4, active=5)
    with pytest.raises(InputError, match="steps of the autoencoder is 0"):
        AutoencoderRecipe(steps=0)
    with pytest.raises(InputError, match="10 vectors cannot teach 64 features"):
        fit_autoencoder(torch.randn(10, 4))
    with pytest.raises(InputError, match="the vectors do not vary"):
        fit_autoencoder(torch.ones(100, 4))
    with pytest.raises(InputError, match="does not give what enters its attention"):
        layer_inputs(PlantedSource([[cosine]], says=False), TOKENS, [0], 2)
