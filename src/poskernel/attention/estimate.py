r"""Stationary kernels and R2 of captured heads, streamed: only moments of pairs of sequences are kept.

For a head, A_x(t, s) are the logits of sequence x over the causal pairs (t >= s, both past the dropped positions, within
the attention window) and G their mean over sequences. g(offset) is the mean along each diagonal; R2 the share of the
variance of G that g explains. Everything is a quadratic form F(A_x, A_y), so one small matrix of forms over the
sequences of a batch says it all:

- unbiased: forms of *different* sequences only, whose sampling noise is independent;
- plug-in: forms of the mean with itself, in which sampling noise counts as unexplained.

Over several batches all pairs come without a loop: sum over x != y of F_xy = F(sum, sum) - sum over x of F_xx.
"""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from poskernel.attention.capture import LayerCapture
from poskernel.errors import InputError, RunError
from poskernel.attention.pairs import (
    MINIMUM_SEQUENCES,
    PairMoments,
    pair_ratio,
    pair_root,
    pair_to_single_ratio,
    plug_in_ratio,
)
from poskernel.kernel import PositionalKernel, tabulated
from poskernel.statistics import Estimate

ROWS_PER_TILE = 64
"""Query rows of logits held at a time (for one head and all sequences of a batch)."""
GRAM_BYTES = 200 * 2**20
"""Room for the running sum of Gram triangles that joins batches; beyond it pairs stay within a batch."""
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
        """Sum, for each offset, of a value per row over the rows that hold this offset (rows offset, offset + 1, ...)."""
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
    sums = key.double().cumsum(1)
    if grid.window < grid.length:
        sums = sums - torch.cat([torch.zeros_like(sums[:, : grid.window]), sums[:, : -grid.window]], 1)
    return (query.double() * sums).sum(-1)


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
        return sum(float((part.double() ** 2).sum()) for part in self.values.split(65536))


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
        if capture.bilinear:
            shift = -row_mean[:, start:stop, None].to(query)
            tile = torch.baddbmm(shift, query[:, start:stop], key[:, first:stop].transpose(1, 2))
        else:
            tile = capture.logits(view.head, view.positions(start, stop), view.positions(first, stop))
            add_diagonals(profile, tile.masked_fill(hidden, 0), start - first)
            row_mean[:, start:stop] = (
                tile.masked_fill(hidden, 0).sum(-1, dtype=torch.float64) / grid.row_counts[start:stop]
            )
            tile = tile - row_mean[:, start:stop, None].to(tile)
        if weigh:
            masses += attention_masses(view, tile.masked_fill(hidden, float("-inf")), row_mean[:, start:stop], start)
        tile.masked_fill_(hidden, 0)
        flat = tile.flatten(1)
        row_variance += flat @ flat.T
        if gram is not None:
            place = gram.add(place, tile)
    if not capture.bilinear:
        profile = profile / grid.offset_counts
    return HeadBatch(grid, profile, row_mean, row_variance), masses / grid.length


def add_diagonals(sums: Float[Tensor, "batch offset"], tile: Float[Tensor, "batch row key"], shift: int) -> None:
    """Add a tile's sums along its diagonals to `sums`; its first row and key are `shift` offsets apart, hidden pairs 0."""
    offset = torch.arange(tile.shape[1])[:, None] + shift - torch.arange(tile.shape[2])
    kept = (offset >= 0) & (offset < sums.shape[1])
    sums.index_add_(1, offset[kept], tile[:, kept].double())


def attention_masses(
    view: HeadView, tile: Float[Tensor, "batch row key"], row_mean: Float[Tensor, "batch row"], start: int
) -> Float[Tensor, "mass batch"]:
    """Attention that rows of a tile (hidden pairs -inf, centred by row_mean) pay to position 0 and to all dropped ones."""
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


@dataclass(frozen=True, eq=False)
class HeadEstimate:
    """What was measured of one head. Logits and signals are in nats; nothing is clipped to [0, 1].

    `r2` is unbiased and row-centred (the primary one), `r2_raw` unbiased and raw, `r2_plugin` and `r2_plugin_centred` of
    the mean Gram; `null` is `r2` after one permutation of positions shared by all sequences. `signal` is the standard
    deviation of g over pairs without its sampling noise, `signal_plugin` with it. `share` is the variance of row-centred
    g as a share of the within-row variance of single sequences' logits. Masses are mean attention weights.
    """

    layer: int
    head: int
    g: Float[Tensor, " offset"]
    g_error: Float[Tensor, " offset"]
    r2: Estimate
    r2_raw: Estimate
    r2_plugin: Estimate
    r2_plugin_centred: Estimate
    null: Estimate | None
    signal: Estimate
    signal_plugin: float
    share: Estimate
    first_mass: float
    dropped_mass: float

    @property
    def kernel(self) -> PositionalKernel:
        """g as a positional kernel, known for as many positions as were measured."""
        return tabulated(self.g)


class HeadSums:
    """Running sums of one head over batches of sequences, in storage made before the first forward pass.

    Anything small that is allocated during the pass and kept would split the heap where the model's activations come and
    go, and the process would grow by gigabytes.
    """

    def __init__(self, rows: Float[Tensor, "statistic row"], gram: Float[Tensor, " pair"] | None) -> None:
        self.profile, self.profile_square, self.row_mean = rows
        self.gram = None if gram is None else GramSum(gram)
        self.moments, self.null = PairMoments(len(FORMS)), PairMoments(len(FORMS))
        self.masses = torch.zeros(2, dtype=torch.float64)
        self.batches = 0
        self.grid = PairGrid(0, 0)

    def add(self, head: HeadBatch, masses: Float[Tensor, "mass batch"]) -> None:
        """Add a batch."""
        self.grid = head.grid
        self.moments.add(head.forms())
        self.profile[: head.grid.window] += head.profile.sum(0)
        self.profile_square[: head.grid.window] += (head.profile**2).sum(0)
        self.row_mean += head.row_mean.sum(0)
        self.masses += masses.sum(1)
        self.batches += 1

    def joined(self) -> PairMoments:
        """The moments, with pairs across batches where they are known."""
        if self.batches == 1:
            self.moments.join(self.moments.crossed + self.moments.diagonal)
        elif self.gram is not None:
            square = torch.tensor([[self.gram.square()]], dtype=torch.float64)
            total = HeadBatch(self.grid, self.profile[None, : self.grid.window], self.row_mean[None], square).forms()
            self.moments.join(total[:, 0, 0])
        return self.moments

    def estimate(self, layer: int, head: int) -> HeadEstimate:
        """Everything that is reported of the head."""
        moments, n = self.joined(), self.moments.sequences
        window = self.grid.window
        g = self.profile[:window] / n
        spread = (self.profile_square[:window] / n - g**2).clamp(min=0) * n / (n - 1)
        null = pair_ratio(self.null, ROW_EXPLAINED, ROW_VARIANCE) if self.null.sequences else None
        return HeadEstimate(
            layer=layer,
            head=head,
            g=g,
            g_error=(spread / n).sqrt(),
            r2=pair_ratio(moments, ROW_EXPLAINED, ROW_VARIANCE),
            r2_raw=pair_ratio(moments, EXPLAINED, VARIANCE),
            r2_plugin=plug_in_ratio(moments, EXPLAINED, VARIANCE),
            r2_plugin_centred=plug_in_ratio(moments, ROW_EXPLAINED, ROW_VARIANCE),
            null=null,
            signal=pair_root(moments, EXPLAINED, self.grid.pairs),
            signal_plugin=math.sqrt(max(0.0, float(moments.plug_in()[EXPLAINED])) / self.grid.pairs),
            share=pair_to_single_ratio(moments, ROW_SIGNAL, ROW_VARIANCE),
            first_mass=float(self.masses[0]) / n,
            dropped_mass=float(self.masses[1]) / n,
        )


class KernelEstimator:
    """Consumes captures, layer by layer and batch by batch, and gives every head's estimate.

    `heads` is the number of heads of each layer to measure; `sequences` how many will come in all, `batch` at most at a
    time; `dropped` positions are left out as queries and as keys; `null` also measures the shared permutation of
    positions drawn from `seed`.
    """

    def __init__(
        self,
        heads: Mapping[int, int],
        length: int,
        sequences: int,
        batch: int,
        dropped: int = 16,
        null: bool = True,
        seed: int = 0,
    ) -> None:
        if sequences < MINIMUM_SEQUENCES:
            raise InputError(f"{sequences} sequences give no interval: measure at least {MINIMUM_SEQUENCES}.")
        if not 0 <= dropped <= length - 2:
            raise InputError(
                f"dropping {dropped} positions of {length} leaves no pairs: drop fewer or take longer sequences."
            )
        self.length, self.dropped = length, dropped
        kept, names = length - dropped, [(layer, head) for layer in heads for head in range(heads[layer])]
        rows = torch.zeros(len(names), 3, kept, dtype=torch.float64)
        size = GramSum.size(kept)
        grams: Sequence[Tensor | None] = [None] * len(names)
        if sequences > batch and 4 * size * len(names) <= GRAM_BYTES:
            grams = list(torch.zeros(len(names), size))
        self.sums = {name: HeadSums(rows[i], grams[i]) for i, name in enumerate(names)}
        generator = torch.Generator().manual_seed(seed)
        self.order = torch.randperm(kept, generator=generator) if null else None
        # Heads in parallel, one torch thread each: their tiles are too small to be worth splitting.
        self.pool = ThreadPoolExecutor(torch.get_num_threads(), initializer=torch.set_num_threads, initargs=(1,))

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer's queries and keys for one batch of sequences; layers not asked for are passed over."""
        if (capture.layer, 0) not in self.sums:
            return
        if not capture.causal:
            raise InputError(
                f"layer {capture.layer} attends in both directions, and kernels of signed offsets are not measured yet: give a decoder."
            )
        if capture.mask is not None:
            raise InputError(
                f"layer {capture.layer} has a mask that is neither causal nor a sliding window, so no one kernel of the offset: "
                "leave it out with --layers."
            )
        list(self.pool.map(lambda head: self.consume_head(capture, head), range(capture.heads)))

    def consume_head(self, capture: LayerCapture, head: int) -> None:
        """Add one head of one batch."""
        with torch.inference_mode():
            sums, grid = self.sums[capture.layer, head], PairGrid.of(self.length, self.dropped, capture.window)
            sums.add(*measure_head(HeadView(capture, head, self.dropped, grid), sums.gram))
            if self.order is not None:
                shuffled = HeadView(capture, head, self.dropped, grid, self.order)
                sums.null.add(measure_head(shuffled, weigh=False)[0].forms())

    def estimates(self) -> list[HeadEstimate]:
        """Every head measured, by layer and head; RunError if a sequence gave logits that are not finite numbers."""
        self.pool.shutdown()
        results = [sums.estimate(layer, head) for (layer, head), sums in sorted(self.sums.items())]
        for result in results:
            if not bool(torch.isfinite(result.g).all()):
                raise RunError(
                    f"layer {result.layer} head {result.head} gave logits that are not finite numbers: its weights or its precision are broken."
                )
        return results
