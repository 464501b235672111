"""What is measured of every head, estimated while the captures stream by: kernels, R2, signal, share, sinks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.estimators.even_attention import even_masses
from poskernel.attention.estimators.head_pool import HeadPool
from poskernel.attention.estimators.moments import (
    EXPLAINED,
    FORMS,
    ROW_EXPLAINED,
    ROW_SIGNAL,
    ROW_VARIANCE,
    VARIANCE,
    GramSum,
    HeadBatch,
    HeadView,
    PairGrid,
    Workspace,
    measure_head,
)
from poskernel.attention.estimators.pairs import (
    MINIMUM_SEQUENCES,
    PairMoments,
    pair_ratio,
    pair_root,
    pair_to_single_ratio,
    plug_in_ratio,
)
from poskernel.attention.sources.capture import LayerCapture
from poskernel.errors import InputError, RunError
from poskernel.kernel import PositionalKernel, tabulated
from poskernel.statistics import Estimate

GRAM_BYTES = 200 * 2**20
"""Room for the running sums of Grams that join batches; beyond it pairs stay within a batch."""


@dataclass(frozen=True, eq=False)
class HeadEstimate:
    """What was measured of one head. Logits and signals are in nats; nothing is clipped to [0, 1].

    `r2` is unbiased and row-centred (the primary one), `r2_raw` unbiased and raw, `r2_plugin` and `r2_plugin_centred`
    of the mean Gram; `null` is `r2` after one permutation of positions shared by all sequences. `signal` is the
    standard deviation of g over pairs without its sampling noise, `signal_plugin` with it. `share` is the variance of
    row-centred g over the within-row variance of single sequences' logits. Masses are mean attention weights on
    position 0 and on the dropped positions, `first_even` and `dropped_even` the same of evenly spread attention.
    `g` starts at offset `first_offset`: 0, or below where queries see later keys.
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
    first_offset: int = 0
    first_even: float = 0.0
    dropped_even: float = 0.0

    @property
    def offsets(self) -> range:
        """The offsets that g is measured at."""
        return range(self.first_offset, self.first_offset + self.g.shape[0])

    @property
    def kernel(self) -> PositionalKernel:
        """g as a positional kernel, known for as many positions as were measured."""
        return tabulated(self.g, self.first_offset)


class HeadSums:
    """Running sums of one head over batches of sequences, in storage made before the first forward pass.

    Anything small that is allocated during the pass and kept would split the heap where the model's activations come
    and go, and the process would grow by gigabytes.
    """

    def __init__(
        self,
        offsets: Float[Tensor, "statistic offset"],
        row_mean: Float[Tensor, " row"],
        gram: Float[Tensor, " pair"] | None,
    ) -> None:
        self.profile, self.profile_square = offsets
        self.row_mean = row_mean
        self.gram = None if gram is None else GramSum(gram)
        self.moments, self.null = PairMoments(len(FORMS)), PairMoments(len(FORMS))
        self.masses = torch.zeros(2, dtype=torch.float64)
        self.batches = 0
        self.grid = PairGrid(0, 0)
        self.even = (0.0, 0.0)

    def add(self, head: HeadBatch, masses: Float[Tensor, "mass batch"]) -> None:
        """Add a batch."""
        self.grid, offsets = head.grid, head.profile.shape[1]
        known = self.batches and head.earlier is not None
        earlier = head.forms_with(self.profile[:offsets], self.row_mean) if known else None
        self.moments.add(head.forms(), earlier)
        self.profile[:offsets] += head.profile.sum(0)
        self.profile_square[:offsets] += (head.profile**2).sum(0)
        self.row_mean += head.row_mean.sum(0)
        self.masses += masses.sum(1)
        self.batches += 1

    def joined(self) -> PairMoments:
        """The moments, with pairs across batches where they are known."""
        if self.batches == 1:
            for moments in (self.moments, self.null):
                moments.join(moments.crossed + moments.diagonal)
        elif self.gram is not None:
            square = torch.tensor([[self.gram.square()]], dtype=torch.float64)
            profile = self.profile[None, : len(self.grid.offsets)]
            total = HeadBatch(self.grid, profile, self.row_mean[None], square).forms()
            self.moments.join(total[:, 0, 0])
        return self.moments

    def estimate(self, layer: int, head: int) -> HeadEstimate:
        """Everything that is reported of the head."""
        moments, n = self.joined(), self.moments.sequences
        offsets = len(self.grid.offsets)
        g = self.profile[:offsets] / n
        spread = (self.profile_square[:offsets] / n - g**2).clamp(min=0) * n / (n - 1)
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
            first_offset=self.grid.first_offset,
            first_even=self.even[0],
            dropped_even=self.even[1],
        )


class KernelEstimator:
    """Consumes captures, layer by layer and batch by batch, and gives every head's estimate.

    `heads` is the number of heads of each layer to measure; `sequences` how many will come in all, `batch` at most at a
    time; `dropped` positions are left out as queries and as keys; `causal` says whether queries see the past alone, as
    every layer must; `null` also measures the shared permutation of positions drawn from `seed`. `dtype` is that of the
    captures: sums that join batches are as precise.
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
        causal: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if sequences < MINIMUM_SEQUENCES:
            raise InputError(f"{sequences} sequences give no interval: measure at least {MINIMUM_SEQUENCES}.")
        if not 0 <= dropped <= length - 2:
            raise InputError(
                f"dropping {dropped} positions of {length} leaves no pairs: drop fewer or take longer sequences."
            )
        self.dropped, self.causal, self.dtype = dropped, causal, dtype
        names = [(layer, head) for layer in heads for head in range(heads[layer])]
        grid = PairGrid.of(length, dropped, None, causal)
        offsets = torch.zeros(len(names), 2, len(grid.offsets), dtype=torch.float64)
        rows = torch.zeros(len(names), grid.length, dtype=torch.float64)
        size = GramSum.size(grid)
        grams: Sequence[Tensor | None] = [None] * len(names)
        if sequences > batch and dtype.itemsize * size * len(names) <= GRAM_BYTES:
            grams = list(torch.zeros(len(names), size, dtype=dtype))
        self.sums = {name: HeadSums(offsets[i], rows[i], grams[i]) for i, name in enumerate(names)}
        generator = torch.Generator().manual_seed(seed)
        self.order = torch.randperm(grid.length, generator=generator) if null else None
        self.pool = HeadPool()

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer's queries and keys for one batch of sequences; layers not asked for are passed over."""
        if (capture.layer, 0) not in self.sums:
            return
        if capture.causal != self.causal:
            seen = "the past alone" if capture.causal else "both directions"
            raise InputError(
                f"layer {capture.layer} attends to {seen}, unlike the model's other layers: choose layers without it."
            )
        if capture.mask is not None:
            raise InputError(
                f"layer {capture.layer} has a mask that is neither causal nor a sliding window, "
                "so no one kernel of the offset: "
                "choose layers without it."
            )
        if torch.promote_types(capture.query.dtype, self.dtype) != self.dtype:
            raise InputError(
                f"layer {capture.layer} gave queries in {capture.query.dtype}, more precise than the model's "
                f"{self.dtype}: give a model of one precision."
            )
        self.pool.each(
            capture.heads,
            lambda head, workspace: self.add_head(self.sums[capture.layer, head], capture, head, workspace),
        )

    def add_head(self, sums: HeadSums, capture: LayerCapture, head: int, workspace: Workspace) -> None:
        """Everything that is measured of one head of one batch."""
        grid = PairGrid.of(capture.length, self.dropped, capture.window, capture.causal)
        view = HeadView(capture, head, self.dropped, grid)
        sums.add(*measure_head(view, sums.gram, workspace=workspace))
        sums.even = even_masses(capture.length, self.dropped, capture.window, capture.causal)
        if self.order is not None:
            shuffled = replace(view, order=self.order)
            sums.null.add(measure_head(shuffled, weigh=False, workspace=workspace)[0].forms())

    def estimates(self) -> list[HeadEstimate]:
        """Every head measured, by layer and head; RunError if a sequence gave logits that are not finite numbers."""
        self.pool.close()
        results = [sums.estimate(layer, head) for (layer, head), sums in sorted(self.sums.items())]
        for result in results:
            if not bool(torch.isfinite(result.g).all()):
                raise RunError(
                    f"layer {result.layer} head {result.head} gave logits that are not finite numbers: "
                    "its weights or its precision are broken."
                )
        return results
