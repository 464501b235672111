import torch

from poskernel.encodings import ModelShape, Nope


def test_every_offset_looks_the_same() -> None:
    basis = Nope().basis(torch.tensor([0, 1, 50]))
    assert basis.tolist() == [[1], [1], [1]]


def test_nothing_is_added_to_a_model() -> None:
    module = Nope().module(ModelShape(64, 4, 20))
    assert not list(module.parameters())
    placement = module(torch.arange(5))
    assert placement.embedding is placement.query_rotation is placement.key_rotation is placement.bias is None
