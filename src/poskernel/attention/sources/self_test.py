"""The self-test that every source must pass on load: what is captured is what the model computes, or it is refused."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.sources.capture import AttentionSource, LayerCapture, OwnAttention, Side, refusal
from poskernel.errors import InputError, RunError

PROBE_LENGTH = 40
PROBE_SEQUENCES = 2
PADDING = 5
PATTERN_TOLERANCE = 1e-4
"""Largest difference allowed between a rebuilt attention weight and the model's own (float32 probes reach 1e-6)."""
HALF_STEPS = 16
"""Machine epsilons by which outputs may differ in half precision, where another order of sums rounds otherwise."""
LAYER_STEPS = 2
"""Machine epsilons by which a half-precision layer's queries and keys may differ more than the layer before's."""


@dataclass(frozen=True)
class SelfTest:
    """What the probe of a load found: whether queries see only the past, and the worst differences."""

    causal: bool
    pattern_error: float
    output_error: float
    padding: Side | None = None
    """The side that was padded without changing anything; None where the model takes no attention mask."""
    padding_error: float | None = None
    rotation_error: float | None = None
    """Largest difference between rotated unrotated vectors and queries or keys, relative; None without a rotation."""


def self_test(source: AttentionSource, seed: int = 0) -> SelfTest:
    """Capture a short random probe and compare it with the model's own attention; refuse a model that differs.

    Checked: every layer is captured once; the rebuilt attention weights and the output equal the model's own; the
    unrotated vectors, replayed through the layer's rotation, give its queries and keys; padding changes nothing; the
    layers agree on whether the future is hidden, and where it is, a changed last token changes nothing before it.
    Raises InputError naming the layer, its class and what was tried; RunError for outputs that are not finite.
    """
    length = min(PROBE_LENGTH, source.position_limit or PROBE_LENGTH)
    tokens = source.probe_tokens(PROBE_SEQUENCES, length, torch.Generator().manual_seed(seed))
    own = source.own_attention(tokens)
    found: dict[int, tuple[bool, float, float | None]] = {}

    def compare(capture: LayerCapture) -> None:
        if capture.layer in found:
            raise refusal(source, capture.layer, "called attention twice in one forward pass")
        if capture.layer >= len(own):
            raise refusal(source, capture.layer, "reports no attention weights of its own to compare with")
        error = pattern_error(source, capture, own[capture.layer])
        found[capture.layer] = capture.causal, error, rotation_error(source, capture)

    with source.capturing():
        output = source.forward(tokens, compare)
    check_every_layer(source, found)
    causal = same_direction(source, [direction for direction, _, _ in found.values()])
    plain = source.forward(tokens, None)
    if not bool(torch.isfinite(plain).all()):
        raise RunError(
            f"'{source.name}' gave outputs that are not finite numbers after its {source.layers} layers: its weights "
            f"or its precision are broken{coarse(source)}."
        )
    scale, tolerance = float(plain.abs().max().clamp(min=1)), output_tolerance(source)
    output_error = float((output - plain).abs().max()) / scale
    if not output_error <= tolerance:
        raise InputError(
            f"'{source.name}' cannot be analysed: capturing changes its output by {output_error:.1e} relative "
            f"(tried {source.tried()}), so its numbers would describe another model{coarse(source)}."
        )
    if causal:
        check_causal(source, tokens, plain, scale, tolerance)
    padding, padding_error = check_padding(source, tokens)
    rotations = [error for _, _, error in found.values() if error is not None]
    worst = max(error for _, error, _ in found.values())
    return SelfTest(causal, worst, output_error, padding, padding_error, max(rotations, default=None))


def rounding(source: AttentionSource) -> float:
    """Machine epsilon of a model in half precision; 0 of others, whose rounding every tolerance covers."""
    epsilon = torch.finfo(source.dtype).eps if source.dtype.is_floating_point else 0.0
    return epsilon if epsilon > torch.finfo(torch.float32).eps else 0.0


def coarse(source: AttentionSource) -> str:
    """What may help a model in half precision, at the end of what was found; nothing for others."""
    name = str(source.dtype).removeprefix("torch.")
    return f"; {name} may be too coarse for it: load the model as float32" if rounding(source) else ""


def output_tolerance(source: AttentionSource) -> float:
    """Largest relative difference of outputs that rounding explains."""
    return max(PATTERN_TOLERANCE, HALF_STEPS * rounding(source))


def check_every_layer(source: AttentionSource, found: dict[int, tuple[bool, float, float | None]]) -> None:
    """InputError unless every layer was captured."""
    missing = [layer for layer in range(source.layers) if layer not in found]
    if found and missing:
        raise InputError(
            f"'{source.name}' cannot be analysed: it called attention {len(found)} times for {source.layers} layers "
            f"(tried {source.tried()}); models that mix attention with other layers are not covered."
        )
    if missing:
        raise refusal(source, 0, "was never called through it")


def pattern_error(source: AttentionSource, capture: LayerCapture, own: OwnAttention) -> float:
    """Largest difference between rebuilt and own attention weights of a layer; InputError above the tolerance.

    In half precision the pass that gave the own weights drifts from the captured one, layer by layer. Where that alone
    can explain the difference, weights rebuilt from the own pass's queries and keys are compared instead.
    """
    reported = own.weights.shape[1]
    if reported != capture.heads:
        raise refusal(source, capture.layer, f"reports {reported} heads of attention, not the {capture.heads} captured")
    if source.heads != capture.heads:
        raise refusal(source, capture.layer, f"has {capture.heads} heads where the model's config says {source.heads}")
    worst = largest_difference(capture, own.weights)
    if not worst <= weight_tolerance(source, capture) and drifted(source, capture, own):
        assert own.query is not None and own.key is not None  # else nothing is known to have drifted
        worst = largest_difference(replace(capture, query=own.query, key=own.key), own.weights)
    if not worst <= weight_tolerance(source, capture):
        reason = f"has attention weights that differ by {worst:.1e} from those rebuilt{coarse(source)}"
        raise refusal(source, capture.layer, reason)
    return worst


def largest_difference(capture: LayerCapture, weights: Float[Tensor, "batch head query key"]) -> float:
    """Largest difference between a capture's weights and others."""
    return max(float((capture.pattern(head) - weights[:, head]).abs().max()) for head in range(capture.heads))


def drifted(source: AttentionSource, capture: LayerCapture, own: OwnAttention) -> bool:
    """Whether a layer's captured queries and keys are those of the model's own pass up to half precision's roundings.

    Those of layer 0 are made of the same embeddings in both passes; each layer then adds its roundings.
    """
    if own.query is None or own.key is None:
        return False
    allowed = min(HALF_STEPS, LAYER_STEPS * (capture.layer + 1)) * rounding(source)
    pairs = (capture.query, own.query), (capture.key, own.key)
    return all(
        held.shape == given.shape and float((held - given).abs().max()) <= allowed * float(given.abs().max())
        for held, given in pairs
    )


def weight_tolerance(source: AttentionSource, capture: LayerCapture) -> float:
    """Largest difference of attention weights that rounding explains: half precision rounds logits before the softmax.

    A logit of size x is rounded by eps x / 2, a weight moves by at most a quarter of what its logits move, and both
    the product and its scaled copy are rounded.
    """
    epsilon = rounding(source)
    if not epsilon:
        return PATTERN_TOLERANCE
    everywhere = torch.arange(capture.length)
    peak = max(float(capture.logits(head, everywhere, everywhere).abs().max()) for head in range(capture.heads))
    return max(PATTERN_TOLERANCE, epsilon * (1 + peak / 2))


def rotation_error(source: AttentionSource, capture: LayerCapture) -> float | None:
    """Largest relative difference between replayed and own queries and keys; InputError above the tolerance."""
    if capture.rotation is None or capture.unrotated_query is None or capture.unrotated_key is None:
        return None
    worst = 0.0
    for replayed, held in (
        (capture.rotation.rotate_queries(capture.unrotated_query), capture.query),
        (capture.rotation.rotate_keys(capture.unrotated_key), capture.key),
    ):
        worst = max(worst, float((replayed - held).abs().max()) / float(held.abs().max().clamp(min=1e-30)))
    if not worst <= output_tolerance(source):
        reason = f"has a rotation that differs by {worst:.1e} when it is replayed{coarse(source)}"
        raise refusal(source, capture.layer, reason)
    return worst


def same_direction(source: AttentionSource, directions: Sequence[bool]) -> bool:
    """Whether every layer hides the future; InputError if some do and some do not."""
    if len(set(directions)) > 1:
        odd = next(layer for layer, causal in enumerate(directions) if causal != directions[0])
        raise refusal(source, odd, "differs from layer 0 in whether a query sees later keys")
    return directions[0]


def check_causal(
    source: AttentionSource,
    tokens: Int[Tensor, "batch position"],
    plain: Float[Tensor, "batch position width"],
    scale: float,
    tolerance: float,
) -> None:
    """InputError unless a changed last token leaves every earlier output alone."""
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % source.vocabulary
    with source.capturing():
        after = source.forward(changed, lambda capture: None)
    leak = float((after - plain)[:, :-1].abs().max()) / scale if tokens.shape[1] > 1 else 0.0
    if not leak <= tolerance:
        raise InputError(
            f"'{source.name}' cannot be analysed: its attention hides later keys, yet a changed last token changes "
            f"earlier outputs by {leak:.1e} relative (tried {source.tried()}){coarse(source)}."
        )


def check_padding(source: AttentionSource, tokens: Int[Tensor, "batch position"]) -> tuple[Side | None, float | None]:
    """(side padded, largest change of outputs or weights); InputError unless masked padding changes nothing.

    On the left, where positions must be counted without the padding. A model that counts places alone and takes no
    positions (BART) moves its tokens under left padding by its own design: it is padded on the right.
    """
    padding = min(PADDING, tokens.shape[1] // 4)
    short = tokens[:, : tokens.shape[1] - padding]
    if padding == 0:
        return None, None
    sides: list[Side] = ["left"] if source.counts_positions else ["left", "right"]
    errors = []
    for side in sides:
        error = padding_error(source, short, padding, side)
        if error is None:
            return None, None
        if error <= output_tolerance(source):
            return side, error
        errors.append(error)
    raise InputError(
        f"'{source.name}' cannot be analysed: {padding} masked tokens of padding change its outputs or its attention "
        f"weights by {min(errors):.1e} relative (tried {source.tried()}): its positions or its mask are not understood"
        f"{coarse(source)}."
    )


def padding_error(
    source: AttentionSource, tokens: Int[Tensor, "batch position"], padding: int, side: Side
) -> float | None:
    """Largest relative change of outputs, or change of rebuilt weights, under padding; None where none is taken."""
    kept = slice(padding, None) if side == "left" else slice(None, tokens.shape[1])
    patterns: dict[int, Tensor] = {}
    weights = 0.0

    def keep(capture: LayerCapture) -> None:
        patterns[capture.layer] = torch.stack([capture.pattern(head) for head in range(capture.heads)], 1)

    def compare(capture: LayerCapture) -> None:
        nonlocal weights
        for head in range(capture.heads):
            change = capture.pattern(head)[:, kept, kept] - patterns[capture.layer][:, head]
            weights = max(weights, float(change.abs().max()))

    with source.capturing():
        plain = source.forward(tokens, keep)
        padded = source.padded(tokens, padding, side, compare)
    if padded is None:
        return None
    scale = float(plain.abs().max().clamp(min=1))
    return max(weights, float((padded[:, kept] - plain).abs().max()) / scale)
