"""Many models of one architecture as one: every weight has a leading model axis.

Each model's logits equal those it gives alone, to the rounding of float32. A linear layer is one batched product over
all models, and what encodings differ in enters as tensors. Two rewritings spare passes over activations: scale and
shift of a norm, and the scale of the attention logits, are folded into the weights of the linear layer behind them.
(The same through torch.vmap over `Transformer.place` is shorter, and took 6 to 30 % more processor time a step.)
"""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.encodings import Encoding, Placement, PositionModule
from poskernel.encodings.encoding import Rotation
from poskernel.errors import InputError
from poskernel.models.transformer import Norm, Transformer, widened

Parts = dict[str, Tensor]
"""Tensors of a placement by name; rotations of queries and keys together, shape (position, 2, plane)."""


@dataclass(frozen=True, eq=False)
class PositionGroup:
    """Models of one encoding, side by side in the ensemble: their position modules differ in trained weights alone."""

    module: PositionModule
    size: int
    weights: Mapping[str, Float[Tensor, "model ..."]]
    """Trained weights of the position modules; most encodings have none."""
    lengthwise: bool
    """Whether the placement is another for every forward pass or length; such models have a group each."""


def parts_of(placement: Placement) -> Parts:
    """The tensors of a placement."""
    parts = {"embedding": placement.embedding, "bias": placement.bias, "key_vectors": placement.key_vectors}
    query, key = placement.query_rotation, placement.key_rotation
    if query is not None or key is not None:
        pairs = zip(query or unturned(key), key or unturned(query), strict=True)
        parts["cosine"], parts["sine"] = (torch.stack(pair, dim=1) for pair in pairs)
    return {name: part for name, part in parts.items() if part is not None}


def unturned(like: Rotation | None) -> Rotation:
    """The rotation that changes nothing, in the shape of another."""
    assert like is not None
    return torch.ones_like(like[0]), torch.zeros_like(like[1])


def lengthened(parts: Parts, length: int) -> Parts:
    """Parts with a model axis, for longer sequences: nothing but padding stands in the new rows."""
    axes = {"embedding": (1,), "cosine": (1,), "sine": (1,), "bias": (2, 3), "key_vectors": (1, 2)}
    found = {}
    for name, part in parts.items():
        ends = [length - part.shape[axis] if axis in axes[name] else 0 for axis in range(part.ndim)]
        found[name] = nn.functional.pad(part, [size for end in reversed(ends) for size in (0, end)])
    return found


@dataclass(frozen=True, eq=False)
class Placements:
    """Where position enters one forward pass of all models."""

    embedding: Float[Tensor, "model position width"] | None
    """Added to the token embeddings; None where no model has any."""
    rotations: tuple[tuple[Tensor, Tensor] | None, ...]
    """Of each group of models: cosines and sines, shape (#model, position, 2, plane), of queries and keys."""
    mask: Float[Tensor, "#model #head query key"]
    """Bias in nats, with -inf at keys that a row does not see."""
    key_vectors: tuple[Tensor | None, ...]
    """Of each group of models: what each query adds to each key, shape (#model, query, key, head_width)."""


class Ensemble:
    """Models of one architecture, with all their weights in one vector, `flat`.

    The given models are read, not changed, until `give_back`. Tensors with a model axis hold the models in `order`,
    which puts those of one encoding side by side.
    """

    def __init__(self, models: Sequence[Transformer], device: torch.device | str = "cpu") -> None:
        self.architecture, self.device = models[0].architecture, torch.device(device)
        if any(model.architecture != self.architecture for model in models):
            raise ValueError("the models of an ensemble need one architecture: make one ensemble for each.")
        if any(type(model) is not Transformer for model in models):
            raise InputError("an ensemble computes plain transformers alone: train ablated ones one by one.")
        if self.architecture.norm is Norm.SCALE or self.architecture.attention_norm is not None:
            raise InputError(
                "an ensemble has one norm, layer, rms or none: train models with another one before attention, or with "
                "a global scale, one by one."
            )
        members: dict[tuple[Encoding, int], list[int]] = {}
        for index, model in enumerate(models):
            apart = index if model.encoding.depends_on_length or model.encoding.drawn else -1
            members.setdefault((model.encoding, apart), []).append(index)
        self.order = [index for group in members.values() for index in group]
        self.models = [models[index] for index in self.order]
        modules = [[models[index].position_module for index in group] for group in members.values()]
        sets = [stacked(self.models, leave_out="position_module."), *(stacked(group) for group in modules)]
        self.flat = nn.Parameter(torch.cat([w.flatten() for weights in sets for w in weights.values()]).to(self.device))
        pieces = iter(torch.split(self.flat.data, [w.numel() for weights in sets for w in weights.values()]))
        views = [{name: next(pieces).view(w.shape).requires_grad_() for name, w in weights.items()} for weights in sets]
        self.leaves = [view for weights in views for view in weights.values()]
        """What gradients are taken by: views of `flat`, in its order."""
        self.weights = views[0]
        self.groups = tuple(
            PositionGroup(copy.deepcopy(group[0]).to(self.device), len(group), weights, lengthwise=apart >= 0)
            for group, weights, (_, apart) in zip(modules, views[1:], members, strict=True)
        )
        self.group_of = [number for number, group in enumerate(self.groups) for _ in range(group.size)]
        """Number of each model's group."""
        self._fixed: dict[tuple[int, int], Parts] = {}

    @property
    def repeatable(self) -> bool:
        """Whether a pass over padded sequences is the same work whatever their lengths."""
        return self.architecture.causal and not any(group.lengthwise for group in self.groups)

    def give_back(self) -> None:
        """Write the weights into the models."""
        within = Counter[int]()
        for place, (model, number) in enumerate(zip(self.models, self.group_of, strict=True)):
            group, index = self.groups[number], within[number]
            within[number] += 1
            positional = {**group.module.state_dict(), **{name: w[index].data for name, w in group.weights.items()}}
            own = {name: weight[place].data for name, weight in self.weights.items()}
            model.load_state_dict({**own, **{f"position_module.{name}": value for name, value in positional.items()}})

    def parts(self, number: int, length: int) -> Parts:
        """Parts of a group's placement, with a model axis (of length 1 where its models share it)."""
        group = self.groups[number]
        if (number, length) in self._fixed:
            return self._fixed[number, length]
        position = torch.arange(length, device=self.device)

        def parts(weights: dict[str, Tensor]) -> Parts:
            return parts_of(torch.func.functional_call(group.module, weights, (position,)))

        if group.size > 1 and group.weights:
            found: Parts = torch.vmap(parts)(dict(group.weights))
            return found
        found = {name: part[None] for name, part in parts({n: w[0] for n, w in group.weights.items()}).items()}
        if not (group.weights or group.lengthwise):
            self._fixed[number, length] = found
        return found

    def placements(self, length: int, lengths: Sequence[int]) -> Placements:
        """Where position enters sequences that are padded to `length`; `lengths` are those of each model before."""
        parts = []
        for number, group in enumerate(self.groups):
            own = lengths[self.group_of.index(number)] if group.lengthwise else length
            parts.append(lengthened(self.parts(number, own), length) if own < length else self.parts(number, own))
        bias = self.joined(parts, "bias")
        mask = torch.zeros(1, 1, length, length, device=self.device) if bias is None else bias
        position = torch.arange(length, device=self.device)
        if self.architecture.causal:
            mask = mask.masked_fill(position[:, None] < position, float("-inf"))
        elif min(lengths) < length:
            padding = position >= torch.tensor(lengths, device=self.device)[:, None, None, None]
            mask = mask.masked_fill(padding, float("-inf"))
        rotations = tuple((part["cosine"], part["sine"]) if "cosine" in part else None for part in parts)
        vectors = tuple(part.get("key_vectors") for part in parts)
        return Placements(self.joined(parts, "embedding"), rotations, mask, vectors)

    def joined(self, parts: Sequence[Parts], name: str) -> Tensor | None:
        """One part of every model, 0 where a group has none; None where no group has it."""
        like = next((part[name] for part in parts if name in part), None)
        if like is None:
            return None
        given = [part.get(name, torch.zeros_like(like[:1])) for part in parts]
        return torch.cat([g.expand(group.size, *like.shape[1:]) for g, group in zip(given, self.groups, strict=True)])

    def by_group(self, rows: Tensor) -> list[Tensor]:
        """A tensor with a model axis, in pieces of one group each."""
        return list(rows.split([group.size for group in self.groups]))

    def logits(
        self, tokens: Int[Tensor, "model batch position"], first: int = 0, lengths: Sequence[int] | None = None
    ) -> Float[Tensor, "model batch row vocabulary"]:
        """Logits in nats at the rows from `first` on; `lengths` of each model's sequences where they are padded."""
        layers, length = self.architecture.layers, tokens.shape[2]
        placements = self.placements(length, [length] * len(tokens) if lengths is None else lengths)
        stream, query, key, value = self.first_inputs(tokens, placements)
        for layer in range(layers):
            if layer:
                query, key, value = self.project(layer, stream, placements)
            start = first if layer == layers - 1 else 0
            stream, query = stream[:, :, start:], query[:, :, start:]
            logits = self.attention_logits(query, key, placements, start)
            stream = self.finish(layer, stream, attend(logits, value))
        return self.linear("head", stream, norm="norm")

    def attention_logits(
        self,
        query: Float[Tensor, "model batch query head width"],
        key: Float[Tensor, "model batch key head width"],
        placements: Placements,
        start: int,
    ) -> Float[Tensor, "model batch head query key"]:
        """Query . (key + key vector) + mask, for queries from row `start` on."""
        logits = query.transpose(2, 3) @ key.permute(0, 1, 3, 4, 2) + placements.mask[:, None, :, start:]
        if not any(vectors is not None for vectors in placements.key_vectors):
            return logits
        grouped = zip(self.by_group(logits), self.by_group(query), placements.key_vectors, strict=True)
        return torch.cat(
            [
                own
                if vectors is None
                else own + torch.einsum("mbqhw,mqkw->mbhqk", rows, vectors.expand(len(rows), -1, -1, -1)[:, start:])
                for own, rows, vectors in grouped
            ]
        )

    def first_inputs(
        self, tokens: Int[Tensor, "model batch position"], placements: Placements
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Stream, queries, keys and values of the first layer; computed once for each distinct row, then looked up."""
        models, batch, length = tokens.shape
        vocabulary, width = self.architecture.vocabulary, self.architecture.width
        number = torch.arange(models, device=self.device)[:, None, None]
        placed = placements.embedding is not None or any(placements.rotations)
        if placed and vocabulary >= batch:
            table = self.weights["embedding.weight"].flatten(0, 1)
            stream = nn.functional.embedding(tokens + number * vocabulary, table)
            stream = stream if placements.embedding is None else stream + placements.embedding[:, None]
            return stream, *self.project(0, stream, placements)
        positions = length if placed else 1
        rows = self.weights["embedding.weight"][:, :, None].expand(-1, -1, positions, -1)
        rows = rows if placements.embedding is None else rows + placements.embedding[:, None]
        query, key, value = self.project(0, rows, placements)
        index = tokens + number * vocabulary
        index = index * positions + torch.arange(length, device=self.device) if placed else index
        table = torch.cat([rows, query.flatten(3), key.flatten(3), value.flatten(3)], dim=-1).flatten(0, 2)
        stream, *found = nn.functional.embedding(index, table).split(width, dim=-1)
        heads = (self.architecture.heads, self.architecture.head_width)
        query, key, value = (part.unflatten(-1, heads) for part in found)
        return stream, query, key, value

    def project(
        self, layer: int, stream: Float[Tensor, "model batch position width"], placements: Placements
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (times the scale of the logits), keys and values, (model, batch, position, head, head_width)."""
        shape, block = self.architecture, f"blocks.{layer}."
        factor = torch.ones(3 * shape.width, device=self.device)
        factor[: shape.width] = shape.head_width**-0.5
        projected = self.linear(block + "query_key_value", stream, block + "attention_norm", factor)
        projected = projected.unflatten(-1, (3, shape.heads, shape.head_width))
        value = projected[..., 2, :, :]
        if not any(placements.rotations):
            return projected[..., 0, :, :], projected[..., 1, :, :], value
        pairs = zip(self.by_group(projected[..., :2, :, :]), placements.rotations, strict=True)
        turned = torch.cat([pair if rotation is None else rotate(pair, *rotation) for pair, rotation in pairs])
        return turned[..., 0, :, :], turned[..., 1, :, :], value

    def finish(
        self,
        layer: int,
        stream: Float[Tensor, "model batch row width"],
        attended: Float[Tensor, "model batch row width"],
    ) -> Float[Tensor, "model batch row width"]:
        """The stream after a block, from what its heads read."""
        block = f"blocks.{layer}."
        stream = stream + self.linear(block + "output", attended)
        if not self.architecture.mlp:
            return stream
        hidden = nn.functional.gelu(self.linear(block + "mlp.1", stream, norm=block + "mlp.0"))
        return stream + self.linear(block + "mlp.3", hidden)

    def linear(
        self,
        name: str,
        rows: Float[Tensor, "model batch row input"],
        norm: str | None = None,
        factor: Float[Tensor, " output"] | None = None,
    ) -> Float[Tensor, "model batch row output"]:
        """A linear layer of every model, after a norm whose scale and shift its weights take up; `factor` times it."""
        weight, bias = self.weights[name + ".weight"], self.weights[name + ".bias"]
        if norm is not None:
            rows = self.normalized(rows)
            scale, shift = self.weights.get(norm + ".weight"), self.weights.get(norm + ".bias")
            bias = bias if shift is None else bias + (weight @ shift[:, :, None]).squeeze(-1)
            weight = weight if scale is None else weight * scale[:, None, :]
        if factor is not None:
            weight, bias = weight * factor[:, None], bias * factor
        product = torch.baddbmm(bias[:, None], rows.flatten(1, 2), weight.transpose(1, 2))
        return product.unflatten(1, rows.shape[1:3])

    def normalized(self, rows: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """A norm before its trained scale and shift."""
        width = (self.architecture.width,)
        match self.architecture.norm:
            case Norm.LAYER:
                return nn.functional.layer_norm(rows, width)
            case Norm.RMS:
                return nn.functional.rms_norm(rows, width)
            case Norm.NONE:
                return rows
            case Norm.SCALE:
                raise AssertionError("refused when the ensemble was made")


def stacked(modules: Sequence[nn.Module], leave_out: str | None = None) -> dict[str, Tensor]:
    """The weights of modules of one kind with a leading module axis, but for names that begin with `leave_out`."""
    named = [dict(module.named_parameters()) for module in modules]
    kept = [name for name in named[0] if leave_out is None or not name.startswith(leave_out)]
    return {name: torch.stack([weights[name].detach() for weights in named]) for name in kept}


def rotate(
    pair: Float[Tensor, "model batch position 2 head width"],
    cosine: Float[Tensor, "#model position 2 plane"],
    sine: Float[Tensor, "#model position 2 plane"],
) -> Float[Tensor, "model batch position 2 head width"]:
    """Queries and keys turned in the planes (k, k + planes); coordinates beyond 2 x planes stay."""
    cosine, sine = cosine[:, None, :, :, None], sine[:, None, :, :, None]
    planes = cosine.shape[-1]
    first, second, rest = torch.split(pair, [planes, planes, pair.shape[-1] - 2 * planes], dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine, rest], dim=-1)


def attend(
    logits: Float[Tensor, "model batch head query key"], value: Float[Tensor, "model batch key head width"]
) -> Float[Tensor, "model batch query all"]:
    """softmax(logits) value, heads side by side."""
    weights = widened(logits).softmax(-1)[..., : logits.shape[-1]]
    return (weights @ value.transpose(2, 3)).transpose(2, 3).flatten(3)
