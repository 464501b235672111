"""Which tokens a head attends to: a few rows of one sequence with the keys that get most, to look at beside numbers.

The rows are spread evenly over the first sequence and the same for every head: none is picked because it looks well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from poskernel.attention.estimators.row_tiles import RowTile, attention, check_dropped, tile_of
from poskernel.attention.sources.capture import LayerCapture
from poskernel.errors import InputError

ROWS = 5
KEYS = 6


@dataclass(frozen=True)
class AttendedRow:
    """A query position of the first sequence, and the key positions with most of its attention, most first."""

    query: int
    keys: tuple[int, ...]
    weights: tuple[float, ...]
    """Attention weights of the keys, the layer's own; what is missing to 1 is on other keys, or on a sink without."""


@dataclass(frozen=True, eq=False)
class HeadTokens:
    """What one head attends to in a few rows."""

    layer: int
    head: int
    rows: tuple[AttendedRow, ...]


def shown_rows(length: int, dropped: int) -> Int[Tensor, " row"]:
    """Query positions that are shown: evenly spread from the first that is not dropped to the last, none twice."""
    first = max(dropped, 1)
    return torch.linspace(first, length - 1, min(ROWS, length - first), dtype=torch.float64).round().long().unique()


class TokenEstimator:
    """Consumes captures and reads the first sequence of the first batch; keeps ROWS x KEYS numbers a head."""

    def __init__(self, layers: Mapping[int, int], length: int, dropped: int = 16) -> None:
        check_dropped(length, dropped)
        self.rows = shown_rows(length, dropped)
        self.found: dict[int, list[HeadTokens]] = {layer: [] for layer in layers}

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer of the first batch; layers not asked for and later batches are passed over."""
        if self.found.get(capture.layer) != []:
            return
        first = first_sequence(capture)
        with torch.inference_mode():
            self.found[capture.layer] = [self.attended(first, head) for head in range(capture.heads)]

    def attended(self, capture: LayerCapture, head: int) -> HeadTokens:
        """The rows of one head."""
        tile = tile_of(capture, self.rows, 0)
        if capture.mask is not None:
            every = torch.arange(capture.length)
            tile = RowTile(self.rows, every, masked_rows(capture.mask, head, self.rows))
        weights = attention(capture, head, tile, capture.logits(head, tile.rows, tile.keys))[0]
        rows = [
            attended_row(int(query), tile.keys[seen], row[seen])
            for query, seen, row in zip(tile.rows, tile.seen, weights, strict=True)
        ]
        return HeadTokens(capture.layer, head, tuple(rows))

    def estimates(self) -> list[HeadTokens]:
        """Every head's rows, by layer and head."""
        for layer, heads in self.found.items():
            if not heads:
                raise InputError(f"layer {layer} was not captured: give only layers that the source has.")
        return [tokens for layer in sorted(self.found) for tokens in self.found[layer]]


def first_sequence(capture: LayerCapture) -> LayerCapture:
    """What the logits of the batch's first sequence need; masks and biases common to the batch stay."""
    return replace(
        capture,
        query=capture.query[:1],
        key=capture.key[:1],
        mask=None if capture.mask is None else capture.mask[:1],
        bias=None if capture.bias is None else capture.bias[:1],
        unrotated_query=None,
        unrotated_key=None,
        rotation=None,
        inputs=None,
    )


def masked_rows(
    mask: Bool[Tensor, "maskbatch maskhead position position"], head: int, rows: Int[Tensor, " row"]
) -> Bool[Tensor, "row position"]:
    """The keys that each row sees, from a mask that no direction and window describe."""
    return mask[0, head % mask.shape[1], rows]


def attended_row(query: int, keys: Int[Tensor, " key"], weights: Float[Tensor, " key"]) -> AttendedRow:
    """The keys with most weight; of equal ones the nearest to the query first."""
    order = sorted(range(len(keys)), key=lambda index: (-float(weights[index]), abs(query - int(keys[index]))))[:KEYS]
    return AttendedRow(
        query, tuple(int(keys[index]) for index in order), tuple(float(weights[index]) for index in order)
    )
