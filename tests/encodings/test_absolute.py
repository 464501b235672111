import math

import pytest
import torch

from poskernel.encodings import Learned, LearnedGaussian, ModelShape, Sinusoidal
from poskernel.errors import InputError


def test_learned_positions_are_one_hot_and_clamped() -> None:
    features = Learned().features(torch.tensor([0, 4, 5, 900]), 5)
    assert features.tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1]]


def test_the_learned_table_is_clamped_as_its_features_are() -> None:
    module = Learned().module(ModelShape(8, 1, 20))
    embedding = module(torch.tensor([3, 19, 20, 5000])).embedding
    assert embedding is not None
    assert torch.equal(embedding[1], embedding[2])
    assert torch.equal(embedding[1], embedding[3])
    assert not torch.equal(embedding[0], embedding[1])
    assert [tuple(parameter.shape) for parameter in module.parameters()] == [(20, 8)]
    # The table is what the features say: phi times the trained rows.
    table = next(iter(module.parameters()))
    rows = Learned().features(torch.tensor([3, 19, 20, 5000]), 20).float() @ table
    torch.testing.assert_close(embedding, rows)


def test_sinusoidal_features_are_sines_then_cosines() -> None:
    features = Sinusoidal(base=100.0, frequencies=2).features(torch.tensor([0, 7]), 20)
    assert features[0].tolist() == [0, 0, 1, 1]
    assert features[1].tolist() == pytest.approx([math.sin(7), math.sin(0.7), math.cos(7), math.cos(0.7)])


def test_the_sinusoidal_table_is_the_model_s_own_width() -> None:
    module = Sinusoidal(base=1e4).module(ModelShape(64, 4, 20))
    embedding = module(torch.arange(30)).embedding
    assert embedding is not None
    assert embedding.shape == (30, 64)
    assert embedding.dtype == torch.float32
    expected = Sinusoidal(frequencies=32).features(torch.arange(30), 20)
    torch.testing.assert_close(embedding, expected.float())
    assert not list(module.parameters())
    assert not module.state_dict()


def test_far_positions_keep_their_phase() -> None:
    module = Sinusoidal().module(ModelShape(2, 1, 20))
    embedding = module(torch.tensor([10_000_019])).embedding
    assert embedding is not None
    assert embedding[0].tolist() == pytest.approx([math.sin(10_000_019), math.cos(10_000_019)], abs=1e-6)


def test_an_odd_width_has_no_sinusoids() -> None:
    with pytest.raises(InputError, match="needs an even model width, got 7: give an even one"):
        Sinusoidal().module(ModelShape(7, 1, 20))


def test_fresh_gaussian_rows_leave_the_trained_ones_alone() -> None:
    encoding = LearnedGaussian(features_per_position=5)
    families = [encoding.family(20, 20), *(encoding.drawn_family(20, 60, draw) for draw in range(3))]
    tables = [family.values(torch.arange(length)) for family, length in zip(families, (20, 60, 60, 60), strict=True)]  # type: ignore[attr-defined]
    for table in tables:
        assert torch.equal(table[:20], tables[0])
    rows = {tuple(row.tolist()) for table in tables[1:] for row in table[20:]}
    assert len(rows) == 3 * 40
    # A longer look gives the same rows, and another seed others.
    assert torch.equal(encoding.rows(torch.tensor([700, 25]), 20, 1)[1], tables[2][25])
    assert not torch.equal(LearnedGaussian(5, seed=1).features(torch.arange(3), 20), tables[0][:3])


def test_rows_are_standard_gaussians() -> None:
    rows = LearnedGaussian().rows(torch.arange(2000), 20, 0)
    assert float(rows.mean()) == pytest.approx(0, abs=0.02)
    assert float(rows.std()) == pytest.approx(1, abs=0.02)
    correlation = torch.corrcoef(rows.T) - torch.eye(32)
    assert float(correlation.abs().max()) < 0.12  # 496 pairs of 2000 rows: standard deviation .022


def test_extended_rows_have_no_model_side() -> None:
    with pytest.raises(InputError, match="'learned-iid' has no model side"):
        LearnedGaussian().module(ModelShape(8, 1, 20))
