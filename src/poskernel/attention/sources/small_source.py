"""Our own small transformers as sources: the same captures as of any Hugging Face model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.sources.capture import AttentionSource, Consumer, LayerCapture, check_finite, on_cpu
from poskernel.attention.sources.rotary_calls import RotaryCall
from poskernel.encodings import Placement
from poskernel.models.transformer import AttentionInputs, Block, Transformer, attend, rotate


class TransformerSource(AttentionSource):
    """A `Transformer` of this package; its attention is seen through the hook that it offers."""

    position_limit = None
    """An encoding with a table of positions says itself where it ends."""

    def __init__(self, model: Transformer, name: str = "transformer") -> None:
        self.model, self.name = model, name
        architecture = model.architecture
        self.layers, self.heads, self.vocabulary = architecture.layers, architecture.heads, architecture.vocabulary
        self.dtype = model.embedding.weight.dtype

    def to(self, device: str) -> None:
        """Move the model."""
        self.model.to(device)

    def embedding(self) -> Float[Tensor, "vocabulary width"]:
        """The token embeddings, without any that an encoding adds for positions."""
        return on_cpu(self.model.embedding.weight)

    def forward(
        self, tokens: Int[Tensor, "batch position"], consume: Consumer | None
    ) -> Float[Tensor, "batch position width"]:
        """The normalised stream after the last layer."""
        if consume is None:
            with torch.inference_mode():
                placed, placement, position = self.placed(tokens)
                return on_cpu(self.model.norm(self.model.stream(placed, placement, position, None)))
        entered: dict[int, Tensor] = {}

        def hand_on(given: AttentionInputs, placement: Placement) -> None:
            capture = self.captured(given, placement, entered[given.layer])
            check_finite(self, capture)
            consume(capture)

        with self.noting_inputs(entered):
            return self.hooked(tokens, hand_on)

    def own_patterns(self, tokens: Int[Tensor, "batch position"]) -> Sequence[Float[Tensor, "batch head query key"]]:
        """Each layer's weights as its own attention function and mask give them: what it makes of unit values."""
        patterns: list[Tensor] = []

        def note(given: AttentionInputs, placement: Placement) -> None:
            units = torch.eye(given.key.shape[2], device=given.key.device, dtype=given.key.dtype)
            mask = self.model.additive_mask(given.position, given.bias)
            values = units.expand(*given.key.shape[:2], -1, -1)
            patterns.append(on_cpu(attend(given.query, given.key, values, given.scale, mask, given.key_vectors)))

        self.hooked(tokens, note)
        return patterns

    def hooked(
        self, tokens: Int[Tensor, "batch position"], see: Callable[[AttentionInputs, Placement], None]
    ) -> Float[Tensor, "batch position width"]:
        """Run the model with every layer's attention inputs shown."""
        with torch.inference_mode():
            placed, placement, position = self.placed(tokens)
            stream = self.model.hooked_stream(placed, placement, position, lambda given: see(given, placement))
            return on_cpu(self.model.norm(stream))

    def placed(
        self, tokens: Int[Tensor, "batch position"]
    ) -> tuple[Int[Tensor, "batch position"], Placement, Int[Tensor, " position"]]:
        """Tokens on the model's device, with the placement of positions counted from 0."""
        placed = tokens.to(self.model.embedding.weight.device)
        position = torch.arange(tokens.shape[1], device=placed.device)
        return placed, self.model.position_module(position), position

    @contextmanager
    def noting_inputs(self, entered: dict[int, Tensor]) -> Iterator[None]:
        """Inside the block each layer's normalised stream is put under the layer's number."""
        hooks = []
        for layer, block in enumerate(self.model.blocks):
            assert isinstance(block, Block)

            def note(module: torch.nn.Module, given: object, normalised: Tensor, layer: int = layer) -> None:
                entered[layer] = normalised

            hooks.append(block.attention_norm.register_forward_hook(note))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def captured(
        self, given: AttentionInputs, placement: Placement, entered: Float[Tensor, "batch position stream"]
    ) -> LayerCapture:
        """The layer's capture; vectors added to keys as each query sees them become a bias of the logits."""
        bias = None if given.bias is None else given.bias[None]
        if given.key_vectors is not None:
            seen = given.scale * torch.einsum("bhqd,qkd->bhqk", given.query, given.key_vectors)
            bias = seen if bias is None else seen + bias
        return LayerCapture.assembled(
            layer=given.layer,
            query=given.query,
            key=given.key,
            scale=given.scale,
            causal=self.model.architecture.causal,
            bias=bias,
            calls=rotary_calls(given, placement),
            inputs=on_cpu(entered),
        )

    def layer_class(self, layer: int) -> str:
        """All layers are of one class."""
        return Block.__name__

    def tried(self) -> str:
        """The hook."""
        return "the transformer's own attention hook"


def rotary_calls(given: AttentionInputs, placement: Placement) -> list[RotaryCall]:
    """The layer's rotation as a call that can be replayed; none where nothing is rotated."""
    unturned = given.query is given.unrotated_query
    if unturned or (placement.query_rotation is None and placement.key_rotation is None):
        return []

    def function(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        turns = placement.query_rotation, placement.key_rotation
        turned = [
            vectors if turn is None else rotate(vectors, (turn[0].to(vectors), turn[1].to(vectors)))
            for vectors, turn in zip((query, key), turns, strict=True)
        ]
        return turned[0], turned[1]

    inputs = given.unrotated_query.transpose(1, 2), given.unrotated_key.transpose(1, 2)
    outputs = given.query.transpose(1, 2), given.key.transpose(1, 2)
    return [RotaryCall(function, inputs, {}, outputs)]
