"""Slow, obvious versions of what the package computes fast: loops over rows and keys, autograd, exact arithmetic.

Nothing here imports the package, so that a mistake cannot be on both sides.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import mpmath
import torch
from torch import Tensor

LENGTHS = (30, 40, 50, 60, 80)
"""The test lengths of the realizability paper."""
STUDY_TASKS = ("prev", "skip2", "skip3", "skip5", "copy", "reverse", "first")
POSITIONAL_TASKS = (*STUDY_TASKS, "pos2", "pos5")
STRICTNESS = 1e-9


def target_key(task: str, row: int, length: int) -> int | None:
    """The definition of each task, a row at a time; None where the row is no query row."""
    half = math.ceil(length / 2)
    if task == "prev" or task.startswith("skip"):
        back = 1 if task == "prev" else int(task.removeprefix("skip"))
        return row - back if row >= back else None
    if task == "first":
        return 0 if row >= 1 else None
    if task.startswith("pos"):
        position = int(task.removeprefix("pos"))
        return position if row >= position else None
    if task == "copy":
        return row - half if row >= half else None
    if task == "reverse":
        return 2 * half - 1 - row if row >= half else None
    raise ValueError(task)


def induction_key(tokens: Sequence[int], row: int) -> int | None:
    """One after the most recent earlier occurrence of the row's token."""
    for earlier in range(row - 1, -1, -1):
        if tokens[earlier] == tokens[row]:
            return earlier + 1
    return None


def row_margin(logits: Sequence[float], row: int, key: int) -> tuple[float, bool]:
    """Margin of one row over its other causal keys, and whether it is strictly right."""
    others = [logits[other] for other in range(row + 1) if other != key]
    margin = logits[key] - max(others) if others else math.inf
    return margin, margin > STRICTNESS * max(abs(logits[other]) for other in range(row + 1))


def alpha(logits: Callable[[int, int], float], task: str, train_length: int, length: int) -> float:
    """Share of the query rows in [train_length, length) that are right."""
    right = []
    for row in range(train_length, length):
        key = target_key(task, row, length)
        if key is not None:
            right.append(row_margin([logits(row, other) for other in range(row + 1)], row, key)[1])
    return sum(right) / len(right)


def reach(logits: Callable[[int, int], float], task: str, train_length: int, horizon: int) -> int | None:
    """First wrong row, or first failing length for copy and reverse."""
    if task in ("copy", "reverse"):
        for length in range(train_length + 1, horizon + 1):
            if alpha(logits, task, train_length, length) < 1:
                return length
        return None
    for row in range(horizon):
        key = target_key(task, row, horizon)
        if key is not None and not row_margin([logits(row, other) for other in range(row + 1)], row, key)[1]:
            return row
    return None


def offset_order_is_cyclic(task: str, length: int) -> bool:
    """Whether the demands 'this offset beats that one' contain a cycle: transitive closure, three loops."""
    beats = [[False] * length for _ in range(length)]
    for row in range(length):
        key = target_key(task, row, length)
        if key is not None:
            for other in range(row + 1):
                if other != key:
                    beats[row - key][row - other] = True
    for middle in range(length):
        for start in range(length):
            if beats[start][middle]:
                for end in range(length):
                    if beats[middle][end]:
                        beats[start][end] = True
    return any(beats[offset][offset] for offset in range(length))


def frequencies(count: int = 16, base: float = 1e4) -> list[float]:
    """base^(-k/count)."""
    return [base ** (-k / count) for k in range(count)]


def relative_map(basis: Callable[[int], list[float]], length: int) -> Callable[[Tensor], Tensor]:
    """Weights to the logits of a grid, for a kernel of the offset (negative offsets are masked later)."""
    table = torch.tensor([basis(offset) for offset in range(length)], dtype=torch.float64)
    position = torch.arange(length)
    offset = (position[:, None] - position).clamp(min=0)
    return lambda weights: (table @ weights)[offset]


def bilinear_map(features: Callable[[int], list[float]], length: int) -> Callable[[Tensor], Tensor]:
    """Weights to the logits of a grid, for a kernel of absolute positions."""
    phi = torch.tensor([features(position) for position in range(length)], dtype=torch.float64)
    return lambda weights: phi @ weights @ phi.T


def family(encoding: str, train_length: int = 20) -> tuple[Callable[[Tensor], Tensor], tuple[int, ...], Tensor | None]:
    """Map, weight shape and upper bounds of the five encodings, written from their table."""
    theta = frequencies()

    def waves(x: int, sine_first: bool) -> list[float]:
        sines, cosines = [math.sin(t * x) for t in theta], [math.cos(t * x) for t in theta]
        return sines + cosines if sine_first else cosines + sines

    if encoding == "nope":
        return relative_map(lambda offset: [1.0], train_length), (1,), None
    if encoding == "alibi":
        return relative_map(lambda offset: [1.0, float(offset)], train_length), (2,), torch.tensor([math.inf, 0.0])
    if encoding == "rope":
        return relative_map(lambda offset: waves(offset, False), train_length), (32,), None
    if encoding == "sinusoidal":
        return bilinear_map(lambda position: waves(position, True), train_length), (32, 32), None
    one_hot = torch.eye(train_length).tolist()
    return bilinear_map(lambda position: one_hot[position], train_length), (train_length, train_length), None


def cross_entropy(task: str, length: int) -> Callable[[Tensor], Tensor]:
    """Grid logits to the mean, over the query rows, of the masked grid's cross-entropy with the target key."""
    keys = {row: key for row in range(length) if (key := target_key(task, row, length)) is not None}
    rows, targets = torch.tensor(list(keys)), torch.tensor(list(keys.values()))
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    return lambda logits: torch.nn.functional.cross_entropy(logits.masked_fill(future, -math.inf)[rows], targets)


def adam_fit(
    encoding: str, task: str, train_length: int = 20, steps: int = 400, rate: float = 0.1, decay: float = 1e-4
) -> Tensor:
    """The adam rule of one cell by autograd and torch's own optimiser, from zero, with bounded weights clamped."""
    (logits, shape, upper), loss = family(encoding, train_length), cross_entropy(task, train_length)
    weights = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=rate, weight_decay=decay)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(logits(weights)).backward()
        optimiser.step()
        if upper is not None:
            with torch.no_grad():
                weights.copy_(torch.minimum(weights, upper.double()))
    return weights.detach()


@lru_cache
def exact_lift(train_length: int, length: int, digits: int) -> list[list[mpmath.mpf]]:
    """G(i, j) of all positions with the trained ones, times the inverse of G among these."""
    with mpmath.workdps(digits):
        theta = [mpmath.mpf(10000) ** (-mpmath.mpf(k) / 16) for k in range(16)]
        gram = [sum((mpmath.cos(t * d) for t in theta), mpmath.mpf(0)) for d in range(length)]
        rows = [[gram[abs(i - j)] for j in range(train_length)] for i in range(length)]
        return (mpmath.matrix(rows) * mpmath.matrix(rows[:train_length]) ** -1).tolist()


def exact_min_norm_alpha(
    encoding: str, task: str, train_length: int, lengths: Sequence[int], digits: int = 150
) -> list[float]:
    """Alpha at each length of the min-norm rule's kernel in exact arithmetic: right is a margin above 0.

    At `digits` digits the features at train_length have full row rank, so the kernel interpolates the training pattern
    and is written by the Gram matrix of the features, G(d) = sum_k cos(theta_k d), alone: for both encodings.
    """
    length = max(lengths)
    with mpmath.workdps(digits):
        lift = exact_lift(train_length, length, digits)
        keys = {row: key for row in range(train_length) if (key := target_key(task, row, train_length)) is not None}
        if encoding == "rope":
            hits, pairs = [0] * train_length, [0] * train_length
            for row, key in keys.items():
                hits[row - key] += 1
                for other in range(row + 1):
                    pairs[row - other] += 1
            mean = [mpmath.mpf(hit) / pair if pair else None for hit, pair in zip(hits, pairs, strict=True)]
            assert None not in mean
            profile = [sum(a * b for a, b in zip(lift[d], mean, strict=True)) for d in range(length)]
            logits = [[profile[row - key] for key in range(row + 1)] for row in range(train_length, length)]
        else:
            logits = []
            for row in range(train_length, length):
                pattern: dict[int, mpmath.mpf] = {}
                for query, key in keys.items():
                    pattern[key] = pattern.get(key, mpmath.mpf(0)) + lift[row][query]
                logits.append(
                    [sum(value * lift[other][key] for key, value in pattern.items()) for other in range(row + 1)]
                )
        alphas = []
        for each in lengths:
            right = []
            for row in range(train_length, each):
                wanted = target_key(task, row, each)
                if wanted is not None:
                    values = logits[row - train_length]
                    right.append(all(values[wanted] > value for key, value in enumerate(values) if key != wanted))
            alphas.append(sum(right) / len(right))
        return alphas


def plain_adam(start: Tensor, loss: Callable[[Tensor], Tensor], steps: int) -> Tensor:
    """torch's own optimiser on a loss, with the rule's other defaults."""
    weights = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([weights], lr=0.1, weight_decay=1e-4)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(weights).backward()
        optimiser.step()
    return weights.detach()


def fire_grid(weights: Tensor, length: int) -> Tensor:
    """FIRE's logits, row by row."""
    slope, bias, output, last = weights.split([32, 32, 32, 1])
    rows = []
    for query in range(length):
        offset = torch.tensor([max(query - key, 0) for key in range(length)], dtype=torch.float64)
        argument = torch.log(0.1 * offset + 1) / math.log(0.1 * 512 + 1)
        rows.append((argument[:, None] * slope + bias).relu() @ output + last)
    return torch.stack(rows)
