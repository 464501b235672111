"""The pairs of positions that the decomposition is fitted over: all that attend, without a position and itself.

Row-centred values live in two layouts: by (query, key), where content is a matrix product, and by (query, offset),
where every sum along a diagonal is a sum down a column.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.sources.capture import LayerCapture
from poskernel.errors import InputError

EXACT = 32
"""Offsets up to here have a bin of their own; beyond it bins are quarter octaves wide."""


@dataclass(frozen=True, eq=False)
class PairLayout:
    """Pairs (query t, key s), t != s, of sequences without their first positions; offsets t - s, signed for encoders.

    Offset 0 is apart: a token always matches itself, so those pairs would turn any content kernel into a kernel of the
    offset.
    """

    mask: Float[Tensor, "query key"]
    """1 where the pair is in, else 0."""
    offsets: Int[Tensor, " offset"]
    key: Int[Tensor, "query offset"]
    """Key at each offset of each query; 0 where there is none."""
    valid: Float[Tensor, "query offset"]
    """1 where that key is there, else 0."""

    @classmethod
    def of(cls, length: int, dropped: int, causal: bool, window: int | None) -> "PairLayout":
        """Pairs of sequences of `length` positions without their first `dropped`; InputError where none is left."""
        kept = length - dropped
        reach = min(kept, window or kept)
        if reach < 2:
            raise InputError(
                f"length {length} without its first {dropped} positions and window {window} leave no pair of two "
                "positions: take longer sequences or drop fewer."
            )
        low, position = 1 if causal else 1 - reach, torch.arange(kept)
        offsets = torch.tensor([offset for offset in range(low, reach) if offset])
        apart, key = position[:, None] - position, position[:, None] - offsets
        valid = (key >= 0) & (key < kept)
        mask = (apart != 0) & (apart >= low) & (apart < reach)
        return cls(mask.double(), offsets, key.where(valid, 0), valid.double())

    @classmethod
    def of_capture(cls, capture: LayerCapture, dropped: int) -> "PairLayout":
        """The pairs that a layer attends; InputError where a mask other than causal or a window hides some."""
        if capture.mask is not None:
            raise InputError(
                f"layer {capture.layer} has a mask that is neither causal nor a sliding window, so no one kernel of "
                "the offset: choose layers without it."
            )
        return cls.of(capture.length, dropped, capture.causal, capture.window)

    @property
    def length(self) -> int:
        """Positions kept."""
        return self.mask.shape[0]

    @property
    def row_counts(self) -> Float[Tensor, " query"]:
        """Keys of each query, at least 1 so that empty rows divide to 0."""
        return self.mask.sum(1).clamp(min=1)

    def centred(self, values: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
        """Row-centred over the pairs; 0 elsewhere."""
        inside = torch.where(self.mask.bool(), values, 0)
        return (inside - (inside.sum(-1) / self.row_counts)[..., None]) * self.mask

    def by_offset(self, values: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query offset"]:
        """The same values with a column an offset; 0 where there is no such key."""
        index = self.key.expand(*values.shape[:-2], -1, -1)
        return values.gather(-1, index) * self.valid

    def of_key(self, values: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch query offset"]:
        """A value of each key, at every pair."""
        return values[..., self.key] * self.valid

    def offset_normal(self) -> Float[Tensor, "offset offset"]:
        """Normal matrix of the row-centred offset indicators for one sequence."""
        return self.valid.sum(0).diag() - self.valid.T @ (self.valid / self.row_counts[:, None])

    def fine_bins(self) -> Float[Tensor, "offset bin"]:
        """Indicators of offset bins: each offset up to EXACT, then quarter octaves, both signs apart."""
        return indicators([self.fine_bin(offset) for offset in self.offsets.tolist()])

    @staticmethod
    def fine_bin(offset: int) -> tuple[int, int]:
        """(sign, bin) of an offset."""
        size = abs(offset)
        return (-1 if offset < 0 else 1), size if size <= EXACT else EXACT + 1 + int(4 * math.log2(size / EXACT))

    def octaves(self) -> Float[Tensor, "offset octave"]:
        """Indicators of octaves of the offset (1, 2 to 3, 4 to 7, ...), both signs apart."""
        return indicators([(-1 if offset < 0 else 1, abs(offset).bit_length()) for offset in self.offsets.tolist()])


def indicators(labels: list[tuple[int, int]]) -> Float[Tensor, "row label"]:
    """One column a distinct label, in sorted order."""
    names = {label: column for column, label in enumerate(sorted(set(labels)))}
    return torch.nn.functional.one_hot(torch.tensor([names[label] for label in labels]), len(names)).double()
