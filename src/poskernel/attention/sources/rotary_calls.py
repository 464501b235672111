"""What goes into a model's rotary functions, recorded while it runs, so that a rotation can be replayed on any vectors.

No convention is assumed: which argument holds the queries, how axes are laid out, how dimensions are paired and which
part of a head is rotated are all read off by comparing what a function returned with what attention then received.
Works on any live module whose code calls functions named like `apply_rotary...`.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

MARK = "apply_rotary"
COLLINEAR = 16
"""Machine epsilons by which a rescaled vector may leave the direction of the rotated one."""


@dataclass(frozen=True, eq=False)
class RotaryCall:
    """One call of a rotary function: its arguments in order, and the vectors it returned."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    outputs: tuple[Tensor, ...]

    def replay(self, vector: int, values: Tensor) -> Tensor:
        """What the function returns for one of its vectors when that one is replaced by `values`, same layout."""
        arguments = list(self.arguments)
        arguments[vector] = values.to(arguments[vector].device)
        with torch.inference_mode():
            return as_tuple(self.function(*arguments, **self.options))[vector]


@dataclass(frozen=True, eq=False)
class RotatedSide:
    """Where the queries (or the keys) of a layer stand in a rotary call, and which part of a head it rotates."""

    call: RotaryCall
    vector: int
    head_axis: int
    """Of the function's own layout: 1 for [batch, head, position, width], 2 for [batch, position, head, width]."""
    start: int
    """First dimension of a head that is rotated."""
    width: int
    factor: Float[Tensor, "batch head position 1"] | None = None
    """What each rotated vector was multiplied by before attention (a normalisation without weights); None for 1."""

    def rotate(self, vectors: Float[Tensor, "batch head position width"]) -> Float[Tensor, "batch head position width"]:
        """The vectors as the layer's rotation turns them, on the CPU; positions are those of the call."""
        stop = self.start + self.width
        part = self.call.replay(self.vector, self.laid_out(vectors[..., self.start : stop]))
        rotated = self.laid_out(part)[: vectors.shape[0]].cpu()
        if self.width == vectors.shape[-1]:
            return rotated
        return torch.cat([vectors[..., : self.start].to(rotated), rotated, vectors[..., stop:].to(rotated)], -1)

    def laid_out(self, vectors: Tensor) -> Tensor:
        """From our layout to the function's, or back."""
        return vectors.transpose(1, 2) if self.head_axis == 2 else vectors

    def unrotated(
        self, final: Float[Tensor, "batch head position width"]
    ) -> Float[Tensor, "batch head position width"]:
        """The vectors that the rotation turns into `final`: what went in, times any later factor."""
        inputs = self.laid_out(self.call.arguments[self.vector])
        if self.factor is not None:
            inputs = inputs * self.factor.to(inputs)
        if inputs.shape == final.shape:
            return inputs
        whole = final.clone()
        whole[..., self.start : self.start + self.width] = inputs
        return whole

    def matrices(self) -> Float[Tensor, "position width width"]:
        """R_t of every position over the rotated dimensions, float64: column i is the image of basis vector i."""
        length = self.laid_out(self.call.outputs[self.vector]).shape[2]
        basis = torch.eye(self.width, dtype=torch.float64)[None, :, None].expand(1, -1, length, -1)
        images = self.laid_out(self.call.replay(self.vector, self.laid_out(basis)))[0]
        return images.cpu().double().permute(1, 2, 0)


@dataclass(frozen=True, eq=False)
class Rotation:
    """A layer's rotary calls, to be replayed: A(t, s) = scale <R_t u_t, R_s v_s> with u, v the unrotated vectors."""

    query: RotatedSide
    key: RotatedSide

    def rotate_queries(
        self, vectors: Float[Tensor, "batch head position width"]
    ) -> Float[Tensor, "batch head position width"]:
        """Vectors at the layer's positions, rotated as it rotates queries; any number of sequences and heads."""
        return self.query.rotate(vectors)

    def rotate_keys(
        self, vectors: Float[Tensor, "batch head position width"]
    ) -> Float[Tensor, "batch head position width"]:
        """The same as it rotates keys."""
        return self.key.rotate(vectors)


def as_tuple(returned: Any) -> tuple[Any, ...]:
    """What a function returned, always as a tuple."""
    return tuple(returned) if isinstance(returned, tuple | list) else (returned,)


@contextmanager
def recorded_rotary(module: nn.Module, calls: list[RotaryCall]) -> Iterator[None]:
    """Every rotary function of the module's own code appends its calls to `calls`; as before afterwards."""
    inside = False

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal inside
            if inside:  # one rotary function may call another: the outer one is the layer's
                return function(*arguments, **options)
            inside = True
            try:
                returned = function(*arguments, **options)
            finally:
                inside = False
            bound = signature.bind(*arguments, **options)
            calls.append(RotaryCall(function, bound.args, bound.kwargs, as_tuple(returned)))
            return returned

        return call

    places = {type(part).__module__ for part in module.modules()}
    spaces = [vars(sys.modules[place]) for place in sorted(places) if place in sys.modules]
    found = [
        (space, name, value)
        for space in spaces
        for name, value in space.items()
        if MARK in name and inspect.isfunction(value)
    ]
    try:
        for space, name, function in found:
            space[name] = wrapped(function)
        yield
    finally:
        for space, name, function in found:
            space[name] = function


def rotated_side(calls: Sequence[RotaryCall], final: Float[Tensor, "batch head position width"]) -> RotatedSide | None:
    """The call whose output attention received as `final`, unchanged or rescaled vector by vector; None if none."""
    candidates = [
        RotatedSide(call, vector, head_axis, 0, output.shape[-1])
        for call in reversed(calls)
        for vector, output in enumerate(call.outputs)
        if isinstance(output, Tensor) and output.ndim == 4 and vector < len(call.arguments)
        for head_axis in (1, 2)
    ]
    for compare in (equal_place, collinear_place):
        for side in candidates:
            placed = compare(side, side.laid_out(side.call.outputs[side.vector]), final)
            if placed is not None:
                return placed
    return None


def starts(rotated: Tensor, final: Tensor) -> list[int]:
    """First dimensions at which the rotated vectors could stand in a head: its ends first."""
    fits = rotated.shape[1] in (1, final.shape[1]) and rotated.shape[2] == final.shape[2]
    spare = final.shape[3] - rotated.shape[3]
    return sorted(range(spare + 1), key=lambda start: min(start, spare - start)) if fits and spare >= 0 else []


def equal_place(side: RotatedSide, rotated: Tensor, final: Tensor) -> RotatedSide | None:
    """The side with its place in the head if `final` holds the rotated vectors bit for bit (first sequence)."""
    for start in starts(rotated, final):
        held = final[0, ..., start : start + side.width]
        # One vector decides nearly always; all of them only where it agrees.
        if torch.equal(held[0, -1], rotated[0, 0, -1]) and torch.equal(held, rotated[0].expand_as(held)):
            return RotatedSide(side.call, side.vector, side.head_axis, start, side.width)
    return None


def collinear_place(side: RotatedSide, rotated: Tensor, final: Tensor) -> RotatedSide | None:
    """The side with a factor for every vector, if `final` holds the rotated vectors rescaled."""
    for start in starts(rotated, final):
        held, turned = final[..., start : start + side.width].float(), rotated.float()
        if held.shape[0] != turned.shape[0]:
            continue
        factor = (held * turned).sum(-1, keepdim=True) / turned.square().sum(-1, keepdim=True).clamp(min=1e-30)
        # Against the largest vector: a nearly vanishing one has no direction.
        reach = COLLINEAR * torch.finfo(final.dtype).eps * float(held.abs().max())
        if side.width > 2 and float((held - factor * turned).abs().max()) <= reach:
            return RotatedSide(side.call, side.vector, side.head_axis, start, side.width, factor)
    return None
