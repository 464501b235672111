"""Where attention goes by distance, and how far from stationary the causal boundary keeps it.

Under one kernel g for all rows, row t's weights are exp(g(d)) / Z_t with Z_t the sum over its offsets 0 to t, so the
total variation between row t's weights and those of a later row T, offset by offset, is exactly 1 - Z_t / Z_T: the
boundary acts through the denominator alone, and logits cannot show it. At T = 2t + 1 it is 1 - 2^-slope, with the slope
of log Z against log (t + 1) between the two rows: 0 for a kernel that has fallen away (ALiBi: exponentially), 1 for one
that stays bounded (RoPE), where it tends to a half and attention never becomes stationary.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.estimators.estimate import HeadEstimate
from poskernel.attention.estimators.row_tiles import RowTile, attention, check_dropped, row_tiles, tile_of
from poskernel.attention.sources.capture import LayerCapture
from poskernel.errors import InputError
from poskernel.statistics import Estimate, mean, undefined

FIRST_COMPARED = 8
"""Rows compared hold 8, 16, 32, ... keys: each with the next, which is twice as long."""


@dataclass(frozen=True, eq=False)
class KernelBoundary:
    """What the boundary does to the weights of a stationary kernel, by row: row t holds offsets 0 to t.

    `variation` is the total variation between rows t and 2t + 1, for every t with 2t + 1 in the kernel; `slope` that of
    log Z between them. `crossover` is the first row from which the slope stays at least 1/2, so that the far past
    outweighs the near: beyond it a bounded kernel is on its way to the limit 1/2. None where it never does.
    """

    log_z: Float[Tensor, " row"]
    variation: Float[Tensor, " compared"]
    slope: Float[Tensor, " compared"]
    crossover: int | None


def kernel_boundary(g: Float[Tensor, " offset"]) -> KernelBoundary:
    """Boundary measures of a causal kernel at offsets 0, 1, ... in nats; InputError for fewer than two offsets."""
    if len(g) < 2:
        raise InputError(f"a kernel of {len(g)} offset has no later row to compare with: give at least 2.")
    log_z = g.double().logcumsumexp(0)
    rows = torch.arange(len(g) // 2)
    gained = log_z[2 * rows + 1] - log_z[rows]
    slope = gained / math.log(2)
    below = (slope < 0.5).nonzero().flatten()
    first = int(below[-1]) + 1 if len(below) else 0
    return KernelBoundary(log_z, -torch.expm1(-gained), slope, first if first < len(rows) else None)


@dataclass(frozen=True, eq=False)
class RowBoundary:
    """Total variation between mean attention weights of rows with so many keys and of rows with twice as many.

    Means are over sequences, at one row each, aligned by offset, and from two halves of the sequences, so that both
    rows carry the same noise; `noise` is the variation between the halves at the same row, which a stationary head
    would show as well.
    """

    keys: tuple[int, ...]
    variation: tuple[float, ...]
    noise: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class HeadDistance:
    """Attention of one head by distance.

    `edges` are bins of distance: bin i holds edges[i] to edges[i + 1] - 1. `mass` is the mean attention on each,
    sinks in the denominator; `even` what evenly spread attention would put there. The `kept` ones leave out the first
    positions as queries and as keys (weights add up to 1 without them). Boundaries are None where attention goes both
    ways; `boundary` has the first positions, `boundary_kept` has not.
    """

    layer: int
    head: int
    edges: tuple[int, ...]
    mass: tuple[Estimate, ...]
    even: Float[Tensor, " bin"]
    mass_kept: tuple[Estimate, ...]
    even_kept: Float[Tensor, " bin"]
    boundary: RowBoundary | None
    boundary_kept: RowBoundary | None
    kernel: KernelBoundary | None = None
    """Of the head's own g, as if it were all there is; None unless g was given, and where attention goes both ways."""


def distance_edges(length: int) -> tuple[int, ...]:
    """0, 1, 2, 4, 8, ... up to the first at or beyond `length`, which is the last edge itself."""
    return (0, *(2**power for power in range((length - 1).bit_length())), length) if length > 1 else (0, length)


class DistanceEstimator:
    """Consumes captures, layer by layer and batch by batch; keeps bins of sequences and four times T numbers a head."""

    def __init__(self, layers: Mapping[int, int], length: int, dropped: int = 16) -> None:
        check_dropped(length, dropped)
        self.length, self.drops, self.edges = length, (0, dropped), distance_edges(length)
        self.masses: dict[tuple[int, int, int], list[Float[Tensor, "sequence bin"]]] = {
            (layer, head, version): [] for layer in layers for head in range(layers[layer]) for version in range(2)
        }
        self.even: dict[tuple[int, int], Float[Tensor, " bin"]] = {}
        self.rows: dict[tuple[int, int, int], Float[Tensor, "half weight"]] = {}
        self.seen: dict[int, int] = dict.fromkeys(layers, 0)
        self.causal: dict[int, bool] = {}

    def compared(self, version: int) -> list[int]:
        """Keys held by the rows that are compared."""
        kept, found = self.length - self.drops[version], [FIRST_COMPARED]
        while 2 * found[-1] <= kept:
            found.append(2 * found[-1])
        return found if found[-1] <= kept else []

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer of one batch; layers not asked for are passed over."""
        if capture.layer not in self.seen:
            return
        self.causal[capture.layer] = capture.causal
        batch = capture.query.shape[0]
        half = (self.seen[capture.layer] + torch.arange(batch)) % 2
        with torch.inference_mode():
            for version, dropped in enumerate(self.drops):
                for head in range(capture.heads):
                    self.add_head(capture, head, version, dropped, half)
        self.seen[capture.layer] += batch

    def add_head(
        self, capture: LayerCapture, head: int, version: int, dropped: int, half: Int[Tensor, " sequence"]
    ) -> None:
        """Add one head of one batch, with or without the first positions."""
        name = (capture.layer, head, version)
        masses, self.even[capture.layer, version] = distance_masses(capture, head, dropped, self.edges)
        self.masses[name].append(masses)
        if capture.causal:
            compared = [row_weights(capture, head, dropped, keys) for keys in self.compared(version)]
            weights = torch.cat([masses[:, :0].float(), *(row.float() for row in compared)], 1)
            if name not in self.rows:
                self.rows[name] = torch.zeros(2, weights.shape[1])
            self.rows[name].index_add_(0, half, weights)

    def estimates(self) -> list[HeadDistance]:
        """Every head's attention by distance, by layer and head."""
        results = []
        for layer, head in sorted({name[:2] for name in self.masses}):
            if not self.masses[layer, head, 0]:
                raise InputError(f"layer {layer} was not captured: give only layers that the source has.")
            mass, kept = (estimated(torch.cat(self.masses[layer, head, version])) for version in range(2))
            first, later = (self.boundary(layer, head, version) for version in range(2))
            results.append(
                HeadDistance(
                    layer, head, self.edges, mass, self.even[layer, 0], kept, self.even[layer, 1], first, later
                )
            )
        return results

    def boundary(self, layer: int, head: int, version: int) -> RowBoundary | None:
        """Compare each row's mean weights with the next's, from both halves."""
        if not self.causal[layer] or self.seen[layer] < 2:
            return None
        sizes = self.compared(version)
        counts = torch.tensor([(self.seen[layer] + 1) // 2, self.seen[layer] // 2])
        rows = (self.rows[layer, head, version] / counts[:, None]).split(sizes, 1)
        pairs = list(pairwise(rows))
        crossed = [
            (total_variation(early[0], late[1]) + total_variation(early[1], late[0])) / 2 for early, late in pairs
        ]
        noise = [total_variation(early[0], early[1]) for early, _ in pairs]
        return RowBoundary(tuple(sizes[:-1]), tuple(crossed), tuple(noise))


def with_kernel_boundaries(distances: Sequence[HeadDistance], kernels: Sequence[HeadEstimate]) -> list[HeadDistance]:
    """The same heads with the boundaries of their causal kernels of at least two offsets."""
    known = {
        (kernel.layer, kernel.head): kernel_boundary(kernel.g)
        for kernel in kernels
        if kernel.first_offset == 0 and len(kernel.g) > 1
    }
    return [replace(each, kernel=known.get((each.layer, each.head))) for each in distances]


def estimated(masses: Float[Tensor, "sequence bin"]) -> tuple[Estimate, ...]:
    """Mean over sequences of each bin, with its interval."""
    columns = masses.T.tolist()
    return tuple(
        mean(column) if len(column) > 1 else undefined(1, "undefined: one sequence has no spread") for column in columns
    )


def total_variation(first: Float[Tensor, " early"], second: Float[Tensor, " late"]) -> float:
    """Half the sum of absolute differences; the shorter one is 0 beyond its end."""
    padded = torch.zeros_like(second)
    padded[: len(first)] = first
    return float((padded - second).abs().sum()) / 2


def distance_masses(
    capture: LayerCapture, head: int, dropped: int, edges: Sequence[int]
) -> tuple[Float[Tensor, "sequence bin"], Float[Tensor, " bin"]]:
    """Mean over rows of the attention in each bin of distance, and the same of even attention; float64."""
    batch, bins = capture.query.shape[0], len(edges) - 1
    masses, even = torch.zeros(batch, bins, dtype=torch.float64), torch.zeros(bins, dtype=torch.float64)
    borders = torch.tensor(edges[1:-1])
    for tile in row_tiles(capture, dropped, batch):
        weights = tile_weights(capture, head, tile, dropped)
        index = torch.bucketize(tile.offsets.abs(), borders, right=True).flatten()
        masses.index_add_(1, index, weights.flatten(1).double())
        even.index_add_(0, index, (tile.seen / tile.seen.sum(-1, keepdim=True)).flatten().double())
    rows = capture.length - dropped
    return masses / rows, even / rows


def tile_weights(capture: LayerCapture, head: int, tile: RowTile, dropped: int) -> Float[Tensor, "sequence row key"]:
    """Attention weights of a tile: the layer's own with all keys, without sinks once first positions are left out."""
    logits = capture.logits(head, tile.rows, tile.keys)
    return tile.log_weights(logits).exp() if dropped else attention(capture, head, tile, logits)


def row_weights(capture: LayerCapture, head: int, dropped: int, keys: int) -> Float[Tensor, "sequence offset"]:
    """Attention weights of the row that holds `keys` positions from `dropped` on, by offset 0 to keys - 1."""
    tile = tile_of(capture, torch.tensor([dropped + keys - 1]), dropped)
    weights = tile_weights(capture, head, tile, dropped)[:, 0].flip(-1)
    return torch.nn.functional.pad(weights, (0, keys - weights.shape[1]))
