"""Absolute-position leakage: the part of a head's logits that is a function of (t, s) and not of the offset alone.

It is measured on pairs of different sequences: what two texts' logits have in common is position, and what their
own kernels of the offset leave of it is absolute. (Regressed on indicators of positions in one sequence at a time,
the content of the keys would pass for position.) A causal decoder without absolute encoding can know where it is in
two ways: from the mask, as the softmax averages over more keys in later rows, and from position 0, whose vector is
the same in all texts or takes a course of its own. Leaving the first positions out, as queries and as keys, leaves
the first way; the rest is the second.

Source: "Where absolute position comes from" (arXiv 2606.06160).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.content.pair_layout import PairLayout
from poskernel.attention.estimators.pairs import MINIMUM_SEQUENCES, PairMoments, pair_to_single_ratio
from poskernel.attention.sources.capture import LayerCapture
from poskernel.errors import InputError
from poskernel.statistics import Estimate

TOTAL, MASK, FIRST, VARIANCE = range(4)
SMALLEST_BATCH = 3
"""Sequences whose pairs of pairs share one: the variance of a mean over pairs needs them."""


@dataclass(frozen=True)
class HeadLeakage:
    """Shares of the within-row variance of a head's logits, over all pairs of positions; below 0 by noise alone."""

    layer: int
    head: int
    total: Estimate
    """Function of absolute positions, beyond any kernel of the offset."""
    mask: Estimate
    """What remains of it without the first positions as queries or keys."""
    first: Estimate
    """The rest: what the first positions bring."""


class LeakageEstimator:
    """Consumes captures, layer by layer and batch by batch; `first` positions count as the beginning of a text."""

    def __init__(self, layers: Sequence[int], first: int = 1) -> None:
        if first < 1:
            raise InputError(f"the first {first} positions are none: give at least 1.")
        self.layers, self.first = set(layers), first
        self.moments: dict[tuple[int, int], PairMoments] = {}

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer of at least 3 sequences; layers not asked for are passed over."""
        if capture.layer not in self.layers:
            return
        batch = capture.query.shape[0]
        if batch < SMALLEST_BATCH:
            raise InputError(f"{batch} sequences in a batch give no interval over pairs: give batches of at least 3.")
        layouts = [PairLayout.of_capture(capture, dropped) for dropped in (0, self.first)]
        inverses = [torch.linalg.pinv(layout.offset_normal(), hermitian=True) for layout in layouts]
        positions = torch.arange(capture.length)
        for head in range(capture.heads):
            logits = capture.logits(head, positions, positions).double()
            whole, variance = absolute_forms(logits, layouts[0], inverses[0])
            rest, _ = absolute_forms(logits[:, self.first :, self.first :], layouts[1], inverses[1])
            moments = self.moments.setdefault((capture.layer, head), PairMoments(4))
            moments.add(torch.stack([whole, rest, whole - rest, variance]))

    def estimates(self) -> list[HeadLeakage]:
        """One entry a head; InputError for fewer than 4 sequences in all."""
        out = []
        for (layer, head), moments in sorted(self.moments.items()):
            if moments.sequences < MINIMUM_SEQUENCES:
                raise InputError(f"{moments.sequences} sequences give no interval: measure at least 4.")
            parts = [pair_to_single_ratio(moments, part, VARIANCE) for part in (TOTAL, MASK, FIRST)]
            out.append(HeadLeakage(layer, head, parts[0], parts[1], parts[2]))
        return out


def absolute_forms(
    logits: Float[Tensor, "batch query key"], layout: PairLayout, inverse: Float[Tensor, "offset offset"]
) -> tuple[Float[Tensor, "batch batch"], Float[Tensor, "batch batch"]]:
    """<r_x, r_y> and <A_x, A_y> of row-centred logits A and what their best kernels of the offset leave, r."""
    centred = layout.centred(logits)
    flat, diagonals = centred.flatten(1), layout.by_offset(centred).sum(1)
    variance = flat @ flat.T
    return variance - diagonals @ inverse @ diagonals.T, variance
