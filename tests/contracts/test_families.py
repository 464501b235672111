"""What every encoding in the registry keeps, whatever it is: a new one is held to it by being there."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cells import ENCODING_NAMES, KERNEL_NAMES, TRAINED_NAMES
from poskernel.encodings import (
    ENCODINGS,
    T5,
    DynamicNtk,
    Encoding,
    Fire,
    KernelFamily,
    LinearFamily,
    LongRope,
    ModelShape,
    NonlinearFamily,
    Randomized,
    RotaryEncoding,
    Yarn,
)

ROTARY_NAMES = tuple(name for name, encoding in ENCODINGS.items() if isinstance(encoding, RotaryEncoding))

VARIANTS = {
    **{name: ENCODINGS[name] for name in KERNEL_NAMES},
    "alibi free": dataclasses.replace(ENCODINGS["alibi"], free_slope=True),  # type: ignore[type-var]
    "rope scaled": dataclasses.replace(ENCODINGS["rope"], base=50.0, frequencies=3, scale=0.2),  # type: ignore[type-var]
    "yarn with three zones": Yarn(original=400, frequencies=8),
    "longrope with lists": LongRope(original=7, frequencies=3, short=(1.0, 1.1, 1.2), long=(1.0, 2.0, 4.5)),
    "kerple-log free": dataclasses.replace(ENCODINGS["kerple-log"], free_rate=True),  # type: ignore[type-var]
    "fire near": Fire(width=3, threshold=4.0),
    "randomized sinusoidal": Randomized("sinusoidal", positions=30, train_draws=2),
    "randomized learned": Randomized("learned", positions=20, train_draws=2),
    "randomized once": Randomized("alibi", positions=30, train_draws=1),
    "sinusoidal small": dataclasses.replace(ENCODINGS["sinusoidal"], base=99.0, frequencies=2),  # type: ignore[type-var]
}
THEORY_ONLY = {
    ("alibi", "free_slope"),
    ("kerple-log", "free_rate"),
    ("randomized", "train_draws"),
    ("randomized", "seed"),
}
"""Fields that change the kernels but, by definition, no model."""
KERNELS_ONLY = {("sinusoidal", "frequencies"), *((name, "frequencies") for name in ROTARY_NAMES)}
"""Fields that a model's width replaces."""
NEW_VALUES: dict[type, object] = {float: 0.37, int: 5}
"""What a field of that type is changed to; a truth value is turned round."""
ADMISSIBLE: dict[tuple[str, str], object] = {
    **{(name, "factor"): 3.0 for name in ROTARY_NAMES},
    ("yarn", "base"): 500.0,
    ("yarn", "fast"): 8.0,
    ("llama3", "high"): 3.0,
    ("longrope", "short"): (2.0,) * 8,
    ("longrope", "long"): (3.0,) * 8,
    ("partial", "fraction"): 0.25,
    ("partial", "frequencies"): 8,
    ("t5", "buckets"): 10,
    ("t5", "max_distance"): 20,
    ("randomized", "inner"): "sinusoidal",
    ("randomized", "positions"): 50,
}
"""What it is changed to where that value would be refused."""
CHANGED_FROM: dict[str, Encoding] = {
    "dynamic": DynamicNtk(original=8),
    "yarn": Yarn(original=400),
    "longrope": LongRope(original=8, frequencies=8),
    "t5": T5(buckets=8),
}
"""Parameters at which every field shows in a dozen positions, where the registered ones would not."""

names = pytest.mark.parametrize("name", VARIANTS)


def family_of(name: str, length: int = 9) -> KernelFamily:
    return VARIANTS[name].family(6, length)


NONLINEAR = [name for name in VARIANTS if isinstance(family_of(name), NonlinearFamily)]
LINEAR = [name for name in VARIANTS if name not in NONLINEAR]
"""The logits of randomized encodings are linear in the weights too, on many grids at once."""
ONE_GRID = [name for name in LINEAR if isinstance(family_of(name), LinearFamily)]


def random_weights(family: KernelFamily, count: int = 3, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(count, *family.shape, dtype=torch.float64, generator=generator)
    return torch.minimum(weights, family.upper_bounds().reshape(family.shape))


def causal(length: int) -> Tensor:
    return torch.ones(length, length).tril().bool()


@pytest.mark.parametrize("name", LINEAR)
def test_logits_are_linear_in_the_weights(name: str) -> None:
    family = family_of(name)
    one, two = random_weights(family, 1, 1), random_weights(family, 1, 2)
    combined = family.grid_logits(0.5 * one - 3 * two, 9)
    torch.testing.assert_close(combined, 0.5 * family.grid_logits(one, 9) - 3 * family.grid_logits(two, 9))


@pytest.mark.parametrize("name", LINEAR)
@settings(deadline=None, max_examples=20)
@given(length=st.integers(1, 14), seed=st.integers(0, 2**30))
def test_the_gradient_is_the_adjoint_of_the_logits(name: str, length: int, seed: int) -> None:
    family = family_of(name, length)
    weights = random_weights(family, 2, seed)
    logits = family.grid_logits(weights, length)
    pull = random_gradient(logits, seed + 1)
    forward = (logits * pull).flatten(1).sum(1)
    backward = (weights * family.pull_back(weights, pull)).flatten(1).sum(1)
    torch.testing.assert_close(forward, backward, atol=1e-9, rtol=1e-10)


@pytest.mark.parametrize("name", NONLINEAR)
@pytest.mark.parametrize("length", [1, 9, 14])
def test_the_gradient_of_a_family_that_is_not_linear_is_its_slope(name: str, length: int) -> None:
    family = family_of(name, length)
    weights, direction, step = random_weights(family, 2, 3), random_weights(family, 2, 4), 1e-6
    pull = random_gradient(family.grid_logits(weights, length), 5)
    ahead, behind = (family.grid_logits(weights + sign * step * direction, length) for sign in (1, -1))
    slope = ((ahead - behind) * pull).flatten(1).sum(1) / (2 * step)
    torch.testing.assert_close(
        slope, (direction * family.pull_back(weights, pull)).flatten(1).sum(1), atol=1e-6, rtol=1e-6
    )


def random_gradient(logits: Tensor, seed: int) -> Tensor:
    return torch.randn(logits.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).tril()


@names
def test_kernel_and_grid_are_the_same_map(name: str) -> None:
    family = family_of(name)
    weights = random_weights(family)
    grids = family.grid_logits(weights, 9)
    query, key = causal(9).nonzero(as_tuple=True)
    for each, grid in zip(weights, grids, strict=True):
        kernels = family.kernels(each)
        assert len(kernels) == family.draws
        for kernel, drawn in zip(kernels, grid.reshape(family.draws, 9, 9), strict=True):
            torch.testing.assert_close(kernel.transfer(9)[query, key], drawn[query, key], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", ONE_GRID)
def test_the_design_is_the_same_map_as_a_matrix(name: str) -> None:
    family = family_of(name)
    assert isinstance(family, LinearFamily)
    weights = random_weights(family)
    query, key = causal(9).nonzero(as_tuple=True)
    for each, grid in zip(weights, family.grid_logits(weights, 9), strict=True):
        torch.testing.assert_close(family.design(query, key) @ each.flatten(), grid[query, key], atol=1e-12, rtol=0)


@names
def test_a_fit_starts_at_admissible_weights(name: str) -> None:
    family = family_of(name)
    start = family.start()
    assert start.shape == family.shape
    assert start.dtype == torch.float64
    assert bool((start.flatten() <= family.upper_bounds()).all())
    if name in ONE_GRID:
        assert not start.any()


@names
def test_a_test_draw_is_one_kernel_with_the_weights_of_the_fit(name: str) -> None:
    encoding, weights = VARIANTS[name], random_weights(family_of(name), 1)[0]
    draws = [encoding.drawn_family(6, 14, draw).kernel(weights).transfer(14) for draw in (0, 1, 1)]
    assert torch.equal(draws[1], draws[2])
    assert torch.equal(draws[0], draws[1]) != encoding.drawn


@names
def test_shorter_grids_are_corners_of_longer_ones(name: str) -> None:
    if VARIANTS[name].depends_on_length:
        return
    weights = random_weights(family_of(name, 5))
    short, long = family_of(name, 5).grid_logits(weights, 5), family_of(name, 12).grid_logits(weights, 12)
    torch.testing.assert_close(short[:, causal(5)], long[:, :5, :5][:, causal(5)], atol=1e-12, rtol=0)


@names
def test_sizes_agree(name: str) -> None:
    family = family_of(name)
    assert family.size == math.prod(family.shape) == len(family.upper_bounds())
    grids = family.grid_logits(random_weights(family, 4), 9)
    assert grids.shape == ((4, 9, 9) if family.draws == 1 else (4, family.draws, 9, 9))
    if isinstance(family, LinearFamily):
        assert family.design(torch.tensor([3]), torch.tensor([1])).shape == (1, family.size)


@pytest.mark.parametrize("name", ENCODING_NAMES)
def test_every_registered_encoding_is_frozen_hashable_and_named(name: str) -> None:
    encoding = ENCODINGS[name]
    assert encoding.name == name
    assert hash(encoding) == hash(dataclasses.replace(encoding))  # type: ignore[type-var]
    with pytest.raises(dataclasses.FrozenInstanceError):
        encoding.name = "other"  # type: ignore[misc]
    assert type(encoding).__doc__


def changed_fields() -> list[tuple[str, str]]:
    """Every field of every encoding but the number of test draws, which is the predictor's to use."""
    pairs = [(name, field.name) for name in ENCODING_NAMES for field in dataclasses.fields(ENCODINGS[name])]  # type: ignore[arg-type]
    return [(name, field) for name, field in pairs if field != "test_draws"]


def differs(one: Tensor | None, two: Tensor | None) -> bool:
    if one is None or two is None:
        return one is not two
    return one.shape != two.shape or not torch.equal(one, two)


def placed(encoding: Encoding, position: Tensor) -> list[Tensor | None]:
    """The parts of a fresh module's placement, from the same random numbers every time."""
    torch.manual_seed(0)
    placement = encoding.module(ModelShape(32, 2, 6))(position)
    return [part for value in vars(placement).values() for part in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.parametrize(("name", "field"), changed_fields())
def test_every_field_matters(name: str, field: str) -> None:
    encoding = CHANGED_FROM.get(name, ENCODINGS[name])
    old = getattr(encoding, field)
    value = (
        ADMISSIBLE[name, field]
        if (name, field) in ADMISSIBLE
        else not old
        if old is False or old is True
        else NEW_VALUES[type(old)]
    )
    assert value != old
    other = dataclasses.replace(encoding, **{field: value})  # type: ignore[type-var]
    kernels_change = module_changes = False
    for length in (6, 12):
        families = [each.family(6, length) for each in (encoding, other)]
        grids = [family.grid_logits(random_weights(family), length) for family in families]
        bounds = [family.upper_bounds() for family in families]
        kernels_change |= differs(*grids) or differs(*bounds)
        if not encoding.trains:
            continue
        parts = [placed(each, torch.arange(length)) for each in (encoding, other)]
        module_changes |= len(parts[0]) != len(parts[1]) or any(differs(*pair) for pair in zip(*parts, strict=True))
    assert kernels_change, "the kernels do not change"
    if not encoding.trains:
        return
    assert module_changes != ((name, field) in THEORY_ONLY | KERNELS_ONLY)


@pytest.mark.parametrize("name", TRAINED_NAMES)
def test_modules_place_position_at_every_length(name: str) -> None:
    module = ENCODINGS[name].module(ModelShape(32, 2, 20))
    for length in (1, 20, 80):
        placement = module(torch.arange(length))
        if placement.embedding is not None:
            assert placement.embedding.shape == (length, 32)
            assert placement.embedding.dtype == torch.float32
        if placement.bias is not None:
            assert placement.bias.shape == (2, length, length)
            assert placement.bias.dtype == torch.float32
        if placement.key_vectors is not None:
            assert placement.key_vectors.shape == (length, length, 16)
        for rotation in (placement.query_rotation, placement.key_rotation):
            if rotation is not None:
                planes = 4 if name == "partial" else 8
                assert [tuple(part.shape) for part in rotation] == [(length, planes)] * 2
                assert all(part.dtype == torch.float32 for part in rotation)
