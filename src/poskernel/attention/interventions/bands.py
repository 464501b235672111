"""Three bands of wavelengths, for rotary planes and for anything measured over time.

Short wavelengths shape a head within its nearest offsets; unresolved ones are longer than the sequences, so that no
kernel of the offset can tell their planes from content: they stand apart in every intervention.
"""

from collections.abc import Collection
from enum import StrEnum

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from poskernel.errors import InputError
from poskernel.kernel import StationaryKernel, tabulated

SHORT_WAVELENGTH = 32.0
"""Wavelengths up to this, in positions, are short unless another bound is given."""


class Band(StrEnum):
    """Of a wavelength, against the length of the sequences."""

    SHORT = "short"
    MIDDLE = "middle"
    UNRESOLVED = "unresolved"


def wavelength_bands(
    wavelengths: Float[Tensor, " frequency"], length: int, short: float = SHORT_WAVELENGTH
) -> dict[Band, Bool[Tensor, " frequency"]]:
    """Which wavelengths (positions) are short (to `short`), in between, and unresolved (above `length`).

    Raises InputError unless 0 < short < length.
    """
    if not 0 < short < length:
        raise InputError(
            f"a short band up to {short:g} positions leaves no middle band in sequences of {length}: "
            "give a bound between 0 and the length."
        )
    is_short, unresolved = wavelengths <= short, wavelengths > length
    return {Band.SHORT: is_short, Band.MIDDLE: ~is_short & ~unresolved, Band.UNRESOLVED: unresolved}


def plane_bands(
    frequencies: Float[Tensor, " plane"], length: int, short: float = SHORT_WAVELENGTH
) -> dict[Band, tuple[int, ...]]:
    """Numbers of a head's rotary planes by band, from their frequencies in radians a position."""
    bands = wavelength_bands(2 * torch.pi / frequencies, length, short)
    return {band: tuple(mask.nonzero().flatten().tolist()) for band, mask in bands.items()}


def outside_bands(
    values: Float[Tensor, "position *rest"], keep: Collection[Band], short: float = SHORT_WAVELENGTH
) -> Float[Tensor, "position *rest"]:
    """The part of values over time that lies in none of the kept bands, float64: exactly zero when all are kept.

    By the cosine transform (DCT-II): its basis function m has wavelength 2 T / m and needs no periodic values, where
    the Fourier transform would spread the jump between the last position and the first over all bands.
    """
    from scipy.fft import dct, idct

    length = values.shape[0]
    wavelengths = 2.0 * length / torch.arange(length, dtype=torch.float64)
    bands = wavelength_bands(wavelengths, length, short)
    removed = torch.zeros(length, dtype=torch.bool)
    for band, mask in bands.items():
        if band not in keep:
            removed |= mask
    amplitudes = dct(values.detach().cpu().double().numpy(), axis=0, norm="ortho")
    amplitudes[~removed.numpy()] = 0
    return torch.from_numpy(idct(amplitudes, axis=0, norm="ortho"))


def filter_change(
    profile: Float[Tensor, " offset"], keep: Collection[Band], short: float = SHORT_WAVELENGTH
) -> StationaryKernel:
    """Filtered g less g, in nats by offset: the kernel whose addition to the logits leaves only the kept bands of g."""
    return tabulated(-outside_bands(profile, keep, short))
