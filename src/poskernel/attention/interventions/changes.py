"""Interventions as values: what becomes of one layer's queries, keys and logits, for any set of heads.

Nothing here knows a model. Every change acts on queries where it can: heads that share a key head under grouped
queries then stay independent, and a gain on queries and keys alike is its square on queries.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.interventions.bands import SHORT_WAVELENGTH, Band, outside_bands
from poskernel.attention.interventions.planes import Head, RotaryPlanes, layer_planes
from poskernel.errors import InputError
from poskernel.kernel import PositionalKernel

Sides = Literal["query", "both"]
Plane = Float[Tensor, "2 width"]


@dataclass(frozen=True, eq=False)
class Operands:
    """What one layer's attention is about to work with."""

    layer: int
    query: Float[Tensor, "batch head query width"]
    """After rotation and any normalisation."""
    key: Float[Tensor, "batch keyhead key width"]
    position: Int[Tensor, " key"]
    """Of each key; the queries are the last of them."""
    added: Float[Tensor, "1 head query key"] | None = None
    """Added to the logits in nats, after any soft cap."""


class Intervention(ABC):
    """A change of what attention computes in some heads; a frozen dataclass, applied by `intervening`."""

    positional: ClassVar[bool] = False
    """Whether it must know the position of every query and key."""

    @property
    @abstractmethod
    def chosen(self) -> frozenset[Head]:
        """The heads that it acts on."""

    @abstractmethod
    def apply(self, operands: Operands) -> Operands:
        """The operands of a layer as attention will use them; the very same where nothing in the layer changes."""

    @abstractmethod
    def idle(self, length: int) -> bool:
        """Whether it changes nothing in sequences of that length, so that a model need not ask it."""


def require_finite(value: float, name: str) -> None:
    """InputError unless the value is a finite number."""
    if not math.isfinite(value):
        raise InputError(f"a {name} of {value} is no finite number: give one (1 gains and 0 shifts change nothing).")


def heads_in(chosen: Collection[Head], layer: int) -> list[int]:
    """Heads of one layer, ascending."""
    return sorted(head for at, head in chosen if at == layer)


class HeadMaps(Intervention):
    """A linear map of the queries of every chosen head: q becomes q + q D, so D = 0 leaves every bit."""

    rotary: Mapping[int, RotaryPlanes]
    planes: Mapping[Head, Sequence[int]]

    @abstractmethod
    def plane_change(self, plane: Plane, frequency: float) -> Float[Tensor, "width width"]:
        """What one chosen plane adds to D."""

    @property
    def chosen(self) -> frozenset[Head]:
        """The heads with planes."""
        return frozenset(self.planes)

    @cached_property
    def changes(self) -> dict[int, tuple[list[int], Float[Tensor, "chosen width width"]]]:
        """Of every layer with chosen heads: those heads and their D, float64."""
        found: dict[int, tuple[list[int], Tensor]] = {}
        for layer in {layer for layer, _ in self.planes}:
            heads, rotary = heads_in(self.planes, layer), layer_planes(self.rotary, layer)
            maps = torch.zeros(len(heads), rotary.planes.shape[-1], rotary.planes.shape[-1], dtype=torch.float64)
            for row, head in enumerate(heads):
                for number in self.planes[layer, head]:
                    maps[row] += self.plane_change(rotary.planes[number], float(rotary.frequencies[number]))
            found[layer] = heads, maps
        return found

    def idle(self, length: int) -> bool:
        """Whether every D is zero."""
        return not any(bool(maps.any()) for _, maps in self.changes.values())

    def check_planes(self) -> None:
        """InputError for a plane that a layer does not have, or one named twice."""
        for (layer, head), numbers in self.planes.items():
            count = len(layer_planes(self.rotary, layer).frequencies)
            wrong = next((number for number in numbers if not 0 <= number < count), None)
            if wrong is not None:
                raise InputError(f"plane {wrong} is not in layer {layer}: its planes are 0 to {count - 1}.")
            if len(set(numbers)) < len(numbers):
                raise InputError(f"a plane of head {head} in layer {layer} is named twice: name each once.")

    def apply(self, operands: Operands) -> Operands:
        """Queries of the chosen heads mapped, in float32 at least."""
        if operands.layer not in self.changes:
            return operands
        heads, maps = self.changes[operands.layer]
        query = operands.query
        if maps.shape[-1] != query.shape[-1]:
            raise InputError(
                f"the planes of layer {operands.layer} are those of heads {maps.shape[-1]} wide, not "
                f"{query.shape[-1]}: read the planes of this model."
            )
        check_heads(heads, query, operands.layer)
        work = torch.promote_types(query.dtype, torch.float32)
        before = query[:, heads].to(work)
        mapped = query.clone()
        mapped[:, heads] = (before + before @ maps.to(before)).to(query.dtype)
        return replace(operands, query=mapped)


def check_heads(heads: Sequence[int], query: Tensor, layer: int) -> None:
    """InputError for a head that the layer does not have."""
    if heads[-1] >= query.shape[1]:
        raise InputError(f"head {heads[-1]} is not in layer {layer}: its heads are 0 to {query.shape[1] - 1}.")


@dataclass(frozen=True, eq=False)
class PlaneGain(HeadMaps):
    """Chosen rotary planes of chosen heads times a gain: their share of every logit is multiplied exactly.

    With sides "both", queries and keys get the gain, so the planes' logits get its square; that acts on queries alone.
    Raises InputError for planes or layers that are not there.
    """

    planes: Mapping[Head, Sequence[int]]
    gain: float
    rotary: Mapping[int, RotaryPlanes]
    sides: Sides = "query"

    def __post_init__(self) -> None:
        require_finite(self.gain, "gain")
        self.check_planes()

    def plane_change(self, plane: Plane, frequency: float) -> Float[Tensor, "width width"]:
        """(gain - 1) times the projection onto the plane."""
        return ((self.gain**2 if self.sides == "both" else self.gain) - 1) * plane.T @ plane


@dataclass(frozen=True, eq=False)
class Translation(HeadMaps):
    """q to q e^(-i theta delta) on chosen planes, norms kept: their share of g moves `delta` positions further.

    A head whose planes are all translated attends at offset d + delta where it attended at d. Where the rotation also
    damps with the offset (xPos), the damping stays where it was.
    """

    planes: Mapping[Head, Sequence[int]]
    delta: float
    rotary: Mapping[int, RotaryPlanes]

    def __post_init__(self) -> None:
        require_finite(self.delta, "shift")
        self.check_planes()

    def plane_change(self, plane: Plane, frequency: float) -> Float[Tensor, "width width"]:
        """The turn by -theta delta less the identity, on row vectors."""
        angle = -frequency * self.delta
        first, second = plane
        across = torch.outer(first, second)
        return (math.cos(angle) - 1) * plane.T @ plane + math.sin(angle) * (across - across.T)

    def apply(self, operands: Operands) -> Operands:
        """As every map; InputError where the frequencies change with the length and were read at another."""
        if operands.layer in self.changes:
            length, only = operands.key.shape[2], self.rotary[operands.layer].only_length
            if only is not None and only != length:
                raise InputError(
                    f"the rotary frequencies of layer {operands.layer} change with the length and were read at {only} "
                    f"positions, not {length}: read them at that length (and without a key cache)."
                )
        return super().apply(operands)


@dataclass(frozen=True, eq=False)
class Temperature(Intervention):
    """Whole queries of chosen heads times a gain, rotated or not: every product of a query with a key is multiplied.

    A bias (ALiBi, T5), a sink and the mask keep their size.
    """

    heads: Collection[Head]
    gain: float

    def __post_init__(self) -> None:
        require_finite(self.gain, "gain")

    @property
    def chosen(self) -> frozenset[Head]:
        """The heads."""
        return frozenset(self.heads)

    def idle(self, length: int) -> bool:
        """Whether the gain is 1."""
        return self.gain == 1

    def apply(self, operands: Operands) -> Operands:
        """Queries scaled."""
        heads = heads_in(self.heads, operands.layer)
        if not heads:
            return operands
        check_heads(heads, operands.query, operands.layer)
        query = operands.query.clone()
        query[:, heads] = query[:, heads] * self.gain
        return replace(operands, query=query)


@dataclass(frozen=True, eq=False)
class PositionMeans:
    """Per-position means over sequences of every layer's queries and keys, as attention uses them."""

    query: Mapping[int, Float[Tensor, "head position width"]]
    key: Mapping[int, Float[Tensor, "keyhead position width"]]

    def group(self, layer: int) -> int:
        """Query heads that share a key head; InputError for a layer that was not measured."""
        if layer not in self.query:
            raise InputError(f"layer {layer} has no measured means: measure its queries and keys first.")
        return self.query[layer].shape[0] // self.key[layer].shape[0]


@dataclass(frozen=True, eq=False)
class MeanFilter(Intervention):
    """The mean over sequences of q and k at each position, replaced by some bands of its course over positions.

    For encodings that put position into the vectors themselves (learned, sinusoidal): content, the part around the
    mean, stays. Keys are shared, so all heads of a group must be chosen. Bands by wavelength, as in `outside_bands`.
    """

    heads: Collection[Head]
    means: PositionMeans
    keep: Collection[Band]
    short: float = SHORT_WAVELENGTH

    positional: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for layer, head in self.heads:
            group = self.means.group(layer)
            first = head // group * group
            missing = [other for other in range(first, first + group) if (layer, other) not in self.heads]
            if missing:
                raise InputError(
                    f"heads {head} and {missing[0]} of layer {layer} share a key head, whose mean is filtered for "
                    f"both: choose head {missing[0]} too."
                )

    @property
    def chosen(self) -> frozenset[Head]:
        """The heads."""
        return frozenset(self.heads)

    @cached_property
    def removed(self) -> dict[tuple[str, int, int], Float[Tensor, "position width"]]:
        """What leaves the vectors of every (side, layer, head or key head)."""
        found = {}
        for layer, head in self.heads:
            for side, means, row in (
                ("query", self.means.query[layer], head),
                ("key", self.means.key[layer], head // self.means.group(layer)),
            ):
                if (side, layer, row) not in found:
                    found[side, layer, row] = outside_bands(means[row], self.keep, self.short)
        return found

    def idle(self, length: int) -> bool:
        """Whether nothing is removed."""
        return not any(bool(part.any()) for part in self.removed.values())

    def apply(self, operands: Operands) -> Operands:
        """Both sides less what is removed of their means."""
        heads = heads_in(self.heads, operands.layer)
        if not heads:
            return operands
        check_heads(heads, operands.query, operands.layer)
        keys = sorted({head // self.means.group(operands.layer) for head in heads})
        query = self.without(operands, "query", operands.query, heads)
        return replace(operands, query=query, key=self.without(operands, "key", operands.key, keys))

    def without(self, operands: Operands, side: str, vectors: Tensor, rows: Sequence[int]) -> Tensor:
        """Vectors less the removed part at each position, in float32 at least."""
        removed = torch.stack([self.removed[side, operands.layer, row] for row in rows])
        last = int(operands.position.max())
        if last >= removed.shape[1]:
            raise InputError(
                f"the means were measured at {removed.shape[1]} positions and position {last} is asked for: measure "
                "longer sequences, or give shorter ones."
            )
        removed = removed[:, operands.position[-vectors.shape[2] :].cpu()]
        changed, work = vectors.clone(), torch.promote_types(vectors.dtype, torch.float32)
        part = vectors[:, rows].to(work)
        changed[:, rows] = (part - removed.to(part)).to(vectors.dtype)
        return changed


@dataclass(frozen=True, eq=False)
class LogitKernel(Intervention):
    """A positional kernel added to the logits of chosen heads, in nats, after any soft cap and before the softmax.

    `filter_change(g, keep)` filters g; `(gain - 1) * kernel` scales it. Holds a square of side T for every head.
    """

    heads: Collection[Head]
    kernel: PositionalKernel

    positional: ClassVar[bool] = True

    @property
    def chosen(self) -> frozenset[Head]:
        """The heads."""
        return frozenset(self.heads)

    def idle(self, length: int) -> bool:
        """Whether the kernel is zero on every pair."""
        return not bool(self.values(torch.arange(length)).any())

    def values(self, position: Int[Tensor, " position"]) -> Float[Tensor, "position position"]:
        """The kernel's logits at these positions; InputError beyond its horizon or where they are not finite."""
        self.kernel.require(int(position.max()) + 1)
        values = self.kernel.logits(position, position).detach()
        if not bool(values.isfinite().all()):
            raise InputError("the kernel holds logits that are not finite: give finite ones; masks are the model's.")
        return values

    def apply(self, operands: Operands) -> Operands:
        """The kernel joins what is added to the logits; nothing is, where it is zero on every pair."""
        heads = heads_in(self.heads, operands.layer)
        if not heads:
            return operands
        check_heads(heads, operands.query, operands.layer)
        values = self.values(operands.position.cpu())
        if not bool(values.any()):
            return operands
        _, count, length, _ = operands.query.shape
        shape = (1, count, length, length)
        work = torch.promote_types(operands.query.dtype, torch.float32)
        added = torch.zeros(shape, dtype=work) if operands.added is None else operands.added.clone()
        added[:, heads] += values.to(added)
        return replace(operands, added=added)
