import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.encodings import ModelShape, Randomized, parse_encoding
from poskernel.encodings.randomized import INNER, RandomizedPositions, SampledFamily, sorted_sample
from poskernel.errors import InputError


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 10**6))
def test_samples_are_distinct_sorted_and_in_range(length: int, more: int, seed: int) -> None:
    sample = sorted_sample(length + more, length, torch.Generator().manual_seed(seed)).tolist()
    assert sample == sorted(set(sample))
    assert len(sample) == length
    assert 0 <= sample[0] <= sample[-1] < length + more


def test_every_position_is_as_likely_as_any_other() -> None:
    stream = torch.Generator().manual_seed(0)
    counts = torch.bincount(torch.cat([sorted_sample(10, 4, stream) for _ in range(5000)]))
    assert 1850 < counts.min() <= counts.max() < 2150  # 2000 each; standard deviation 35


@pytest.mark.parametrize("inner", INNER)
def test_kernels_are_the_inner_ones_at_sampled_positions(inner: str) -> None:
    encoding = Randomized(inner, positions=30, train_draws=3)
    family = encoding.family(6, 9)
    assert isinstance(family, SampledFamily)
    assert family.position.shape == (3, 9)
    plain = INNER[inner].family(30, 30)
    weights = torch.randn(2, *family.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grids = family.grid_logits(weights, 9)
    for which, each in enumerate(weights):
        whole = plain.kernel(each).transfer(30)
        for draw, sample in enumerate(family.position.tolist()):
            for i in range(9):
                for j in range(i + 1):
                    expected = float(whole[sample[i], sample[j]])
                    assert float(grids[which, draw, i, j]) == pytest.approx(expected, abs=1e-10)


@settings(deadline=None)
@given(st.integers(0, 50), st.integers(1, 20))
def test_draws_are_fresh_at_every_length_and_for_the_test(seed: int, length: int) -> None:
    encoding = Randomized(positions=200, seed=seed)
    train, test = encoding.family(20, length), [encoding.drawn_family(20, length, draw) for draw in (0, 1)]
    samples = [*train.position, *(family.position[0] for family in test)]  # type: ignore[attr-defined]
    assert len({tuple(sample.tolist()) for sample in samples}) >= (18 if length > 5 else 1)
    again = encoding.family(20, length)
    assert torch.equal(train.position, again.position)  # type: ignore[attr-defined]


def test_several_draws_have_no_one_kernel() -> None:
    family = Randomized(positions=30, train_draws=2).family(6, 6)
    weights = torch.zeros(32, dtype=torch.float64)
    with pytest.raises(InputError, match="2 draws of positions give as many kernels: ask for that of one draw"):
        family.kernel(weights)
    assert [kernel.horizon for kernel in family.kernels(weights)] == [6, 6]


def module_of(inner: str = "sinusoidal", seed: int = 0, positions: int = 50) -> RandomizedPositions:
    torch.manual_seed(seed)
    module = Randomized(inner, positions=positions).module(ModelShape(8, 1, 20))
    assert isinstance(module, RandomizedPositions)
    return module


def test_every_forward_pass_draws_a_sample_that_the_seed_fixes() -> None:
    first, again, other = module_of(), module_of(), module_of(seed=1)
    passes = [[module(torch.arange(9)).embedding for _ in range(2)] for module in (first, again, other)]
    assert torch.equal(passes[0][0], passes[1][0])
    assert torch.equal(passes[0][1], passes[1][1])
    assert not torch.equal(passes[0][0], passes[0][1])
    assert not torch.equal(passes[0][0], passes[2][0])


def test_the_sample_is_what_the_inner_module_sees() -> None:
    module, stream = module_of(), torch.Generator().manual_seed(3)
    with module.drawing_from(torch.Generator().manual_seed(3)):
        embedding = module(torch.tensor([2, 4, 8])).embedding
    expected = module.inner(sorted_sample(50, 9, stream)[[2, 4, 8]]).embedding
    assert torch.equal(embedding, expected)


def test_drawing_from_another_stream_leaves_the_own_one_alone() -> None:
    used, untouched = module_of(), module_of()
    with used.drawing_from(torch.Generator().manual_seed(7)):
        used(torch.arange(9))
    assert torch.equal(used(torch.arange(9)).embedding, untouched(torch.arange(9)).embedding)


def test_the_state_of_the_draws_is_saved_with_the_weights() -> None:
    module, other = module_of(), module_of(seed=1)
    module(torch.arange(9))
    other.load_state_dict(module.state_dict())
    assert torch.equal(module(torch.arange(9)).embedding, other(torch.arange(9)).embedding)


def test_a_learned_table_covers_the_whole_range() -> None:
    module = module_of("learned", positions=50)
    assert [tuple(weight.shape) for weight in module.parameters()] == [(50, 8)]
    embedding = module(torch.arange(50)).embedding
    assert torch.equal(embedding, module.inner.table.weight)  # type: ignore[union-attr]  # 50 of 50: every row, in order


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("randomized:inner=rop", "unknown inner encoding of 'randomized' 'rop': did you mean 'rope'"),
        ("randomized:inner=fire", "unknown inner encoding of 'randomized' 'fire'"),
        ("randomized:positions=0", "positions of the randomized encoding is 0"),
        ("randomized:train_draws=0", "train_draws of the randomized encoding is 0"),
        ("randomized:test_draws=-1", "test_draws of the randomized encoding is -1"),
    ],
)
def test_impossible_parameters_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_encoding(text)


def test_what_has_no_room_is_refused() -> None:
    with pytest.raises(InputError, match="a sequence of 31 has no room in 30 positions"):
        Randomized(positions=30).family(20, 31)
    with pytest.raises(InputError, match="randomized learned positions have 2048\\^2 weights"):
        Randomized("learned").family(20, 20)
    assert Randomized(positions=30).longest == 30


def test_the_echo_names_the_same_encoding() -> None:
    encoding = Randomized("t5", positions=99, train_draws=2, test_draws=3, seed=4)
    assert parse_encoding(encoding.effective) == encoding
    assert dataclasses.replace(encoding, inner="rope").weight_meaning != encoding.weight_meaning
