"""Probes: what a head does on one token repeated for ever, and on a random pattern repeated.

One token everywhere makes the vectors before a rotation equal at every position, in every layer (attention averages
equal values), so the logits of a rotary head are exactly Toeplitz: a self-test of capture and rotation, down to
rounding. Its g needs no text; whether it agrees with g on text says if g is the head's own or the text's. A repeated
random pattern shows heads that look for the token after (induction) or at (matching) an earlier occurrence of their own
(Olsson et al. 2022), which no position and no frequency of tokens explains.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.estimators.row_tiles import attention, row_tiles
from poskernel.attention.sources.capture import AttentionSource, LayerCapture
from poskernel.errors import InputError
from poskernel.statistics import Estimate, mean

AGREEING, SIMILAR = 0.9, 2.0
"""Correlation from which the kernel of a probe and that of text agree, unless one is more than twice the other."""
ROUNDINGS = 4
"""Machine epsilons, of the largest logit that vectors of that length can have; in SmolLM2 roundings reach a tenth."""
ANGLE_STEP = float(torch.finfo(torch.float32).eps)
"""Nearly all code turns positions into angles in float32, whatever the model's precision."""


def constant_tokens(
    source: AttentionSource, sequences: int, length: int, seed: int = 0
) -> Int[Tensor, "sequence position"]:
    """Sequences of one random token each."""
    return source.probe_tokens(sequences, 1, torch.Generator().manual_seed(seed)).expand(-1, length).contiguous()


def repeated_tokens(
    source: AttentionSource, sequences: int, period: int, repeats: int = 2, seed: int = 0
) -> Int[Tensor, "sequence position"]:
    """Sequences of a random pattern of `period` tokens, `repeats` times."""
    return source.probe_tokens(sequences, period, torch.Generator().manual_seed(seed)).repeat(1, repeats)


@dataclass(frozen=True, eq=False)
class HeadProbe:
    """A head's logits under a probe, in nats.

    `g` is the mean along each diagonal, over the sequences; `offsets` are those of its entries (negative where
    attention goes both ways). `spread` is the standard deviation of the sequences' own g, row-constant included.
    `toeplitz_error` is the largest distance of a logit from its own sequence's g, and `floor` what rounding can make.
    """

    layer: int
    head: int
    offsets: Int[Tensor, " offset"]
    g: Float[Tensor, " offset"]
    counts: Float[Tensor, " offset"]
    """Pairs at each offset."""
    spread: Float[Tensor, " offset"]
    toeplitz_error: float
    floor: float

    @property
    def is_toeplitz(self) -> bool:
        """Whether the logits are a function of the offset, to rounding: they must be for rotary heads on one token."""
        return self.toeplitz_error <= self.floor


@dataclass(frozen=True)
class Agreement:
    """A probe's g beside that of text: correlation over pairs, and how many times as large the text's is.

    `gain` is the slope of text on probe. `agrees` is the flag: a correlation of at least 0.9 and a gain between 1/2 and
    2, as a softmax heeds size. Undefined (nan, and no agreement) where one of them does not vary. Deep layers seldom
    agree: one token for ever is far from any text.
    """

    correlation: float
    gain: float
    agrees: bool


class ProbeEstimator:
    """Consumes the captures of one probe; `layers` are those to measure, `dtype` the model's own precision."""

    def __init__(self, layers: Mapping[int, int], dtype: torch.dtype) -> None:
        self.layers, self.epsilon = dict(layers), float(torch.finfo(dtype).eps)
        self.probes: dict[tuple[int, int], HeadProbe] = {}

    def consume(self, capture: LayerCapture) -> None:
        """Measure one layer on all sequences of the probe at once; other layers are passed over."""
        if capture.layer not in self.layers:
            return
        if (capture.layer, 0) in self.probes:
            raise InputError(f"layer {capture.layer} came twice: pass a probe through the model in one batch.")
        with torch.inference_mode():
            for head in range(capture.heads):
                self.probes[capture.layer, head] = probe_head(capture, head, self.epsilon)

    def estimates(self) -> list[HeadProbe]:
        """Every head's probe, by layer and head."""
        return [self.probes[name] for name in sorted(self.probes)]


def probe_head(capture: LayerCapture, head: int, epsilon: float) -> HeadProbe:
    """g by diagonal sums in float64 (an FFT would add its own rounding), then the largest distance from it."""
    batch, shift = capture.query.shape[0], 0 if capture.causal else capture.length - 1
    sums = torch.zeros(batch, capture.length + shift, dtype=torch.float64)
    counts = torch.zeros(capture.length + shift, dtype=torch.float64)
    for tile in row_tiles(capture, 0, batch):
        index = (tile.offsets + shift)[tile.seen]
        sums.index_add_(1, index, capture.logits(head, tile.rows, tile.keys)[:, tile.seen].double())
        counts.index_add_(0, index, torch.ones(len(index), dtype=torch.float64))
    held = counts > 0
    profile, error = sums / counts, 0.0
    for tile in row_tiles(capture, 0, batch):
        index = (tile.offsets + shift)[tile.seen]
        distance = capture.logits(head, tile.rows, tile.keys)[:, tile.seen].double() - profile[:, index]
        error = max(error, float(distance.abs().max()))
    query, key = capture.query[:, head], capture.key[:, capture.key_head(head)]
    largest = capture.scale * float(query.norm(dim=-1).max()) * float(key.norm(dim=-1).max())
    return HeadProbe(
        capture.layer,
        head,
        (torch.arange(len(counts)) - shift)[held],
        profile[:, held].mean(0),
        counts[held],
        profile[:, held].std(0, correction=min(1, batch - 1)),
        error,
        largest * (ROUNDINGS * epsilon + capture.length * ANGLE_STEP),
    )


def agreement(probe: HeadProbe, text: Float[Tensor, " offset"]) -> Agreement:
    """Compare with g of text at offsets 0, 1, ..., over the offsets that both hold and half of the probe's rows do.

    Pairs count, and the levels do not, as softmax ignores them.
    """
    most = int(probe.counts.max())
    kept = (probe.offsets >= 0) & (probe.offsets < len(text)) & (probe.counts >= most / 2)
    weights, first = probe.counts[kept] / probe.counts[kept].sum(), probe.g[kept]
    second = text.double()[probe.offsets[kept]]
    first, second = first - weights @ first, second - weights @ second
    powers = float(weights @ first**2), float(weights @ second**2)
    # Below this a kernel is its level, rounded.
    least = (1e-12 * (1 + float(probe.g.abs().max()))) ** 2
    if min(powers) <= least:
        return Agreement(math.nan, math.nan, agrees=False)
    shared = float(weights @ (first * second))
    correlation = shared / math.sqrt(powers[0] * powers[1])
    gain = shared / powers[0]
    return Agreement(correlation, gain, correlation >= AGREEING and 1 / SIMILAR <= gain <= SIMILAR)


@dataclass(frozen=True)
class HeadRepetition:
    """Attention of a head on a repeated pattern, mean over the rows of the repeats.

    `induction` is on the tokens just after earlier occurrences of the row's own token, `matching` on those occurrences
    themselves; the chances are what evenly spread attention would give.
    """

    layer: int
    head: int
    induction: Estimate
    matching: Estimate
    induction_chance: float
    matching_chance: float


class RepetitionEstimator:
    """Consumes captures of sequences from `repeated_tokens` with the given period; batches may follow each other."""

    def __init__(self, layers: Mapping[int, int], period: int) -> None:
        if period < 3:
            raise InputError(f"a pattern of {period} tokens tells no occurrence from its neighbour: give 3 or more.")
        self.period = period
        self.masses: dict[tuple[int, int], list[Float[Tensor, "sequence mass"]]] = {
            (layer, head): [] for layer in layers for head in range(layers[layer])
        }
        self.chances: dict[int, Float[Tensor, " mass"]] = {}

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer of one batch; layers not asked for are passed over."""
        if (capture.layer, 0) not in self.masses:
            return
        if capture.length < 2 * self.period:
            raise InputError(
                f"{capture.length} positions hold a pattern of {self.period} less than twice: repeat it once more."
            )
        with torch.inference_mode():
            for head in range(capture.heads):
                masses, chances = repetition_masses(capture, head, self.period)
                self.masses[capture.layer, head].append(masses)
                self.chances[capture.layer] = chances

    def estimates(self) -> list[HeadRepetition]:
        """Every head's attention, by layer and head."""
        results = []
        for (layer, head), parts in sorted(self.masses.items()):
            if not parts:
                raise InputError(f"layer {layer} was not captured: give only layers that the source has.")
            induction, matching = torch.cat(parts).T.tolist()
            chances = self.chances[layer].tolist()
            results.append(HeadRepetition(layer, head, mean(induction), mean(matching), *chances))
        return results


def repetition_masses(
    capture: LayerCapture, head: int, period: int
) -> tuple[Float[Tensor, "sequence mass"], Float[Tensor, " mass"]]:
    """Mean attention, over the rows from `period` on, after and at earlier occurrences; and of even attention."""
    masses = torch.zeros(capture.query.shape[0], 2, dtype=torch.float64)
    chances = torch.zeros(2, dtype=torch.float64)
    for tile in row_tiles(capture, 0, capture.query.shape[0]):
        weights = attention(capture, head, tile, capture.logits(head, tile.rows, tile.keys))
        # Earlier occurrences only, whatever the direction; before position 0 there is none for a token to follow.
        for number, shift in enumerate((1, 0)):
            chosen = ((tile.offsets + shift) % period == 0) & (tile.offsets >= period - shift)
            chosen = chosen & (tile.rows[:, None] >= period) & (tile.keys >= shift) & tile.seen
            masses[:, number] += (weights * chosen).sum((-1, -2)).double()
            chances[number] += float((chosen.sum(-1) / tile.seen.sum(-1)).sum())
    rows = capture.length - period
    return masses / rows, chances / rows
