"""R2 and signal of every Gram variant of a head, with the first positions and without, batch by batch."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.estimators.head_pool import HeadPool
from poskernel.attention.estimators.moments import (
    EXPLAINED,
    FORMS,
    ROW_EXPLAINED,
    ROW_VARIANCE,
    VARIANCE,
    HeadView,
    PairGrid,
    Workspace,
    measure_head,
)
from poskernel.attention.estimators.pairs import PairMoments, pair_ratio, pair_root
from poskernel.attention.estimators.row_tiles import check_dropped
from poskernel.attention.estimators.variants import VARIANTS, variant_views
from poskernel.attention.sources.capture import LayerCapture
from poskernel.errors import InputError
from poskernel.statistics import Estimate

WHOLE = "whole"
"""Name of what is measured with the first positions: the raw Gram; `whole_mean` and so on are its variants."""
SAMPLES = 4
"""Samples of a variant, a pair of sequences each, that an interval needs."""

Forms = tuple[Float[Tensor, "form sample sample"], Float[Tensor, " form"]]
"""Forms of every pair of samples, and those of the batch's plug-in Gram."""


@dataclass(frozen=True, eq=False)
class VariantEstimate:
    """One Gram variant of a head (`variants` says what each means).

    `r2` is unbiased and row-centred, `r2_raw` unbiased and raw; the plug-in ones are of the variant's Gram of each
    batch of sequences, raw and row-centred. `signal` is the standard deviation of the variant's g over pairs, in nats
    but for `whitened`.
    """

    r2: Estimate
    r2_raw: Estimate
    r2_plugin: float
    r2_plugin_centred: float
    signal: Estimate
    signal_plugin: float


def variant_names(dropped: int) -> list[str]:
    """Everything `variant_forms` measures: variants without the first positions, then all with them."""
    whole = [WHOLE, *(f"{WHOLE}_{name}" for name in VARIANTS)] if dropped else []
    return [*VARIANTS, *whole]


def variant_forms(
    capture: LayerCapture, head: int, dropped: int, workspace: Workspace
) -> Iterator[tuple[str, float, Forms]]:
    """(name, number of pairs of positions, forms) of everything that `variant_names` lists, for one batch."""
    for first, prefix in {dropped: "", 0: f"{WHOLE}_"}.items() if dropped else [(0, "")]:
        grid = PairGrid.of(capture.length, first, capture.window, capture.causal)
        view = HeadView(capture, head, first, grid)
        if prefix:
            forms = measure_head(view, weigh=False, workspace=workspace)[0].forms()
            yield WHOLE, grid.pairs, (forms, forms.mean((1, 2)))
        for name, variant in VARIANTS.items():
            samples, whole = (
                measure_head(part, weigh=False, workspace=workspace)[0].forms() for part in variant_views(view, variant)
            )
            yield prefix + name, grid.pairs, (samples, whole[:, 0, 0])


class VariantSums:
    """Running moments of one variant of one head."""

    def __init__(self) -> None:
        self.moments = PairMoments(len(FORMS))
        self.plug_in = torch.zeros(len(FORMS), dtype=torch.float64)
        self.batches, self.pairs = 0, 1.0

    def add(self, pairs: float, forms: Forms) -> None:
        """Add a batch; `pairs` of positions are in the grid."""
        self.moments.add(forms[0])
        self.plug_in += forms[1]
        self.batches, self.pairs = self.batches + 1, pairs

    def estimate(self) -> VariantEstimate:
        """Everything that is reported of the variant."""
        if self.batches == 1:
            self.moments.join(self.moments.crossed + self.moments.diagonal)
        plug_in = self.plug_in / self.batches
        return VariantEstimate(
            r2=of_samples(pair_ratio(self.moments, ROW_EXPLAINED, ROW_VARIANCE)),
            r2_raw=of_samples(pair_ratio(self.moments, EXPLAINED, VARIANCE)),
            r2_plugin=ratio(plug_in, EXPLAINED, VARIANCE),
            r2_plugin_centred=ratio(plug_in, ROW_EXPLAINED, ROW_VARIANCE),
            signal=of_samples(pair_root(self.moments, EXPLAINED, self.pairs)),
            signal_plugin=math.sqrt(max(0.0, float(plug_in[EXPLAINED])) / self.pairs),
        )


def ratio(forms: Float[Tensor, " form"], numerator: int, denominator: int) -> float:
    """Ratio of two forms; nan where the second is not positive."""
    return float(forms[numerator] / forms[denominator]) if forms[denominator] > 0 else math.nan


def of_samples(estimate: Estimate) -> Estimate:
    """The estimate, saying what its samples are."""
    return replace(estimate, method=estimate.method.replace("different sequences", "different samples of the variant"))


@dataclass(frozen=True, eq=False)
class HeadVariants:
    """Every Gram variant of one head by the names of `variant_names`, those that start with `whole` with everything."""

    layer: int
    head: int
    estimates: Mapping[str, VariantEstimate]


class VariantEstimator:
    """Consumes captures and gives every head's Gram variants, with the first `dropped` positions and without.

    A sample is a pair of sequences of one batch, so batches should be even, and intervals need 8 sequences in all.
    """

    def __init__(self, layers: Mapping[int, int], length: int, dropped: int = 16) -> None:
        check_dropped(length, dropped)
        self.dropped = dropped
        self.sums = {
            (layer, head): {name: VariantSums() for name in variant_names(dropped)}
            for layer in layers
            for head in range(layers[layer])
        }
        self.pool = HeadPool()

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer of one batch; layers not asked for are passed over."""
        if (capture.layer, 0) not in self.sums:
            return

        def add(head: int, workspace: Workspace) -> None:
            for name, pairs, forms in variant_forms(capture, head, self.dropped, workspace):
                self.sums[capture.layer, head][name].add(pairs, forms)

        self.pool.each(capture.heads, add)

    def estimates(self) -> list[HeadVariants]:
        """Every head's variants, by layer and head; InputError for too few sequences."""
        self.pool.close()
        results = []
        for (layer, head), variants in sorted(self.sums.items()):
            samples = min(sums.moments.sequences for sums in variants.values())
            if samples < SAMPLES:
                raise InputError(
                    f"{samples} pairs of sequences give no interval of the Gram variants: measure at least "
                    f"{2 * SAMPLES} sequences."
                )
            results.append(HeadVariants(layer, head, {name: sums.estimate() for name, sums in variants.items()}))
        return results
