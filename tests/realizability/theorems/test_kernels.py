"""Propositions 1 to 5 of the kernel note: each holds, and notices when a hypothesis is broken."""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.encodings import ENCODINGS, Rope, Shaw
from poskernel.encodings.rotary import RotaryEncoding, RotaryTable, pairs_of
from poskernel.realizability.theorems import kernels
from poskernel.realizability.theorems.check import Effort


@pytest.mark.parametrize("function", kernels.KERNEL_CHECKS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("seed", [0, 7])
def test_every_claim_holds(function, seed):
    check = function(Effort.DEFAULT, seed)
    assert check.holds, check
    assert check.name == function.__name__.replace("_", "-") and check.n > 0


def unnormalised(vectors, epsilon):
    return vectors


def other_epsilon(vectors, epsilon):
    return kernels.layer_norm(vectors, 2 * epsilon)


@pytest.mark.parametrize("normalise", [unnormalised, kernels.rms_norm, other_epsilon])
def test_the_layer_norm_sphere_needs_the_norm(normalise):
    assert not kernels.layer_norm_sphere(Effort.DEFAULT, 0, normalise=normalise).holds


def test_without_epsilon_nothing_falls_short():
    check = kernels.layer_norm_sphere(Effort.DEFAULT, 0, epsilon=0.0)
    assert "off by <= " in check.measured and not check.holds  # the shortfall is part of the claim


@pytest.mark.parametrize("normalise", [unnormalised, kernels.layer_norm])
def test_the_full_sphere_needs_rms_norm(normalise):
    assert not kernels.rms_norm_sphere(Effort.DEFAULT, 0, normalise=normalise).holds


def test_layer_norm_by_hand():
    row = torch.tensor([[1.0, 2.0, 6.0]], dtype=torch.float64)
    mean, variance = 3.0, (4 + 1 + 9) / 3
    expected = [(value - mean) / (variance + 0.5) ** 0.5 for value in (1, 2, 6)]
    assert kernels.layer_norm(row, 0.5)[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    "kernel",
    [kernels.exponential, lambda offset, slope: slope * torch.exp(-(offset**2)), lambda offset, slope: 0 * offset],
)
def test_positive_definite_kernels_are_no_witness(kernel):
    assert not kernels.alibi_not_positive_definite(Effort.DEFAULT, 0, kernel=kernel).holds


@pytest.mark.parametrize(
    "kernel",
    [
        lambda offset, slope: (offset.abs() < 3).double(),  # not positive definite
        lambda offset, slope: (-slope * offset**2).exp(),  # positive definite, another spectrum
        lambda offset, slope: 1 / (1 + offset.abs()),  # not summable
    ],
)
def test_other_kernels_have_no_wrapped_cauchy_spectrum(kernel):
    assert not kernels.alibi_exponential_positive_definite(Effort.DEFAULT, 0, kernel=kernel).holds


def test_the_wrapped_cauchy_density_sums_to_one():
    frequency = 2 * torch.pi * torch.arange(4096, dtype=torch.float64) / 4096
    assert float(kernels.wrapped_cauchy(frequency, 0.9).mean()) * 2 * torch.pi == pytest.approx(1)


def test_a_window_that_does_not_wrap_round_has_other_eigenvalues():
    check = kernels.dft_positive_definite(Effort.DEFAULT, 0, cyclic=False, samples=50)
    assert not check.holds and check.n == 50


def dft_coefficients(values):
    length = len(values)
    return [
        sum(value * math.cos(2 * math.pi * frequency * place / length) for place, value in enumerate(values))
        for frequency in range(length)
    ]


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=7))
@settings(max_examples=20, deadline=None)
def test_eigenvalues_of_a_circle_are_its_dft(half):
    values = half + half[:0:-1]  # even: v(d) = v(T - d)
    offset = kernels.signed_offsets(len(values)).long()
    gram = torch.tensor(values, dtype=torch.float64)[offset % len(values)]
    expected = sorted(dft_coefficients(values))
    assert torch.linalg.eigvalsh(gram).tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("function", [kernels.rope_logits_stationary, kernels.shaw_logits_stationary])
def test_content_that_moves_breaks_stationarity(function):
    assert not function(Effort.DEFAULT, 0, fixed_content=False).holds


def test_the_encodings_own_modules_are_what_is_turned():
    """By hand: plane k of position 5 turns by 5 theta_k, and the product sees the difference alone."""
    query, key = (kernels.normal(0, name, 8, 2 * kernels.PLANES) for name in ("query", "key"))
    theta = [1e4 ** (-k / kernels.PLANES) for k in range(kernels.PLANES)]
    expected = 0.0
    for plane, rate in enumerate(theta):
        a, b = query[5, plane], query[5, plane + kernels.PLANES]
        c, d = key[2, plane], key[2, plane + kernels.PLANES]
        expected += float((a * c + b * d) * math.cos(3 * rate) + (a * d - b * c) * math.sin(3 * rate))
    assert float(kernels.rotary_logits(query, key)[5, 2]) == pytest.approx(expected, abs=1e-4)


def test_every_encoding_that_turns_at_one_rate_is_covered():
    turning = {
        each.name for each in ENCODINGS.values() if isinstance(each, RotaryEncoding) and not each.depends_on_length
    }
    assert {each.name for each in kernels.ROTARY} == turning


def test_positions_that_turn_by_no_multiple_break_stationarity():
    @dataclass(frozen=True)
    class Uneven(Rope):
        def module(self, shape):
            return UnevenTable(self.rates(pairs_of(shape, self.title), 1), 1.0)

    class UnevenTable(RotaryTable):
        def forward(self, position):
            return super().forward(position + position**2 // 50)

    assert not kernels.rope_logits_stationary(Effort.DEFAULT, 0, encodings=(Uneven(),)).holds


def test_vectors_that_are_not_there_are_no_shaw():
    @dataclass(frozen=True)
    class Silent(Shaw):
        def module(self, shape):
            made = super().module(shape)
            torch.nn.init.zeros_(made.table)
            return made

    assert not kernels.shaw_logits_stationary(Effort.DEFAULT, 0, encoding=Silent()).holds


def test_modules_draw_from_a_seed_and_leave_the_process_generator_alone():
    before = torch.random.get_rng_state()
    drawn = []
    for _ in range(2):
        with kernels.drawn_from(3):
            drawn.append(kernels.placement_of(Shaw(), 4).key_vectors)
    assert torch.equal(*drawn) and torch.equal(before, torch.random.get_rng_state())


def test_cross_terms_leave_the_bound_without_a_norm():
    check = kernels.sinusoidal_decomposition(Effort.DEFAULT, 0, normalise=unnormalised, samples=5)
    assert not check.holds and "identity off by" in check.measured


def test_samples_are_counted():
    assert kernels.rms_norm_sphere(Effort.DEFAULT, 0, samples=99).n == 99


def test_many_small_circles_meet_the_zero_kernel_too():
    assert kernels.dft_positive_definite(Effort.DEFAULT, 0, samples=4000).holds
