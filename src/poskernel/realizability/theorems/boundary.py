"""Proposition 6 of the note on attention as a kernel (K), corrected, as checks: what the causal mask does to softmax.

Under a shared kernel g the weights of row t are exp(g(d)) / Z_t on the offsets 0 to t, Z_t = sum of exp(g) up to t.
TV(t, T) is the total variation between the weights of rows t < T by offset.
"""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings.encoding import geometric_frequencies
from poskernel.random_streams import random_stream
from poskernel.realizability.theorems.check import Check, CheckFunction, Effort
from poskernel.realizability.theorems.kernels import EXACT, linear_bias, normal

TAIL = 1e-6
"""Relative error allowed of a tail of e^-12, which is a difference of two numbers near 1."""
NEAR_LIMIT = 0.01
"""How near its limit a power or a distance has to be at the last row looked at."""

Profile = Float[Tensor, " offset"]
"""g(0), g(1), ... in nats."""


def normalisers(profile: Profile) -> Profile:
    """Z_0, Z_1, ... of a kernel."""
    return profile.exp().cumsum(0)


def total_variation(early: Float[Tensor, " early"], late: Float[Tensor, " late"]) -> float:
    """Half the summed difference of two rows' weights by offset; the early row has none beyond its own."""
    padded = torch.cat([early, early.new_zeros(len(late) - len(early))])
    return float((padded - late).abs().sum() / 2)


def rotary_profile(seed: int, kernel: int, length: int, base: float = 100.0, planes: int = 8) -> Profile:
    """A random bounded kernel sum_k a_k cos(theta_k d) + b_k sin(theta_k d), standard deviation about 1 nat."""
    phase = torch.arange(length, dtype=torch.float64)[:, None] * geometric_frequencies(base, planes)
    return torch.cat([phase.cos(), phase.sin()], 1) @ normal(seed, f"rotary profile {kernel}", 2 * planes) / planes**0.5


def causal_boundary_identity(
    effort: Effort, seed: int, *, shared_kernel: bool = True, samples: int | None = None
) -> Check:
    """TV(t, T) = 1 - Z_t / Z_T for random kernels and rows; without a shared kernel the later row has its own."""
    kernels, length, error = samples or effort.size(300, 3000), 256, 0.0
    rows = torch.randint(length - 1, (kernels,), generator=random_stream(seed, "early rows")).tolist()
    for kernel, row in enumerate(rows):
        profile = 2 * normal(seed, f"profile {kernel}", length)
        later = profile if shared_kernel else profile + normal(seed, f"its own {kernel}", length)
        direct = total_variation(profile[: row + 1].softmax(0), later.softmax(0))
        error = max(error, abs(direct - float(1 - normalisers(profile)[row] / normalisers(later)[-1])))
    return Check(
        name="causal-boundary-identity",
        claim="Rows t < T under one kernel differ in total variation by exactly 1 - Z_t / Z_T.",
        source="kernel note, proposition 6, made exact",
        measured=f"off by <= {error:.0e}",
        expected=f"0 within {EXACT:g}",
        n=kernels,
        unit="kernels",
        holds=error < EXACT,
        note=f"random kernels of {length} offsets, any earlier row against the last",
    )


def causal_boundary_linear(
    effort: Effort, seed: int, *, kernel: Callable[[Tensor, float], Tensor] = linear_bias
) -> Check:
    """g = -m d (ALiBi): the limit exists and is reached as exp(-m (t + 1))."""
    slopes, error, compared = effort.size(4, 8), 0.0, 0
    for slope in (2.0 ** -torch.arange(1, slopes + 1, dtype=torch.float64)).tolist():
        offset = torch.arange(math.ceil(60 / slope), dtype=torch.float64)
        total = normalisers(kernel(offset, slope))
        row = offset[: math.ceil(12 / slope)]
        tail = 1 - total[: len(row)] / total[-1]
        error = max(error, float((tail / (-slope * (row + 1)).exp() - 1).abs().max()))
        compared += len(row)
    return Check(
        name="causal-boundary-linear",
        claim="Where g falls linearly (ALiBi), row t is exp(-m (t + 1)) away from the stationary limit: exponentially "
        "near.",
        source="kernel note, proposition 6(b), case 1",
        measured=f"relative error of the tail <= {error:.0e}",
        expected=f"0 within {TAIL:g}",
        n=compared,
        unit="rows",
        holds=error < TAIL,
        note=f"slopes 1/2 to 2^-{slopes}, rows until the tail is e^-12",
    )


def block_weight(profile: Profile, row: int) -> tuple[float, float]:
    """Weight of the offsets t + 1 to 2 t + 1, and its share of Z_(2 t + 1): TV(t, 2 t + 1), without cancellation."""
    weights = profile[: 2 * row + 2].exp()
    block = float(weights[row + 1 :].flip(0).sum())
    return block, block / float(weights.flip(0).sum())


def causal_boundary_logarithmic(
    effort: Effort, seed: int, *, exponents: Sequence[float] = (1.5, 2.0, 3.0, 6.0)
) -> Check:
    """g = -c ln(1 + d) (KERPLE), c > 1: the distance to the limit falls as the power t^(1 - c).

    No limit is supposed: blocks from a row to its double are summed, and there is a limit exactly if their weight falls
    like a negative power, which the distance then shares. What TV(t, 2 t + 1) is under that limit is compared with
    Hurwitz' zeta, the sum of all weights beyond a row.
    """
    from scipy.special import zeta

    far = effort.size(20_000, 200_000)
    near = far // 10
    powers: list[float] = []
    errors: list[float] = []
    for exponent in exponents:
        profile = -exponent * torch.log1p(torch.arange(2 * far + 2, dtype=torch.float64))
        (early, distance), (late, _) = (block_weight(profile, row) for row in (near, far))
        powers.append(math.log(late / early) / math.log((far + 1.5) / (near + 1.5)))
        whole, beyond, after = (float(zeta(exponent, start)) for start in (1, near + 2, 2 * near + 3))
        errors.append(abs(distance * (whole - after) / (beyond - after) - 1))  # not a number where zeta is none
    off = max(abs(power - (1 - exponent)) for power, exponent in zip(powers, exponents, strict=True))
    close = all(error < TAIL for error in errors)
    return Check(
        name="causal-boundary-logarithmic",
        claim="Where g falls as -c ln(1 + d) with c > 1 (KERPLE), the distance to the limit is a power law t^(1 - c).",
        source="kernel note, proposition 6(b), case 2",
        measured=f"powers {', '.join(f'{power:.3f}' for power in powers)}; TV(t, 2t + 1) against the limit's weights: "
        + (f"off by {max(errors):.0e}" if close else "no agreement"),
        expected=f"{', '.join(f'{1 - exponent:g}' for exponent in exponents)} within {NEAR_LIMIT:g}, all negative; 0 "
        f"within {TAIL:g}",
        n=2 * len(powers),
        unit="blocks of offsets",
        holds=off < NEAR_LIMIT and max(powers) < -NEAR_LIMIT and close,
        note=f"c = {', '.join(map(str, exponents))}; weights between t and 2t + 1 at t = {near:,} and {far:,}; the "
        "first compared with Hurwitz' zeta",
    )


def causal_boundary_bounded(
    effort: Effort,
    seed: int,
    *,
    profile: Callable[[int, int, int], Profile] = rotary_profile,
    samples: int | None = None,
) -> Check:
    """g bounded (RoPE): Z grows with the row, so TV(t, 2t + 1) tends to 1/2 and no limit exists."""
    kernels, row = samples or effort.size(10, 40), effort.size(20_000, 200_000)
    distances = torch.empty(kernels, 2, dtype=torch.float64)
    for kernel in range(kernels):
        total = normalisers(profile(seed, kernel, 2 * row + 2))
        distances[kernel] = torch.stack([1 - total[at] / total[2 * at + 1] for at in (row // 1000, row)])
    near, far = distances.sub(0.5).abs().amax(0).tolist()
    return Check(
        name="causal-boundary-bounded",
        claim="Where g is bounded (RoPE), TV(t, 2t + 1) tends to 1/2: the weights never become stationary.",
        source="kernel note, proposition 6(b), case 3",
        measured=f"TV within {far:.4f} of 1/2 at t = {row:,} (within {near:.2f} at t = {row // 1000})",
        expected=f"1/2 within {NEAR_LIMIT:g} at t = {row:,} (the earlier row is not judged)",
        n=kernels,
        unit="kernels",
        holds=far < NEAR_LIMIT,
        note="random rotary kernels, 8 planes, base 100: longest wavelength 350",
    )


BOUNDARY_CHECKS: tuple[CheckFunction, ...] = (
    causal_boundary_identity,
    causal_boundary_linear,
    causal_boundary_logarithmic,
    causal_boundary_bounded,
)
