"""Speed of training: python benchmarks/training.py (about ten minutes on two cores; longer with more --steps).

The package's loop against a plain PyTorch loop of the same model, recipe and data, in turns: first one model in one
single-threaded process; then 30 models of each tier on all cores, in single-threaded processes, one at a time and in
batches of several sizes.
"""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, product

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from poskernel.encodings import ENCODINGS, STUDY_ENCODINGS, Encoding, Placement
from poskernel.models.ensemble import Ensemble
from poskernel.models.ensemble_training import ensemble_steps
from poskernel.models.training import Recipe, initial_model, training_batches, training_steps
from poskernel.models.transformer import Architecture, rotate
from poskernel.study.grid import TIERS
from poskernel.study.workers import cores, single_thread_environment
from poskernel.tasks import IGNORED_LABEL, STUDY_TASKS, TASKS, Task
from poskernel.threads import one_thread
from record import write

STEPS, ROUNDS = 20, 5
RUNS = list(product(STUDY_ENCODINGS, STUDY_TASKS[:6]))
"""Thirty of the study's 35 cells: what is trained on all cores, each for --steps steps."""
POOL_ROUNDS = 3
CELLS: list[tuple[Encoding, str]] = [
    *((encoding, "prev") for encoding in STUDY_ENCODINGS),
    *((ENCODINGS[name], "copy") for name in ("sinusoidal", "rope")),
]
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


Run = tuple[Architecture, Encoding, Task]


def plain_work(runs: Sequence[Run], steps: int) -> None:
    """Each run by the plain loop."""
    for shape, encoding, task in runs:
        for _ in islice(plain_steps(shape, encoding, task), steps):
            pass


def our_work(runs: Sequence[Run], steps: int) -> None:
    """Each run by the package's loop."""
    for shape, encoding, task in runs:
        for _ in islice(our_steps(shape, encoding, task), steps):
            pass


def ensemble_work(runs: Sequence[Run], steps: int) -> None:
    """All runs in one batch."""
    shape = runs[0][0]
    ensemble = Ensemble([initial_model(shape, encoding, 0) for _, encoding, _ in runs])
    tasks = [runs[index][2] for index in ensemble.order]
    for _ in islice(ensemble_steps(ensemble, tasks, [0] * len(runs), Recipe(steps=10**9)), steps):
        pass


Work = Callable[[Sequence[Run], int], None]


def pool_seconds(sides: dict[str, tuple[Work, int]], shape: Architecture, steps: int) -> dict[str, float]:
    """Wall seconds in which a pool of one process a core trains all of RUNS: median over rounds, the sides in turns.

    Sides are a kind of work and how many runs it takes at a time. Processes have started and warmed up before.
    """
    runs = [(shape, encoding, task) for encoding, task in RUNS]
    times: dict[str, list[float]] = {name: [] for name in sides}
    with single_thread_environment(), multiprocessing.get_context("spawn").Pool(cores(), one_torch_thread) as pool:
        for turn in range(POOL_ROUNDS + 1):
            for name, (work, size) in sides.items():
                batches = [runs[start : start + size] for start in range(0, len(runs), size)]
                start = time.perf_counter()
                pool.starmap(work, [(batch, steps if turn else 2) for batch in batches], chunksize=1)
                if turn:  # the first warms up
                    times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def one_torch_thread() -> None:
    """What each process of a pool does first."""
    torch.set_num_threads(1)


def pool_rows(steps: int, sizes: Sequence[int]) -> list[dict[str, object]]:
    """Thirty runs of every tier on all cores: plain, the package, and its batches."""
    rows: list[dict[str, object]] = []
    for tier, (layers, heads) in TIERS.items():
        sides: dict[str, tuple[Work, int]] = {"plain loops": (plain_work, 1), "poskernel": (our_work, 1)}
        sides |= {f"poskernel, batches of {size}": (ensemble_work, size) for size in sizes}
        seconds = pool_seconds(sides, Architecture(layers=layers, heads=heads), steps)
        what = f"tier {tier}, {len(RUNS)} runs of {steps} steps in {cores()} processes"
        for name, value in seconds.items():
            rows.append({"name": f"{what}: {name}", "value": round(value, 2), "unit": "s"})
            if name != "plain loops":
                ratio = round(seconds["plain loops"] / value, 2)
                rows.append({"name": f"{what}: plain loops / {name}", "value": ratio, "unit": "times"})
    return rows


def single_rows() -> list[dict[str, object]]:
    """One model in one process: every tier, mean over CELLS."""
    rows: list[dict[str, object]] = []
    with one_thread():
        rate = gemm_rate()
        rows.append({"name": "matrix product rate, one thread", "value": round(rate, 1), "unit": "GFLOP/s"})
        for tier, (layers, heads) in TIERS.items():
            shape, plain, ours = Architecture(layers=layers, heads=heads), 0.0, 0.0
            plain_flops, our_flops = 0.0, 0.0
            for encoding, name in CELLS:
                makers = {
                    "plain": partial(plain_steps, shape, encoding, TASKS[name]),
                    "ours": partial(our_steps, shape, encoding, TASKS[name]),
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
    return rows


def main() -> None:
    """Both parts, in one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50, help="steps of each of the thirty runs (default 50)")
    parser.add_argument("--batches", default="2,5,10,30", help="batch sizes (default 2,5,10,30)")
    parser.add_argument("--only", choices=("single", "pool"), help="one part alone, printed and not written")
    given = parser.parse_args()
    sizes = [int(size) for size in given.batches.split(",")]
    rows = [] if given.only == "pool" else single_rows()
    rows += [] if given.only == "single" else pool_rows(given.steps, sizes)
    if given.only:
        for row in rows:
            print(row)
        return
    command = f"python benchmarks/training.py --steps {given.steps} --batches {given.batches}"
    write("training", "Training: one model in one process, and thirty on all cores", command, rows)


if __name__ == "__main__":
    main()
