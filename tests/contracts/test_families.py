"""What every encoding in the registry keeps, whatever it is: a new one is held to it by being there."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cells import ENCODING_NAMES
from poskernel.encodings import ENCODINGS, Encoding, KernelFamily, ModelShape

VARIANTS = {
    **ENCODINGS,
    "alibi free": dataclasses.replace(ENCODINGS["alibi"], free_slope=True),  # type: ignore[type-var]
    "rope scaled": dataclasses.replace(ENCODINGS["rope"], base=50.0, frequencies=3, scale=0.2),  # type: ignore[type-var]
    "sinusoidal small": dataclasses.replace(ENCODINGS["sinusoidal"], base=99.0, frequencies=2),  # type: ignore[type-var]
}
THEORY_ONLY = {("alibi", "free_slope")}
"""Fields that change the kernels but, by definition, no model."""
KERNELS_ONLY = {("rope", "frequencies"), ("sinusoidal", "frequencies")}
"""Fields that a model's width replaces."""
NEW_VALUES: dict[type, object] = {float: 0.37, int: 5, bool: True}

names = pytest.mark.parametrize("name", VARIANTS)


def family_of(name: str, length: int = 9) -> KernelFamily:
    return VARIANTS[name].family(6, length)


def random_weights(family: KernelFamily, count: int = 3, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(count, *family.shape, dtype=torch.float64, generator=generator)
    return torch.minimum(weights, family.upper_bounds().reshape(family.shape))


def causal(length: int) -> Tensor:
    return torch.ones(length, length).tril().bool()


@names
def test_logits_are_linear_in_the_weights(name: str) -> None:
    family = family_of(name)
    one, two = random_weights(family, 1, 1), random_weights(family, 1, 2)
    combined = family.grid_logits(0.5 * one - 3 * two, 9)
    torch.testing.assert_close(combined, 0.5 * family.grid_logits(one, 9) - 3 * family.grid_logits(two, 9))


@names
@settings(deadline=None, max_examples=20)
@given(length=st.integers(1, 14), seed=st.integers(0, 2**30))
def test_the_gradient_is_the_adjoint_of_the_logits(name: str, length: int, seed: int) -> None:
    family = family_of(name, length)
    weights = random_weights(family, 2, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    pull = torch.randn(2, length, length, dtype=torch.float64, generator=generator).tril()
    forward = (family.grid_logits(weights, length) * pull).flatten(1).sum(1)
    backward = (weights * family.grid_gradient(pull)).flatten(1).sum(1)
    torch.testing.assert_close(forward, backward, atol=1e-9, rtol=1e-10)


@names
def test_kernel_grid_and_design_are_the_same_map(name: str) -> None:
    family = family_of(name)
    weights = random_weights(family)
    grids = family.grid_logits(weights, 9)
    query, key = causal(9).nonzero(as_tuple=True)
    for each, grid in zip(weights, grids, strict=True):
        kernel = family.kernel(each)
        torch.testing.assert_close(kernel.transfer(9)[query, key], grid[query, key], atol=1e-12, rtol=0)
        torch.testing.assert_close(family.design(query, key) @ each.flatten(), grid[query, key], atol=1e-12, rtol=0)


@names
def test_shorter_grids_are_corners_of_longer_ones(name: str) -> None:
    if VARIANTS[name].depends_on_length:
        pytest.skip("the family itself changes with the length")
    weights = random_weights(family_of(name, 5))
    short, long = family_of(name, 5).grid_logits(weights, 5), family_of(name, 12).grid_logits(weights, 12)
    torch.testing.assert_close(short[:, causal(5)], long[:, :5, :5][:, causal(5)], atol=1e-12, rtol=0)


@names
def test_sizes_agree(name: str) -> None:
    family = family_of(name)
    assert family.size == math.prod(family.shape) == len(family.upper_bounds())
    assert family.design(torch.tensor([3]), torch.tensor([1])).shape == (1, family.size)
    assert family.grid_logits(random_weights(family, 4), 7).shape == (4, 7, 7)


@pytest.mark.parametrize("name", ENCODING_NAMES)
def test_every_registered_encoding_is_frozen_hashable_and_named(name: str) -> None:
    encoding = ENCODINGS[name]
    assert encoding.name == name
    assert hash(encoding) == hash(dataclasses.replace(encoding))  # type: ignore[type-var]
    with pytest.raises(dataclasses.FrozenInstanceError):
        encoding.name = "other"  # type: ignore[misc]
    assert type(encoding).__doc__


def changed_fields() -> list[tuple[str, str]]:
    return [(name, field.name) for name in ENCODING_NAMES for field in dataclasses.fields(ENCODINGS[name])]  # type: ignore[arg-type]


def differs(one: Tensor | None, two: Tensor | None) -> bool:
    if one is None or two is None:
        return one is not two
    return one.shape != two.shape or not torch.equal(one, two)


def trains(encoding: Encoding) -> bool:
    """Whether it has a model side: prediction needs none."""
    return type(encoding).module is not Encoding.module


@pytest.mark.parametrize(("name", "field"), changed_fields())
def test_every_field_matters(name: str, field: str) -> None:
    encoding = ENCODINGS[name]
    value = NEW_VALUES[type(getattr(encoding, field))]
    assert value != getattr(encoding, field)
    other = dataclasses.replace(encoding, **{field: value})  # type: ignore[type-var]
    families = [each.family(6, 12) for each in (encoding, other)]
    positions = torch.arange(12)
    designs = [family.design(positions, torch.zeros_like(positions)) for family in families]
    bounds = [family.upper_bounds() for family in families]
    assert differs(*designs) or differs(*bounds), "the kernels do not change"
    if not trains(encoding):
        return
    modules = [each.module(ModelShape(32, 2, 6))(positions) for each in (encoding, other)]
    parts = [
        [part for value in vars(module).values() for part in (value if isinstance(value, tuple) else (value,))]
        for module in modules
    ]
    module_changes = len(parts[0]) != len(parts[1]) or any(differs(*pair) for pair in zip(*parts, strict=True))
    assert module_changes != ((name, field) in THEORY_ONLY | KERNELS_ONLY)


@pytest.mark.parametrize("name", ENCODING_NAMES)
def test_modules_place_position_at_every_length(name: str) -> None:
    if not trains(ENCODINGS[name]):
        pytest.skip(f"{name} has no model side")
    module = ENCODINGS[name].module(ModelShape(32, 2, 20))
    for length in (1, 20, 80):
        placement = module(torch.arange(length))
        if placement.embedding is not None:
            assert placement.embedding.shape == (length, 32)
            assert placement.embedding.dtype == torch.float32
        if placement.bias is not None:
            assert placement.bias.shape == (2, length, length)
        for rotation in (placement.query_rotation, placement.key_rotation):
            if rotation is not None:
                assert [tuple(part.shape) for part in rotation] == [(length, 8)] * 2
