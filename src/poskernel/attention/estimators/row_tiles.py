"""Rows of a head's logits, a tile at a time, for causal layers and for those that attend in both directions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from poskernel.attention.sources.capture import LayerCapture
from poskernel.errors import InputError

ENTRIES = 1 << 19
"""Logits held at a time: few enough to stay in a processor's cache."""
MOST_ROWS = 64


@dataclass(frozen=True, eq=False)
class RowTile:
    """Query rows, the keys that any of them sees, and which of the pairs are seen; indices count from position 0."""

    rows: Int[Tensor, " row"]
    keys: Int[Tensor, " key"]
    seen: Bool[Tensor, "row key"]

    @property
    def offsets(self) -> Int[Tensor, "row key"]:
        """Query position less key position."""
        return self.rows[:, None] - self.keys

    def centred(self, values: Float[Tensor, "*batch row key"]) -> Float[Tensor, "*batch row key"]:
        """Values less their mean over the keys that each row sees, 0 at the pairs that are not seen."""
        kept = values.masked_fill(~self.seen, 0)
        means = kept.sum(-1, keepdim=True) / self.seen.sum(-1, keepdim=True)
        return (kept - means).masked_fill_(~self.seen, 0)

    def log_weights(self, values: Float[Tensor, "*batch row key"]) -> Float[Tensor, "*batch row key"]:
        """Log of the softmax over the keys that each row sees; -inf elsewhere."""
        return values.masked_fill(~self.seen, float("-inf")).log_softmax(-1)


def tile_of(capture: LayerCapture, rows: Int[Tensor, " row"], dropped: int) -> RowTile:
    """The tile of consecutive rows against every key past the dropped positions that one of them sees."""
    start, stop, reach = int(rows[0]), int(rows[-1]) + 1, capture.window or capture.length
    last = stop if capture.causal else min(capture.length, stop + reach - 1)
    keys = torch.arange(max(dropped, start - reach + 1), last)
    offset = rows[:, None] - keys
    seen = (offset >= 0) & (offset < reach) if capture.causal else offset.abs() < reach
    return RowTile(rows, keys, seen)


def row_tiles(capture: LayerCapture, dropped: int, copies: int = 1) -> Iterator[RowTile]:
    """Every row past the dropped positions, in tiles that bound `copies` sets of logits.

    Raises InputError for a mask that is neither causal (or absent) nor a sliding window.
    """
    if capture.mask is not None:
        raise InputError(
            f"layer {capture.layer} has a mask that is neither causal nor a sliding window, so its rows see no run of "
            "keys: choose layers without it."
        )
    size = max(1, min(MOST_ROWS, ENTRIES // (copies * capture.length)))
    for rows in torch.arange(dropped, capture.length).split(size):
        yield tile_of(capture, rows, dropped)


def common_bias(
    capture: LayerCapture, head: int, rows: Int[Tensor, " row"], keys: Int[Tensor, " key"]
) -> Float[Tensor, "row key"] | None:
    """The bias of one head where it is the same in every sequence; None without one.

    Raises InputError for a bias that depends on the text: it is no position's, and means nothing between two texts.
    """
    if capture.bias is None:
        return None
    values = capture.bias[:, head % capture.bias.shape[1], rows][:, :, keys]
    if not torch.equal(values, values[:1].expand_as(values)):
        raise InputError(
            f"the bias of layer {capture.layer} depends on the text, so it belongs to no one part of the logits: "
            "choose layers without it."
        )
    return values[0]


def check_dropped(length: int, dropped: int) -> None:
    """InputError where dropping leaves no pairs."""
    if not 0 <= dropped <= length - 2:
        raise InputError(
            f"dropping {dropped} positions of {length} leaves no pairs: drop fewer or take longer sequences."
        )


def blocks(capture: LayerCapture, size: int, least: int) -> Sequence[Int[Tensor, " sequence"]]:
    """Indices of the batch's sequences in blocks of about `size`; InputError for a batch of fewer than `least`."""
    batch = capture.query.shape[0]
    if batch < least:
        raise InputError(
            f"a batch of {batch} sequences is too small to tell position from content: pass at least {least} at once."
        )
    return torch.arange(batch).tensor_split(max(1, round(batch / size)))


def attention(
    capture: LayerCapture, head: int, tile: RowTile, logits: Float[Tensor, "batch row key"]
) -> Float[Tensor, "batch row key"]:
    """Attention weights of a tile's logits, with the layer's sinks in the denominator; a row's keys are all it has."""
    if capture.sinks is None:
        return tile.log_weights(logits).exp()
    hidden = logits.masked_fill(~tile.seen, float("-inf"))
    total = torch.logaddexp(hidden.logsumexp(-1), capture.sinks[head].to(hidden))
    return (hidden - total[..., None]).exp()
