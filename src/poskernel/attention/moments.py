"""Quadratic forms of a head's logits over pairs of sequences, tile by tile: what g and R2 are made of.

For a head, A_x(t, s) are the logits of sequence x over the causal pairs (t >= s, both past the dropped positions,
within the attention window) and G their mean over sequences. g(offset) is the mean along each diagonal; R2 the share
of the variance of G that g explains. Everything is a quadratic form F(A_x, A_y), so one small matrix of forms over the
sequences of a batch says it all:

- unbiased: forms of *different* sequences only, whose sampling noise is independent;
- plug-in: forms of the mean with itself, in which sampling noise counts as unexplained.

Over several batches all pairs come without a loop: sum over x != y of F_xy = F(sum, sum) - sum over x of F_xx.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from poskernel.attention.capture import LayerCapture

ROWS_PER_TILE = 64
"""Query rows of logits held at a time (for one head and all sequences of a batch)."""
FORMS = ("variance", "explained", "row_variance", "row_explained", "row_signal")
"""The quadratic forms: raw variance of G and of g; row-centred variance of G, the part g explains, variance of g."""
VARIANCE, EXPLAINED, ROW_VARIANCE, ROW_EXPLAINED, ROW_SIGNAL = range(len(FORMS))


@dataclass(frozen=True, eq=False)
class PairGrid:
    """The pairs a measurement is over: causal, past the dropped positions, within the window.

    `length` counts the positions kept; rows and offsets below count from the first kept one.
    """

    length: int
    window: int

    @classmethod
    def of(cls, length: int, dropped: int, window: int | None) -> "PairGrid":
        """The grid of sequences of `length` positions without their first `dropped`."""
        kept = length - dropped
        return cls(kept, min(kept, window or kept))

    @property
    def row_counts(self) -> Float[Tensor, " row"]:
        """Keys that each row sees."""
        return torch.arange(1, self.length + 1, dtype=torch.float64).clamp(max=self.window)

    @property
    def offset_counts(self) -> Float[Tensor, " offset"]:
        """Pairs at each offset, 0 to window - 1."""
        return torch.arange(self.length, self.length - self.window, -1, dtype=torch.float64)

    @property
    def pairs(self) -> float:
        """Number of pairs."""
        return float(self.row_counts.sum())

    def rows_to_offsets(self, values: Float[Tensor, "*batch row"]) -> Float[Tensor, "*batch offset"]:
        """Sum of a value per row over the rows that hold an offset (rows offset, offset + 1, ...), for each offset."""
        return values.flip(-1).cumsum(-1).flip(-1)[..., : self.window]

    def row_means(self, profile: Float[Tensor, "*batch offset"]) -> Float[Tensor, "*batch row"]:
        """Mean over each row's keys of a kernel of the offset."""
        sums = profile.cumsum(-1)
        rest = sums[..., -1:].expand(*sums.shape[:-1], self.length - self.window)
        return torch.cat([sums, rest], -1) / self.row_counts


def diagonal_means(
    query: Float[Tensor, "batch position width"], key: Float[Tensor, "batch position width"], grid: PairGrid
) -> Float[Tensor, "batch offset"]:
    """Mean over t of <q_t, k_(t - d)> for each offset d, by FFT: O(T log T), no T x T matrix."""
    size = 1 << (2 * grid.length - 1).bit_length()
    # Along the last axis the transform is contiguous, which is what makes it fast.
    left = torch.fft.rfft(query.transpose(1, 2).contiguous(), size)
    right = torch.fft.rfft(key.transpose(1, 2).contiguous(), size)
    sums = torch.fft.irfft((left * right.conj()).sum(1), size)[:, : grid.window]
    return sums.double() / grid.offset_counts


def key_sums(
    query: Float[Tensor, "batch position width"], key: Float[Tensor, "batch position width"], grid: PairGrid
) -> Float[Tensor, "batch position"]:
    """Sum over each row's keys of <q_t, k_s>, by a running sum of the keys."""
    sums = key.cumsum(1)
    if grid.window < grid.length:
        sums = sums - torch.cat([torch.zeros_like(sums[:, : grid.window]), sums[:, : -grid.window]], 1)
    return (query * sums).sum(-1).double()


@dataclass(frozen=True, eq=False)
class HeadBatch:
    """What one head gives for the sequences of one batch; the forms of every pair of sequences follow from it."""

    grid: PairGrid
    profile: Float[Tensor, "batch offset"]
    row_mean: Float[Tensor, "batch row"]
    row_variance: Float[Tensor, "batch batch"]

    def forms(self) -> Float[Tensor, "form batch batch"]:
        """F(A_x, A_y) in the order of FORMS, float64."""
        grid, counts, rows = self.grid, self.grid.offset_counts, self.grid.row_counts
        # Centring by each sequence's own mean over all pairs first keeps large mean logits from cancelling.
        profile = self.profile - (self.profile * counts).sum(-1, keepdim=True) / grid.pairs
        row_mean = self.row_mean - (self.row_mean * rows).sum(-1, keepdim=True) / grid.pairs
        # Diagonal sums of the row-centred logits, and of the row-centred kernel.
        logit_sums = profile * counts - grid.rows_to_offsets(row_mean)
        kernel_sums = profile * counts - grid.rows_to_offsets(grid.row_means(profile))
        cross, row_signal = logit_sums @ profile.T, kernel_sums @ profile.T
        return torch.stack(
            [
                self.row_variance + (row_mean * rows) @ row_mean.T,
                (profile * counts) @ profile.T,
                self.row_variance,
                # |rc G|^2 - |rc G - rc g|^2 = 2 <rc G, rc g> - |rc g|^2
                cross + cross.T - row_signal,
                row_signal,
            ]
        )


@dataclass(frozen=True, eq=False)
class GramSum:
    """Sum over sequences of one head's row-centred logits, its causal tiles in a row; joins pairs across batches."""

    values: Float[Tensor, " pair"]

    @staticmethod
    def size(length: int) -> int:
        """Entries that hold every tile of `length` rows."""
        return sum(
            (min(start + ROWS_PER_TILE, length) - start) * min(start + ROWS_PER_TILE, length)
            for start in range(0, length, ROWS_PER_TILE)
        )

    def add(self, place: int, tile: Float[Tensor, "batch row key"]) -> int:
        """Add a batch's tile at `place`; returns where the next one goes."""
        total = tile.sum(0).flatten()
        self.values[place : place + total.numel()] += total
        return place + total.numel()

    def square(self) -> float:
        """Sum of squares over all pairs."""
        return math.fsum(float((part.double() ** 2).sum()) for part in self.values.split(65536))


@dataclass(frozen=True, eq=False)
class HeadView:
    """One head of a capture without its dropped positions, optionally in another order of positions."""

    capture: LayerCapture
    head: int
    dropped: int
    grid: PairGrid
    order: Int[Tensor, " position"] | None = None

    def vectors(self) -> tuple[Float[Tensor, "batch position width"], Float[Tensor, "batch position width"]]:
        """Scaled queries and keys of the kept positions."""
        query = self.capture.query[:, self.head, self.dropped :] * self.capture.scale
        key = self.capture.key[:, self.capture.key_head(self.head), self.dropped :]
        return (query, key) if self.order is None else (query[:, self.order], key[:, self.order])

    def positions(self, start: int, stop: int) -> Int[Tensor, " position"]:
        """Positions in the sequence of kept rows start to stop - 1."""
        rows = torch.arange(start, stop)
        return self.dropped + (rows if self.order is None else self.order[rows])

    def hidden(self, start: int, stop: int, first: int) -> Bool[Tensor, "row key"]:
        """True for the pairs outside the grid: rows start to stop - 1 against keys first to stop - 1."""
        offset = torch.arange(start, stop)[:, None] - torch.arange(first, stop)
        return (offset < 0) | (offset >= self.grid.window)


def measure_head(
    view: HeadView, gram: GramSum | None = None, weigh: bool = True
) -> tuple[HeadBatch, Float[Tensor, "mass batch"]]:
    """Moments of one head, tile by tile; with `weigh` also its attention on position 0 and on all dropped positions."""
    grid, capture = view.grid, view.capture
    query, key = view.vectors()
    batch = query.shape[0]
    row_variance = torch.zeros(batch, batch, dtype=torch.float64)
    masses = torch.zeros(2, batch, dtype=torch.float64)
    profile = torch.zeros(batch, grid.window, dtype=torch.float64)
    row_mean = torch.zeros(batch, grid.length, dtype=torch.float64)
    if capture.bilinear:
        profile = diagonal_means(query, key, grid)
        row_mean = key_sums(query, key, grid) / grid.row_counts
    place = 0
    for start in range(0, grid.length, ROWS_PER_TILE):
        stop = min(start + ROWS_PER_TILE, grid.length)
        first = max(0, start - grid.window + 1)
        hidden = view.hidden(start, stop, first)
        # Without a window only the last square of a tile, on the diagonal, hides pairs: masking the rest costs as much.
        edge = start - first if grid.window == grid.length else 0
        if capture.bilinear:
            shift = -row_mean[:, start:stop, None].to(query)
            tile = torch.baddbmm(shift, query[:, start:stop], key[:, first:stop].transpose(1, 2))
        else:
            tile = capture.logits(view.head, view.positions(start, stop), view.positions(first, stop))
            tile = tile.masked_fill(hidden, 0)
            add_diagonals(profile, tile, start - first)
            row_mean[:, start:stop] = tile.sum(-1, dtype=torch.float64) / grid.row_counts[start:stop]
            tile = tile - row_mean[:, start:stop, None].to(tile)
        border, veil = tile[..., edge:], hidden[:, edge:]
        if weigh:
            border.masked_fill_(veil, float("-inf"))
            masses += attention_masses(view, tile, row_mean[:, start:stop], start)
        border.masked_fill_(veil, 0)
        flat = tile.flatten(1)
        row_variance += flat @ flat.T
        if gram is not None:
            place = gram.add(place, tile)
    if not capture.bilinear:
        profile = profile / grid.offset_counts
    return HeadBatch(grid, profile, row_mean, row_variance), masses / grid.length


def add_diagonals(sums: Float[Tensor, "batch offset"], tile: Float[Tensor, "batch row key"], shift: int) -> None:
    """Add a tile's diagonal sums to `sums`; its first row and key are `shift` apart, its hidden pairs 0."""
    offset = torch.arange(tile.shape[1])[:, None] + shift - torch.arange(tile.shape[2])
    kept = (offset >= 0) & (offset < sums.shape[1])
    sums.index_add_(1, offset[kept], tile[:, kept].double())


def attention_masses(
    view: HeadView, tile: Float[Tensor, "batch row key"], row_mean: Float[Tensor, "batch row"], start: int
) -> Float[Tensor, "mass batch"]:
    """Attention that a tile's rows (hidden pairs -inf, less row_mean) pay to position 0 and to all dropped ones."""
    capture, dropped = view.capture, view.dropped
    rows = torch.arange(start, start + tile.shape[1]) + dropped
    early = torch.arange(max(1, dropped))
    logits = capture.logits(view.head, rows, early) - row_mean[:, :, None].to(tile)
    if capture.window is not None:
        logits = logits.masked_fill(rows[:, None] - early >= capture.window, float("-inf"))
    total, spent = tile.logsumexp(-1), logits.logsumexp(-1)
    if dropped:
        total = torch.logaddexp(total, spent)
    if capture.sinks is not None:
        total = torch.logaddexp(total, capture.sinks[view.head].to(total) - row_mean.to(total))
    first = (logits[..., 0] - total).exp().sum(-1)
    all_dropped = (spent - total).exp().sum(-1) if dropped else torch.zeros_like(first)
    return torch.stack([first, all_dropped]).double()
