"""What interventions are compared with: random planes of the same energy, and the measurements that they need.

The energy of a set of planes is the within-row variance of what those planes add to the logits: softmax ignores a
constant in a row, so raw energy, or the number of planes, would call sets equal that do very different things.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.interventions.changes import PositionMeans
from poskernel.attention.interventions.planes import Head, RotaryPlanes, layer_planes
from poskernel.attention.sources.capture import AttentionSource, Consumer, LayerCapture
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.errors import InputError
from poskernel.models.transformer import AttentionInputs, Transformer

ROWS = 64
"""Query rows whose logits are held at a time, for one head, one sequence and every plane."""
TOLERANCE = 0.1
ATTEMPTS = 2000
"""Random orders of planes that are tried for one control."""


def consume_layers(model: Any, tokens: Int[Tensor, "sequence position"], consume: Consumer, batch: int = 4) -> None:
    """Every layer's capture, batch by batch, of a Hugging Face model, a source or our own transformer."""
    if isinstance(model, Transformer):
        hook = own_captures(model, consume)
        with torch.inference_mode():
            for part in tokens.split(batch):
                model(part, hook=hook)
        return
    source = model if isinstance(model, AttentionSource) else HuggingFaceSource(model)
    with source.capturing():
        for part in tokens.split(batch):
            source.forward(part, consume)


def own_captures(model: Transformer, consume: Consumer) -> Any:
    """A hook of our own transformer that hands on what each layer's attention uses."""

    def hook(inputs: AttentionInputs) -> None:
        if inputs.key_vectors is not None:
            raise InputError("vectors added to each key (Shaw) are no part of queries and keys: take another encoding.")
        bias = None if inputs.bias is None else inputs.bias[None]
        causal = model.architecture.causal
        consume(LayerCapture.assembled(inputs.layer, inputs.query, inputs.key, inputs.scale, causal, bias=bias))

    return hook


def position_means(model: Any, tokens: Int[Tensor, "sequence position"], batch: int = 4) -> PositionMeans:
    """Means over the sequences of every layer's queries and keys at each position, float64."""
    query: dict[int, Tensor] = {}
    key: dict[int, Tensor] = {}

    def add(capture: LayerCapture) -> None:
        for sums, vectors in ((query, capture.query), (key, capture.key)):
            total = vectors.double().sum(0) / tokens.shape[0]
            sums[capture.layer] = sums[capture.layer] + total if capture.layer in sums else total

    consume_layers(model, tokens, add, batch)
    return PositionMeans(query, key)


def plane_energies(
    model: Any,
    tokens: Int[Tensor, "sequence position"],
    rotary: Mapping[int, RotaryPlanes],
    heads: Collection[Head],
    dropped: int = 16,
    batch: int = 4,
) -> dict[Head, Float[Tensor, "plane plane"]]:
    """Within-row covariance, in nats squared, between what each two planes of a head add to its logits.

    Over the pairs that attend, past the first `dropped` positions; a set's energy is the sum over its block. Costs
    T^2 x planes^2 a head and sequence, so a few sequences are enough.
    """
    if not 0 <= dropped < tokens.shape[1] - 1:
        raise InputError(
            f"dropping {dropped} of {tokens.shape[1]} positions leaves no row with two keys: drop fewer, or give "
            "longer sequences."
        )
    totals = {head: torch.zeros(()) for head in heads}
    pairs: dict[Head, int] = defaultdict(int)

    def add(capture: LayerCapture) -> None:
        for head in [head for at, head in totals if at == capture.layer]:
            planes = layer_planes(rotary, capture.layer)
            for products, count in row_centred_products(capture, head, planes, dropped):
                totals[capture.layer, head] = totals[capture.layer, head] + products
                pairs[capture.layer, head] += count

    consume_layers(model, tokens, add, batch)
    return {head: total / pairs[head] for head, total in totals.items()}


def row_centred_products(
    capture: LayerCapture, head: int, rotary: RotaryPlanes, dropped: int
) -> Iterator[tuple[Float[Tensor, "plane plane"], int]]:
    """(sum over pairs of products of the planes' row-centred logits, number of pairs), a block of rows at a time."""
    planes = rotary.planes.to(capture.query)
    query = torch.einsum("xtw,pcw->xptc", capture.query[:, head, dropped:], planes) * capture.scale
    key = torch.einsum("xsw,pcw->xpcs", capture.key[:, capture.key_head(head), dropped:], planes)
    allowed = capture.allowed(head)[:, dropped:, dropped:]
    for sequence in range(query.shape[0]):
        seen_by = allowed[sequence % allowed.shape[0]]
        for start in range(0, query.shape[2], ROWS):
            seen = seen_by[start : start + ROWS].to(query.dtype)
            logits = (query[sequence, :, start : start + ROWS] @ key[sequence]) * seen
            means = logits.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1)
            flat = ((logits - means) * seen).flatten(1)
            yield (flat @ flat.T).double(), int(seen.sum())


def set_energy(energies: Float[Tensor, "plane plane"], planes: Sequence[int]) -> float:
    """Within-row variance of what a set of planes adds to the logits, in nats squared."""
    chosen = torch.tensor(list(planes), dtype=torch.int64)
    return float(energies[chosen][:, chosen].sum())


def matched_planes(
    energies: Float[Tensor, "plane plane"],
    planes: Sequence[int],
    generator: torch.Generator,
    tolerance: float = TOLERANCE,
    among: Collection[int] | None = None,
) -> tuple[int, ...]:
    """A random set of other planes (or of those in `among`) whose energy is that of the given ones, within tolerance.

    Planes are taken in random orders until one reaches the energy; how many it takes is not fixed. Raises InputError
    where no order does.
    """
    candidates = sorted(set(range(energies.shape[0])) - set(planes) if among is None else among)
    target, best = set_energy(energies, planes), float("inf")
    if not target > 0:
        raise InputError(
            f"planes {', '.join(map(str, planes))} add nothing to the logits that a control could match: take others."
        )
    for _ in range(ATTEMPTS if candidates else 0):
        order = torch.tensor(candidates)[torch.randperm(len(candidates), generator=generator)]
        # Energy of the first 1, 2, ... planes of the order: the sums over growing blocks.
        sums = energies[order][:, order].cumsum(0).cumsum(1).diagonal()
        errors = (sums - target).abs() / abs(target)
        nearest = int(errors.argmin())
        best = min(best, float(errors[nearest]))
        if errors[nearest] <= tolerance:
            return tuple(sorted(order[: nearest + 1].tolist()))
    raise InputError(
        f"no set of the {len(candidates)} other planes has the energy {target:.3g} of planes "
        f"{', '.join(map(str, planes))} within {tolerance:.0%} (nearest: {best:.0%} away): raise the tolerance, or "
        "allow more planes."
    )


def matched_draws(
    energies: Mapping[Head, Float[Tensor, "plane plane"]],
    planes: Mapping[Head, Sequence[int]],
    draws: int = 5,
    seed: int = 0,
    tolerance: float = TOLERANCE,
) -> list[dict[Head, tuple[int, ...]]]:
    """Independent draws of random planes for every head, each of that head's own energy, as `PlaneGain` takes them."""
    generator = torch.Generator().manual_seed(seed)
    return [
        {head: matched_planes(energies[head], chosen, generator, tolerance) for head, chosen in planes.items()}
        for _ in range(draws)
    ]


def matched_sets(
    energies: Float[Tensor, "plane plane"], planes: Sequence[int], draws: int, generator: torch.Generator
) -> tuple[tuple[int, ...], ...] | None:
    """Random planes of a head's own energy, a set a draw; None where its other planes cannot have that energy."""
    try:
        return tuple(matched_planes(energies, planes, generator) for _ in range(draws))
    except InputError:
        return None
