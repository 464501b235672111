"""One small transformer for everything the package trains: any encoding, norm, mask, depth and number of heads.

Pre-norm blocks, a final norm, a learned token embedding and an output head, all with PyTorch's default initialisation.
Two exact savings shape the code. What enters the first layer is one of few distinct rows (a token at a position), so
its norm and projections are computed once a distinct row and looked up. And where only some rows are asked for, the
last layer computes keys and values of all rows, but queries, MLP and logits of those rows alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.encodings import Encoding, ModelShape, Placement
from poskernel.encodings.encoding import Rotation
from poskernel.errors import InputError

VECTOR_WIDTH = 16
"""Entries below which PyTorch's softmax leaves vector instructions unused on a CPU (AVX-512 holds 16 floats)."""


class Norm(StrEnum):
    """What normalises the residual stream before attention, before the MLP and before the head."""

    LAYER = "layer"
    RMS = "rms"
    SCALE = "scale"
    """One number for all tokens and features: the mean size of a token stays 1, but not each token's own."""
    NONE = "none"

    def module(self, width: int) -> nn.Module:
        """A layer of that width."""
        match self:
            case Norm.LAYER:
                return nn.LayerNorm(width)
            case Norm.RMS:
                return nn.RMSNorm(width)
            case Norm.SCALE:
                return GlobalScale(width)
            case Norm.NONE:
                return nn.Identity()


class GlobalScale(nn.Module):
    """Divides the stream by one running root mean square over all tokens seen in training; then a trained scale.

    What it divides a batch by comes from earlier batches alone: no token sees a later one through it.
    """

    momentum = 0.01

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.mean_square: Tensor
        self.register_buffer("mean_square", torch.tensor(1.0))

    def forward(self, stream: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """The stream, scaled; the running mean moves in training alone."""
        scaled = stream * self.mean_square.rsqrt() * self.weight
        if self.training and torch.is_grad_enabled():
            seen = stream.detach().square().mean()
            self.mean_square = torch.lerp(self.mean_square, seen, self.momentum)
        return scaled


@dataclass(frozen=True)
class Architecture:
    """Shape of a transformer; the defaults are tier 1 of the realizability study."""

    width: int = 64
    layers: int = 1
    heads: int = 1
    mlp: bool = True
    """Whether each block has an MLP (GELU, hidden width 4 x width)."""
    norm: Norm = Norm.LAYER
    vocabulary: int = 12
    causal: bool = True
    train_length: int = 20
    attention_norm: Norm | None = None
    """The norm before attention where it is another than the rest; None where it is `norm` too."""

    def __post_init__(self) -> None:
        for name in ("width", "layers", "heads", "vocabulary", "train_length"):
            value = getattr(self, name)
            if isinstance(value, bool) or value != int(value) or value < 1:
                raise InputError(f"{name} of the architecture is {value}: give a whole number of at least 1.")
        if self.width % self.heads:
            raise InputError(f"a width of {self.width} does not divide into {self.heads} heads: change one of them.")

    @property
    def head_width(self) -> int:
        """Width of one head's queries and keys."""
        return self.width // self.heads

    @property
    def shape(self) -> ModelShape:
        """What the encoding has to know."""
        return ModelShape(width=self.width, heads=self.heads, train_length=self.train_length)


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """What one layer's attention works on: logits = scale x query . (key + key vector) + bias, in nats, unmasked."""

    layer: int
    query: Float[Tensor, "batch head query width"]
    """After rotation, as attention uses it."""
    key: Float[Tensor, "batch head key width"]
    value: Float[Tensor, "batch head key width"]
    unrotated_query: Float[Tensor, "batch head query width"]
    unrotated_key: Float[Tensor, "batch head key width"]
    scale: float
    bias: Float[Tensor, "head query key"] | None
    position: Int[Tensor, " position"]
    key_vectors: Float[Tensor, "query key width"] | None = None
    """Added to each key as one query sees it, in every head."""


AttentionHook = Callable[[AttentionInputs], AttentionInputs | None]
"""Sees each layer's attention inputs and may return others, which attention then uses."""


class Block(nn.Module):
    """Attention and MLP, each after a norm and added to the residual stream."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        width = architecture.width
        self.heads, self.head_width = architecture.heads, architecture.head_width
        before = architecture.norm if architecture.attention_norm is None else architecture.attention_norm
        self.attention_norm = before.module(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.mlp = None
        if architecture.mlp:
            hidden = 4 * width
            layers = (architecture.norm.module(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
            self.mlp = nn.Sequential(*layers)

    def project(self, stream: Float[Tensor, "*rows width"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of each row, shape (*rows, head, head_width), before rotation."""
        projected = self.query_key_value(self.attention_norm(stream))
        query, key, value = projected.view(*stream.shape[:-1], 3, self.heads, self.head_width).unbind(-3)
        return query, key, value

    def finish(
        self, stream: Float[Tensor, "batch row width"], attended: Float[Tensor, "batch head row head_width"]
    ) -> Float[Tensor, "batch row width"]:
        """The stream after this block, from what its heads read."""
        stream = stream + self.output(attended.transpose(1, 2).flatten(2))
        return stream if self.mlp is None else stream + self.mlp(stream)


class Transformer(nn.Module):
    """Tokens to logits over the vocabulary. Weights other than the encoding's own do not depend on the encoding."""

    def __init__(self, architecture: Architecture, encoding: Encoding) -> None:
        super().__init__()
        self.architecture, self.encoding = architecture, encoding
        self.embedding = nn.Embedding(architecture.vocabulary, architecture.width)
        self.blocks = nn.ModuleList(Block(architecture) for _ in range(architecture.layers))
        self.norm = architecture.norm.module(architecture.width)
        self.head = nn.Linear(architecture.width, architecture.vocabulary)
        # Made last, so that the other weights come out of the same random stream whatever the encoding draws.
        self.position_module = encoding.module(architecture.shape)

    def fresh(self, encoding: Encoding | None = None) -> "Transformer":
        """Another of the same kind with new weights, under its own encoding or another."""
        return Transformer(self.architecture, self.encoding if encoding is None else encoding)

    def forward(
        self,
        tokens: Int[Tensor, "batch position"],
        rows: Int[Tensor, " row"] | None = None,
        position: Int[Tensor, " position"] | None = None,
        hook: AttentionHook | None = None,
    ) -> Float[Tensor, "batch row vocabulary"]:
        """Logits in nats at the given rows (all by default); positions count from 0 unless given."""
        position = torch.arange(tokens.shape[1], device=tokens.device) if position is None else position
        return self.place(tokens, self.position_module(position), position, rows, hook)

    def place(
        self,
        tokens: Int[Tensor, "batch position"],
        placement: Placement,
        position: Int[Tensor, " position"],
        rows: Int[Tensor, " row"] | None = None,
        hook: AttentionHook | None = None,
    ) -> Float[Tensor, "batch row vocabulary"]:
        """`forward` with the placement given: models of several encodings in one batch differ in it alone."""
        if hook is not None:
            stream = self.hooked_stream(tokens, placement, position, hook)
            stream = stream if rows is None else stream.index_select(1, rows)
        else:
            stream = self.stream(tokens, placement, position, rows)
        logits: Tensor = self.head(self.norm(stream))
        return logits

    def stream(
        self,
        tokens: Int[Tensor, "batch position"],
        placement: Placement,
        position: Int[Tensor, " position"],
        rows: Int[Tensor, " row"] | None,
    ) -> Float[Tensor, "batch row width"]:
        """The stream after all blocks, at the given rows."""
        mask = self.additive_mask(position, placement.bias)
        stream: Tensor | None = None
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            chosen = rows if layer == len(self.blocks) - 1 else None
            if stream is None:
                stream, query, key, value = self.first_inputs(block, tokens, placement, chosen)
            else:
                query, key, value = turned(*block.project(stream), placement)
                if chosen is not None:
                    stream, query = stream.index_select(1, chosen), query.index_select(1, chosen)
            seen = mask if mask is None or chosen is None else mask.index_select(-2, chosen)
            vectors = placement.key_vectors
            vectors = vectors if vectors is None or chosen is None else vectors.index_select(0, chosen)
            query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
            stream = block.finish(stream, attend(query, key, value, block.head_width**-0.5, seen, vectors))
        assert stream is not None
        return stream

    def first_inputs(
        self,
        block: Block,
        tokens: Int[Tensor, "batch position"],
        placement: Placement,
        rows: Int[Tensor, " row"] | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Stream, queries, keys and values of the first layer's attention; stream and queries at `rows` only."""
        length, vocabulary = tokens.shape[1], self.embedding.num_embeddings
        # A global scale counts every token that it sees, not every distinct row.
        if vocabulary * length >= tokens.numel() or isinstance(block.attention_norm, GlobalScale):
            stream = self.embed(tokens, placement)
            query, key, value = turned(*block.project(stream), placement)
            if rows is not None:
                stream, query = stream.index_select(1, rows), query.index_select(1, rows)
            return stream, query, key, value
        stream = self.embedding.weight[:, None, :]
        if placement.embedding is not None:
            stream = stream + placement.embedding
        query, key, value = turned(*block.project(stream), placement)
        row_tokens = tokens if rows is None else tokens.index_select(1, rows)
        row_position = torch.arange(length, device=tokens.device) if rows is None else rows
        position = torch.arange(length, device=tokens.device)
        stream, query = look_up([stream, query], row_tokens, row_position)
        key, value = look_up([key, value], tokens, position)
        return stream, query, key, value

    def embed(
        self, tokens: Int[Tensor, "batch position"], placement: Placement
    ) -> Float[Tensor, "batch position width"]:
        """What enters the first layer."""
        stream: Tensor = self.embedding(tokens)
        return stream if placement.embedding is None else stream + placement.embedding

    def hooked_stream(
        self,
        tokens: Int[Tensor, "batch position"],
        placement: Placement,
        position: Int[Tensor, " position"],
        hook: AttentionHook,
    ) -> Float[Tensor, "batch position width"]:
        """The stream after all blocks, computed for every row with the hook consulted in every layer."""
        stream = self.embed(tokens, placement)
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            unrotated = block.project(stream)
            query, key, value = (part.transpose(1, 2) for part in turned(*unrotated, placement))
            given = AttentionInputs(
                layer,
                query,
                key,
                value,
                unrotated_query=unrotated[0].transpose(1, 2),
                unrotated_key=unrotated[1].transpose(1, 2),
                scale=block.head_width**-0.5,
                bias=placement.bias,
                position=position,
                key_vectors=placement.key_vectors,
            )
            used = hook(given) or given
            mask = self.additive_mask(position, used.bias)
            attended = attend(used.query, used.key, used.value, used.scale, mask, used.key_vectors)
            stream = block.finish(stream, attended)
        return stream

    def additive_mask(
        self, position: Int[Tensor, " position"], bias: Float[Tensor, "head query key"] | None
    ) -> Float[Tensor, "#head query key"] | None:
        """The bias with -inf at forbidden keys (one head where all share it); None where nothing is added."""
        if not self.architecture.causal:
            return bias
        order = torch.arange(len(position), device=position.device)
        allowed = order[:, None] >= order
        if bias is not None:
            return bias.masked_fill(~allowed, float("-inf"))
        return torch.zeros(1, *allowed.shape, device=position.device).masked_fill(~allowed, float("-inf"))


def rotate(
    vectors: Float[Tensor, "*rows #position head width"], rotation: Rotation
) -> Float[Tensor, "*rows position head width"]:
    """Turn the planes (k, k + planes) of the first 2 x planes coordinates; coordinates beyond them stay."""
    cosine, sine = (part[:, None, :] for part in rotation)
    planes = cosine.shape[-1]
    first, second, rest = torch.split(vectors, [planes, planes, vectors.shape[-1] - 2 * planes], dim=-1)
    turned_planes = [first * cosine - second * sine, second * cosine + first * sine]
    if rest.shape[-1]:
        turned_planes.append(rest.expand(*turned_planes[0].shape[:-1], -1))
    return torch.cat(turned_planes, dim=-1)


def turned(query: Tensor, key: Tensor, value: Tensor, placement: Placement) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys rotated as the placement says; values as they are."""
    if placement.query_rotation is placement.key_rotation and placement.query_rotation is not None:
        query, key = rotate(torch.cat([query, key], dim=-2), placement.query_rotation).chunk(2, dim=-2)
        return query, key, value
    query = query if placement.query_rotation is None else rotate(query, placement.query_rotation)
    key = key if placement.key_rotation is None else rotate(key, placement.key_rotation)
    return query, key, value


def look_up(
    tables: Sequence[Float[Tensor, "vocabulary _ *_"]], tokens: Int[Tensor, "batch row"], position: Int[Tensor, " row"]
) -> list[Tensor]:
    """Each table's entry of every token at its position; a table of one position serves all of them.

    Tables are looked up side by side: one pass over the tokens, and one over their gradients.
    """
    positions = max(table.shape[1] for table in tables)
    flat = [table.flatten(2).expand(-1, positions, -1) for table in tables]
    index = tokens if positions == 1 else tokens * positions + position
    found = nn.functional.embedding(index, torch.cat(flat, dim=-1).flatten(0, 1))
    parts = torch.split(found, [table.shape[-1] for table in flat], dim=-1)
    return [part.view(*tokens.shape, *table.shape[2:]) for part, table in zip(parts, tables, strict=True)]


def attend(
    query: Float[Tensor, "batch head query width"],
    key: Float[Tensor, "batch head key width"],
    value: Float[Tensor, "batch head key value"],
    scale: float,
    mask: Float[Tensor, "#head query key"] | None,
    key_vectors: Float[Tensor, "query key width"] | None = None,
) -> Float[Tensor, "batch head query value"]:
    """softmax(scale x query . (key + key vector) + mask) value."""
    logits = scale * (query @ key.transpose(-1, -2))
    if key_vectors is not None:
        logits = logits + scale * torch.einsum("bhqw,qkw->bhqk", query, key_vectors)
    keys = logits.shape[-1]
    weights = widened(logits if mask is None else logits + mask).softmax(-1)
    return weights[..., :keys] @ value


def widened(logits: Float[Tensor, "*rows entry"]) -> Float[Tensor, "*rows wide"]:
    """The same logits with entries of -inf up to VECTOR_WIDTH: no softmax changes, and it runs ten times as fast."""
    missing = VECTOR_WIDTH - logits.shape[-1]
    return nn.functional.pad(logits, (0, missing), value=float("-inf")) if missing > 0 else logits
