"""What a change of one layer does to how far its heads attend, and what the change of their kernels alone predicts.

A layer's queries and keys do not depend on its own attention, so the effect of changing one layer, in that layer, needs
no second pass: the changed logits follow from a capture of the model as it is. The prediction replaces what changes in
the logits by its mean along each diagonal, over *other* sequences: the part of it that is a kernel.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from poskernel.attention.interventions.bands import SHORT_WAVELENGTH, Band, filter_change
from poskernel.attention.interventions.changes import MeanFilter, PositionMeans
from poskernel.attention.interventions.planes import Head, RotaryPlanes, layer_planes
from poskernel.attention.sources.capture import LayerCapture
from poskernel.errors import InputError


@dataclass(frozen=True)
class DistanceChange:
    """Change of a head's mean log attention distance, in nats."""

    measured: float
    """With the changed logits themselves."""
    predicted: float
    """With the change of the kernel added to the logits."""
    alone: float
    """Between attention under the head's kernel and under its changed kernel, as if there were no content."""


@dataclass(frozen=True, eq=False)
class HeadLogits:
    """One head's logits past the dropped positions, with what it takes to turn them into distances."""

    logits: Float[Tensor, "batch row row"]
    seen: Bool[Tensor, "row row"]

    @classmethod
    def of(cls, capture: LayerCapture, head: int, dropped: int) -> "HeadLogits":
        """From a capture; InputError for logits that are not scale <q, k> alone, or masks that differ by sequence."""
        if not capture.bilinear or capture.mask is not None or not capture.causal:
            raise InputError(
                f"layer {capture.layer} has a bias, a soft cap, no causal mask or one of its own: only causal logits "
                "of queries and keys alone are changed here."
            )
        kept = torch.arange(dropped, capture.length)
        return cls(capture.logits(head, kept, kept), capture.allowed(head)[0, dropped:, dropped:])

    @property
    def offsets(self) -> Tensor:
        """Query less key, 0 where the query comes first."""
        place = torch.arange(self.logits.shape[-1])
        return (place[:, None] - place).clamp(min=0)

    def row_distances(self, logits: Float[Tensor, "*batch row row"]) -> Float[Tensor, "*batch row"]:
        """Attention-weighted ln(1 + offset) of every row, nats; attention adds up to 1 over what is left."""
        weights = logits.masked_fill(~self.seen, float("-inf")).softmax(-1)
        return (weights * self.offsets.to(weights).log1p()).sum(-1)

    def log_distance(self, logits: Float[Tensor, "*batch row row"]) -> Float[Tensor, "*batch"]:
        """The mean over rows."""
        return self.row_distances(logits).double().mean(-1)

    def diagonal_means(self, values: Float[Tensor, "batch row row"]) -> Float[Tensor, "batch offset"]:
        """Mean of each sequence's values along each diagonal of pairs that attend, float64; 0 where none does."""
        length = values.shape[-1]
        seen, place = self.seen.flatten(), self.offsets.flatten()
        sums = torch.zeros(values.shape[0], length, dtype=torch.float64)
        sums.index_add_(1, place[seen], values.flatten(1)[:, seen].double())
        return sums / torch.bincount(place[seen], minlength=length).clamp(min=1)

    def along_diagonals(self, profiles: Float[Tensor, "*batch offset"]) -> Float[Tensor, "*batch row row"]:
        """Logits that are a function of the offset."""
        return profiles[..., self.offsets].to(self.logits)

    def moved(self, changed: Float[Tensor, "batch row row"]) -> float:
        """What changed logits do to the distance."""
        return float(self.log_distance(changed).mean() - self.log_distance(self.logits).mean())

    def change(
        self,
        changed: Float[Tensor, "batch row row"],
        kernel_change: Float[Tensor, "batch offset"],
        g: Float[Tensor, " offset"],
    ) -> DistanceChange:
        """What changed logits do, and what a change of the kernel for each sequence says they do."""
        said = self.moved(self.logits + self.along_diagonals(kernel_change))
        first, second = self.log_distance(self.along_diagonals(torch.stack([g, g + kernel_change.mean(0)])))
        return DistanceChange(self.moved(changed), said, float(second - first))


def others_means(values: Float[Tensor, "batch offset"]) -> Float[Tensor, "batch offset"]:
    """For each sequence the mean over all others; InputError for a single one."""
    if len(values) < 2:
        raise InputError("one sequence says nothing about another: capture at least 2 at once.")
    return (values.sum(0) - values) / (len(values) - 1)


def plane_logits(
    capture: LayerCapture, head: int, rotary: RotaryPlanes, planes: Sequence[int], dropped: int
) -> Float[Tensor, "batch row row"]:
    """What some planes of a head add to its logits, nats."""
    basis = rotary.planes[list(planes)].flatten(0, 1).to(capture.query)
    query = capture.query[:, head, dropped:] @ basis.T
    key = capture.key[:, capture.key_head(head), dropped:] @ basis.T
    return capture.scale * (query @ key.transpose(1, 2))


class PlaneDistances:
    """Consumes captures of a rotary model, all sequences in one batch: what gains on sets of planes do, layer by layer.

    `sets` names sets of planes by head. `found` is by (name, gain, layer, head).
    """

    def __init__(
        self,
        rotary: Mapping[int, RotaryPlanes],
        sets: Mapping[str, Mapping[Head, Sequence[int]]],
        gains: Sequence[float],
        dropped: int,
    ) -> None:
        self.rotary, self.sets, self.gains, self.dropped = rotary, sets, gains, dropped
        self.found: dict[tuple[str, float, int, int], DistanceChange] = {}

    def consume(self, capture: LayerCapture) -> None:
        """One layer."""
        layer = capture.layer
        for head in range(capture.heads):
            chosen = {name: heads[layer, head] for name, heads in self.sets.items() if (layer, head) in heads}
            if not chosen:
                continue
            logits = HeadLogits.of(capture, head, self.dropped)
            g = logits.diagonal_means(logits.logits).mean(0)
            for name, planes in chosen.items():
                part = plane_logits(capture, head, layer_planes(self.rotary, layer), planes, self.dropped)
                kernels = others_means(logits.diagonal_means(part))
                for gain in self.gains:
                    changed = logits.logits + (gain - 1) * part
                    self.found[name, gain, layer, head] = logits.change(changed, (gain - 1) * kernels, g)


class MeasuredDistances:
    """As `PlaneDistances`, at one gain, without any prediction: for controls. `found` is by (name, layer, head)."""

    def __init__(
        self,
        rotary: Mapping[int, RotaryPlanes],
        sets: Mapping[str, Mapping[Head, Sequence[int]]],
        gain: float,
        dropped: int,
    ) -> None:
        self.rotary, self.sets, self.gain, self.dropped = rotary, sets, gain, dropped
        self.found: dict[tuple[str, int, int], float] = {}

    def consume(self, capture: LayerCapture) -> None:
        """One layer."""
        layer = capture.layer
        for head in sorted({head for heads in self.sets.values() for at, head in heads if at == layer}):
            logits = HeadLogits.of(capture, head, self.dropped)
            for name, heads in self.sets.items():
                if (layer, head) in heads:
                    planes = layer_planes(self.rotary, layer)
                    part = plane_logits(capture, head, planes, heads[layer, head], self.dropped)
                    self.found[name, layer, head] = logits.moved(logits.logits + (self.gain - 1) * part)


class FilterDistances:
    """The same for bands taken out of the per-position means of queries and keys; keys are not shared by heads.

    The prediction takes the same bands out of g. `found` is by (layer, head).
    """

    def __init__(
        self, means: PositionMeans, keep: Collection[Band], dropped: int, short: float = SHORT_WAVELENGTH
    ) -> None:
        self.means, self.keep, self.dropped, self.short = means, keep, dropped, short
        self.found: dict[tuple[int, int], DistanceChange] = {}

    def consume(self, capture: LayerCapture) -> None:
        """One layer."""
        layer = capture.layer
        heads = [(layer, head) for head in range(capture.heads)]
        removed = MeanFilter(heads, self.means, self.keep, self.short).removed
        for head in range(capture.heads):
            logits = HeadLogits.of(capture, head, self.dropped)
            query, key = (
                (vectors[:, head] - removed[side, layer, head].to(vectors))[:, self.dropped :]
                for side, vectors in (("query", capture.query), ("key", capture.key))
            )
            g = logits.diagonal_means(logits.logits)
            kernels = torch.stack(
                [filter_change(each, self.keep, self.short).g(g.shape[1]) for each in others_means(g)]
            )
            changed = capture.scale * (query @ key.transpose(1, 2))
            self.found[layer, head] = logits.change(changed, kernels, g.mean(0))


class LogDistances:
    """Consumes captures of a model as it is (or under an intervention): log attention distance of every head."""

    def __init__(self, dropped: int) -> None:
        self.dropped = dropped
        self.sums: dict[Head, float] = {}
        self.sequences: dict[Head, int] = {}

    def consume(self, capture: LayerCapture) -> None:
        """One layer of one batch."""
        for head in range(capture.heads):
            logits, name = HeadLogits.of(capture, head, self.dropped), (capture.layer, head)
            found = logits.log_distance(logits.logits)
            self.sums[name] = self.sums.get(name, 0.0) + float(found.sum())
            self.sequences[name] = self.sequences.get(name, 0) + len(found)

    def means(self) -> dict[Head, float]:
        """By layer and head, nats."""
        return {name: total / self.sequences[name] for name, total in self.sums.items()}
