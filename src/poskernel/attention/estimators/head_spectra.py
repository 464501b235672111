"""Spectra of measured kernels: lines at each layer's own rotary frequencies, Fourier power and its alignment."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.estimators.estimate import HeadEstimate
from poskernel.attention.estimators.spectrum import (
    Alignment,
    FourierSpectrum,
    LineSpectrum,
    alignment,
    fourier_spectra,
    line_spectra,
)
from poskernel.errors import InputError

UNROTATED = "the layer rotates nothing, so it has no frequencies of its own"


@dataclass(frozen=True, eq=False)
class HeadSpectrum:
    """Spectra of one head's g at the offsets from 0 to the last that its window lets it see.

    A part is None where it cannot be had, and `undefined` says why: no rotation, or too few offsets.
    """

    layer: int
    head: int
    lines: LineSpectrum | None
    fourier: FourierSpectrum | None
    alignment: Alignment | None
    undefined: str | None


def head_spectra(
    kernels: Sequence[HeadEstimate],
    frequencies: Mapping[int, Float[Tensor, " line"]],
    kept: int,
    seed: int = 0,
) -> list[HeadSpectrum]:
    """Spectra of every kernel, by layer and head.

    `frequencies` (radians a position) are those of the layers that rotate, `kept` the positions of each sequence.
    Layers with the same frequencies and window share their random sets.
    """

    def alike(kernel: HeadEstimate) -> tuple[tuple[float, ...], int]:
        return tuple(frequencies.get(kernel.layer, torch.zeros(0)).tolist()), len(kernel.g) + kernel.first_offset

    found: list[HeadSpectrum] = []
    for _, group in groupby(sorted(kernels, key=alike), alike):
        found += of_group(list(group), frequencies, kept, seed)
    return sorted(found, key=lambda spectrum: (spectrum.layer, spectrum.head))


def of_group(
    kernels: Sequence[HeadEstimate], frequencies: Mapping[int, Float[Tensor, " line"]], kept: int, seed: int
) -> Iterable[HeadSpectrum]:
    """Spectra of kernels with the same frequencies and offsets."""
    profiles = torch.stack([kernel.g[-kernel.first_offset :] for kernel in kernels])
    # Pairs at each offset: a window ends the offsets, and takes no pair from those within it.
    counts = kept - torch.arange(profiles.shape[1]).double()
    own = frequencies.get(kernels[0].layer)
    lines: Sequence[LineSpectrum | None] = [None] * len(kernels)
    fourier: Sequence[FourierSpectrum | None] = [None] * len(kernels)
    aligned: list[Alignment | None] = [None] * len(kernels)
    reasons = []
    try:
        fourier = fourier_spectra(profiles)
    except InputError as error:
        reasons.append(str(error))
    if own is None or not len(own):
        reasons.append(UNROTATED)
    else:
        try:
            lines = line_spectra(profiles, own, counts, seed=seed)
        except InputError as error:
            reasons.append(str(error))
        try:
            aligned = [None if each is None else alignment(each, own, seed=seed) for each in fourier]
        except InputError as error:
            reasons.append(str(error))
    why = " ".join(dict.fromkeys(reasons)) or None
    return [
        HeadSpectrum(kernel.layer, kernel.head, lines[i], fourier[i], aligned[i], why)
        for i, kernel in enumerate(kernels)
    ]
