"""Quadratic forms of a head's logits over pairs of sequences, tile by tile: what g and R2 are made of.

For a head, A_x(t, s) are the logits of sequence x over a grid of pairs (past the dropped positions, within the
attention window, t >= s where the future is hidden) and G their mean over sequences. g(offset) is the mean along each
diagonal; R2 the share of the variance of G that g explains. Everything is a quadratic form F(A_x, A_y), so one small
matrix of forms over the sequences of a batch says it all:

- unbiased: forms of *different* sequences only, whose sampling noise is independent;
- plug-in: forms of the mean with itself, in which sampling noise counts as unexplained.

Over several batches all pairs come without a loop: sum over x != y of F_xy = F(sum, sum) - sum over x of F_xx.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from poskernel.attention.sources.capture import LayerCapture

ROWS_PER_TILE = 64
"""Query rows of logits held at a time (for one head and all sequences of a batch)."""
FORMS = ("variance", "explained", "row_variance", "row_explained", "row_signal")
"""The quadratic forms: raw variance of G and of g; row-centred variance of G, the part g explains, variance of g."""
VARIANCE, EXPLAINED, ROW_VARIANCE, ROW_EXPLAINED, ROW_SIGNAL = range(len(FORMS))


@dataclass(frozen=True)
class PairGrid:
    """The pairs a measurement is over: past the dropped positions, offsets query - key within the window.

    Causal grids hold offsets 0 to window - 1; others 1 - window to window - 1, keys after their query among them.
    `length` counts the positions kept; rows and keys below count from the first kept one, offset axes from
    `first_offset`. Every row holds consecutive keys and every offset consecutive rows, so sums over either are
    differences of running sums. What follows from the three numbers is worked out once, for all heads.
    """

    length: int
    window: int
    causal: bool = True

    @classmethod
    def of(cls, length: int, dropped: int, window: int | None, causal: bool = True) -> "PairGrid":
        """The grid of sequences of `length` positions without their first `dropped`; equal ones are one object."""
        kept = length - dropped
        return known_grid(kept, min(kept, window or kept), causal)

    @property
    def first_offset(self) -> int:
        """Lowest offset: 0, or negative where queries see later keys."""
        return 0 if self.causal else 1 - self.window

    @cached_property
    def offsets(self) -> Int[Tensor, " offset"]:
        """Every offset, rising."""
        return torch.arange(self.first_offset, self.window)

    @property
    def first_key(self) -> Int[Tensor, " row"]:
        """First key that each row sees."""
        return (torch.arange(self.length) - self.window + 1).clamp(min=0)

    @property
    def key_stop(self) -> Int[Tensor, " row"]:
        """One past the last key that each row sees."""
        return (torch.arange(self.length) - self.first_offset + 1).clamp(max=self.length)

    @cached_property
    def row_counts(self) -> Float[Tensor, " row"]:
        """Keys that each row sees."""
        return (self.key_stop - self.first_key).double()

    @cached_property
    def offset_counts(self) -> Float[Tensor, " offset"]:
        """Pairs at each offset."""
        return (self.length - self.offsets.abs()).double()

    @cached_property
    def pairs(self) -> float:
        """Number of pairs."""
        return float(self.row_counts.sum())

    def rows_to_offsets(self, values: Float[Tensor, "*batch row"]) -> Float[Tensor, "*batch offset"]:
        """Sum of a value per row over the rows that hold an offset, for each offset."""
        running = pad(values.cumsum(-1), (1, 0))
        offsets = self.offsets
        return running[..., self.length + offsets.clamp(max=0)] - running[..., offsets.clamp(min=0)]

    def row_means(self, profile: Float[Tensor, "*batch offset"]) -> Float[Tensor, "*batch row"]:
        """Mean over each row's keys of a kernel of the offset."""
        running, rows = pad(profile.cumsum(-1), (1, 0)), torch.arange(self.length) - self.first_offset + 1
        return (running[..., rows - self.first_key] - running[..., rows - self.key_stop]) / self.row_counts

    def keys(self, start: int, stop: int) -> tuple[int, int]:
        """(first, one past the last) of the keys that rows start to stop - 1 see between them."""
        return max(0, start - self.window + 1), min(self.length, stop - self.first_offset)

    def hidden(self, start: int, stop: int) -> Bool[Tensor, "row key"]:
        """True for the pairs outside the grid: rows start to stop - 1 against `keys` of them."""
        offset = torch.arange(start, stop)[:, None] - torch.arange(*self.keys(start, stop))
        return (offset < self.first_offset) | (offset >= self.window)

    def border(self, start: int) -> slice:
        """Keys, counted from the first of a tile that starts at a row, among which some pair can be hidden.

        Without a window only the last square of a causal tile hides pairs: masking the rest costs as much.
        """
        if self.window < self.length:
            return slice(0, None)
        return slice(start, None) if self.causal else slice(0, 0)

    def seen(self, start: int, stop: int) -> Float[Tensor, "row key"]:
        """1 for the pairs of a tile's border that are in the grid, else 0: what hides the others, as a factor."""
        if self.window == self.length and self.causal:
            return lower_triangle(stop - start)
        return (~self.hidden(start, stop)[:, self.border(start)]).float()


@lru_cache(maxsize=16)
def known_grid(length: int, window: int, causal: bool) -> PairGrid:
    """The grid of these numbers."""
    return PairGrid(length, window, causal)


@lru_cache(maxsize=16)
def lower_triangle(rows: int) -> Float[Tensor, "row row"]:
    """1 on and below the diagonal: where a causal tile's row sees a key of the tile's own rows."""
    return torch.ones(rows, rows).tril()


def diagonal_means(
    query: Float[Tensor, "batch position width"], key: Float[Tensor, "batch position width"], grid: PairGrid
) -> Float[Tensor, "batch offset"]:
    """Mean over t of <q_t, k_(t - d)> for each offset d, by FFT: g alone in O(T log T), no T x T matrix."""
    size = 1 << (2 * grid.length - 1).bit_length()
    # Along the last axis the transform is contiguous, which is what makes it fast.
    left = torch.fft.rfft(query.transpose(1, 2).contiguous(), size)
    right = torch.fft.rfft(key.transpose(1, 2).contiguous(), size)
    sums = torch.fft.irfft((left * right.conj()).sum(1), size)[:, grid.offsets % size]
    return sums.double() / grid.offset_counts


@dataclass(frozen=True, eq=False)
class HeadBatch:
    """What one head gives for the sequences of one batch; the forms of every pair of sequences follow from it."""

    grid: PairGrid
    profile: Float[Tensor, "batch offset"]
    row_mean: Float[Tensor, "batch row"]
    row_variance: Float[Tensor, "batch batch"]
    earlier: Float[Tensor, " batch"] | None = None
    """Products of the row-centred logits with their sum over earlier batches, where a GramSum holds it."""

    def forms_with(
        self, profile: Float[Tensor, " offset"], row_mean: Float[Tensor, " row"]
    ) -> Float[Tensor, "form batch"]:
        """F(A_x, sum of A over earlier batches), of the profile and row means that sum has."""
        assert self.earlier is not None
        count = self.earlier.shape[0]
        variance = pad(self.row_variance, (0, 1, 0, 1))
        variance[:count, count] = variance[count, :count] = self.earlier
        joined = torch.cat([self.profile, profile[None]]), torch.cat([self.row_mean, row_mean[None]])
        return HeadBatch(self.grid, *joined, variance).forms()[:, :count, count]

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
    """Sum over sequences of one head's row-centred logits, its tiles in a row; joins pairs across batches."""

    values: Float[Tensor, " pair"]

    @staticmethod
    def size(grid: PairGrid) -> int:
        """Entries that hold every tile of a grid."""
        total = 0
        for start in range(0, grid.length, ROWS_PER_TILE):
            stop = min(start + ROWS_PER_TILE, grid.length)
            first, last = grid.keys(start, stop)
            total += (stop - start) * (last - first)
        return total

    def add(self, place: int, tile: Float[Tensor, "batch row key"]) -> int:
        """Add a batch's tile at `place`; returns where the next one goes."""
        total = tile.sum(0).flatten()
        self.values[place : place + total.numel()] += total
        return place + total.numel()

    def square(self) -> float:
        """Sum of squares over all pairs."""
        return math.fsum(float((part.double() ** 2).sum()) for part in self.values.split(65536))


class Workspace:
    """Memory for tiles that stays from head to head: asking the system for it anew takes longer than the arithmetic."""

    def __init__(self) -> None:
        self.parts: dict[str, Tensor] = {}

    def take(self, name: str, like: Tensor, room: int, shape: tuple[int, ...]) -> Tensor:
        """Uninitialised memory of that shape and the type of `like`, out of a piece that holds at least `room`."""
        size, part = math.prod(shape), self.parts.get(name)
        if part is None or part.dtype != like.dtype or part.numel() < size:
            part = self.parts[name] = torch.empty(max(room, size), dtype=like.dtype)
        return part[:size].view(shape)

    def tile(self, like: Tensor, grid: PairGrid, rows: int, keys: int) -> Float[Tensor, "batch row key"]:
        """Room for a tile of logits; `like` has the batch's shape and type."""
        return self.take("tile", like, like.shape[0] * ROWS_PER_TILE * grid.length, (like.shape[0], rows, keys))

    def scratch(self, tile: Tensor, grid: PairGrid, rows: int, keys: int) -> Float[Tensor, "batch row key"]:
        """Room beside it for what is computed from it."""
        room = tile.shape[0] * (ROWS_PER_TILE + 1) * (grid.length + ROWS_PER_TILE)
        return self.take("scratch", tile, room, (tile.shape[0], rows, keys))


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
        query, key = self.unscaled()
        return query * self.capture.scale, key

    def unscaled(self) -> tuple[Float[Tensor, "batch position width"], Float[Tensor, "batch position width"]]:
        """Queries and keys of the kept positions; no copies, unless they are in another order."""
        query = self.capture.query[:, self.head, self.dropped :]
        key = self.capture.key[:, self.capture.key_head(self.head), self.dropped :]
        return (query, key) if self.order is None else (query[:, self.order], key[:, self.order])

    def positions(self, start: int, stop: int) -> Int[Tensor, " position"]:
        """Positions in the sequence of kept rows start to stop - 1."""
        rows = torch.arange(start, stop)
        return self.dropped + (rows if self.order is None else self.order[rows])

    def tiles(self, workspace: Workspace) -> Iterator[tuple[int, int, Float[Tensor, "batch row key"]]]:
        """(First row, one past the last, their logits against `grid.keys`); each tile is overwritten by the next."""
        grid, capture, (query, key) = self.grid, self.capture, self.unscaled()
        for start in range(0, grid.length, ROWS_PER_TILE):
            stop = min(start + ROWS_PER_TILE, grid.length)
            first, last = grid.keys(start, stop)
            if capture.bilinear:
                room = workspace.tile(query, grid, stop - start, last - first)
                keys = key[:, first:last].transpose(1, 2)
                yield (
                    start,
                    stop,
                    torch.baddbmm(room, query[:, start:stop], keys, beta=0, alpha=capture.scale, out=room),
                )
            else:
                logits = capture.logits(self.head, self.positions(start, stop), self.positions(first, last))
                # A bias may hold anything at pairs that no query sees.
                yield start, stop, logits.masked_fill_(grid.hidden(start, stop), 0)


def measure_head(
    view: HeadView, gram: GramSum | None = None, weigh: bool = True, workspace: Workspace | None = None
) -> tuple[HeadBatch, Float[Tensor, "mass batch"]]:
    """Moments of one head, tile by tile; with `weigh` also its attention on position 0 and on all dropped positions."""
    grid, workspace, batch = view.grid, workspace or Workspace(), view.capture.query.shape[0]
    row_variance = torch.zeros(batch, batch, dtype=torch.float64)
    masses = torch.zeros(2, batch, dtype=torch.float64)
    sums = torch.zeros(batch, grid.offsets.shape[0], dtype=torch.float64)
    row_mean = torch.zeros(batch, grid.length, dtype=torch.float64)
    early = EarlyLogits.of(view) if weigh else None
    earlier, place = torch.zeros(batch, dtype=torch.float64), 0
    for start, stop, tile in view.tiles(workspace):
        edge, seen = tile[..., grid.border(start)], grid.seen(start, stop).to(tile)
        # A factor hides pairs several times faster than a masked fill, and products of queries and keys are finite.
        edge.mul_(seen)
        # Means in the logits' own precision: what they are off by stays in the centred logits, and is as small.
        means = tile.sum(-1) / grid.row_counts[start:stop].to(tile)
        row_mean[:, start:stop] = means
        tile.sub_(means[..., None])
        edge.mul_(seen)
        if early is not None:
            masses += early.masses(log_sums(tile, start, grid, workspace), means, start)
        flat = tile.flatten(1)
        row_variance += flat @ flat.T
        add_diagonals(sums, tile, start - grid.keys(start, stop)[0], grid, workspace)
        if gram is not None:
            earlier += (flat @ gram.values[place : place + flat.shape[1]].to(flat)).double()
            place = gram.add(place, tile)
    profile = (sums + grid.rows_to_offsets(row_mean)) / grid.offset_counts
    known = None if gram is None else earlier
    return HeadBatch(grid, profile, row_mean, row_variance, known), masses / grid.length


def add_diagonals(
    sums: Float[Tensor, "batch offset"],
    tile: Float[Tensor, "batch row key"],
    shift: int,
    grid: PairGrid,
    workspace: Workspace,
) -> None:
    """Add a tile's diagonal sums to `sums`; its first row and key are `shift` apart, its hidden pairs 0.

    Beside R x C zeros in front of every row and a row of zeros at the end, reading one entry further a row turns
    diagonals into columns.
    """
    rows, keys = tile.shape[1:]
    wide = workspace.scratch(tile, grid, rows + 1, rows + keys)
    wide[:, :rows, :rows] = 0
    wide[:, rows] = 0
    wide[:, :rows, rows:] = tile
    skewed = wide.flatten(1)[:, : rows * (rows + keys + 1)].view(-1, rows, rows + keys + 1)
    # Column j holds offset shift + rows - j; the first one is beyond the tile, and so is the last.
    columns = skewed.sum(1)[:, 1:-1].flip(1).double()
    lowest = shift + 1 - keys - grid.first_offset
    columns = columns[:, max(0, -lowest) : sums.shape[1] - lowest]
    place = max(0, lowest)
    sums[:, place : place + columns.shape[1]] += columns


@dataclass(frozen=True, eq=False)
class EarlyLogits:
    """Logits in nats of the kept rows against position 0 and the dropped positions, and what they sum to."""

    first: Float[Tensor, "batch row"]
    dropped: Float[Tensor, "batch row"]
    """Log-sum-exp over the dropped positions; -inf where nothing is dropped."""
    sink: Float[Tensor, ""] | None
    """The logit that joins the softmax without a key."""

    @classmethod
    def of(cls, view: HeadView) -> "EarlyLogits":
        """Of every row of a view in the order of the sequence."""
        capture, dropped = view.capture, view.dropped
        logits = capture.logits(view.head, slice(dropped, None), slice(0, max(1, dropped)))
        if capture.window is not None:
            rows, early = torch.arange(dropped, capture.length), torch.arange(max(1, dropped))
            logits = logits.masked_fill(rows[:, None] - early >= capture.window, float("-inf"))
        spent = logits.logsumexp(-1) if dropped else torch.full_like(logits[..., 0], float("-inf"))
        return cls(logits[..., 0], spent, None if capture.sinks is None else capture.sinks[view.head].to(logits))

    def masses(
        self, total: Float[Tensor, "batch row"], row_mean: Float[Tensor, "batch row"], start: int
    ) -> Float[Tensor, "mass batch"]:
        """Attention that rows from `start` pay to position 0 and to all dropped ones, summed over the rows.

        `total` is the log-sum-exp of their logits over the grid, less row_mean.
        """
        rows = slice(start, start + total.shape[1])
        first, dropped = (values[:, rows] - row_mean.to(values) for values in (self.first, self.dropped))
        total = torch.logaddexp(total, dropped)
        if self.sink is not None:
            total = torch.logaddexp(total, self.sink - row_mean.to(total))
        return torch.stack([(first - total).exp().sum(-1), (dropped - total).exp().sum(-1)]).double()


def log_sums(
    tile: Float[Tensor, "batch row key"], start: int, grid: PairGrid, workspace: Workspace
) -> Float[Tensor, "batch row"]:
    """Log-sum-exp over the pairs of the grid of each row of a tile that is centred by row, its first row `start`."""
    stop = start + tile.shape[1]
    room = torch.exp(tile, out=workspace.scratch(tile, grid, tile.shape[1], tile.shape[2]))
    room[..., grid.border(start)].mul_(grid.seen(start, stop).to(tile))
    # The largest of numbers with mean 0 is at least 0, so nothing vanishes; what overflows is done the careful way.
    total = room.sum(-1).log_()
    if math.isfinite(float(total.sum())):
        return total
    return tile.masked_fill(grid.hidden(start, stop), float("-inf")).logsumexp(-1)
