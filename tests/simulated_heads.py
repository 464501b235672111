"""Heads drawn many times from worlds whose truth is known, and how often the intervals of their estimates hold it.

A world draws logits as queries against unit keys: [sequence, head, query, key], every head and sequence anew. Worlds
differ in what varies between sequences, as that is what an interval is about.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from captures import DROPPED, LENGTH, capture_of, dense
from poskernel.attention.estimators.estimate import HeadEstimate, KernelEstimator
from poskernel.attention.head_report import student_reach

BATCH = 16
"""Sequences that come at once, as in the package."""
HEADS = 100
"""Heads at a time, which bounds what a draw holds."""
SINGLES = 20_000
"""Sequences that the truth's one expectation without a closed form is the mean of."""
STATISTICS = ("r2", "r2_raw", "signal", "share", "r2_plugin", "g")

OFFSET = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
STATIONARY = torch.exp(-OFFSET.abs() / 6.0)
OTHER = torch.sin(1.7 * torch.arange(LENGTH)[:, None] * torch.arange(LENGTH) / (LENGTH - DROPPED))
FREQUENCIES = 100.0 ** -(torch.arange(4) / 4)
Draw = Callable[[int, int, torch.Generator], Float[Tensor, "sequence head query key"]]


@dataclass(frozen=True, eq=False)
class World:
    """How logits are drawn, and their mean over sequences."""

    meaning: str
    gram: Float[Tensor, "query key"]
    draw: Draw


def pair_noise(gram: Tensor, spread: float) -> Draw:
    """The Gram and independent noise of every pair."""

    def draw(sequences: int, heads: int, generator: torch.Generator) -> Tensor:
        return gram + spread * torch.randn(sequences, heads, LENGTH, LENGTH, generator=generator)

    return draw


def uneven(gram: Tensor, spread: float) -> Draw:
    """As pair noise, but each sequence has the Gram at a strength of its own (log-normal) and a slope of its own."""

    def draw(sequences: int, heads: int, generator: torch.Generator) -> Tensor:
        strength, slope = torch.randn(2, sequences, heads, 1, 1, generator=generator)
        own = (0.4 * strength - 0.08).exp() * gram + 0.02 * slope * OFFSET
        return own + spread * torch.randn(sequences, heads, LENGTH, LENGTH, generator=generator)

    return draw


def turned(vectors: Tensor) -> Tensor:
    """Rotary embedding of [..., position, width] vectors."""
    planes = torch.view_as_complex(vectors.unflatten(-1, (-1, 2)).contiguous())
    phase = torch.arange(LENGTH)[:, None] * FREQUENCIES
    return torch.view_as_real(planes * torch.polar(torch.ones_like(phase), phase)).flatten(-2)


MEANS = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(5)).expand(2, LENGTH, 8)


def rotary(drift: float, spread: float) -> World:
    """Queries and keys of chosen means and independent content, rotated; keys drift along with their position."""
    step = drift * torch.linspace(-1, 1, LENGTH)[:, None] * torch.ones(8)
    query, key = MEANS[0], MEANS[1] + step

    def draw(sequences: int, heads: int, generator: torch.Generator) -> Tensor:
        content = spread * torch.randn(2, sequences, heads, LENGTH, 8, generator=generator)
        return turned(query + content[0]) @ turned(key + content[1]).transpose(-1, -2)

    return World(
        "rotary head with content" + (", its keys drift" if drift else ""), turned(query) @ turned(key).T, draw
    )


MIXED = 0.8 * STATIONARY + 0.2 * OTHER
WORLDS: Mapping[str, World] = {
    "noise": World("independent noise of every pair", MIXED, pair_noise(MIXED, 1.0)),
    "faint": World("much noise of every pair", MIXED, pair_noise(MIXED, 2.0)),
    "uneven": World("each sequence has a strength and a slope of its own", MIXED, uneven(MIXED, 0.5)),
    "rotary": rotary(0.0, 1.0),
    "drift": rotary(0.5, 1.0),
}


def true_values(world: World, singles: int = SINGLES) -> dict[str, float | np.ndarray]:
    """What the estimates are of; the share's denominator is a mean over that many sequences."""
    exact = dense(world.gram.double().numpy()[None].repeat(2, 0), DROPPED)
    seen = (OFFSET[DROPPED:, DROPPED:] >= 0).double()
    counts = seen.sum(-1, keepdim=True)

    def row_variance(logits: Tensor) -> Tensor:
        kept = logits[..., DROPPED:, DROPPED:].double() * seen
        return (((kept - kept.sum(-1, keepdim=True) / counts) * seen) ** 2).sum((-1, -2))

    generator = torch.Generator().manual_seed(99)
    single = np.mean([float(row_variance(world.draw(500, 1, generator)).mean()) for _ in range(singles // 500)])
    # `dense` gives the share for sequences that do not differ: row-centred g over the Gram's own within-row variance.
    return exact | {"share": exact["share"] * float(row_variance(world.gram)) / float(single)}


def drawn_heads(world: World, sequences: int, heads: int, seed: int) -> list[HeadEstimate]:
    """Estimates of as many heads, each of sequences of its own, in batches as the package makes them."""
    parts = [len(part) for part in torch.arange(heads).split(HEADS)]
    if len(parts) > 1:
        return [one for place, part in enumerate(parts) for one in drawn_heads(world, sequences, part, seed + place)]
    generator = torch.Generator().manual_seed(seed)
    batches = torch.arange(sequences).split(BATCH)
    estimator = KernelEstimator({0: heads}, LENGTH, sequences, len(batches[0]), dropped=DROPPED, null=False)
    key = torch.eye(LENGTH)
    for batch in batches:
        logits = world.draw(len(batch), heads, generator)
        estimator.consume(capture_of(logits, key.expand(len(batch), 1, -1, -1)))
    return estimator.estimates()


@dataclass(frozen=True)
class Coverage:
    """Of one statistic: share of intervals that hold the truth, mean error of the estimate and of its interval."""

    covered: float
    bias: float
    """Mean of the estimates less the truth, in their standard deviations."""
    width: float
    """Mean reported standard error over the standard deviation of the estimates."""
    undefined: float
    """Share of estimates without a value; they count as not covered."""


def coverages(truth: Mapping[str, float | np.ndarray], results: list[HeadEstimate]) -> dict[str, Coverage]:
    """Every statistic's; the plug-in R2 is held against its own mean, g offset by offset."""
    found = {}
    for name in STATISTICS:
        if name == "g":
            reach = student_reach(results[0].r2.n)
            value = np.stack([one.g.numpy() for one in results])
            error = np.stack([one.g_error.numpy() for one in results])
            low, high = value - reach * error, value + reach * error
        else:
            drawn = [getattr(one, name) for one in results]
            value, low, high = (np.array([getattr(one, end) for one in drawn]) for end in ("value", "low", "high"))
            error = (high - low) / 2 / student_reach(drawn[0].n)
        expected = np.nanmean(value) if name == "r2_plugin" else np.asarray(truth[name])
        scatter = np.nanstd(value, 0)
        found[name] = Coverage(
            covered=float(np.mean((low <= expected) & (expected <= high))),
            bias=float(np.mean((np.nanmean(value, 0) - expected) / scatter)),
            width=float(np.mean(np.nanmean(error, 0) / scatter)),
            undefined=float(np.isnan(value).mean()),
        )
    return found
