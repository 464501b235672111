"""Frequencies, planes and factor from rotations of every convention."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.attention.sources.rotary_calls import RotaryCall, RotatedSide, Rotation
from poskernel.attention.sources.rotary_probe import probe_rotation, turning_planes

FREQUENCIES = torch.tensor([1.0, 0.3, 0.02, 1e-6], dtype=torch.float64)
HALF_SPLIT = [(k, k + 4) for k in range(4)]
INTERLEAVED = [(2 * k, 2 * k + 1) for k in range(4)]


def matrices(frequencies, pairs, width, length=12, factor=1.0):
    """R_t of every position, plane by plane."""
    turned = torch.eye(width, dtype=torch.float64).repeat(length, 1, 1)
    for frequency, (first, second) in zip(frequencies.tolist(), pairs, strict=True):
        for t in range(length):
            cos, sin = math.cos(frequency * t), math.sin(frequency * t)
            turned[t, first, first], turned[t, first, second] = cos, -sin
            turned[t, second, first], turned[t, second, second] = sin, cos
    return factor * turned


def rotation_of(rotations, start=0, keys=None):
    def side(turned):
        def rotate(vectors):
            return torch.einsum("tij,bhtj->bhti", turned, vectors)

        width = turned.shape[1]
        inputs = torch.zeros(1, 1, turned.shape[0], width, dtype=torch.float64)
        return RotatedSide(RotaryCall(rotate, (inputs,), {}, (inputs,)), 0, 1, start, width)

    return Rotation(side(rotations), side(rotations if keys is None else keys))


@pytest.mark.parametrize(("pairs", "name"), [(HALF_SPLIT, "half-split"), (INTERLEAVED, "interleaved")])
@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_what_was_put_in_comes_out(pairs, name, factor):
    probe = probe_rotation(rotation_of(matrices(FREQUENCIES, pairs, 8, factor=factor), start=3), head_width=12)
    torch.testing.assert_close(probe.frequencies, FREQUENCIES, rtol=1e-9, atol=0)
    assert probe.factor == pytest.approx(factor)
    assert probe.pairing == name
    assert probe.width == 8
    assert probe.stationarity_error < 1e-12
    held = [tuple(plane.abs().gt(1e-9).any(0).nonzero().flatten().tolist()) for plane in probe.planes]
    assert held == [(first + 3, second + 3) for first, second in pairs]


def test_a_plane_turns_from_its_first_vector_to_its_second():
    turned = matrices(FREQUENCIES, INTERLEAVED, 8)
    probe = probe_rotation(rotation_of(turned), head_width=8)
    for frequency, (first, second) in zip(probe.frequencies.tolist(), probe.planes, strict=True):
        torch.testing.assert_close(turned[1] @ first, math.cos(frequency) * first + math.sin(frequency) * second)


def test_planes_that_stand_still_are_left_out():
    still = torch.tensor([1.0, 0.0, 0.1, 0.0], dtype=torch.float64)
    probe = probe_rotation(rotation_of(matrices(still, HALF_SPLIT, 8)), head_width=8)
    torch.testing.assert_close(probe.frequencies, torch.tensor([1.0, 0.1], dtype=torch.float64))
    assert probe.pairing == "half-split"
    nothing = probe_rotation(rotation_of(matrices(0 * still, HALF_SPLIT, 8)), head_width=8)
    assert nothing.width == 0
    assert nothing.planes.shape == (0, 2, 8)


def test_equal_frequencies_keep_their_number_and_orthonormal_planes():
    probe = probe_rotation(rotation_of(matrices(torch.full((4,), 0.5), HALF_SPLIT, 8)), head_width=8)
    torch.testing.assert_close(probe.frequencies, torch.full((4,), 0.5, dtype=torch.float64))
    flat = probe.planes.flatten(0, 1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(8, dtype=torch.float64))


def test_a_permutation_before_the_rotation_changes_nothing_but_the_pairs():
    """Dimensions are reordered, then turned half by half: the planes of what goes in are interleaved."""
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    turned = matrices(FREQUENCIES, HALF_SPLIT, 8) @ torch.eye(8, dtype=torch.float64)[order]
    probe = probe_rotation(rotation_of(turned), head_width=8)
    torch.testing.assert_close(probe.frequencies, FREQUENCIES, rtol=1e-9, atol=0)
    assert probe.pairing == "interleaved"


def test_what_is_not_stationary_is_measured():
    turned = matrices(FREQUENCIES, HALF_SPLIT, 8)
    assert probe_rotation(rotation_of(turned), 8).stationarity_error < 1e-12
    uneven = turned.clone()
    uneven[5:] = turned[6]
    assert probe_rotation(rotation_of(uneven), 8).stationarity_error > 0.1
    stretched = turned * torch.linspace(1, 1.1, 12, dtype=torch.float64)[:, None, None]
    assert probe_rotation(rotation_of(stretched), 8).stationarity_error == pytest.approx(0.21, abs=0.05)
    other_keys = matrices(1.1 * FREQUENCIES, HALF_SPLIT, 8)
    assert probe_rotation(rotation_of(turned, keys=other_keys), 8).stationarity_error > 0.1


def test_unequal_planes_are_another_pairing():
    pairs = [(0, 1), (2, 5), (3, 4), (6, 7)]
    assert probe_rotation(rotation_of(matrices(FREQUENCIES, pairs, 8)), 8).pairing == "other"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_planes_of_any_orientation_are_found(seed):
    """No convention: the pairs need not be coordinates at all."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64, generator=generator))[0]
    turned = matrices(FREQUENCIES, HALF_SPLIT, 8)[1]
    angles, planes = turning_planes(basis @ turned @ basis.T)
    torch.testing.assert_close(angles, FREQUENCIES, rtol=1e-6, atol=1e-12)
    for (first, second), plane in zip(HALF_SPLIT, planes, strict=True):
        inside = plane @ basis[:, [first, second]]  # the same plane: an orthogonal 2 x 2 matrix
        torch.testing.assert_close(inside @ inside.T, torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-6)
