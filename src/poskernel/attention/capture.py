"""Queries and keys of any model, one layer and one batch at a time, and the self-test every source must pass.

A source (a Hugging Face model, our own transformer) runs its forward pass and hands each layer's `LayerCapture` to a
consumer while that layer is being computed; nothing is kept after the consumer returns, so memory does not grow with
layers, sequences or length squared.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from poskernel.errors import InputError, RunError

PROBE_LENGTH = 40
PROBE_SEQUENCES = 2
PATTERN_TOLERANCE = 1e-4
"""Largest difference allowed between a rebuilt attention weight and the model's own (float32 probes reach 1e-6)."""


@dataclass(frozen=True, eq=False)
class LayerCapture:
    """What one layer's attention computes with, for one batch, exactly as the layer uses it.

    Queries and keys are those after rotary and any normalisation; key heads are not repeated under grouped queries.
    `scale` is the factor the layer itself applies. `mask` is None where causality (or its absence) and `window` say
    it all; otherwise True marks the pairs that attend. `sinks` are logits that join the softmax but have no key.
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
        self, head: int, query: Int[Tensor, " query"], key: Int[Tensor, " key"]
    ) -> Float[Tensor, "batch query key"]:
        """Logits in nats of one head at the given positions, before the mask and the softmax.

        scale * <q, k> + bias, or its soft-capped value where the layer caps it: what the softmax will see.
        """
        keys = self.key[:, self.key_head(head)][:, key]
        values = (self.query[:, head][:, query] * self.scale) @ keys.transpose(1, 2)
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


Consumer = Callable[[LayerCapture], None]


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
            raise InputError(f"'{self.name}' runs on the CPU alone, not on {device}: give --device cpu.")

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

    @abstractmethod
    def layer_class(self, layer: int) -> str:
        """Name of the class that computes a layer's attention, for messages."""

    @abstractmethod
    def tried(self) -> str:
        """How the capture hooks into the model, in words, for messages."""

    def capturing(self) -> AbstractContextManager[None]:
        """Whatever must hold while several captures follow each other; the model is as before afterwards."""
        return nullcontext()


@dataclass(frozen=True)
class SelfTest:
    """What the probe of a load found: the worst differences, and whether queries see only the past."""

    causal: bool
    pattern_error: float
    output_error: float


def self_test(source: AttentionSource, seed: int = 0) -> SelfTest:
    """Capture a short random probe and compare it with the model's own attention; refuse a model that differs.

    Checked: every layer is captured once; the rebuilt attention weights and the output equal the model's own; the
    layers agree on whether the future is hidden, and where it is, a changed last token changes nothing before it.
    Raises InputError naming the layer, its class and what was tried.
    """
    length = min(PROBE_LENGTH, source.position_limit or PROBE_LENGTH)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, source.vocabulary, (PROBE_SEQUENCES, length), generator=generator)
    own = source.own_patterns(tokens)
    rebuilt: dict[int, tuple[LayerCapture, float]] = {}

    def compare(capture: LayerCapture) -> None:
        if capture.layer in rebuilt:
            raise refusal(source, capture.layer, "called attention twice in one forward pass")
        pattern = own[capture.layer] if capture.layer < len(own) else None
        if pattern is None:
            raise refusal(source, capture.layer, "reports no attention weights of its own to compare with")
        rebuilt[capture.layer] = capture, pattern_error(source, capture, pattern)

    with source.capturing():
        output = source.forward(tokens, compare)
    for layer in range(source.layers):
        if layer not in rebuilt:
            raise refusal(source, layer, "was never called through it")
    causal = same_direction(source, [capture for capture, _ in rebuilt.values()])
    plain = source.forward(tokens, None)
    scale = float(plain.abs().max().clamp(min=1))
    output_error = float((output - plain).abs().max()) / scale
    if not output_error <= PATTERN_TOLERANCE:
        raise InputError(
            f"'{source.name}' cannot be analysed: capturing changes its output by {output_error:.1e} relative "
            f"(tried {source.tried()}), so its numbers would describe another model."
        )
    if causal:
        check_causal(source, tokens, plain, scale)
    return SelfTest(causal, max(error for _, error in rebuilt.values()), output_error)


def pattern_error(source: AttentionSource, capture: LayerCapture, own: Float[Tensor, "batch head query key"]) -> float:
    """Largest difference between rebuilt and own attention weights of a layer; InputError above the tolerance."""
    if own.shape[1] != capture.heads:
        raise refusal(
            source, capture.layer, f"reports {own.shape[1]} heads of attention, not the {capture.heads} captured"
        )
    worst = max(float((capture.pattern(head) - own[:, head]).abs().max()) for head in range(capture.heads))
    if not worst <= PATTERN_TOLERANCE:
        raise refusal(source, capture.layer, f"has attention weights that differ by {worst:.1e} from those rebuilt")
    return worst


def same_direction(source: AttentionSource, captures: Sequence[LayerCapture]) -> bool:
    """Whether every layer hides the future; InputError if some do and some do not."""
    causal = {capture.causal for capture in captures}
    if len(causal) > 1:
        odd = next(capture.layer for capture in captures if capture.causal != captures[0].causal)
        raise refusal(source, odd, "differs from layer 0 in whether a query sees later keys")
    return causal.pop()


def check_causal(
    source: AttentionSource,
    tokens: Int[Tensor, "batch position"],
    plain: Float[Tensor, "batch position width"],
    scale: float,
) -> None:
    """InputError unless a changed last token leaves every earlier output alone."""
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % source.vocabulary
    with source.capturing():
        after = source.forward(changed, lambda capture: None)
    leak = float((after - plain)[:, :-1].abs().max()) / scale
    if not leak <= PATTERN_TOLERANCE:
        raise InputError(
            f"'{source.name}' cannot be analysed: its attention hides later keys, yet a changed last token changes "
            f"earlier outputs by {leak:.1e} relative (tried {source.tried()})."
        )


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
