"""The induction circuit of a model with rotary positions, and what becomes of it when planes are changed.

A previous-token head writes into each position which token came before; an induction head looks for the position that
says "before me was the token you are at", and copies what it finds there (Olsson et al. 2022). On a random pattern that
comes twice the copy can only be made this way. If the kernel of the first heads is what makes them attend to offset 1,
damping the planes that carry offset 1 breaks the copy, and moving the kernel by one position makes the circuit copy the
token after the right one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.estimators.estimate import KernelEstimator
from poskernel.attention.estimators.probes import RepetitionEstimator, repeated_tokens, repetition_masses
from poskernel.attention.estimators.row_tiles import attention, row_tiles
from poskernel.attention.interventions.changes import Intervention
from poskernel.attention.interventions.intervene import intervening
from poskernel.attention.interventions.planes import Head, RotaryPlanes, layer_planes
from poskernel.attention.kinds import Profile, head_kind
from poskernel.attention.sources.capture import AttentionSource, LayerCapture
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.attention.split_kinds import INDUCTION, SplitEvidence
from poskernel.errors import InputError

PREVIOUS = "previous-token"
FURTHEST = 3
"""Predictions are compared with the right token and with up to so many after it."""


@dataclass(frozen=True)
class Circuit:
    """Heads that the copy of a repeated pattern goes through, each chosen on other tokens than it is tested on."""

    previous: tuple[Head, ...]
    induction: tuple[Head, ...]


@dataclass(frozen=True)
class CircuitState:
    """What the circuit does on a repeated pattern; shares of 1, means over the rows of the repeat.

    `copied` by shift: how often the model predicts the token so many places after the right one (0 the right one, -1
    the token it is at). `attended` by offset: mean attention of the previous-token heads there.
    """

    induction: float
    copied: Mapping[int, float]
    attended: Mapping[int, float]


def previous_token_heads(
    source: AttentionSource, tokens: Int[Tensor, "sequence position"], dropped: int
) -> tuple[Head, ...]:
    """Heads of that kind on a text, by the thresholds of `kinds.KINDS`."""
    length = tokens.shape[1]
    kernels = KernelEstimator(
        dict.fromkeys(range(source.layers), source.heads), length, len(tokens), len(tokens), dropped=dropped, null=False
    )
    source.forward(tokens, kernels.consume)
    found = []
    for each in kernels.estimates():
        profile = Profile.of(each.g, length - dropped, each.first_offset)
        if head_kind(profile, each.share.value) == PREVIOUS:
            found.append((each.layer, each.head))
    return tuple(found)


def induction_heads(source: AttentionSource, sequences: int, period: int, seed: int) -> tuple[Head, ...]:
    """Heads of that kind on a repeated random pattern, by the threshold of `split_kinds.INDUCTION`."""
    estimator = RepetitionEstimator(dict.fromkeys(range(source.layers), source.heads), period)
    source.forward(repeated_tokens(source, sequences, period, seed=seed), estimator.consume)
    nothing = float("nan")
    return tuple(
        (each.layer, each.head)
        for each in estimator.estimates()
        if INDUCTION[1](SplitEvidence(nothing, nothing, nothing, nothing, each.induction.value))
    )


def carried_logits(
    capture: LayerCapture, head: int, rotary: RotaryPlanes, offset: int, dropped: int
) -> Float[Tensor, " plane"]:
    """What each plane adds to the row-centred logit at one offset, mean over rows and sequences, nats.

    Rows are those that hold the offset past the dropped positions; causal layers without a window shorter than that.
    """
    planes = rotary.planes.to(capture.query)
    query = torch.einsum("xtw,pcw->xptc", capture.query[:, head, dropped:], planes) * capture.scale
    key = torch.einsum("xsw,pcw->xpsc", capture.key[:, capture.key_head(head), dropped:], planes)
    seen = torch.arange(1, key.shape[2] + 1)
    before = key.cumsum(2)
    if capture.window is not None:
        before[:, :, capture.window :] -= before[:, :, : -capture.window].clone()
        seen = seen.clamp(max=capture.window)
    at_offset = (query[:, :, offset:] * key[:, :, : key.shape[2] - offset]).sum(-1)
    of_row = (query * before).sum(-1) / seen
    return (at_offset - of_row[:, :, offset:]).double().mean((0, 2))


def carrying_planes(
    source: AttentionSource,
    tokens: Int[Tensor, "sequence position"],
    rotary: Mapping[int, RotaryPlanes],
    heads: Collection[Head],
    offset: int,
    count: int,
    dropped: int,
) -> dict[Head, tuple[int, ...]]:
    """The planes of each head that add most to its logits at an offset."""
    found: dict[Head, tuple[int, ...]] = {}

    def consume(capture: LayerCapture) -> None:
        for layer, head in heads:
            if layer == capture.layer:
                carried = carried_logits(capture, head, layer_planes(rotary, layer), offset, dropped)
                found[layer, head] = tuple(sorted(carried.topk(count).indices.tolist()))

    source.forward(tokens, consume)
    return {head: found[head] for head in heads}


def circuit_state(
    source: HuggingFaceSource,
    circuit: Circuit,
    tokens: Int[Tensor, "sequence position"],
    period: int,
    changes: Sequence[Intervention] = (),
) -> CircuitState:
    """The circuit on patterns that come twice, under some changes."""
    masses: list[Tensor] = []
    attended = torch.zeros(FURTHEST + 1, dtype=torch.float64)

    def consume(capture: LayerCapture) -> None:
        for layer, head in circuit.induction:
            if layer == capture.layer:
                masses.append(repetition_masses(capture, head, period)[0][:, 0].mean())
        for layer, head in circuit.previous:
            if layer == capture.layer:
                attended.add_(offset_masses(capture, head) / len(circuit.previous))

    with intervening(source, *changes):
        hidden = source.forward(tokens, consume)
    rows = range(period, 2 * period - 1 - FURTHEST)
    predicted = predicted_tokens(source, hidden[:, list(rows)])
    copied = {
        shift: float((predicted == tokens[:, [row + 1 + shift for row in rows]]).double().mean())
        for shift in range(-1, FURTHEST + 1)
    }
    return CircuitState(float(torch.stack(masses).mean()), copied, dict(enumerate(attended.tolist())))


def offset_masses(capture: LayerCapture, head: int) -> Float[Tensor, " offset"]:
    """Mean attention at offsets 0 to FURTHEST, over the rows that hold them all."""
    total, rows = torch.zeros(FURTHEST + 1, dtype=torch.float64), capture.length - FURTHEST
    for tile in row_tiles(capture, 0, capture.query.shape[0]):
        weights = attention(capture, head, tile, capture.logits(head, tile.rows, tile.keys)).double().mean(0)
        held = tile.rows[:, None] >= FURTHEST
        total += torch.stack([(weights * ((tile.offsets == d) & held)).sum() for d in range(FURTHEST + 1)])
    return total / rows


def predicted_tokens(
    source: HuggingFaceSource, hidden: Float[Tensor, "sequence row width"]
) -> Int[Tensor, "sequence row"]:
    """The most probable next token after each row; InputError where the output layer is not the tied embedding."""
    if not getattr(source.module.config, "tie_word_embeddings", False):
        raise InputError(
            f"'{source.name}' has an output layer of its own, which is not loaded: its predictions are not known."
        )
    table = source.embedding()
    return torch.stack([(rows @ table.T).argmax(-1) for rows in hidden])
