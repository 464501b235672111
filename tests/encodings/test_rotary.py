"""Rotary encodings: what every one of them keeps, RoPE itself, and the variants that turn part of a head or damp it."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from poskernel.encodings import (
    ENCODINGS,
    DynamicNtk,
    LongRope,
    ModelShape,
    PartialRope,
    Placement,
    ProportionalRope,
    Rope,
    RotaryEncoding,
    XPos,
    Yarn,
)
from poskernel.encodings.rotary import phases
from poskernel.errors import InputError
from poskernel.models.transformer import rotate
from poskernel.realizability import predict

PAIRS = 8
LONG = tuple(1.0 + k for k in range(PAIRS))
ROTARY: dict[str, RotaryEncoding] = {
    **{name: encoding for name, encoding in ENCODINGS.items() if isinstance(encoding, RotaryEncoding)},
    "rope slow": Rope(base=50.0, scale=0.3),
    "yarn with three zones": Yarn(original=400, attention=0.7),
    "dynamic from 5": DynamicNtk(original=5),
    "longrope lists": LongRope(
        original=5, frequencies=PAIRS, short=(1.1,) * PAIRS, long=tuple(map(float, range(1, 9)))
    ),
    "xpos steep": XPos(decay_length=20.0, gamma=0.1),
}


def with_pairs(encoding: RotaryEncoding) -> RotaryEncoding:
    """The same encoding with the family of a head of PAIRS pairs."""
    return dataclasses.replace(encoding, frequencies=PAIRS)  # type: ignore[type-var]


def head_vectors(seed: int = 3) -> tuple[Tensor, Tensor]:
    """A query and a key of one head."""
    query, key = torch.randn(2, 2 * PAIRS, generator=torch.Generator().manual_seed(seed))
    return query, key


def placed(encoding: RotaryEncoding, position: Tensor) -> Placement:
    placement = encoding.module(ModelShape(2 * PAIRS, 1, 20))(position)
    assert placement.embedding is None
    assert placement.bias is None
    return placement


def turned(vector: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
    """One vector at every position, turned as the transformer does it, in float64."""
    assert rotation is not None
    cosine, sine = (part.double() for part in rotation)
    return rotate(vector.double().expand(len(cosine), 1, -1), (cosine, sine))[:, 0]


def logits_of(encoding: RotaryEncoding, position: Tensor, seed: int = 3) -> Tensor:
    """Products of one query vector with one key vector at every pair of positions, unmasked."""
    (query, key), placement = head_vectors(seed), placed(encoding, position)
    return turned(query, placement.query_rotation) @ turned(key, placement.key_rotation).T


def spread_along_diagonals(logits: Tensor) -> float:
    """How far products at equal offsets lie apart."""
    return max(
        float(diagonal.max() - diagonal.min())
        for offset in range(len(logits))
        for diagonal in (logits.diagonal(-offset), logits.diagonal(offset))
    )


@pytest.mark.parametrize("name", ROTARY)
@settings(deadline=None, max_examples=15)
@given(first=st.integers(0, 5000), length=st.integers(2, 24), seed=st.integers(0, 2**20))
def test_products_of_queries_and_keys_do_not_change_with_a_common_shift(
    name: str, first: int, length: int, seed: int
) -> None:
    logits = logits_of(ROTARY[name], torch.arange(first, first + length), seed)
    assert spread_along_diagonals(logits) <= 6e-5 * max(1.0, float(logits.abs().max()))


@pytest.mark.parametrize("name", ROTARY)
def test_the_shift_test_notices_interleaved_pairs_under_half_split_tables(name: str) -> None:
    """The classic mix-up: the partner of a coordinate is its neighbour, but the tables are those of halves."""
    (query, key), placement = head_vectors(), placed(ROTARY[name], torch.arange(12))

    def mixed(vector: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        assert rotation is not None
        cosine, sine = (torch.cat([part, part], dim=1).double() for part in rotation)
        front = vector.double()[: cosine.shape[1]]
        partner = torch.stack([-front[1::2], front[::2]], dim=1).flatten()
        return front * cosine + partner * sine

    logits = mixed(query, placement.query_rotation) @ mixed(key, placement.key_rotation).T
    assert spread_along_diagonals(logits) > 1e-3


@pytest.mark.parametrize("name", ROTARY)
def test_the_module_s_kernel_is_the_family_s(name: str) -> None:
    """a_k = q1 k1 + q2 k2 and b_k = q1 k2 - q2 k1 of each turned pair; what does not turn adds up to the constant."""
    encoding, length = with_pairs(ROTARY[name]), 30
    query, key = (vector.double() for vector in head_vectors())
    placement = placed(encoding, torch.arange(length))
    assert placement.query_rotation is not None
    planes, turning = placement.query_rotation[0].shape[1], len(encoding.rates(PAIRS, length))
    cosines, sines, constant = [], [], float(query[2 * planes :] @ key[2 * planes :])
    for k in range(planes):
        (q1, q2), (k1, k2) = ((vector[k], vector[k + planes]) for vector in (query, key))
        if k < turning:
            cosines.append(q1 * k1 + q2 * k2)
            sines.append(q1 * k2 - q2 * k1)
        else:
            constant += float(q1 * k1 + q2 * k2)
    weights = torch.tensor(([constant] if turning < PAIRS else []) + cosines + sines)
    family = encoding.family(20, length)
    assert family.shape == weights.shape
    seen = torch.ones(length, length).tril().bool()
    expected = family.kernel(weights.double()).transfer(length)
    torch.testing.assert_close(logits_of(encoding, torch.arange(length))[seen], expected[seen], atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", ROTARY)
def test_nothing_is_left_behind_by_a_longer_sequence(name: str) -> None:
    module, short = ROTARY[name].module(ModelShape(2 * PAIRS, 1, 20)), torch.arange(4)
    before = module(short)
    module(torch.arange(500))
    after = module(short)
    for rotation, again in ((before.query_rotation, after.query_rotation), (before.key_rotation, after.key_rotation)):
        assert rotation is not None
        assert again is not None
        assert all(torch.equal(*pair) for pair in zip(rotation, again, strict=True))
    assert not module.state_dict()
    assert not list(module.parameters())


@pytest.mark.parametrize("name", ROTARY)
def test_an_odd_head_cannot_turn(name: str) -> None:
    with pytest.raises(InputError, match="needs an even head width, got 3: change the width or the heads"):
        ROTARY[name].module(ModelShape(12, 4, 20))


@pytest.mark.parametrize("name", ROTARY)
def test_only_orthogonal_rotations_keep_norms(name: str) -> None:
    encoding = ROTARY[name]
    placement = placed(encoding, torch.arange(50))
    assert placement.query_rotation is not None
    cosine, sine = placement.query_rotation
    stretch = (cosine**2 + sine**2).sqrt()
    if isinstance(encoding, XPos):
        assert stretch.std() > 1e-3
        assert placement.key_rotation is not None
        keys = (placement.key_rotation[0] ** 2 + placement.key_rotation[1] ** 2).sqrt()
        torch.testing.assert_close(stretch * keys, torch.ones_like(keys))
    else:
        torch.testing.assert_close(stretch, torch.full_like(stretch, encoding.attention_factor))


@pytest.mark.parametrize("name", [name for name in ROTARY if name not in ("partial", "p-rope")])
def test_a_kernel_fitted_under_rope_can_be_evaluated_under_its_variants(name: str) -> None:
    encoding = ROTARY[name]
    rope = Rope(frequencies=encoding.frequencies)
    assert encoding.family(20, 80).shape == rope.family(20, 80).shape == (2 * encoding.frequencies,)
    found = predict(rope, "prev", 12, [20], rule="adam:steps=20", existence=False, horizon=30, test_encoding=encoding)
    assert found.rows[0].alpha is not None


@pytest.mark.parametrize("encoding", [PartialRope(), ProportionalRope()])
def test_weights_of_rope_mean_nothing_to_partial_heads(encoding: RotaryEncoding) -> None:
    with pytest.raises(InputError, match="weights mean the same"):
        predict("rope", "prev", 12, [20], existence=False, horizon=30, test_encoding=encoding)


def test_phases_are_computed_in_float64() -> None:
    """In float32 a phase of a million radians is off by 0.03."""
    for encoding in ROTARY.values():
        rates = encoding.rates(encoding.frequencies, 1_000_001).tolist()
        columns = encoding.basis_at(torch.tensor([1_000_000]), 1_000_001)[0, -2 * len(rates) :]
        if isinstance(encoding, XPos):
            continue
        cosine = encoding.attention_factor**2 * math.cos(1_000_000 * rates[0])
        assert float(columns[0]) == pytest.approx(cosine, abs=1e-8)
    assert phases(torch.tensor([7]), torch.tensor([1.0]))[0].dtype == torch.float64


def test_the_basis_is_cosines_then_sines() -> None:
    basis = Rope(base=100.0, frequencies=2, scale=0.5).basis(torch.tensor([0, 3]))
    assert basis[0].tolist() == [1, 1, 0, 0]
    assert basis[1].tolist() == pytest.approx([math.cos(1.5), math.cos(0.15), math.sin(1.5), math.sin(0.15)])


def test_a_scale_is_a_stretch_of_positions() -> None:
    torch.testing.assert_close(
        Rope(scale=0.5).basis(torch.arange(0, 40, 2)), Rope().basis(torch.arange(20)), atol=1e-14, rtol=0
    )


def test_partial_rotary_turns_the_first_coordinates_with_frequencies_of_their_own() -> None:
    encoding = PartialRope(fraction=0.25, base=100.0, frequencies=8)  # 4 of 16 coordinates: 1 and 100^(-1/2)
    assert encoding.basis(torch.tensor([3]))[0].tolist() == pytest.approx(
        [1, math.cos(3), math.cos(0.3), math.sin(3), math.sin(0.3)]
    )
    query = head_vectors()[0]
    placement = placed(encoding, torch.tensor([0, 5]))
    after = turned(query, placement.query_rotation)
    torch.testing.assert_close(after[:, 4:], query[4:].double().expand(2, -1))
    assert bool((after[1, :4] - query[:4]).abs().gt(1e-3).all())
    assert PartialRope(fraction=1.0).basis(torch.arange(9)).equal(Rope().basis(torch.arange(9)))


def test_p_rope_keeps_the_fast_frequencies_of_the_whole_head() -> None:
    encoding = ProportionalRope(fraction=0.25, base=10000.0, frequencies=8)  # 2 of 8 pairs: 1 and 10^(-1/2)
    assert encoding.basis(torch.tensor([3]))[0].tolist() == pytest.approx(
        [1, math.cos(3), math.cos(3 / 10**0.5), math.sin(3), math.sin(3 / 10**0.5)]
    )
    # The layout is that of the whole head: coordinate k turns with k + 8, not with k + 2 as under partial rotary.
    query = head_vectors()[0].double()
    after = turned(query, placed(encoding, torch.tensor([0, 5])).query_rotation)[1]
    moved = {index for index in range(16) if abs(float(after[index] - query[index])) > 1e-3}
    assert moved == {0, 1, 8, 9}
    assert ProportionalRope(fraction=1.0).basis(torch.arange(9)).equal(Rope().basis(torch.arange(9)))


def test_the_two_partial_encodings_differ() -> None:
    one, two = (encoding.rates(16, 1) for encoding in (PartialRope(0.5), ProportionalRope(0.5)))
    assert len(one) == len(two) == 8
    assert float(one[1]) == pytest.approx(float(two[2]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PartialRope(0.0), "turned fraction of partial RoPE is 0.0: give a number above 0, up to 1"),
        (lambda: PartialRope(1.1), "turned fraction of partial RoPE is 1.1"),
        (lambda: PartialRope(float("nan")), "turned fraction of partial RoPE is nan"),
        (lambda: PartialRope(0.1), "turns 3 of a head's 32 coordinates at fraction 0.1: give a fraction that makes"),
        (lambda: PartialRope(0.03), "turns 0 of a head's 32 coordinates"),
        (lambda: PartialRope(0.5).module(ModelShape(6, 1, 20)), "turns 3 of a head's 6 coordinates at fraction 0.5"),
        (lambda: ProportionalRope(-0.5), "turned fraction of p-RoPE is -0.5"),
        (lambda: ProportionalRope(0.05), "p-RoPE turns none of 16 pairs at fraction 0.05: .* or use nope"),
        (lambda: ProportionalRope(0.2).module(ModelShape(4, 1, 20)), "p-RoPE turns none of 2 pairs"),
        (lambda: XPos(gamma=0.0), "gamma of xPos is 0.0: give a positive number"),
        (lambda: XPos(decay_length=-1.0), "decay length of xPos is -1.0"),
        (lambda: XPos(base=0.0), "base of xPos is 0.0"),
        (lambda: XPos(frequencies=0), "number of frequencies of xPos is 0"),
    ],
)
def test_what_cannot_turn_is_named(make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(InputError, match=words):
        make()


def test_xpos_decays_as_the_paper_says() -> None:
    basis = XPos(frequencies=2).basis(torch.tensor([512]))[0].tolist()
    zeta = [0.4 / 1.4, 0.9 / 1.4]
    expected = [z * wave(rate * 512) for wave in (math.cos, math.sin) for z, rate in zip(zeta, (1, 0.01), strict=True)]
    assert basis == pytest.approx(expected)


def test_xpos_far_from_0_is_xpos_near_0_until_float32_ends() -> None:
    near, far = (logits_of(XPos(), torch.arange(first, first + 30)) for first in (0, 200_000))
    torch.testing.assert_close(near, far, atol=1e-5, rtol=0)
    module = XPos().module(ModelShape(16, 1, 20))
    longest = module.longest
    assert 70_000 < longest < 72_000
    placement = module(torch.tensor([0, longest - 1]))
    assert placement.key_rotation is not None
    assert all(bool(part.isfinite().all()) for part in placement.key_rotation)
    with pytest.raises(InputError, match=f"beyond float32: give sequences of at most {longest} positions"):
        module(torch.tensor([0, longest]))
