"""Speed of training: python benchmarks/training.py (about two minutes).

The package's loop against a plain PyTorch loop of the same model, recipe and data, in turns in one single-threaded
process.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from poskernel.encodings import ENCODINGS, Encoding, Placement
from poskernel.models.training import Recipe, initial_model, training_batches, training_steps
from poskernel.models.transformer import Architecture, rotate
from poskernel.study.grid import TIERS
from poskernel.tasks import IGNORED_LABEL, TASKS, Task
from poskernel.threads import one_thread
from record import write

STEPS, ROUNDS = 20, 5
CELLS = [*((encoding, "prev") for encoding in ENCODINGS), ("sinusoidal", "copy"), ("rope", "copy")]
"""Five of the study's seven tasks score nearly every row, as prev does, and two score half of them, as copy does."""


class PlainBlock(nn.Module):
    """Pre-norm attention and MLP as anyone would write them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, placement: Placement, mask: Tensor) -> Tensor:
        """One block on every row."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).unbind(2)
        if placement.query_rotation is not None:
            q, k = rotate(q, placement.query_rotation), rotate(k, placement.key_rotation)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        weights = (q @ k.transpose(2, 3) / (width // self.heads) ** 0.5 + mask).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class PlainModel(nn.Module):
    """The same transformer without savings: every row through every layer and the head."""

    def __init__(self, shape: Architecture, encoding: Encoding) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(shape.vocabulary, shape.width), encoding.module(shape.shape)
        self.blocks = nn.ModuleList(PlainBlock(shape.width, shape.heads) for _ in range(shape.layers))
        self.norm, self.head = nn.LayerNorm(shape.width), nn.Linear(shape.width, shape.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of every row."""
        length = tokens.shape[1]
        placement = self.position(torch.arange(length))
        mask = torch.full((length, length), float("-inf")).triu(1)
        if placement.bias is not None:
            mask = mask + placement.bias
        x = self.embedding(tokens)
        if placement.embedding is not None:
            x = x + placement.embedding
        for block in self.blocks:
            x = block(x, placement, mask)
        return self.head(self.norm(x))


def plain_steps(shape: Architecture, encoding: Encoding, task: Task) -> Iterator[None]:
    """The plain loop, a step at a time."""
    torch.manual_seed(0)
    model = PlainModel(shape, encoding)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)
    for tokens in training_batches(shape, Recipe(steps=10**9), 0):
        logits, labels = model(tokens).flatten(0, 1), task.labels(tokens).flatten()
        loss = nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield


def our_steps(shape: Architecture, encoding: Encoding, task: Task) -> Iterator[float]:
    """The package's loop, a step at a time."""
    return training_steps(initial_model(shape, encoding, 0), task, Recipe(steps=10**9), 0)


def in_turns(makers: dict[str, Callable[[], Iterator[object]]]) -> dict[str, float]:
    """Seconds a step of each loop: the median over rounds, the loops taking turns within each."""
    loops = {name: maker() for name, maker in makers.items()}
    times: dict[str, list[float]] = {name: [] for name in loops}
    for turn in range(ROUNDS + 1):
        for name, loop in loops.items():
            start = time.perf_counter()
            for _ in range(STEPS):
                next(loop)
            if turn:  # the first warms up
                times[name].append((time.perf_counter() - start) / STEPS)
    return {name: sorted(values)[len(values) // 2] for name, values in times.items()}


def gemm_rate(size: int = 1024, runs: int = 20) -> float:
    """Float32 multiply-adds the machine does in one thread, in GFLOP/s: the best of some square products."""
    a, b = torch.rand(size, size), torch.rand(size, size)
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e9


def matrix_flops(maker: Callable[[], Iterator[object]]) -> float:
    """Floating-point operations of the matrix products in a step, mean over some steps."""
    loop, counter = maker(), FlopCounterMode(display=False)
    with counter:
        for _ in range(STEPS):
            next(loop)
    return counter.get_total_flops() / STEPS


def main() -> None:
    """Every tier, mean over CELLS."""
    rows = []
    with one_thread():
        rate = gemm_rate()
        rows.append({"name": "matrix product rate, one thread", "value": round(rate, 1), "unit": "GFLOP/s"})
        for tier, (layers, heads) in TIERS.items():
            shape, plain, ours = Architecture(layers=layers, heads=heads), 0.0, 0.0
            plain_flops, our_flops = 0.0, 0.0
            for encoding, name in CELLS:
                makers = {
                    "plain": partial(plain_steps, shape, ENCODINGS[encoding], TASKS[name]),
                    "ours": partial(our_steps, shape, ENCODINGS[encoding], TASKS[name]),
                }
                seconds = in_turns(makers)
                plain, ours = plain + seconds["plain"] / len(CELLS), ours + seconds["ours"] / len(CELLS)
                plain_flops += matrix_flops(makers["plain"]) / len(CELLS)
                our_flops += matrix_flops(makers["ours"]) / len(CELLS)
            what = f"tier {tier} ({layers} layers, {heads} heads)"
            rows += [
                {"name": f"{what}: plain loop", "value": round(1e3 * plain, 2), "unit": "ms a step"},
                {"name": f"{what}: poskernel", "value": round(1e3 * ours, 2), "unit": "ms a step"},
                {"name": f"{what}: plain / poskernel", "value": round(plain / ours, 2), "unit": "times"},
                {
                    "name": f"{what}: share of the matrix product rate",
                    "value": round(our_flops / ours / rate / 1e9, 2),
                    "unit": "of 1",
                    "note": f"{our_flops / 1e6:.0f} MFLOP of matrix products a step; plain: {plain_flops / 1e6:.0f}, "
                    f"share {plain_flops / plain / rate / 1e9:.2f}",
                },
            ]
    write("training", "Training, one model in one single-threaded process", "python benchmarks/training.py", rows)


if __name__ == "__main__":
    main()
