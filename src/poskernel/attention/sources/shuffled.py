"""A model whose captures stand in a wrong order of positions: the null of everything that is said to be position.

The model itself runs on the text as it is. Whoever measures is given the text, and the queries, keys and inputs of each
layer, in one random order of positions that all sequences share. Content keeps its pairs; the offsets between them
mean nothing any more. (An order of its own for each sequence would be no null: exchangeable logits are stationary.)
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.sources.capture import AttentionSource, Consumer, LayerCapture
from poskernel.errors import InputError
from poskernel.random_streams import random_stream


class ShuffledSource(AttentionSource):
    """Another source in the shared wrong order; the first `kept` positions stay where they are.

    A pair may stand in the order in which it does not attend: its logit is what the dot product says.
    """

    position_limit = None

    def __init__(self, source: AttentionSource, length: int, kept: int, seed: int) -> None:
        self.source, self.name = source, f"{source.name}, positions shuffled"
        self.layers, self.heads, self.vocabulary, self.dtype = (
            source.layers, source.heads, source.vocabulary, source.dtype,
        )  # fmt: skip
        moved = kept + torch.randperm(length - kept, generator=random_stream(seed, "order of positions"))
        self.order = torch.cat([torch.arange(kept), moved])

    def embedding(self) -> Float[Tensor, "vocabulary width"]:
        """The source's own."""
        return self.source.embedding()

    def shuffled(self, values: Int[Tensor, "sequence position"]) -> Int[Tensor, "sequence position"]:
        """Tokens, or labels of them, in the wrong order: what to give to `forward`."""
        return values[:, self.order]

    def forward(
        self, tokens: Int[Tensor, "batch position"], consume: Consumer | None
    ) -> Float[Tensor, "batch position width"]:
        """Run the model on the text that these shuffled tokens came from; what comes back is shuffled too."""
        text = tokens[:, self.order.argsort()]
        if consume is None:
            return self.source.forward(text, None)[:, self.order]
        return self.source.forward(text, lambda capture: consume(self.moved(capture)))[:, self.order]

    def moved(self, capture: LayerCapture) -> LayerCapture:
        """A capture in the wrong order, without what it says of rotation; InputError for a mask that says more."""
        if capture.mask is not None or capture.window is not None:
            raise InputError(
                f"layer {capture.layer} does not attend all earlier positions, so that shuffled ones are no null of "
                "it: leave it out."
            )
        bias, order = capture.bias, self.order
        return replace(
            capture,
            query=capture.query[:, :, order],
            key=capture.key[:, :, order],
            bias=None if bias is None else bias[:, :, order][:, :, :, order],
            inputs=None if capture.inputs is None else capture.inputs[:, order],
            unrotated_query=None,
            unrotated_key=None,
            rotation=None,
            unreadable="positions are shuffled",
        )

    def own_patterns(self, tokens: Int[Tensor, "batch position"]) -> Sequence[Float[Tensor, "batch head query key"]]:
        """The source's own, in the wrong order."""
        patterns = self.source.own_patterns(tokens[:, self.order.argsort()])
        return [pattern[:, :, self.order][:, :, :, self.order] for pattern in patterns]

    def layer_class(self, layer: int) -> str:
        """The source's own."""
        return self.source.layer_class(layer)

    def tried(self) -> str:
        """What the source tries."""
        return self.source.tried()
