"""Which frequencies g is made of: lines at a head's own rotary frequencies, and the Fourier spectrum of any kernel.

With the same mean vectors at every position, rotary logits are g(d) = sum_k A_k cos(theta_k d + phi_k) exactly, so a
least-squares fit at the head's frequencies is the natural spectrum. It has many parameters, so what it explains means
something only beside what random frequencies of the same number and range explain. Wavelengths beyond the offsets seen
bend g but do not turn: their lines are marked unresolved, as amplitude and phase are then hardly told apart.

Columns of lines closer than the length can tell apart are nearly dependent: huge amplitudes that cancel would fit as
well as small ones, and hold noise. Directions of the columns below `LEAST_DIRECTION` of the strongest one are therefore
left out: where lines share a direction, the smallest amplitudes that make their sum are given, which moves those of
resolved lines by less than a percent. What lines explain together needs no such choice, and keeps every direction
above rounding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from poskernel.errors import InputError

DRAWS = 200
"""Random frequency sets of a null."""
NEGLIGIBLE = 1e-9
"""Directions with singular values below this share of the largest hold rounding only."""
LEAST_DIRECTION = 1e-2
"""Singular value, as a share of the largest, below which amplitudes are not told apart: noise in g would reach them a
hundredfold."""
PADDING = 4
"""Length of the transform over that of the kernel: bins between those that the length resolves."""


@dataclass(frozen=True, eq=False)
class LineSpectrum:
    """g(d) = level + sum_k amplitude_k cos(frequency_k d + phase_k) + rest, least squares over pairs.

    `directions` of 1 + 2 lines parameters are told apart at this length; fewer than all mean that single amplitudes are
    shared out, and only sums of neighbouring lines are known. `rest_share` is what the amplitudes leave of the variance
    that all lines explain together: what lies in directions left out.
    `explained` is the share of g's variance over pairs that all lines explain, `explained_resolved` the resolved ones
    alone; `null` that of each random set, and `p` the share of sets (add one) that explain at least as much as all.
    """

    frequencies: Float[Tensor, " line"]
    amplitude: Float[Tensor, " line"]
    """Nats; of lines that the length does not tell apart the smallest that make their sum."""
    phase: Float[Tensor, " line"]
    """Radians, in (-pi, pi]."""
    resolved: Bool[Tensor, " line"]
    """Whether the wavelength is at most the number of offsets."""
    level: float
    explained: float
    explained_resolved: float
    null: Float[Tensor, " draw"]
    p: float
    directions: int
    rest_share: float


@dataclass(frozen=True, eq=False)
class FourierSpectrum:
    """Power of a kernel at evenly spaced angular frequencies from 0 to pi, radians a position; it sums to 1."""

    frequencies: Float[Tensor, " bin"]
    power: Float[Tensor, " bin"]
    resolution: float
    """Half-width of a single frequency's main lobe, radians a position."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """Share of a spectrum's power within one resolution of the given frequencies, and of random ones of that number."""

    share: float
    null: Float[Tensor, " draw"]
    p: float
    frequencies: int
    """How many of the given ones are resolved, and so count."""


def line_spectra(
    profiles: Float[Tensor, "head offset"],
    frequencies: Float[Tensor, " line"],
    counts: Float[Tensor, " offset"] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[LineSpectrum]:
    """Line spectrum of each head's g at offsets 0, 1, ..., all at the same frequencies (radians a position).

    `counts` are the pairs at each offset (default: those of causal sequences as long as the profile), the weights of
    the fit. Raises InputError where there are too few offsets to fit, or no frequencies.
    """
    offsets = profiles.shape[1]
    check_frequencies(frequencies)
    if 2 * len(frequencies) + 1 >= offsets:
        raise InputError(
            f"{len(frequencies)} lines have {2 * len(frequencies) + 1} parameters, which fit any kernel of {offsets} "
            "offsets: measure longer sequences."
        )
    weights = (torch.arange(offsets, 0, -1) if counts is None else counts).double().sqrt()
    targets = profiles.double() * weights
    # What a constant explains is no line's: it is fitted first, and taken out of everything.
    total = (targets - explained_part(weights[:, None], targets)).square().sum(-1)
    fitted = design(frequencies, offsets, weights)
    resolved = frequencies.double() >= 2 * math.pi / offsets
    kept = torch.cat([torch.tensor([True]), resolved, resolved])
    shares, shares_resolved = (explained_share(part, targets, total) for part in (fitted, fitted[:, kept]))
    nulls = torch.stack(
        [
            explained_share(design(drawn, offsets, weights), targets, total)
            for drawn in random_frequencies(frequencies, draws, seed)
        ]
    )
    solved, directions = least_amplitudes(fitted, targets)
    told = 1 - (targets - (fitted @ solved).T).square().sum(-1) / total
    level, cosine, sine = solved.split([1, len(frequencies), len(frequencies)])
    return [
        LineSpectrum(
            frequencies.double(),
            torch.hypot(cosine[:, head], sine[:, head]),
            torch.atan2(-sine[:, head], cosine[:, head]),
            resolved,
            float(level[0, head]),
            float(shares[head]),
            float(shares_resolved[head]),
            nulls[:, head],
            chance(float(shares[head]), nulls[:, head]),
            directions,
            float(shares[head] - told[head]),
        )
        for head in range(len(profiles))
    ]


def design(
    frequencies: Float[Tensor, " line"], offsets: int, weights: Float[Tensor, " offset"]
) -> Float[Tensor, "offset parameter"]:
    """Weighted columns: a constant, the cosines, the sines."""
    angle = torch.arange(offsets, dtype=torch.float64)[:, None] * frequencies.double()
    return torch.cat([torch.ones(offsets, 1), angle.cos(), angle.sin()], 1) * weights[:, None]


def least_amplitudes(
    columns: Float[Tensor, "offset parameter"], targets: Float[Tensor, "head offset"]
) -> tuple[Float[Tensor, "parameter head"], int]:
    """(Parameters that fit the targets in the directions that are told apart, number of those directions).

    Columns are in nats of amplitude, so the least solution is the one of least amplitudes: a line whose sine is hardly
    seen (a long wavelength) is not blown up to explain a slope.
    """
    left, values, right = torch.linalg.svd(columns, full_matrices=False)
    kept = values > LEAST_DIRECTION * values[0]
    return right[kept].T / values[kept] @ left[:, kept].T @ targets.T, int(kept.sum())


def explained_part(
    columns: Float[Tensor, "offset parameter"], targets: Float[Tensor, "head offset"]
) -> Float[Tensor, "head offset"]:
    """Projection of the targets on the span of the columns."""
    left, values, _ = torch.linalg.svd(columns, full_matrices=False)
    basis = left[:, values > NEGLIGIBLE * values[0]]
    return targets @ basis @ basis.T


def explained_share(
    columns: Float[Tensor, "offset parameter"], targets: Float[Tensor, "head offset"], total: Float[Tensor, " head"]
) -> Float[Tensor, " head"]:
    """Share of each target's variance that the columns explain; nan for one that does not vary."""
    rest = (targets - explained_part(columns, targets)).square().sum(-1)
    flat = total <= NEGLIGIBLE**2 * targets.square().sum(-1)
    return torch.where(flat, torch.nan, 1 - rest / total)


def random_frequencies(
    frequencies: Float[Tensor, " line"], draws: int, seed: int, low: float | None = None
) -> Sequence[Float[Tensor, " line"]]:
    """Sets of as many frequencies, uniform in the logarithm between the lowest (or `low`) and the highest given."""
    generator = torch.Generator().manual_seed(seed)
    bottom, top = math.log(low or float(frequencies.min())), math.log(float(frequencies.max()))
    return list((bottom + (top - bottom) * torch.rand(draws, len(frequencies), generator=generator).double()).exp())


def chance(value: float, null: Float[Tensor, " draw"]) -> float:
    """Share of the null that is at least the value, add one; nan for an undefined value."""
    return math.nan if math.isnan(value) else (1 + int((null >= value).sum())) / (1 + len(null))


def check_frequencies(frequencies: Float[Tensor, " line"]) -> None:
    """InputError unless all frequencies lie in (0, pi]."""
    if not len(frequencies) or not bool(((frequencies > 0) & (frequencies <= math.pi)).all()):
        raise InputError(
            f"frequencies {frequencies.tolist()} cannot be fitted: give at least one, each above 0 and at most pi "
            "radians a position."
        )


def fourier_spectra(profiles: Float[Tensor, "head offset"], padding: int = PADDING) -> list[FourierSpectrum]:
    """Fourier spectrum of each head's g at offsets 0, 1, ..., continued evenly to negative offsets.

    The even continuation has no jump at offset 0, where kernels are largest; a Hann taper in the offset (1 at 0, 0 at
    the end) keeps strong frequencies from leaking, and the tapered mean is removed, so that the level of g, which
    softmax ignores, has no power. Undefined (nan) for a constant.
    """
    offsets = profiles.shape[1]
    if offsets < 4:
        raise InputError(f"a kernel of {offsets} offsets has no spectrum: measure longer sequences.")
    distance = torch.arange(offsets, dtype=torch.float64)
    taper = 0.5 * (1 + torch.cos(math.pi * distance / offsets))
    twice = torch.where(distance == 0, 1.0, 2.0)  # every offset but 0 stands for two
    values = profiles.double()
    values = (values - ((values * taper * twice).sum(-1, keepdim=True) / (taper * twice).sum())) * taper
    size = padding * 2 * offsets
    even = torch.cat([values, torch.zeros(len(values), size - 2 * offsets + 1), values[:, 1:].flip(-1)], 1)
    power = torch.fft.rfft(even).real.square()
    frequencies = torch.arange(power.shape[1], dtype=torch.float64) * 2 * math.pi / size
    total = power.sum(-1, keepdim=True)
    power = torch.where(
        total > NEGLIGIBLE**2 * profiles.double().square().sum(-1, keepdim=True), power / total, math.nan
    )
    return [FourierSpectrum(frequencies, row, 2 * math.pi / offsets) for row in power]


def alignment(
    spectrum: FourierSpectrum, frequencies: Float[Tensor, " line"], draws: int = DRAWS, seed: int = 0
) -> Alignment:
    """How much of a spectrum lies at an encoding's frequencies, beside random sets of the same size and range.

    Only frequencies that the kernel's length resolves count, as all others fall into the same lowest bins. With many
    frequencies a resolution apart or less, every set covers everything and p says so.
    """
    check_frequencies(frequencies)
    resolved = frequencies[frequencies >= spectrum.resolution]
    if not len(resolved):
        raise InputError(
            f"none of the {len(frequencies)} frequencies is resolved (at least {spectrum.resolution:.2g} radians a "
            "position): measure longer sequences."
        )
    share = covered(spectrum, resolved)
    null = torch.tensor(
        [
            covered(spectrum, drawn)
            for drawn in random_frequencies(resolved, draws, seed, low=min(spectrum.resolution, float(resolved.min())))
        ]
    )
    return Alignment(share, null, chance(share, null), len(resolved))


def covered(spectrum: FourierSpectrum, frequencies: Float[Tensor, " line"]) -> float:
    """Power within one resolution of any of the frequencies."""
    distance = (spectrum.frequencies[:, None] - frequencies.double()).abs().min(1).values
    return float(spectrum.power[distance <= spectrum.resolution].sum())
