"""Positional kernels of a block's stages: what enters attention, what attention and MLP add, and the sum.

The vectors of a stage, h_t, are compared over texts: K(t, s) = <E h_t - m, E h_s - m> with m the mean over positions:
what two texts have in common is position. Every quadratic form comes from different sequences: vectors of x with
those of y, and products of kernels from one half of the sequences and from the other.

Of each stage: the share of its variance that is position, how much of K is a function of the offset, and how far the
spectrum of that function lies from the stage before it. A distance holds sampling noise; the same distance between the
two halves of one stage says how much.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.attention.sources.capture import AttentionSource, on_cpu
from poskernel.errors import InputError

STAGES = ("stream", "attention", "mlp", "sum")
"""What enters the block; what its attention adds; what its MLP adds; what leaves it."""
BATCH = 8
FEWEST = 8
"""Sequences that leave four in each half."""


@dataclass(frozen=True)
class StageKernel:
    """One stage of one layer; numbers may leave [0, 1] by noise and are nan where nothing is positional."""

    layer: int
    stage: str
    share: float
    """Variance of per-position means over positions, over the variance of the vectors."""
    stationary: float
    """Share of the squares of K, off its diagonal, that a function of the offset holds."""
    change: float
    """Total variation between the spectra of that function here and in the stage before; nan for the first."""
    noise: float
    """The same between the two halves of the sequences."""


class StageSums:
    """Sums over the sequences of one half: of the vectors, and of the Grams of single sequences."""

    def __init__(self, length: int, width: int) -> None:
        self.total = torch.zeros(length, width, dtype=torch.float64)
        self.own = torch.zeros(length, length, dtype=torch.float64)
        self.sequences = 0

    def add(self, vectors: Float[Tensor, "batch position width"]) -> None:
        """Add sequences."""
        rows = vectors.double()
        self.total += rows.sum(0)
        self.own += torch.einsum("btw,bsw->ts", rows, rows)
        self.sequences += len(rows)

    def plus(self, other: "StageSums") -> "StageSums":
        """Of both halves."""
        joined = StageSums(*self.total.shape)
        joined.total, joined.own = self.total + other.total, self.own + other.own
        joined.sequences = self.sequences + other.sequences
        return joined

    @property
    def kernel(self) -> Float[Tensor, "position position"]:
        """K from pairs of different sequences, centred over positions on both sides."""
        pairs = self.sequences * (self.sequences - 1)
        gram = (self.total @ self.total.T - self.own) / pairs
        gram = gram - gram.mean(0, keepdim=True)
        return gram - gram.mean(1, keepdim=True)

    @property
    def variance(self) -> float:
        """Of the vectors about their mean over positions and sequences."""
        length = len(self.total)
        pairs = self.sequences * (self.sequences - 1)
        mean = float((self.total.sum(0).square().sum() - self.own.sum()) / pairs) / length**2
        return float(self.own.diagonal().mean()) / self.sequences - mean


def offset_profile(kernel: Float[Tensor, "position position"]) -> Float[Tensor, " offset"]:
    """Mean along each diagonal, offsets 1 and up to half the length: farther ones are means of few."""
    return torch.stack([kernel.diagonal(offset).mean() for offset in range(1, len(kernel) // 2)])


def stationary_share(first: Float[Tensor, "position position"], second: Float[Tensor, "position position"]) -> float:
    """Share of the common squares of two estimates of one kernel that their diagonals' means hold; off the diagonal."""
    explained = whole = 0.0
    for offset in range(1, len(first)):
        one, other = first.diagonal(offset), second.diagonal(offset)
        explained += float(one.mean() * other.mean()) * len(one)
        whole += float(one @ other)
    return explained / whole if whole > 0 else float("nan")


def spectrum(profile: Float[Tensor, " offset"]) -> Float[Tensor, " frequency"]:
    """Shares of the power by frequency, without the constant; nan for a flat profile."""
    window = torch.hann_window(len(profile), periodic=False, dtype=profile.dtype)
    power = torch.fft.rfft((profile - profile.mean()) * window)[1:].abs().square()
    return power / power.sum()


def variation(one: Float[Tensor, " frequency"], other: Float[Tensor, " frequency"]) -> float:
    """Total variation between two spectra: 0 where they are alike, 1 where they share no frequency."""
    return float((one - other).abs().sum()) / 2


def stage_kernels(source: AttentionSource, tokens: Int[Tensor, "sequence position"], dropped: int) -> list[StageKernel]:
    """All stages of all layers, in order; InputError for fewer than 8 sequences or a model whose blocks are not known.

    The sequences of even and of odd number are the two halves.
    """
    if len(tokens) < FEWEST:
        raise InputError(f"{len(tokens)} sequences leave no four in each half: give at least {FEWEST}.")
    sums: dict[tuple[int, str, int], StageSums] = {}
    for half in range(2):
        for batch in tokens[half::2].split(BATCH):
            with torch.inference_mode(), recorded_stages(source) as seen:
                # With a consumer our own models compute every row, not each distinct one once.
                source.forward(batch, lambda capture: None)
                for (layer, stage), vectors in stage_vectors(source, seen).items():
                    kept = on_cpu(vectors)[:, dropped:]
                    place = (layer, stage, half)
                    if place not in sums:
                        sums[place] = StageSums(kept.shape[1], kept.shape[2])
                    sums[place].add(kept)
    return [
        kernel
        for layer in sorted({layer for layer, _, _ in sums})
        for kernel in layer_kernels(layer, {stage: (sums[layer, stage, 0], sums[layer, stage, 1]) for stage in STAGES})
    ]


def layer_kernels(layer: int, sums: Mapping[str, tuple[StageSums, StageSums]]) -> Iterator[StageKernel]:
    """The stages of one layer, each compared with the one before it."""
    before: list[Tensor] | None = None
    for stage, halves in sums.items():
        kernels = [half.kernel for half in halves]
        spectra = [spectrum(offset_profile(kernel)) for kernel in kernels]
        change = float("nan")
        if before is not None:
            # Different halves, as in the noise that it is compared with.
            change = (variation(before[0], spectra[1]) + variation(before[1], spectra[0])) / 2
        whole = halves[0].plus(halves[1])
        share = float(whole.kernel.diagonal().mean()) / whole.variance if whole.variance > 0 else float("nan")
        yield StageKernel(layer, stage, share, stationary_share(*kernels), change, variation(*spectra))
        before = spectra


Seen = dict[tuple[int, str], Tensor]


def stage_vectors(source: AttentionSource, seen: Seen) -> Seen:
    """All four stages of every layer from those that hooks saw; InputError where they do not add up."""
    layers = sorted({layer for layer, _ in seen})
    found: Seen = {}
    for layer in layers:
        stream, attention, mlp = (seen[layer, stage] for stage in STAGES[:3])
        found |= {(layer, "stream"): stream, (layer, "attention"): attention, (layer, "mlp"): mlp}
        found[layer, "sum"] = stream + attention + mlp
        left = seen.get((layer, "sum"))
        if left is not None and not torch.allclose(left, found[layer, "sum"], rtol=1e-3, atol=1e-3):
            raise unknown_blocks(source)
    return found


@contextmanager
def recorded_stages(source: AttentionSource) -> Iterator[Seen]:
    """Inside the block the stream before, attention's and the MLP's output of each layer are put under (layer, stage).

    For our own transformers, and for models whose blocks are `layers` with `self_attn` and `mlp` (Llama and its kin);
    InputError for others.
    """
    seen: Seen = {}

    def entering(layer: int) -> Any:
        def note(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            seen[layer, "stream"] = given[0] if given else named["hidden_states"]

        return note

    def leaving(layer: int, stage: str) -> Any:
        def note(module: nn.Module, given: object, output: Any) -> None:
            seen[layer, stage] = output[0] if isinstance(output, tuple) else output

        return note

    hooks = []
    for layer, (enter, attention, mlp) in enumerate(block_parts(source)):
        hooks.append(enter.register_forward_pre_hook(entering(layer), with_kwargs=True))
        hooks.append(attention.register_forward_hook(leaving(layer, "attention")))
        hooks.append(mlp.register_forward_hook(leaving(layer, "mlp")))
        if hasattr(enter, "self_attn"):
            hooks.append(enter.register_forward_hook(leaving(layer, "sum")))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def block_parts(source: AttentionSource) -> list[tuple[nn.Module, nn.Module, nn.Module]]:
    """Of each layer: what the stream enters, what gives attention's contribution, and the MLP."""
    own = getattr(source, "model", None)
    blocks = list(getattr(own, "blocks", ()))
    if blocks and all(block.mlp is not None for block in blocks):
        return [(block.attention_norm, block.output, block.mlp) for block in blocks]
    layers = list(getattr(getattr(source, "module", None), "layers", ()))
    if layers and all(hasattr(layer, "self_attn") and hasattr(layer, "mlp") for layer in layers):
        return [(layer, layer.self_attn, layer.mlp) for layer in layers]
    raise unknown_blocks(source)


def unknown_blocks(source: AttentionSource) -> InputError:
    """The error of a model that is built otherwise."""
    return InputError(
        f"the blocks of '{source.name}' are not known as an attention and an MLP that add to a stream: "
        "leave out the kernels of stages."
    )
