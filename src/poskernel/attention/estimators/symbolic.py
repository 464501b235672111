"""Positional or symbolic: what a head's logits do when the key vectors of a row change places.

Urrutia et al. 2025 (arXiv 2511.11579) call a head positional if its logits do not change when key vectors are permuted,
and symbolic if they follow the permuted keys; it cannot be both unless its rows are constant. Here, for a query at t
and a random permutation p of the keys it sees, B(t, s) is the logit with the unrotated key of p(s) put at s and rotated
there. Over rows, with every row centred,

    positional = <B(t, s), A(t, s)> / |A| |B|,      symbolic = <B(t, s), A(t, p(s))> / |A| |B|.

If A were a slot's part plus a key's part, both scores would be these parts' shares of variance and add up to 1; what is
missing to 1 needs key and place together. Chance is -1 / (n - 1) for rows of n keys. Unlike the four-term split, the
query stays, so the positional score counts what *this* query makes of places; the split's position is what mean queries
and keys make of them.

Under a rotation each plane turns by itself, so both scores exist for every frequency. Where nothing rotates, a key
holds its own position: there the deviation from the other sequences' mean key at that place moves, and the mean stays
(ours, as the paper's permutation would call every such head symbolic).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.estimators.jackknife import of_sums
from poskernel.attention.estimators.row_tiles import RowTile, check_dropped, tile_of
from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.rotary_probe import RotaryProbe
from poskernel.errors import InputError
from poskernel.statistics import Estimate

ROWS, DRAWS = 16, 1
"""Rotations are replayed for whole sequences, so each permutation costs as much as a layer's rotation."""
LEAST = 3
"""Sequences of a batch: an interval, and another mean for each."""


@dataclass(frozen=True, eq=False)
class HeadPermutation:
    """Both scores of a head, and of each of its rotary planes, from the highest frequency to the lowest.

    `frequencies` are in radians a position; a last one of 0 stands for dimensions that do not turn. `energy` is each
    plane's own within-row variance over that of the head's logits (planes are not orthogonal: no sum of 1).
    """

    layer: int
    head: int
    positional: Estimate
    symbolic: Estimate
    frequencies: Float[Tensor, " plane"]
    plane_positional: tuple[Estimate, ...]
    plane_symbolic: tuple[Estimate, ...]
    energy: Float[Tensor, " plane"]


class PermutationEstimator:
    """Consumes captures, layer by layer and batch by batch, and gives every head's scores.

    `layers` are those to measure; `probes` (of `rotary_probes`) adds the scores by plane in the layers it holds. Scores
    are over `rows` query positions of the second half, `draws` permutations each, drawn anew for every sequence.
    """

    def __init__(
        self,
        layers: Mapping[int, int],
        length: int,
        dropped: int = 16,
        probes: Mapping[int, RotaryProbe] | None = None,
        rows: int = ROWS,
        draws: int = DRAWS,
        seed: int = 0,
    ) -> None:
        check_dropped(length, dropped)
        if rows < 1 or draws < 1:
            raise InputError(f"{rows} rows with {draws} permutations give no score: take at least one of each.")
        self.dropped, self.draws, self.probes = dropped, draws, dict(probes or {})
        first = dropped + (length - dropped) // 2
        self.rows = torch.linspace(first, length - 1, min(rows, length - first)).round().long()
        self.sums: dict[int, list[Float[Tensor, "head entry sequence statistic"]]] = {layer: [] for layer in layers}
        self.generator = torch.Generator().manual_seed(seed)

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer's queries and keys for one batch of at least three sequences; other layers are passed over."""
        if capture.layer not in self.sums:
            return
        if capture.mask is not None:
            raise InputError(
                f"layer {capture.layer} has a mask that is neither causal nor a sliding window, so its rows see no run "
                "of keys: choose layers without it."
            )
        if capture.query.shape[0] < LEAST:
            raise InputError(
                f"a batch of {capture.query.shape[0]} sequences gives no interval: pass at least {LEAST} at once."
            )
        with torch.inference_mode():
            staying, moving = key_parts(capture)
            planes = plane_basis(capture, self.probes.get(capture.layer))
            parts = []
            for row in self.rows:
                tile = tile_of(capture, row[None], self.dropped)
                before = row_logits(capture, tile, capture.key, planes)
                for _ in range(self.draws):
                    order = torch.rand(len(moving), len(tile.keys), generator=self.generator).argsort(-1)
                    keys = replaced(capture, staying, moving, tile, order)
                    parts.append(agreements(before, row_logits(capture, tile, keys, planes), order))
            self.sums[capture.layer].append(torch.stack(parts).sum(0))

    def estimates(self) -> list[HeadPermutation]:
        """Every head's scores, by layer and head."""
        results = []
        for layer, parts in sorted(self.sums.items()):
            if not parts:
                raise InputError(f"layer {layer} was not captured: give only layers that the source has.")
            sums = torch.cat(parts, 2)
            probe = self.probes.get(layer)
            frequencies = torch.zeros(sums.shape[1] - 1, dtype=torch.float64)
            if probe is not None:
                frequencies[: len(probe.frequencies)] = probe.frequencies
            for head, entries in enumerate(sums):
                scores = [[score(entry, which) for entry in entries] for which in (0, 1)]
                energy = entries[1:, :, 2].sum(-1) / entries[0, :, 2].sum(-1)
                results.append(
                    HeadPermutation(
                        layer, head, scores[0][0], scores[1][0], frequencies,
                        tuple(scores[0][1:]), tuple(scores[1][1:]), energy,
                    )
                )  # fmt: skip
        return results


def score(sums: Float[Tensor, "sequence statistic"], which: int) -> Estimate:
    """One of the two scores from the sums of sequences: cross terms over both norms."""

    def statistic(total: Float[Tensor, "*batch statistic"]) -> Float[Tensor, "*batch"]:
        norms = (total[..., 2] * total[..., 3]).sqrt()
        return torch.where(norms > 0, total[..., which] / norms, math.nan)

    return of_sums(sums, statistic, "random permutations of keys")


def key_parts(
    capture: LayerCapture,
) -> tuple[
    Float[Tensor, "batch keyhead position width"] | None,
    Float[Tensor, "batch keyhead position width"],
]:
    """(what stays at its place, what moves): no part and the unrotated keys; without rotation, means and deviations."""
    key = capture.before_rotation()[1]
    if capture.rotation is not None:
        return None, key
    mean = (key.sum(0, keepdim=True) - key) / (len(key) - 1)
    return mean, key - mean


def replaced(
    capture: LayerCapture,
    staying: Float[Tensor, "batch keyhead position width"] | None,
    moving: Float[Tensor, "batch keyhead position width"],
    tile: RowTile,
    order: Int[Tensor, "batch key"],
) -> Float[Tensor, "batch keyhead position width"]:
    """Keys as attention uses them once the moving parts of the tile's keys have changed places: s gets that of p(s)."""
    placed, there = moving.clone(), moving[:, :, tile.keys]
    placed[:, :, tile.keys] = there.gather(2, order[:, None, :, None].expand_as(there))
    if staying is not None:
        placed = placed + staying
    return placed if capture.rotation is None else capture.rotation.rotate_keys(placed).to(placed)


def plane_basis(capture: LayerCapture, probe: RotaryProbe | None) -> Float[Tensor, "plane 2 width"] | None:
    """Orthonormal pairs of the planes that turn, in the keys' precision; None without a probe."""
    return None if probe is None else probe.planes.to(capture.key)


def row_logits(
    capture: LayerCapture,
    tile: RowTile,
    keys: Float[Tensor, "batch keyhead position width"],
    planes: Float[Tensor, "plane 2 width"] | None,
) -> Float[Tensor, "batch head entry key"]:
    """Row-centred logits of one row: those the softmax sees, then each plane's part, then what does not turn."""
    seen = keys[:, :, tile.keys]
    # The query heads of a key head beside it: [batch, key head, query head of it, width].
    query = (capture.query[:, :, tile.rows[0]] * capture.scale).unflatten(1, (keys.shape[1], -1))
    plain = (query @ seen.transpose(2, 3)).flatten(1, 2)
    logits = plain if capture.softcap is None else capture.softcap * torch.tanh(plain / capture.softcap)
    if capture.bias is not None:
        bias = capture.bias[:, :, tile.rows[0]][:, :, tile.keys]
        logits = logits + bias.expand(-1, -1 if bias.shape[1] > 1 else capture.heads, -1)
    entries = logits[:, :, None]
    if planes is not None:
        coordinates = project(query, planes).transpose(2, 3), project(seen, planes).permute(0, 1, 3, 4, 2)
        turning = (coordinates[0] @ coordinates[1]).transpose(2, 3).flatten(1, 2)
        entries = torch.cat([entries, turning], 2)
        if 2 * len(planes) < keys.shape[-1]:
            entries = torch.cat([entries, (plain - turning.sum(2))[:, :, None]], 2)
    return entries - entries.mean(-1, keepdim=True)


def project(
    vectors: Float[Tensor, "*batch width"], planes: Float[Tensor, "plane 2 width"]
) -> Float[Tensor, "*batch plane 2"]:
    """Coordinates of the vectors in each plane."""
    return (vectors @ planes.flatten(0, 1).T).unflatten(-1, planes.shape[:2])


def agreements(
    before: Float[Tensor, "batch head entry key"],
    after: Float[Tensor, "batch head entry key"],
    order: Int[Tensor, "batch key"],
) -> Float[Tensor, "head entry batch statistic"]:
    """Sums over a row's keys: after x before, after x before moved along, before squared, after squared; float64."""
    followed = before.gather(-1, order[:, None, None].expand_as(before))
    sums = [(after * before).sum(-1), (after * followed).sum(-1), before.square().sum(-1), after.square().sum(-1)]
    return torch.stack(sums, -1).movedim(0, 2).double()
