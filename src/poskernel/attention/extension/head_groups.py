"""Heads that turn alike, side by side: their profiles, their far waves, and both again for resampled sequences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from poskernel.attention.closed_form import ContentMeans, LayerForms, turned_profile
from poskernel.attention.extension.planes import Turning
from poskernel.attention.extension.survival import NEVER, Waves, peaks_of

HEADS_PER_BLOCK = 32
"""Heads that are resampled at a time."""


@dataclass(frozen=True, eq=False)
class HeadGroup:
    """All heads of the layers that share a turning, a window and a scale of content: one product of matrices each."""

    layers: Sequence[LayerForms]
    turning: Turning
    window: int | None
    view: str | None = None
    """Name of the profiles, one a sequence, under this turning; None where none were kept."""

    @property
    def names(self) -> list[tuple[int, int]]:
        """Layer and head of every column."""
        return [(forms.layer, head) for forms in self.layers for head in range(forms.heads)]

    @property
    def reach(self) -> int:
        """Offsets at which moments are measured."""
        return self.layers[0].moments.shape[2]

    def stop(self, length: int) -> int:
        """Offsets that the last row of a length attends to."""
        return min(length, self.window or length)

    @cached_property
    def near(self) -> Float[Tensor, "head offset"]:
        """g at the measured offsets."""
        return torch.cat(
            [turned_profile(forms.moments, forms.content, self.turning, forms.scale) for forms in self.layers]
        )

    @cached_property
    def sequences(self) -> Float[Tensor, "sequence head offset"]:
        """The same of every sequence."""
        assert self.view is not None
        return torch.cat([forms.profiles[self.view] for forms in self.layers], 1)

    @cached_property
    def late(self) -> ContentMeans:
        """Late means of every head."""
        return ContentMeans.joined([forms.late for forms in self.layers], 1)

    @cached_property
    def first(self) -> ContentMeans:
        """Late queries and the first key of every head."""
        return ContentMeans.joined([forms.first for forms in self.layers], 1)

    @cached_property
    def scales(self) -> Float[Tensor, " head"]:
        """Scale of every head."""
        return torch.cat([torch.full((forms.heads,), forms.scale, dtype=torch.float64) for forms in self.layers])

    @cached_property
    def waves(self) -> Waves:
        """g beyond the measured offsets."""
        return self.point_waves(self.late)

    def point_waves(self, means: ContentMeans) -> Waves:
        """Waves of the means over all sequences."""
        number = means.query.shape[0]
        products, rest = means.products(torch.full((1, number), 1 / number, dtype=torch.float64))
        gain = self.turning.factor**2 * self.scales
        return Waves(products[0] * gain[:, None], rest[0] * self.scales, self.turning.rates)

    def sink_logit(self, length: int) -> Float[Tensor, " head"]:
        """Logit of the first key in the last row of a length: that of the mean first key and the mean late query."""
        return self.point_waves(self.first).at(torch.tensor([length - 1]))[:, 0]

    def profile(self, length: int) -> Float[Tensor, "head offset"]:
        """g at the offsets that the last row of a length attends to."""
        stop = self.stop(length)
        near = self.near[:, :stop]
        return near if stop <= self.reach else torch.cat([near, self.waves.at(torch.arange(self.reach, stop))], 1)

    def resampled_lost(
        self,
        weights: Float[Tensor, "resample sequence"],
        peak: Int[Tensor, " head"],
        measured: int,
        highest: Int[Tensor, "head span"],
    ) -> Int[Tensor, "resample head"]:
        """First length at which each resample loses a head's peak: `measured` where it is not there to begin with.

        Beyond the measured length a resample is looked at where the estimate itself is highest in each span.
        """
        parts = []
        for start in range(0, len(peak), HEADS_PER_BLOCK):
            heads = slice(start, start + HEADS_PER_BLOCK)
            values, coefficients, level = self.resample(weights, heads, measured)
            wanted = peak[heads].expand(len(weights), -1)[..., None]
            height = values.gather(2, wanted)
            others = values.scatter(2, wanted, -torch.inf).amax(2)
            phase = self.turning.rates[:, None, None] * highest[heads].double()
            far = torch.einsum("rhp,phs->rhs", coefficients.real, phase.cos())
            far -= torch.einsum("rhp,phs->rhs", coefficients.imag, phase.sin())
            reached = far + level[..., None] >= height
            where = torch.where(reached, highest[heads] + 1, NEVER)
            lost = where.amin(2) if where.shape[2] else torch.full(others.shape, NEVER)
            parts.append(torch.where(height[..., 0] > others, lost, measured))
        return torch.cat(parts, 1)

    def resampled_peaks(
        self, weights: Float[Tensor, "resample sequence"], measured: int
    ) -> tuple[Int[Tensor, "resample head"], Bool[Tensor, "resample head"]]:
        """Peak of every resample at the measured length, and whether it is strict."""
        offsets, strict = [], []
        for start in range(0, len(self.scales), HEADS_PER_BLOCK):
            found = peaks_of(self.resample(weights, slice(start, start + HEADS_PER_BLOCK), measured)[0])
            offsets.append(found.offset)
            strict.append(found.strict)
        return torch.cat(offsets, 1), torch.cat(strict, 1)

    def resample(
        self, weights: Float[Tensor, "resample sequence"], heads: slice, length: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Profiles of some heads to a length, coefficients and level of their waves, for every resample."""
        stop = self.stop(length)
        near = torch.tensordot(weights, self.sequences[:, heads, : min(stop, self.reach)], dims=([1], [0]))
        means = ContentMeans(
            self.late.query[:, heads], self.late.key[:, heads],
            self.late.query_rest[:, heads], self.late.key_rest[:, heads],
        )  # fmt: skip
        products, rest = means.products(weights)
        coefficients = products * (self.turning.factor**2 * self.scales[heads])[:, None]
        level = rest * self.scales[heads]
        if stop <= self.reach:
            return near, coefficients, level
        flat = Waves(coefficients.flatten(0, 1), level.flatten(), self.turning.rates)
        middle = flat.at(torch.arange(self.reach, stop)).unflatten(0, level.shape)
        return torch.cat([near, middle], 2), coefficients, level


def grouped(layers: Sequence[LayerForms], turnings: Mapping[int, Turning], view: str | None = None) -> list[HeadGroup]:
    """Layers that turn alike and see as far, together."""
    found: list[tuple[Turning, int | None, list[LayerForms]]] = []
    for forms in layers:
        turning = turnings[forms.layer]
        members = next(
            (members for own, window, members in found if window == forms.window and own.same_as(turning)), None
        )
        if members is None:
            found.append((turning, forms.window, [forms]))
        else:
            members.append(forms)
    return [HeadGroup(members, turning, window, view) for turning, window, members in found]
