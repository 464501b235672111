"""Queries and keys of any model, one layer and one batch at a time.

A source (a Hugging Face model, our own transformer) runs its forward pass and hands each layer's `LayerCapture` to a
consumer while that layer is being computed; nothing is kept after the consumer returns, so memory does not grow with
layers, sequences or length squared.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from poskernel.attention.sources.rotary_calls import RotaryCall, Rotation, rotated_side
from poskernel.errors import InputError, RunError


@dataclass(frozen=True, eq=False)
class LayerCapture:
    """What one layer's attention computes with, for one batch, exactly as the layer uses it.

    Queries and keys are those after rotary and any normalisation; key heads are not repeated under grouped queries.
    `scale` is the factor the layer itself applies. `mask` is None where causality (or its absence) and `window` say
    it all; otherwise True marks the pairs that attend. `sinks` are logits that join the softmax but have no key.

    `rotation` replays the layer's rotary calls, and the unrotated vectors are those that it turns into query and key:
    all three, or none. None where the layer rotates nothing (other encodings, layers without positions), and where it
    does but something other than a rescaling follows (HunYuan's weighted normalisation): `unreadable` then says so.
    """

    layer: int
    query: Float[Tensor, "batch head position width"]
    key: Float[Tensor, "batch keyhead position width"]
    scale: float
    positions: Int[Tensor, " position"]
    causal: bool
    window: int | None = None
    mask: Bool[Tensor, "maskbatch maskhead position position"] | None = None
    bias: Float[Tensor, "biasbatch biashead position position"] | None = None
    softcap: float | None = None
    sinks: Float[Tensor, " head"] | None = None
    unrotated_query: Float[Tensor, "batch head position width"] | None = None
    unrotated_key: Float[Tensor, "batch keyhead position width"] | None = None
    rotation: Rotation | None = None
    unreadable: str | None = None
    inputs: Float[Tensor, "batch position stream"] | None = None
    """What the layer's queries and keys are projected from; None where the source does not say."""

    @classmethod
    def assembled(
        cls,
        layer: int,
        query: Float[Tensor, "batch head position width"],
        key: Float[Tensor, "batch keyhead position width"],
        scale: float,
        causal: bool,
        mask: Bool[Tensor, "maskbatch maskhead position position"] | None = None,
        bias: Float[Tensor, "biasbatch biashead position position"] | None = None,
        softcap: float | None = None,
        sinks: Float[Tensor, " head"] | None = None,
        calls: Sequence[RotaryCall] = (),
        unreadable: str | None = None,
        inputs: Float[Tensor, "batch position stream"] | None = None,
    ) -> "LayerCapture":
        """From a layer's own tensors: on the CPU, halves as float32, the mask as direction and window if they say all.

        `causal` is what holds without a mask. `calls` are the rotary calls since the layer before.
        """
        kept, window = None, None
        if mask is not None:
            causal, window, stationary = read_mask(mask)
            kept = None if stationary else mask.cpu()
        rotation: Rotation | None = None
        unrotated: list[Tensor | None] = [None, None]
        if calls:
            sides = rotated_side(calls, query), rotated_side(calls, key)
            if sides[0] is None or sides[1] is None:
                what = "queries" if sides[0] is None else "keys"
                unreadable = f"its {what} are no rescaled output of the rotary function that it called"
            else:
                rotation = Rotation(sides[0], sides[1])
                unrotated = [on_cpu(sides[0].unrotated(query)), on_cpu(sides[1].unrotated(key))]
        return cls(
            layer=layer,
            query=on_cpu(query),
            key=on_cpu(key),
            scale=scale,
            positions=torch.arange(query.shape[2]),
            causal=causal,
            window=window,
            mask=kept,
            bias=None if bias is None else on_cpu(bias),
            softcap=softcap,
            sinks=None if sinks is None else on_cpu(sinks),
            unrotated_query=unrotated[0],
            unrotated_key=unrotated[1],
            rotation=rotation,
            unreadable=unreadable,
            inputs=inputs,
        )

    def before_rotation(
        self,
    ) -> tuple[Float[Tensor, "batch head position width"], Float[Tensor, "batch keyhead position width"]]:
        """Queries and keys before the rotation; those used where nothing is rotated. InputError where unknown."""
        if self.unreadable is not None:
            raise InputError(
                f"the unrotated queries and keys of layer {self.layer} are not known, as {self.unreadable}: "
                "measure what needs queries and keys alone."
            )
        if self.unrotated_query is None or self.unrotated_key is None:
            return self.query, self.key
        return self.unrotated_query, self.unrotated_key

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return self.query.shape[1]

    @property
    def length(self) -> int:
        """Positions in each sequence."""
        return self.query.shape[2]

    @property
    def bilinear(self) -> bool:
        """Whether the logits are scale * <q, k> and nothing else, so that FFTs and prefix sums are exact."""
        return self.bias is None and self.softcap is None

    def key_head(self, head: int) -> int:
        """The key head that a query head reads (grouped queries share one)."""
        return head // (self.query.shape[1] // self.key.shape[1])

    def logits(
        self, head: int, query: Int[Tensor, " query"] | slice, key: Int[Tensor, " key"] | slice
    ) -> Float[Tensor, "batch query key"]:
        """Logits in nats of one head at the given positions, before the mask and the softmax.

        scale * <q, k> + bias, or its soft-capped value where the layer caps it: what the softmax will see. Runs of
        positions as slices are read in place.
        """
        keys = self.key[:, self.key_head(head)][:, key]
        values = (self.query[:, head][:, query] @ keys.transpose(1, 2)) * self.scale
        if self.softcap is not None:
            values = self.softcap * torch.tanh(values / self.softcap)
        if self.bias is not None:
            values = values + self.bias[:, head % self.bias.shape[1]][:, query][:, :, key]
        return values

    def allowed(self, head: int) -> Bool[Tensor, "maskbatch position position"]:
        """True where a query attends a key; of side T, so for short probes only."""
        if self.mask is not None:
            return self.mask[:, head % self.mask.shape[1]]
        offset = self.positions[:, None] - self.positions
        seen = offset >= 0 if self.causal else torch.ones_like(offset, dtype=torch.bool)
        return (seen if self.window is None else seen & (offset.abs() < self.window))[None]

    def pattern(self, head: int) -> Float[Tensor, "batch query key"]:
        """Attention weights of one head rebuilt from the capture; of side T, so for short probes only."""
        everywhere = torch.arange(self.length)
        logits = self.logits(head, everywhere, everywhere).masked_fill(~self.allowed(head), float("-inf"))
        if self.sinks is not None:
            column = self.sinks[head].to(logits).expand(*logits.shape[:2], 1)
            return torch.cat([logits, column], -1).softmax(-1)[..., :-1]
        return logits.softmax(-1)


@dataclass(frozen=True, eq=False)
class OwnAttention:
    """A layer's attention weights as the model reports them; queries and keys of that pass where they are seen."""

    weights: Float[Tensor, "batch head query key"]
    query: Float[Tensor, "batch head position width"] | None = None
    key: Float[Tensor, "batch keyhead position width"] | None = None


Consumer = Callable[[LayerCapture], None]
Side = Literal["left", "right"]


class AttentionSource(ABC):
    """A model whose attention can be captured: subclass it to bring another kind of model."""

    name: str
    layers: int
    heads: int
    """Query heads of every layer."""
    vocabulary: int
    position_limit: int | None
    dtype: torch.dtype

    def to(self, device: str) -> None:
        """Move the model to a device; captures and outputs come back on the CPU. InputError where it cannot move."""
        if device != "cpu":
            raise InputError(f"'{self.name}' runs on the CPU alone, not on {device}: take cpu.")

    @abstractmethod
    def forward(
        self, tokens: Int[Tensor, "batch position"], consume: Consumer | None
    ) -> Float[Tensor, "batch position width"]:
        """Run the model on tokens and return its last hidden states; each layer's capture goes to `consume`.

        With None the model runs exactly as it does without us.
        """

    @abstractmethod
    def own_patterns(self, tokens: Int[Tensor, "batch position"]) -> Sequence[Float[Tensor, "batch head query key"]]:
        """The attention weights that the model itself reports, a layer each: what a capture must reproduce."""

    def own_attention(self, tokens: Int[Tensor, "batch position"]) -> Sequence[OwnAttention]:
        """`own_patterns`, with what they were made of where a pass of other roundings than a capture's gave them."""
        return [OwnAttention(weights) for weights in self.own_patterns(tokens)]

    def embedding(self) -> Float[Tensor, "vocabulary width"]:
        """The token embeddings, a row a token, on the CPU; InputError where the source does not give them."""
        raise InputError(
            f"'{self.name}' does not give its token embeddings: measure what needs queries and keys alone."
        )

    def probe_tokens(self, sequences: int, length: int, generator: torch.Generator) -> Int[Tensor, "sequence position"]:
        """Random tokens for a probe; a source with tokens that mean something to its code leaves those out."""
        return torch.randint(0, self.vocabulary, (sequences, length), generator=generator)

    def padded(
        self, tokens: Int[Tensor, "batch position"], padding: int, side: Side, consume: Consumer
    ) -> Float[Tensor, "batch padded width"] | None:
        """As `forward`, with `padding` masked tokens on one side of every sequence and positions counted without them.

        None where the model takes no attention mask, so that nothing can be padded.
        """
        return None

    @property
    def counts_positions(self) -> bool:
        """Whether positions can be given to the model, or it counts them itself without the padding."""
        return True

    @abstractmethod
    def layer_class(self, layer: int) -> str:
        """Name of the class that computes a layer's attention, for messages."""

    @abstractmethod
    def tried(self) -> str:
        """How the capture hooks into the model, in words, for messages."""

    def capturing(self) -> AbstractContextManager[None]:
        """Whatever must hold while several captures follow each other; the model is as before afterwards."""
        return nullcontext()


def refusal(source: AttentionSource, layer: int, reason: str) -> InputError:
    """The error of a model that cannot be captured: which layer, which class, what was tried, why."""
    return InputError(
        f"'{source.name}' cannot be analysed: layer {layer} ({source.layer_class(layer)}) {reason}; "
        f"tried {source.tried()}."
    )


def check_finite(source: AttentionSource, capture: LayerCapture) -> None:
    """RunError naming the layer if a query or a key is not a finite number."""
    for what, values in (("queries", capture.query), ("keys", capture.key)):
        # One sum is enough: a single nan or infinity survives it, and finite float32 activations cannot overflow it.
        if not torch.isfinite(values.sum(dtype=torch.float64)):
            raise RunError(
                f"'{source.name}' gave {what} that are not finite numbers in layer {capture.layer} "
                f"({source.layer_class(capture.layer)}): its weights or its precision are broken."
            )


def on_cpu(values: Tensor) -> Tensor:
    """On the CPU, where estimates are made in float64 (not every accelerator has it); halves as float32."""
    values = values.detach().cpu()
    return values.float() if torch.finfo(values.dtype).bits < 32 else values


def read_mask(mask: Bool[Tensor, "batch head query key"]) -> tuple[bool, int | None, bool]:
    """(causal, window, whether those two say everything) of an attention mask, True where a query attends a key."""
    length = mask.shape[-1]
    position = torch.arange(length, device=mask.device)
    offset = position[:, None] - position
    causal = not bool((mask & (offset < 0)).any())
    reach = int((mask[0, 0] * (offset + 1)).max())
    window = reach if reach < length else None
    expected = (offset < (window or length)) & (offset >= 0 if causal else offset > -(window or length))
    return causal, window, bool((mask == expected).all())
