"""Tasks whose targets no relative kernel can order: reverse, and offsets that alternate with the row."""

import torch

from poskernel.kernel import tabulated
from poskernel.random_streams import random_stream
from poskernel.realizability.alignment import row_margins
from poskernel.realizability.existence import order_cycle
from poskernel.realizability.theorems.check import Check, Effort
from poskernel.realizability.theorems.offsets import compatible_rows, right_rows, rising_profile
from poskernel.realizability.theorems.relative import PARITY
from poskernel.tasks import Reverse, Task
from poskernel.threads import one_thread

KERNELS = 20_000
"""The paper's number of random kernels."""


@one_thread()
def reverse_is_unsolvable(
    effort: Effort,
    seed: int,
    *,
    task: Task | None = None,
    train_length: int = 20,
    at_most: int = 4,
    samples: int | None = None,
) -> Check:
    """No relative kernel solves reverse at the training length; the most rows any can get right is found exactly.

    copy at one length is solved by a kernel peaked at its offset. `at_most` is the number of rows to be found.
    """
    task = task or Reverse()
    kernels = samples or effort.size(KERNELS, 20 * KERNELS)
    stream = random_stream(seed, "theory/reverse")
    targets = task.targets(train_length)
    count = len(targets.query)
    most = 0
    for start in range(0, kernels, KERNELS):
        profile = torch.randn(min(KERNELS, kernels - start), train_length, dtype=torch.float64, generator=stream)
        most = max(most, int(right_rows(profile, targets).max()))
    cycle = order_cycle(targets)
    best = compatible_rows(targets)
    reached = int(row_margins(tabulated(rising_profile(targets, best, train_length)), targets).right.sum())
    chain = "no cycle" if cycle is None else " > ".join(map(str, [*cycle, cycle[0]]))
    return Check(
        name="reverse-is-unsolvable",
        claim="No kernel of the offset solves reverse at the training length.",
        source="realizability paper, theorem 2, appendix A.5 (b)",
        measured=f"at most {most} of {count} rows over {kernels:,} random kernels; {len(best)} at most in exact terms, "
        f"{reached} reached; offsets in the order they must beat: {chain}",
        expected=f"random kernels no more than is possible; {at_most} at most in exact terms, {at_most} reached, below "
        f"all {count}; a cycle (paper: 17 > 15 > 17; no kernel of 20,000 solves it)",
        n=kernels,
        unit="kernels",
        holds=cycle is not None and most <= len(best) == reached == at_most < count,
        note=f"{task.name} at length {train_length}. The cycle proves it for every relative kernel; the exact maximum "
        "searches all sets of rows.",
    )


@one_thread()
def parity_stays_at_half(
    effort: Effort,
    seed: int,
    *,
    task: Task = PARITY,
    train_length: int = 20,
    lengths: tuple[int, int] = (60, 61),
    samples: int | None = None,
) -> Check:
    """Offsets 1 and 2 by turns: bounded, yet no relative kernel exceeds half of the rows (one more at odd counts).

    A constant offset is met on all of them.
    """
    kernels = samples or effort.size(KERNELS, 20 * KERNELS)
    stream = random_stream(seed, "theory/parity")
    most, bound, counts = [], [], []
    for length in lengths:
        targets = task.new_targets(train_length, length)
        counts.append(len(targets.query))
        # Every scored row sees both offsets, so all rows that one kernel gets right demand the same one.
        bound.append(int(targets.offset.bincount().max()) / counts[-1])
        best = 0
        for start in range(0, kernels, KERNELS):
            profile = torch.randn(min(KERNELS, kernels - start), length, dtype=torch.float64, generator=stream)
            best = max(best, int(right_rows(profile, targets).max()))
        most.append(best / counts[-1])
    halves = [(count + 1) // 2 / count for count in counts]
    return Check(
        name="parity-stays-at-half",
        claim="Offsets 1 and 2 by turns are bounded, yet no relative kernel gets more than half of the rows right.",
        source="realizability paper, theorem 2, appendix A.5",
        measured=", ".join(f"{each:.3f} at L = {length}" for each, length in zip(most, lengths, strict=True))
        + f" at most, over {kernels:,} random kernels; bound {', '.join(f'{each:.3f}' for each in bound)}",
        expected=f"bound {', '.join(f'{each:.3f}' for each in halves)} exactly, random kernels no more (paper: exactly "
        "0.5, which holds for even L - L0)",
        n=kernels * len(lengths),
        unit="kernels",
        holds=bound == halves and all(best <= limit for best, limit in zip(most, bound, strict=True)),
        note=f"{task.name}: offset 1 on even rows, 2 on odd ones, trained to {train_length}. The bound is exact for "
        "every relative kernel.",
    )
