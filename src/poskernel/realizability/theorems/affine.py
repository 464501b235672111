"""Proposition 1: features 1 and i give every row of logits a straight line over the keys, so its peak is at an end."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.random_streams import random_stream
from poskernel.realizability.alignment import STRICTNESS
from poskernel.realizability.theorems.check import Check, Effort
from poskernel.threads import one_thread

BLOCK = 1000
"""Kernels evaluated at a time."""


def power_features(length: int, degree: int) -> Float[Tensor, "position power"]:
    """1, i, ..., i^degree."""
    return torch.arange(length, dtype=torch.float64)[:, None] ** torch.arange(degree + 1)


def strict_argmax(logits: Float[Tensor, "*batch key"]) -> Int[Tensor, "*batch"]:
    """Key of the strict maximum of each row, -1 where there is none; keys a row cannot see hold -inf."""
    first, second = logits.topk(2, dim=-1).values.unbind(-1)
    largest = torch.where(logits > float("-inf"), logits.abs(), 0.0).amax(-1)
    return torch.where(first - second > STRICTNESS * largest, logits.argmax(-1), -1)


def interior_peaks(weights: Float[Tensor, "kernel power power"], length: int) -> int:
    """Rows of these kernels whose strict argmax is neither the first key nor the row itself; rows 2 and later."""
    phi = power_features(length, weights.shape[-1] - 1)
    row = torch.arange(length)
    found = 0
    for block in weights.split(BLOCK):
        logits = (phi @ block @ phi.T).masked_fill(row > row[:, None], float("-inf"))[:, 2:]
        winner = strict_argmax(logits)
        found += int(((winner > 0) & (winner < row[2:])).sum())
    return found


def unresolved_interiors(length: int, degree: int) -> int:
    """Interior (row, key) pairs for which the two end constraints do not cancel; whole numbers, so exact.

    (i - t) (phi(t) - phi(0)) + t (phi(t) - phi(i)) = 0 says that t cannot beat both ends under any weights.
    """
    phi = power_features(length, degree).long()
    row, key = torch.tril_indices(length, length, -1)
    row, key = row[key > 0], key[key > 0]
    rest = (row - key)[:, None] * (phi[key] - phi[:1]) + key[:, None] * (phi[key] - phi[row])
    return int((rest != 0).any(1).sum())


def flat_spread(weights: Float[Tensor, "kernel power power"], length: int) -> float:
    """Range of one row's logits, relative to the largest, in kernels changed so that its slope in the key is 0 there.

    Other rows keep their slopes, and powers beyond the first, where there are any, their weights.
    """
    kernels, width = weights.shape[:2]
    phi = power_features(length, width - 1)
    row = 2 + torch.arange(kernels) % (length - 2)
    own = phi[row]
    slope = (own * weights[:, :, 1]).sum(1)
    level = weights.clone()
    level[:, :, 1] -= (slope / (own**2).sum(1))[:, None] * own
    logits = (own[:, None] @ level @ phi.T)[:, 0]
    seen = torch.arange(length) <= row[:, None]
    high, low = (logits.masked_fill(~seen, sign * float("inf")) for sign in (-1, 1))
    return float(((high.amax(1) - low.amin(1)) / high.abs().masked_fill(~seen, 0.0).amax(1)).max())


@one_thread()
def proposition_1(effort: Effort, seed: int, *, degree: int = 1, length: int = 30, samples: int | None = None) -> Check:
    """No interior key is ever the strict argmax of a kernel on features 1, i; `degree` 2 adds i^2 and breaks it."""
    kernels = samples or effort.size(20_000, 200_000)
    stream = random_stream(seed, "theory/proposition-1")
    weights = torch.randn(kernels, degree + 1, degree + 1, dtype=torch.float64, generator=stream)
    rows = kernels * (length - 2)
    peaks, uncancelled = interior_peaks(weights, length), unresolved_interiors(length, degree)
    spread = flat_spread(weights[:BLOCK], length)
    return Check(
        name="proposition-1",
        claim="With features 1 and i no key strictly between the first and the row itself is ever the strict argmax.",
        source="realizability paper, proposition 1",
        measured=f"{peaks} of {rows:,} rows have one; the constraints of {uncancelled} interior keys do not cancel; at "
        f"slope 0 on one row its logits spread by {spread:.0e} relative",
        expected=f"0 rows, 0 keys, a flat tie: a spread of at most {STRICTNESS:g}",
        n=rows,
        unit="rows",
        holds=peaks == 0 and uncancelled == 0 and spread <= STRICTNESS,
        note=f"{kernels:,} random W on powers up to {degree}, rows 2 to {length - 1}. The cancelling constraints prove "
        "it for every W: they are checked in whole numbers. Argmax sets may hold interior keys where the slope is 0.",
    )
