"""One pass of a text through a model: the kernel of every head, and whatever else reads the same captures."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.attention.estimators.estimate import HeadEstimate, KernelEstimator
from poskernel.attention.sources.capture import AttentionSource, Consumer, LayerCapture

BATCH = 16
"""Sequences that pass through the model at once."""
Progress = Callable[[str, int, int], None]
"""Called as progress(what, done, total)."""


class LastLayerSeen(Exception):  # noqa: N818  # no error
    """Ends a forward pass whose remaining layers nobody reads."""


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What is measured: some layers of a model on sequences of tokens, the first `dropped` positions left out.

    `seed` draws everything random, `null` asks for the shared permutation of positions, `place` is the model's device.
    """

    source: AttentionSource
    tokens: Int[Tensor, "sequence position"]
    layers: Sequence[int]
    dropped: int = 16
    seed: int = 0
    null: bool = True
    causal: bool = True
    place: str = "cpu"
    step: Progress = silent

    @property
    def heads(self) -> Mapping[int, int]:
        """Heads of each layer."""
        return dict.fromkeys(self.layers, self.source.heads)

    @property
    def length(self) -> int:
        """Positions of each sequence."""
        return self.tokens.shape[1]


def measure(subject: Subject, consumers: Sequence[Consumer] = ()) -> list[HeadEstimate]:
    """Kernels of every head of the layers; `consumers` see the same captures of the same forward pass.

    The pass ends with the attention of the last layer measured: what follows, its MLP too, is not computed.
    """
    source, batches = subject.source, even_batches(subject.tokens)
    kernels = KernelEstimator(
        subject.heads,
        subject.length,
        len(subject.tokens),
        len(batches[0]),
        dropped=subject.dropped,
        null=subject.null,
        seed=subject.seed,
        causal=subject.causal,
        dtype=torch.promote_types(source.dtype, torch.float32),  # halves are captured as float32
    )
    last = max(subject.layers)
    for index, batch in enumerate(batches):

        def consume(capture: LayerCapture, index: int = index) -> None:
            for each in (kernels.consume, *consumers):
                each(capture)
            subject.step("layers", index * (last + 1) + capture.layer + 1, len(batches) * (last + 1))
            if capture.layer == last:
                raise LastLayerSeen

        with suppress(LastLayerSeen):
            source.forward(batch, consume)
    return kernels.estimates()


def even_batches(tokens: Int[Tensor, "sequence position"]) -> list[Int[Tensor, "batch position"]]:
    """Batches of nearly equal size, even but for the last: variants pair the sequences of a batch."""
    count, pairs = math.ceil(tokens.shape[0] / BATCH), tokens.shape[0] // 2
    stops = [2 * sum(pairs // count + (j < pairs % count) for j in range(i)) for i in range(1, count)]
    return list(tokens.tensor_split(stops))
