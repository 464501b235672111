"""The exact split of a head's logits into position, key, query and interaction, and how much each of them carries.

Write A_xy(t, s) for the logit of sequence x's query at t against sequence y's key at s, x and y independent texts. With
mu_q(t), mu_k(s) the per-position means and dq, dk what is left, A_xx = <mu_q, mu_k> + <mu_q, dk> + <dq, mu_k> +
<dq, dk>: the terms of an analysis of variance of A_xy over x and y, with no fit. Two things follow.

- A rotation is linear and the same in every sequence, so means before and after it give the same terms: queries and
  keys as attention uses them suffice, for every encoding. A bias common to all sequences (ALiBi, T5) falls into
  position, and a soft cap is dealt with, as A_xy is capped like A_xx.
- One pass is enough. Every quadratic form of the terms is a mean of <A_xy, A_zw> over *different* sequences in
  different places, hence free of the bias of plug-in means (at 16 sequences about a sixteenth of key's share would be
  counted as position's). All of them come from one small matrix over the pairs of a block of sequences. Two passes
  would sharpen the means, at twice the forward passes, and still need such care.

Only the KL shares need the terms of single sequences: there means are those of the *other* sequences of the block.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.estimators.jackknife import jackknife, of_sums, ratio
from poskernel.attention.estimators.row_tiles import RowTile, blocks, check_dropped, common_bias, row_tiles
from poskernel.attention.sources.capture import LayerCapture
from poskernel.errors import InputError, RunError
from poskernel.statistics import Estimate

TERMS = ("position", "key", "query", "interaction")
PATTERNS = ("abcd", "axcx", "xbxd", "xxxx", "abxx", "axxx", "xbxx", "axxd")
"""Means of <A_ij, A_kl>: the four letters are i, j, k, l; equal letters are one sequence, different ones differ."""
BLOCK = 8
"""Sequences whose pairs are all formed: the forms cost as much as the sequences' own logits times this."""
LEAST = 6
"""Four different sequences make an unbiased form; each can be left out; one more keeps those means from being one."""


def cross_logits(
    capture: LayerCapture,
    head: int,
    sequences: Int[Tensor, " sequence"],
    rows: Int[Tensor, " row"],
    keys: Int[Tensor, " key"],
) -> Float[Tensor, "sequence sequence row key"]:
    """A_xy(t, s) in nats: logits of the queries of x against the keys of y, before mask and softmax.

    Raises InputError for a bias that depends on the text.
    """
    query = capture.query[:, head, rows][sequences] * capture.scale
    key = capture.key[:, capture.key_head(head), keys][sequences]
    values = (query.flatten(0, 1) @ key.flatten(0, 1).T).unflatten(0, query.shape[:2]).unflatten(2, key.shape[:2])
    values = values.transpose(1, 2)
    if capture.softcap is not None:
        values = capture.softcap * torch.tanh(values / capture.softcap)
    bias = common_bias(capture, head, rows, keys)
    return values if bias is None else values + bias


def four_terms(
    crossed: Float[Tensor, "sequence sequence row key"],
) -> Float[Tensor, "term sequence row key"]:
    """The terms of each sequence's own logits, in the order of TERMS; they add up to A_xx.

    The means are those of the other sequences, of which at least two are needed: sequence x's position term is the
    mean of A_yz over different y and z other than x.
    """
    others = crossed.shape[0] - 1
    own = crossed.diagonal().movedim(-1, 0)
    by_key, by_query = crossed.sum(0) - own, crossed.sum(1) - own
    position = (by_key.sum(0) - by_key - by_query) / (others * (others - 1))
    key, query = by_key / others - position, by_query / others - position
    return torch.stack([position, key, query, own - position - key - query])


@lru_cache(maxsize=8)
def pattern_weights(sequences: int) -> Float[Tensor, "left pattern form"]:
    """Weights that average the flattened forms [x, y, z, w] over each pattern; entry 0 of `left` leaves none out."""
    index = torch.cartesian_prod(*[torch.arange(sequences)] * 4).T
    weights = torch.zeros(sequences + 1, len(PATTERNS), index.shape[1], dtype=torch.float64)
    for number, pattern in enumerate(PATTERNS):
        fits = torch.ones(index.shape[1], dtype=torch.bool)
        for i in range(4):
            for j in range(i):
                fits &= (index[i] == index[j]) == (pattern[i] == pattern[j])
        weights[0, number] = fits
        for x in range(sequences):
            weights[x + 1, number] = fits & (index != x).all(0)
    return weights / weights.sum(-1, keepdim=True)


def term_gram(means: Float[Tensor, "*batch pattern"]) -> Float[Tensor, "*batch term term"]:
    """Inner products of the terms from the means of PATTERNS (put the terms' definitions in and expand)."""
    none, key, query, own, position_own, key_own, query_own, key_query = means.unbind(-1)
    zero = torch.zeros_like(none)
    pp, kk, qq = none, key - none, query - none
    pi, kq = position_own - none, key_query - none
    ki = key_own - key - key_query - position_own + 2 * none
    qi = query_own - query - key_query - position_own + 2 * none
    ii = own - (pp + kk + qq + 2 * (pi + kq + ki + qi))
    rows = ([pp, zero, zero, pi], [zero, kk, kq, ki], [zero, kq, qq, qi], [pi, ki, qi, ii])
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


def sequential(gram: Float[Tensor, "*batch term term"]) -> Float[Tensor, "*batch term"]:
    """Share of the variance that is gone once the terms up to each one are subtracted; the last is 1."""
    total = gram.sum((-1, -2))
    left = [gram[..., term:, term:].sum((-1, -2)) for term in range(1, len(TERMS))]
    return 1 - torch.stack([*left, torch.zeros_like(total)], -1) / total[..., None]


@dataclass(frozen=True, eq=False)
class HeadSplit:
    """What the four terms of one head carry. Shares are of within-row variance; nothing is clipped to [0, 1].

    `shares` are each term's own variance over that of the logits; the terms are not orthogonal, so they need not add up
    to 1 (`total` is their sum). `sequential` is the R2 of position alone, with key, with query, and of all. `kl_shares`
    are 1 - KL(attention || softmax of the term) / KL(attention || uniform): negative where the term misleads.
    `gram` holds the inner products of the row-centred terms, in nats squared a pair. Attention here is over the keys
    past the dropped positions, without sinks.
    """

    layer: int
    head: int
    shares: Mapping[str, Estimate]
    total: Estimate
    sequential: Mapping[str, Estimate]
    kl_shares: Mapping[str, Estimate]
    divergence: float
    """KL(attention || uniform) of a mean row, nats."""
    gram: Float[Tensor, "term term"]


class SplitSums:
    """What is kept of one head: pattern means of each block, with each sequence left out, and KL sums of sequences."""

    def __init__(self) -> None:
        self.means: list[Float[Tensor, "left pattern"]] = []
        self.divergences: list[Float[Tensor, "sequence divergence"]] = []
        self.pairs, self.rows = 0, 0

    def estimate(self, layer: int, head: int) -> HeadSplit:
        """Everything that is reported of the head."""
        sizes = [means.shape[0] - 1 for means in self.means]
        whole = torch.stack([size * means[0] for size, means in zip(sizes, self.means, strict=True)]).sum(0)
        without = torch.cat(
            [
                (whole - size * means[0] + (size - 1) * means[1:]) / (sum(sizes) - 1)
                for size, means in zip(sizes, self.means, strict=True)
            ]
        )
        gram, partial = term_gram(whole / sum(sizes)), term_gram(without)
        method = "forms of different sequences"
        diagonal, parts = shares(gram), shares(partial)
        steps, step_parts = sequential(gram), sequential(partial)
        divergences = torch.cat(self.divergences)
        return HeadSplit(
            layer,
            head,
            {name: jackknife(float(diagonal[i]), parts[:, i], method) for i, name in enumerate(TERMS)},
            jackknife(float(diagonal.sum()), parts.sum(-1), method),
            {name: jackknife(float(steps[i]), step_parts[:, i], method) for i, name in enumerate(TERMS)},
            {
                name: of_sums(
                    torch.stack([divergences[:, 0] - divergences[:, i + 1], divergences[:, 0]], -1),
                    ratio,
                    "means of the other sequences of a block",
                )
                for i, name in enumerate(TERMS)
            },
            float(divergences[:, 0].mean()) / self.rows,
            gram / self.pairs,
        )


def shares(gram: Float[Tensor, "*batch term term"]) -> Float[Tensor, "*batch term"]:
    """Each term's variance over that of the logits; nan where the logits do not vary within rows."""
    total = gram.sum((-1, -2))[..., None]
    return torch.where(total > 0, gram.diagonal(dim1=-2, dim2=-1) / total, torch.nan)


class SplitEstimator:
    """Consumes captures, layer by layer and batch by batch, and gives every head's split.

    `layers` are those to measure; the first `dropped` positions are left out as queries and as keys. A batch needs at
    least six sequences; it is taken in blocks of about eight. Memory: eight numbers a head and sequence.
    """

    def __init__(self, layers: Mapping[int, int], length: int, dropped: int = 16) -> None:
        check_dropped(length, dropped)
        self.dropped = dropped
        self.sums = {(layer, head): SplitSums() for layer in layers for head in range(layers[layer])}

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer's queries and keys for one batch; layers not asked for are passed over."""
        if (capture.layer, 0) not in self.sums:
            return
        with torch.inference_mode():
            for sequences in blocks(capture, BLOCK, LEAST):
                for head in range(capture.heads):
                    self.consume_block(capture, head, sequences)

    def consume_block(self, capture: LayerCapture, head: int, sequences: Int[Tensor, " sequence"]) -> None:
        """Add one head of one block of sequences."""
        sums, count = self.sums[capture.layer, head], len(sequences)
        forms = torch.zeros(count**2, count**2, dtype=torch.float64)
        divergences = torch.zeros(count, 1 + len(TERMS), dtype=torch.float64)
        sums.pairs = sums.rows = 0
        for tile in row_tiles(capture, self.dropped, count**2):
            crossed = tile.centred(cross_logits(capture, head, sequences, tile.rows, tile.keys))
            flat = crossed.reshape(count**2, -1)
            forms += (flat @ flat.T).double()
            divergences += row_divergences(tile, crossed)
            sums.pairs += int(tile.seen.sum())
            sums.rows += len(tile.rows)
        sums.means.append(pattern_weights(count) @ forms.flatten())
        sums.divergences.append(divergences)

    def estimates(self) -> list[HeadSplit]:
        """Every head's split, by layer and head; RunError if a sequence gave logits that are not finite numbers."""
        results = []
        for (layer, head), sums in sorted(self.sums.items()):
            if not sums.means:
                raise InputError(f"layer {layer} was not captured: give only layers that the source has.")
            result = sums.estimate(layer, head)
            if not bool(torch.isfinite(result.gram).all()):
                raise RunError(
                    f"layer {layer} head {head} gave logits that are not finite numbers: "
                    "its weights or its precision are broken."
                )
            results.append(result)
        return results


def row_divergences(
    tile: RowTile, crossed: Float[Tensor, "sequence sequence row key"]
) -> Float[Tensor, "sequence divergence"]:
    """Sums over the tile's rows of KL(attention || uniform) and KL(attention || softmax of each term), nats.

    Row constants do not matter, so row-centred logits do.
    """
    own = tile.log_weights(crossed.diagonal().movedim(-1, 0))
    weight, entropy = own.exp(), torch.special.entr(own.exp()).sum((-1, -2))
    uniform = tile.seen.sum(-1).to(own).log().sum() - entropy
    logs = tile.log_weights(four_terms(crossed)).masked_fill(~tile.seen, 0)
    terms = -(weight * logs).sum((-1, -2)) - entropy
    return torch.cat([uniform[None], terms]).T.double()
