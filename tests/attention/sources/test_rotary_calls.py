"""Rotary calls, recorded and replayed: any argument order, any layout, any part of the head."""

import sys
import types

import pytest
import torch

from poskernel.attention.sources.rotary_calls import RotaryCall, RotatedSide, Rotation, recorded_rotary, rotated_side

LENGTH, WIDTH = 7, 6


def half_split(vectors, cos, sin):
    first, second = vectors.chunk(2, -1)
    return vectors * cos + torch.cat([-second, first], -1) * sin


def angles(positions=LENGTH, width=WIDTH):
    phase = torch.arange(positions)[:, None] * 10.0 ** -torch.arange(width // 2)
    return torch.cat([phase, phase], -1).cos(), torch.cat([phase, phase], -1).sin()


def called(function, *arguments):
    outputs = function(*arguments)
    return RotaryCall(function, arguments, {}, outputs if isinstance(outputs, tuple) else (outputs,))


def vectors(heads=3, width=WIDTH, seed=0):
    return torch.randn(2, heads, LENGTH, width, generator=torch.Generator().manual_seed(seed))


def test_both_vectors_of_one_call_are_told_apart():
    cos, sin = angles()
    query, key = vectors(4), vectors(2, seed=1)
    call = called(lambda q, k, c, s: (half_split(q, c, s), half_split(k, c, s)), query, key, cos, sin)
    sides = [rotated_side([call], output) for output in call.outputs]
    assert [side.vector for side in sides] == [0, 1]
    assert torch.equal(sides[0].unrotated(call.outputs[0]), query)
    assert torch.equal(sides[1].unrotated(call.outputs[1]), key)


@pytest.mark.parametrize("heads", [3, LENGTH])
def test_one_call_a_tensor_with_positions_before_heads(heads):
    cos, sin = (part[:, None] for part in angles())
    key, query = vectors(heads), vectors(heads, seed=1)
    calls = [called(half_split, given.transpose(1, 2), cos, sin) for given in (key, query)]
    side = rotated_side(calls, calls[1].outputs[0].transpose(1, 2))
    assert side.call is calls[1]
    assert side.head_axis == 2
    assert torch.equal(side.unrotated(calls[1].outputs[0].transpose(1, 2)), query)
    again = side.rotate(query)
    torch.testing.assert_close(again, calls[1].outputs[0].transpose(1, 2), rtol=0, atol=0)


@pytest.mark.parametrize("start", [0, 2, 5])
def test_the_rotated_part_of_a_head_is_found_and_the_rest_kept(start):
    cos, sin = angles()
    whole = vectors(width=WIDTH + 5)
    call = called(half_split, whole[..., start : start + WIDTH], cos, sin)
    final = whole.clone()
    final[..., start : start + WIDTH] = call.outputs[0]
    side = rotated_side([call], final)
    assert (side.start, side.width) == (start, WIDTH)
    assert torch.equal(side.unrotated(final), whole)
    assert torch.equal(side.rotate(whole), final)


def test_one_rotated_key_shared_by_all_heads_is_found():
    cos, sin = angles()
    call = called(half_split, vectors(1), cos, sin)
    final = torch.cat([vectors(3, 4, seed=2), call.outputs[0].expand(-1, 3, -1, -1)], -1)
    side = rotated_side([call], final)
    assert side.start == 4
    assert torch.equal(side.rotate(side.unrotated(final)), final)


def test_a_rescaling_after_the_rotation_is_taken_into_the_vectors_and_a_weighted_one_is_refused():
    cos, sin = angles()
    query = vectors()
    call = called(half_split, query, cos, sin)
    final = call.outputs[0] / call.outputs[0].norm(dim=-1, keepdim=True)
    side = rotated_side([call], final)
    torch.testing.assert_close(side.factor, 1 / query.norm(dim=-1, keepdim=True))
    torch.testing.assert_close(side.rotate(side.unrotated(final)), final)
    weights = 1 + 0.1 * torch.arange(WIDTH)
    assert rotated_side([call], final * weights) is None
    assert rotated_side([], final) is None


def test_new_vectors_are_rotated_whatever_their_number():
    cos, sin = angles()
    call = called(half_split, vectors(), cos, sin)
    side = RotatedSide(call, 0, 1, 0, WIDTH)
    fresh = torch.randn(5, 1, LENGTH, WIDTH)
    torch.testing.assert_close(side.rotate(fresh), half_split(fresh, cos, sin))
    torch.testing.assert_close(Rotation(side, side).rotate_keys(fresh), half_split(fresh, cos, sin))


def test_matrices_are_the_images_of_the_basis():
    cos, sin = angles()
    side = RotatedSide(called(half_split, vectors(), cos, sin), 0, 1, 0, WIDTH)
    matrices = side.matrices()
    fresh = torch.randn(1, 1, LENGTH, WIDTH, dtype=torch.float64)
    by_hand = torch.stack([matrices[t] @ fresh[0, 0, t] for t in range(LENGTH)])
    torch.testing.assert_close(by_hand, half_split(fresh, cos, sin)[0, 0], rtol=1e-12, atol=1e-12)


@pytest.fixture
def code(monkeypatch):
    """A module of model code with rotary functions, one of which calls the other, and a layer that uses them."""
    place = types.ModuleType("code_of_a_model")
    exec(
        """
import torch
def apply_rotary_inner(x, c): return x * c
def apply_rotary_pos_emb(q, k, c): return apply_rotary_inner(q, c), apply_rotary_inner(k, c)
def rotate_half(x): return x
class Layer(torch.nn.Module):
    def forward(self, q, k): return apply_rotary_pos_emb(q, c=2, k=k), apply_rotary_inner(q, 3), rotate_half(q)
""",
        place.__dict__,
    )
    place.Layer.__module__ = place.__name__
    monkeypatch.setitem(sys.modules, place.__name__, place)
    return place


def test_outer_calls_are_recorded_in_the_functions_own_argument_order(code):
    before = code.apply_rotary_pos_emb, code.apply_rotary_inner
    query, key, calls = torch.ones(1), torch.ones(2), []
    with recorded_rotary(code.Layer(), calls):
        code.Layer()(query, key)
    assert [(call.function, call.arguments) for call in calls] == [
        (before[0], (query, key, 2)),
        (before[1], (query, 3)),
    ]
    assert (code.apply_rotary_pos_emb, code.apply_rotary_inner) == before
    code.Layer()(query, key)
    assert len(calls) == 2


def test_functions_are_put_back_when_the_model_fails(code):
    before = code.apply_rotary_pos_emb
    with pytest.raises(TypeError), recorded_rotary(code.Layer(), []):
        code.Layer()(None, None)
    assert code.apply_rotary_pos_emb is before
