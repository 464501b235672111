"""Gram variants: what a head's kernel is made of after means, or more, are removed from its queries and keys.

The positional Gram of a head is G(t, s) = E[A_x(t, s)], the expectation over sequences x of the logits in use. With
q_t and k_s the queries and keys as attention uses them (after the rotation), scale included, and E q_t the mean over
sequences at one position, mean_t over all kept positions as well:

- raw: E <q_t, k_s> plus the head's bias, what the logits are on average;
- mean: <E q_t, E k_s> plus the bias, what position alone says: the Gram of per-position means;
- centred: E <q_t - E q_t, k_s - E k_s>, what content says on average: the per-position means removed. The preprocessing
  that the source of the method proposes; it removes exactly the position-only part, as raw = mean + centred;
- global: E <q_t - mean_t E q_t, k_s - mean_t E k_s> plus the bias: the one mean over positions and sequences removed;
- whitened: as global, without the bias and with queries and keys each multiplied by the inverse square root of their
  covariance over positions and sequences, so that every direction counts alike. In units of its own, not nats.

A cap on the logits (Gemma-2) is left out of all but raw: they are of the logits before it.

Unbiased estimates come from pairs of sequences (1, 2): a product of different sequences' vectors has the product of
the means as its expectation, half the product of their differences has the covariance. Every pair gives one
*sample* of the variant's Gram with independent noise, as a sequence gives one of the raw Gram, and the same quadratic
forms over different samples serve. The whitening matrices alone are those of the batch itself, taken as given.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.estimators.moments import HeadView, PairGrid
from poskernel.attention.sources.capture import LayerCapture

Vectors = tuple[Float[Tensor, "_ _ _"], Float[Tensor, "_ _ _"]]
"""Scaled queries and keys of one head, [batch, position, width]; widths and batches change from step to step."""


def joined(*parts: Vectors) -> Vectors:
    """Vectors side by side: the products of the parts add up."""
    queries, keys = zip(*parts, strict=True)
    return torch.cat(queries, -1), torch.cat(keys, -1)


def scaled(vectors: Vectors, factor: float) -> Vectors:
    """Vectors whose products are `factor` times those given."""
    return vectors[0] * factor, vectors[1]


def averaged(vectors: Vectors) -> Vectors:
    """One sample whose products are the mean of those of every sequence."""
    wide = tuple(part.transpose(0, 1).flatten(1)[None] for part in vectors)
    return scaled((wide[0], wide[1]), 1 / vectors[0].shape[0])


def less(vectors: Vectors, means: Vectors) -> Vectors:
    """Vectors without the means, one by one."""
    return vectors[0] - means[0], vectors[1] - means[1]


def over_positions(vectors: Vectors) -> Vectors:
    """Mean over positions, of every sequence."""
    return vectors[0].mean(1, keepdim=True), vectors[1].mean(1, keepdim=True)


def over_sequences(vectors: Vectors) -> Vectors:
    """Mean over sequences, at every position."""
    return vectors[0].mean(0, keepdim=True), vectors[1].mean(0, keepdim=True)


def mean_samples(first: Vectors, second: Vectors) -> Vectors:
    """Expectation <E q_t, E k_s>: each sequence's queries with the other's keys."""
    return scaled(joined((first[0], second[1]), (second[0], first[1])), 0.5)


def centred_samples(first: Vectors, second: Vectors) -> Vectors:
    """Expectation of the covariance of q_t and k_s: half the product of the differences."""
    return scaled(less(first, second), 0.5)


def global_samples(first: Vectors, second: Vectors) -> Vectors:
    """Each sequence less the other's mean over positions, whose noise is independent.

    The expectation is that of the variant but for the same number at every pair, which no variance sees.
    """
    return scaled(joined(less(first, over_positions(second)), less(second, over_positions(first))), 0.5)


def global_whole(vectors: Vectors) -> Vectors:
    """Every sequence less the mean over positions and sequences."""
    return averaged(less(vectors, over_sequences(over_positions(vectors))))


def whitening(vectors: Float[Tensor, "batch position width"]) -> Float[Tensor, "width width"]:
    """Inverse square root of the covariance over positions and sequences; directions without variance are left out."""
    rows = vectors.flatten(0, 1).double()
    rows = rows - rows.mean(0)
    values, directions = torch.linalg.eigh(rows.T @ rows / rows.shape[0])
    rounding = torch.finfo(vectors.dtype).eps * values.shape[0] * values[-1]
    inverse = torch.where(values > rounding, values.clamp(min=torch.finfo(values.dtype).tiny).rsqrt(), 0)
    return ((directions * inverse) @ directions.T).to(vectors.dtype)


def whitened(vectors: Vectors) -> Vectors:
    """Queries and keys each with covariance 1 over positions and sequences, the product by the root of the width."""
    width = vectors[0].shape[-1]
    return scaled((vectors[0] @ whitening(vectors[0]), vectors[1] @ whitening(vectors[1])), 1 / math.sqrt(width))


@dataclass(frozen=True)
class Variant:
    """How a variant's Gram is sampled without bias, and the Gram of the batch itself (plug-in)."""

    meaning: str
    samples: Callable[[Vectors, Vectors], Vectors]
    """Of the two halves of the sequences: one sample of the variant's Gram a pair."""
    whole: Callable[[Vectors], Vectors]
    """Of all sequences: one sample, the plug-in Gram."""
    prepare: Callable[[Vectors], Vectors] = lambda vectors: vectors
    """What is done first, with all sequences at hand."""
    biased: bool = True
    """Whether the head's bias (T5, ALiBi) is part of the variant."""


VARIANTS: Mapping[str, Variant] = {
    "mean": Variant("Gram of per-position means: position alone", mean_samples, over_sequences),
    "centred": Variant(
        "per-position means removed: content alone",
        centred_samples,
        lambda vectors: averaged(less(vectors, over_sequences(vectors))),
        biased=False,
    ),
    "global": Variant("mean over positions and sequences removed", global_samples, global_whole),
    "whitened": Variant(
        "global, queries and keys whitened", global_samples, global_whole, prepare=whitened, biased=False
    ),
}
"""Every variant but raw, by name."""


def variant_views(view: HeadView, variant: Variant) -> tuple[HeadView, HeadView]:
    """The samples of a variant, one a pair of sequences, and its plug-in Gram, each measured like a head of a capture.

    The first half of the batch is paired with the second: neighbours in the text are most alike. An odd sequence is in
    the plug-in alone.
    """
    vectors = variant.prepare(view.vectors())
    half = vectors[0].shape[0] // 2
    first, second = ((vectors[0][part], vectors[1][part]) for part in (slice(half), slice(half, 2 * half)))
    bias = kept_bias(view) if variant.biased else None
    samples = variant.samples(first, second)
    if bias is None:
        return as_view(samples, None, view), as_view(variant.whole(vectors), None, view)
    if bias.shape[0] == 1:
        return as_view(samples, bias, view), as_view(variant.whole(vectors), bias, view)
    paired = (bias[:half] + bias[half : 2 * half]) / 2
    return as_view(samples, paired, view), as_view(variant.whole(vectors), bias.mean(0, keepdim=True), view)


def kept_bias(view: HeadView) -> Float[Tensor, "biasbatch 1 position position"] | None:
    """The head's bias over the kept positions."""
    bias, dropped = view.capture.bias, view.dropped
    if bias is None:
        return None
    head = view.head % bias.shape[1]
    return bias[:, head : head + 1, dropped:, dropped:]


def as_view(vectors: Vectors, bias: Float[Tensor, "biasbatch 1 position position"] | None, view: HeadView) -> HeadView:
    """Vectors of the kept positions as the one head of a capture."""
    grid: PairGrid = view.grid
    capture = LayerCapture(
        layer=view.capture.layer,
        query=vectors[0][:, None],
        key=vectors[1][:, None],
        scale=1.0,
        positions=torch.arange(grid.length),
        causal=grid.causal,
        window=view.capture.window,
        bias=bias,
    )
    return HeadView(capture, 0, 0, grid)
