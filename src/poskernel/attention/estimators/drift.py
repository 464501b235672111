"""How much of g's slope is a drift of the means of queries and keys with position, and not a kernel of the offset.

In causal rows query position, key position and offset are collinear: keys whose mean moves linearly with position look
like a slope of g. The vectors before the rotation tell them apart. Give every position the same mean vectors (their
average over positions) and rotate: what slope is left is the rotation's own (or the bias's). The rest is drift of the
keys' means, of the queries', and of both together; and what the per-position means do not hold is content, queries and
keys of one text that go together.

The slope is that of the least-squares line through g over the pairs, so it is a linear function of the logits, and one
number for each pair of texts says it all; means over *different* texts are free of the bias of plug-in means.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.estimators.jackknife import jackknife
from poskernel.attention.estimators.row_tiles import RowTile, blocks, check_dropped, common_bias, row_tiles
from poskernel.attention.sources.capture import LayerCapture
from poskernel.errors import InputError
from poskernel.statistics import Estimate, undefined

PARTS = ("stationary", "key drift", "query drift", "joint drift", "content")
BLOCK, LEAST = 16, 3
"""Two texts make a pair, and each can be left out."""


@dataclass(frozen=True, eq=False)
class HeadDrift:
    """Slope of one head's g and what it comes from.

    `slope` in nats a position (of the absolute offset, where attention goes both ways); `parts` (keys PARTS) add up to
    it. `drift_share` is the three drifts' share of the slope of the position term (all parts but content): near 1, the
    slope says that means move with position, not that the head prefers near or far keys. The shares can leave [0, 1],
    as parts can have different signs.
    """

    layer: int
    head: int
    slope: Estimate
    parts: Mapping[str, Estimate]
    drift_share: Estimate


class DriftEstimator:
    """Consumes captures and gives every head's slope; `layers` are those to measure."""

    def __init__(self, layers: Mapping[int, int], length: int, dropped: int = 16) -> None:
        check_dropped(length, dropped)
        self.dropped = dropped
        self.blocks: dict[tuple[int, int], list[Float[Tensor, "source sequence sequence"]]] = {
            (layer, head): [] for layer in layers for head in range(layers[layer])
        }
        self.capped: set[int] = set()

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer's queries and keys for one batch of at least three sequences; other layers are passed over."""
        if (capture.layer, 0) not in self.blocks:
            return
        if capture.softcap is not None:
            self.capped.add(capture.layer)
            return
        with torch.inference_mode():
            queries, keys = (constant(capture, side, self.dropped) for side in ("query", "key"))
            for sequences in blocks(capture, BLOCK, LEAST):
                for head in range(capture.heads):
                    own = capture.query[sequences, head], capture.key[sequences, capture.key_head(head)]
                    level = queries[sequences, head], keys[sequences, capture.key_head(head)]
                    self.blocks[capture.layer, head].append(slopes(capture, head, own, level, self.dropped))

    def estimates(self) -> list[HeadDrift]:
        """Every head's slope, by layer and head; undefined in layers that soft-cap their logits."""
        return [self.estimate(layer, head) for layer, head in sorted(self.blocks)]

    def estimate(self, layer: int, head: int) -> HeadDrift:
        """One head's slope and its parts."""
        if layer in self.capped:
            absent = undefined(0, "undefined: soft-capped logits are no sum of parts")
            return HeadDrift(layer, head, absent, dict.fromkeys(PARTS, absent), absent)
        if not self.blocks[layer, head]:
            raise InputError(f"layer {layer} was not captured: give only layers that the source has.")
        values = torch.cat([left_out_parts(block) for block in self.blocks[layer, head]])
        sizes = torch.tensor([block.shape[-1] for block in self.blocks[layer, head]], dtype=torch.float64)
        starts = torch.cat([torch.zeros(1), (sizes + 1).cumsum(0)[:-1]]).long()
        total = (values[starts] * sizes[:, None]).sum(0)
        # Without a sequence, its block counts for one less.
        without = torch.cat(
            [
                (total - size * values[start] + (size - 1) * values[start + 1 : start + 1 + int(size)])
                / (sizes.sum() - 1)
                for start, size in zip(starts.tolist(), sizes, strict=True)
            ]
        )
        whole, method = total / sizes.sum(), "pairs of different sequences"
        return HeadDrift(
            layer,
            head,
            jackknife(float(whole.sum()), without.sum(-1), method),
            {name: jackknife(float(whole[i]), without[:, i], method) for i, name in enumerate(PARTS)},
            jackknife(float(drift_share(whole)), drift_share(without), method),
        )


def drift_share(parts: Float[Tensor, "*batch part"]) -> Float[Tensor, "*batch"]:
    """The drifts' share of the position term's slope; nan where there is none."""
    position = parts[..., :4].sum(-1)
    return torch.where(position == 0, torch.nan, parts[..., 1:4].sum(-1) / position)


def constant(capture: LayerCapture, side: str, dropped: int) -> Float[Tensor, "batch head position width"]:
    """Each sequence's mean vector over the kept positions before the rotation, at every position, rotated there."""
    vectors = capture.before_rotation()[0 if side == "query" else 1]
    level = vectors[:, :, dropped:].mean(2, keepdim=True).expand_as(vectors)
    if capture.rotation is None:
        return level
    turned = capture.rotation.rotate_queries(level) if side == "query" else capture.rotation.rotate_keys(level)
    return turned.to(vectors)


def slopes(
    capture: LayerCapture,
    head: int,
    own: tuple[Float[Tensor, "sequence position width"], Float[Tensor, "sequence position width"]],
    level: tuple[Float[Tensor, "sequence position width"], Float[Tensor, "sequence position width"]],
    dropped: int,
) -> Float[Tensor, "source sequence sequence"]:
    """Slope of g from the queries of x and the keys of y, [x, y], both own or levelled, and that of the bias.

    Sources in order: both levelled (the bias with them), keys own, queries own, both own (again with the bias).
    """
    tiles = list(row_tiles(capture, dropped))
    count = sum(int(tile.seen.sum()) for tile in tiles)
    mean = sum(float(tile.offsets.abs()[tile.seen].sum()) for tile in tiles) / count
    square, bias = 0.0, 0.0
    found = torch.zeros(4, len(own[0]), len(own[0]), dtype=torch.float64)
    for tile in tiles:
        line = slope_weights(tile, mean)
        square += float(line.square().sum())
        table = common_bias(capture, head, tile.rows, tile.keys)
        if table is not None:
            bias += float((line * table).sum())
        for number, (query, key) in enumerate(
            ((level[0], level[1]), (level[0], own[1]), (own[0], level[1]), (own[0], own[1]))
        ):
            # Sum over the keys of weight times key first: no logits are formed.
            reached = line.to(key) @ key[:, tile.keys]
            found[number] += torch.einsum("xtd,ytd->xy", query[:, tile.rows].double(), reached.double())
    return (capture.scale * found + bias) / square


def slope_weights(tile: RowTile, mean: float) -> Float[Tensor, "row key"]:
    """Distance less its mean over all pairs, 0 at the pairs that are not seen; float64."""
    return (tile.offsets.abs().double() - mean).masked_fill(~tile.seen, 0)


def left_out_parts(block: Float[Tensor, "source sequence sequence"]) -> Float[Tensor, "left part"]:
    """PARTS of a block: first from all its sequences, then with each one left out."""
    count = block.shape[-1]
    kept = torch.cat([torch.ones(1, count), 1 - torch.eye(count)]).double()
    both = torch.einsum("la,lb,sab->ls", kept, kept, block)
    same = kept @ block.diagonal(dim1=1, dim2=2).T
    sizes = kept.sum(-1, keepdim=True)
    level, keyed, queried, full = ((both - same) / (sizes * (sizes - 1))).unbind(-1)
    content = same[:, 3] / sizes[:, 0] - full
    return torch.stack([level, keyed - level, queried - level, full - keyed - queried + level, content], -1)
