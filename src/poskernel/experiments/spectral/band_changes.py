"""Changes of a rotary model by name: bands of planes damped and boosted, with the controls that they need.

Names are what rows have in the column `change`: "short x 0.5", "all x 0.5" (a temperature), "random for short x 0.5"
(planes of equal within-row logit energy, head by head), "none".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.attention.interventions.bands import SHORT_WAVELENGTH, Band, plane_bands
from poskernel.attention.interventions.changes import Intervention, PlaneGain, Temperature
from poskernel.attention.interventions.controls import matched_sets, plane_energies
from poskernel.attention.interventions.planes import Head, RotaryPlanes, rotary_planes

DAMPED, BOOSTED = 0.5, 1.5
GAINS = (DAMPED, BOOSTED)
NONE = "none"
DRAWS = 5
CONTROLLED = (Band.SHORT, Band.MIDDLE)
"""Bands that have an energy-matched control: the unresolved one holds most planes, and few are left to draw from."""
NO_CONTROL = "undefined: no head has a band that other planes match"
Planes = Mapping[Head, Sequence[int]]
Change = tuple[Intervention, ...]
Columns = dict[str, str | int | float]
"""Part of a model that a row speaks of, by column."""
Changes = Mapping[str, Sequence[Change]]
"""By name: the draws of a change (one where nothing is random), each as interventions that go together."""


def gained(name: str, gain: float) -> str:
    """What a change is called."""
    return f"{name} x {gain:g}"


def random_for(band: Band) -> str:
    """The control of a band."""
    return f"random for {gained(band, DAMPED)}"


def at_matched(band: Band) -> str:
    """The band in those heads alone that have a control."""
    return f"{gained(band, DAMPED)}, where matched"


def short_wavelength(length: int) -> float:
    """Longest wavelength that is short: fewer positions in sequences that are short themselves."""
    return min(SHORT_WAVELENGTH, length / 4)


@dataclass(frozen=True, eq=False)
class BandChanges:
    """The planes of every head by band, and for the controlled bands random planes of equal energy."""

    rotary: Mapping[int, RotaryPlanes]
    bands: Mapping[Band, Planes]
    random: Mapping[Band, Sequence[Planes]]
    """Draws; heads whose band no other planes match are left out."""

    @classmethod
    def of(
        cls, model: Any, heads: int, tokens: Int[Tensor, "sequence position"], dropped: int, seed: int
    ) -> "BandChanges":
        """Of every head of a model; bands by the length of the tokens, energies measured on them."""
        rotary, length = rotary_planes(model), tokens.shape[1]
        names = [(layer, head) for layer in sorted(rotary) for head in range(heads)]
        by_layer = {
            layer: plane_bands(planes.frequencies, length, short_wavelength(length)) for layer, planes in rotary.items()
        }
        bands = {band: {(layer, head): by_layer[layer][band] for layer, head in names} for band in Band}
        energies = plane_energies(model, tokens, rotary, names, dropped)
        stream = torch.Generator().manual_seed(seed)
        return cls(rotary, bands, {band: random_planes(energies, bands[band], stream) for band in CONTROLLED})

    def changes(self, layers: Sequence[int] | None = None) -> dict[str, Sequence[Change]]:
        """Every band at both gains, all planes at both; in some layers only, if they are given."""
        found: dict[str, Sequence[Change]] = {}
        for band in Band:
            planes = {head: chosen for head, chosen in self.bands[band].items() if layers is None or head[0] in layers}
            for gain in GAINS:
                found[gained(band, gain)] = [(PlaneGain(planes, gain, self.rotary),)]
        return found

    def controls(self) -> dict[str, Sequence[Change]]:
        """Temperatures, and each controlled band beside its random planes, in the heads that have them."""
        heads = list(self.bands[Band.SHORT])
        found: dict[str, Sequence[Change]] = {gained("all", gain): [(Temperature(heads, gain),)] for gain in GAINS}
        for band, draws in self.random.items():
            matched = {head: self.bands[band][head] for head in draws[0]}
            if matched:
                found[at_matched(band)] = [(PlaneGain(matched, DAMPED, self.rotary),)]
                found[random_for(band)] = [(PlaneGain(drawn, DAMPED, self.rotary),) for drawn in draws]
        return found


def random_planes(energies: Mapping[Head, Tensor], planes: Planes, stream: torch.Generator) -> list[Planes]:
    """DRAWS sets of planes for every head that has planes and others of equal energy; the other heads are left out."""
    draws: list[dict[Head, Sequence[int]]] = [{} for _ in range(DRAWS)]
    for head, chosen in planes.items():
        found = matched_sets(energies[head], chosen, DRAWS, stream) if chosen else None
        for draw, drawn in zip(draws, found or (), strict=False):
            draw[head] = drawn
    return list(draws)
