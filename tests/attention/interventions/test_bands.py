"""Bands of wavelengths, and filters over time by the cosine transform against its defining sum."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.attention.interventions.bands import Band, filter_change, outside_bands, plane_bands, wavelength_bands
from poskernel.errors import InputError


def cosine_part(values: list[float], kept: list[int]) -> list[float]:
    """Sum of the cosine transform's basis functions m in `kept`, each with its own coefficient."""
    length = len(values)
    out = [0.0] * length
    for m in kept:
        basis = [math.cos(math.pi * m * (2 * t + 1) / (2 * length)) for t in range(length)]
        amplitude = sum(a * b for a, b in zip(values, basis, strict=True)) / sum(b * b for b in basis)
        out = [o + amplitude * b for o, b in zip(out, basis, strict=True)]
    return out


def test_planes_fall_into_three_bands() -> None:
    wavelengths = torch.tensor([6.0, 32.0, 33.0, 512.0, 513.0], dtype=torch.float64)
    bands = plane_bands(2 * torch.pi / wavelengths * (1 + 1e-12), 512)
    assert bands == {Band.SHORT: (0, 1), Band.MIDDLE: (2, 3), Band.UNRESOLVED: (4,)}
    assert plane_bands(2 * torch.pi / wavelengths, 512, short=10.0)[Band.SHORT] == (0,)


@settings(max_examples=40, deadline=None)
@given(st.integers(4, 40), st.integers(0, 10**6), st.sampled_from([[], ["short"], ["middle", "unresolved"]]))
def test_what_is_removed_is_the_sum_of_its_basis_functions(length: int, seed: int, names: list[str]) -> None:
    keep, short = [Band(name) for name in names], 3.0
    values = torch.randn(length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    removed = []
    for m in range(length):
        wavelength = 2 * length / m if m else math.inf
        band = Band.SHORT if wavelength <= short else Band.UNRESOLVED if wavelength > length else Band.MIDDLE
        if band not in keep:
            removed.append(m)
    expected = torch.tensor(cosine_part(values.tolist(), removed), dtype=torch.float64)
    torch.testing.assert_close(outside_bands(values, keep, short), expected, rtol=0, atol=1e-10)


def test_the_three_bands_are_the_whole_and_all_of_them_remove_nothing_exactly() -> None:
    values = torch.randn(48, 5, dtype=torch.float64)
    assert not outside_bands(values, list(Band)).any()
    parts = [values - outside_bands(values, [band]) for band in Band]
    torch.testing.assert_close(sum(parts), values)
    assert float(parts[0].mean(0).abs().max()) < 1e-12  # the constant is unresolved
    trend = torch.linspace(0, 1, 200, dtype=torch.float64)
    assert float(outside_bands(trend, [Band.UNRESOLVED]).square().mean() / trend.var()) < 0.02


def test_a_filtered_kernel_less_itself() -> None:
    profile = torch.randn(64, dtype=torch.float64)
    change = filter_change(profile, [Band.MIDDLE], short=8.0)
    assert change.horizon == 64
    torch.testing.assert_close(change.g(64) + profile, profile - outside_bands(profile, [Band.MIDDLE], 8.0))


def test_a_bound_without_a_middle_band_is_refused() -> None:
    with pytest.raises(InputError, match="a short band up to 32 positions leaves no middle band in sequences of 32"):
        wavelength_bands(torch.tensor([4.0]), 32)
