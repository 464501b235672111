"""Bands of every head, random planes of equal energy beside them, and what each change is called."""

import pytest
import torch

from poskernel.attention.interventions.bands import Band
from poskernel.attention.interventions.changes import PlaneGain, Temperature
from poskernel.attention.interventions.controls import plane_energies, set_energy
from poskernel.experiments.spectral.band_changes import (
    CONTROLLED,
    DRAWS,
    at_matched,
    gained,
    random_for,
    random_planes,
    short_wavelength,
)


def test_bands_follow_wavelengths(band_changes) -> None:
    wavelengths = band_changes.rotary[0].wavelengths
    for head in ((0, 0), (1, 1)):
        for band, low, high in ((Band.SHORT, 0, 10), (Band.MIDDLE, 10, 40), (Band.UNRESOLVED, 40, 1e9)):
            inside = [k for k, each in enumerate(wavelengths.tolist()) if low < each <= high]
            assert list(band_changes.bands[band][head]) == inside and inside
    assert [short_wavelength(length) for length in (40, 64, 256, 512)] == [10, 16, 32, 32]


def test_random_planes_have_the_energy_and_share_no_plane(band_changes, rotary_model, token_windows) -> None:
    energies = plane_energies(rotary_model, token_windows, band_changes.rotary, [(0, 0), (0, 1), (1, 0), (1, 1)], 4)
    matched = 0
    for band in CONTROLLED:
        assert len(band_changes.random[band]) == DRAWS
        for draw in band_changes.random[band]:
            for head, planes in draw.items():
                matched += 1
                assert not set(planes) & set(band_changes.bands[band][head])
                wanted = set_energy(energies[head], band_changes.bands[band][head])
                assert set_energy(energies[head], planes) == pytest.approx(wanted, rel=0.1)
    assert matched


def test_heads_without_a_match_or_without_planes_are_left_out() -> None:
    strong, even = torch.diag(torch.tensor([100.0, 1, 1])).double(), torch.eye(3, dtype=torch.float64)
    energies = {(0, 0): strong, (0, 1): even, (0, 2): even}
    draws = random_planes(energies, {(0, 0): (0,), (0, 1): (0,), (0, 2): ()}, torch.Generator())
    assert len(draws) == DRAWS and all(list(draw) == [(0, 1)] for draw in draws)


def test_changes_are_called_by_band_and_gain(band_changes) -> None:
    found, inside = band_changes.changes(), band_changes.changes([1])
    assert set(found) == {gained(band, gain) for band in Band for gain in (0.5, 1.5)}
    (change,) = found["middle x 1.5"][0]
    assert isinstance(change, PlaneGain) and change.gain == 1.5 and change.planes == band_changes.bands[Band.MIDDLE]
    (some,) = inside["short x 0.5"][0]
    assert {layer for layer, _ in some.chosen} == {1}


def test_controls_change_the_same_heads_as_what_they_control(band_changes) -> None:
    found = band_changes.controls()
    (whole,) = found["all x 0.5"][0]
    assert isinstance(whole, Temperature) and len(whole.chosen) == 4
    for band in CONTROLLED:
        if at_matched(band) in found:
            (change,) = found[at_matched(band)][0]
            assert len(found[random_for(band)]) == DRAWS
            assert {drawn.chosen for (drawn,) in found[random_for(band)]} == {change.chosen}
