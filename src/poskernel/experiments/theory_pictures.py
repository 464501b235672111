"""The pictures of the claims: where one says more than a row of the table, from the same functions as the checks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from poskernel.encodings import Learned
from poskernel.kernel import PositionalKernel
from poskernel.realizability.alignment import row_margins
from poskernel.realizability.theorems.boundary import normalisers, rotary_profile
from poskernel.realizability.theorems.kernels import exponential, wrapped_cauchy
from poskernel.realizability.theorems.offsets import OffsetTask, prefix_winners, tent
from poskernel.realizability.theorems.relative import is_power_of_two, is_square, whole_log2
from poskernel.tasks import TASKS, Copy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TRAIN_LENGTH = 20
DEEP_LENGTH = 64
"""Rows shown of the kernels whose deep rows are constant."""


@dataclass(frozen=True)
class Picture:
    """One picture, the claims that it shows, and the table that it draws."""

    name: str
    """Of its files."""
    claims: Sequence[str]
    title: str
    question: str
    data: "Callable[[], pd.DataFrame]"
    draw: "Callable[[pd.DataFrame], Figure]"
    alt: str
    caption: str
    text: str = ""


def long_table(
    columns: dict[str, list[float]], x: Sequence[int] | Sequence[float], names: tuple[str, str, str]
) -> "pd.DataFrame":
    """Curves by name over one x as a tidy table; `names` are those of x, of the values and of the curves."""
    import pandas as pd

    parts = [pd.DataFrame({names[0]: x, names[1]: values, names[2]: name}) for name, values in columns.items()]
    return pd.concat(parts, ignore_index=True)


def deep_rows() -> "pd.DataFrame":
    """Offset taken by row, for kernels with one strict peak."""
    length, stream = DEEP_LENGTH, torch.Generator().manual_seed(0)
    taken = {}
    for peak in (3, 12, 30):
        profile = torch.rand(1, length, generator=stream, dtype=torch.float64)
        profile[0, peak] = 2.0
        taken[f"peak at {peak}"] = prefix_winners(profile)[0].double().tolist()
    return long_table(taken, range(length), ("row", "offset", "kernel"))


def draw_deep_rows(table: "pd.DataFrame") -> "Figure":
    """Offset taken by row beside what copy asks."""
    from poskernel.report.curves import curves

    return curves(
        table,
        title="Once a row sees the peak, it takes the peak's offset, for ever",
        x="row",
        y="offset",
        series="kernel",
        labels=("query row", "offset of the strict argmax"),
        level=(DEEP_LENGTH / 2, f"copy at {DEEP_LENGTH} asks"),
        steps=True,
    )


def density() -> "pd.DataFrame":
    """Alpha of the kernel peaked at offset 1 against the length, for tasks with ever rarer exceptions and without."""
    lengths = [round(30 * 2 ** (step / 2)) for step in range(25)]
    tasks = [
        OffsetTask("exceptions on squares", lambda row: torch.where(is_square(row), 2, 1)),
        OffsetTask("exceptions on powers of two", lambda row: torch.where(is_power_of_two(row), 2, 1)),
        OffsetTask("exceptions on odd rows", lambda row: 1 + row % 2),
        OffsetTask("offset drifts", lambda row: 1 + whole_log2(row)),
    ]
    whole = {task.name: row_margins(tent(1), task.new_targets(TRAIN_LENGTH, lengths[-1])) for task in tasks}
    alphas = {name: [margins.until(length).share for length in lengths] for name, margins in whole.items()}
    return long_table(alphas, lengths, ("length", "alpha", "task"))


def draw_density(table: "pd.DataFrame") -> "Figure":
    """Alpha against the length, a curve a task."""
    from poskernel.report.curves import curves

    return curves(
        table,
        title="Exceptions that thin out cost nothing in the limit",
        x="length",
        y="alpha",
        series="task",
        labels=(f"length (trained at {TRAIN_LENGTH})", "alpha of a kernel with its peak at offset 1"),
        scales=("log", "linear"),
        limits=(-0.04, 1.04),
    )


def duality() -> "pd.DataFrame":
    """Alpha at three times the training length of a peaked relative kernel and of a clamped table's column kernel."""
    import pandas as pd

    length = 3 * TRAIN_LENGTH
    table = Learned().family(TRAIN_LENGTH, length)
    column = torch.zeros(table.shape, dtype=torch.float64)
    column[:, 0] = 1.0
    kernels: dict[str, PositionalKernel] = {
        "relative, peak at 1": tent(1),
        "clamped table, column 0": table.kernel(column),
    }
    rows = [
        {
            "encoding": name,
            "task": task.name,
            "alpha": row_margins(kernel, task.new_targets(TRAIN_LENGTH, length)).share,
        }
        for name, kernel in kernels.items()
        for task in (TASKS["prev"], TASKS["first"], Copy())
    ]
    return pd.DataFrame(rows)


def draw_duality(table: "pd.DataFrame") -> "Figure":
    """A cell a kernel and task."""
    from poskernel.report.figures import heat_maps

    return heat_maps(table, {"alpha": "alpha"}, title=f"Each solves what the other cannot, at {3 * TRAIN_LENGTH}")


def cauchy() -> "pd.DataFrame":
    """The spectrum of exp(-m |d|): by the formula on a fine grid, by Fourier sums on a coarse one."""
    import pandas as pd

    fine, coarse = (torch.linspace(0.01, math.pi, count, dtype=torch.float64) for count in (400, 17))
    slopes = {f"m = 1/{2**power}": 2.0**-power for power in (1, 2, 4, 6)}
    lines = {name: wrapped_cauchy(fine, math.exp(-slope)).tolist() for name, slope in slopes.items()}
    sums = {}
    for name, slope in slopes.items():
        offset = torch.arange(1, math.ceil(40 / slope), dtype=torch.float64)
        series = 1 + 2 * (coarse[:, None] * offset).cos() @ exponential(offset, slope)
        sums[name] = (series / (2 * math.pi)).tolist()
    names = ("frequency", "density", "slope")
    formula, computed = long_table(lines, fine.tolist(), names), long_table(sums, coarse.tolist(), names)
    return pd.concat([formula.assign(by="formula"), computed.assign(by="Fourier sum")], ignore_index=True)


def draw_cauchy(table: "pd.DataFrame") -> "Figure":
    """Formula as lines, Fourier sums as points."""
    from poskernel.report.curves import curves

    return curves(
        table[table["by"] == "formula"],
        title="ALiBi after softmax: its spectrum is positive everywhere",
        x="frequency",
        y="density",
        series="slope",
        labels=("frequency (radians a position)", "spectral density of exp(-m |d|)"),
        scales=("linear", "log"),
        points=table[table["by"] == "Fourier sum"],
    )


def boundary() -> "pd.DataFrame":
    """TV(t, 2t + 1) by row for the three cases."""
    rows = sorted({round(2 ** (step / 4)) for step in range(61)})
    offset = torch.arange(2 * rows[-1] + 2, dtype=torch.float64)
    profiles = {
        "linear (ALiBi, m = 1/16)": -offset / 16,
        "logarithmic (KERPLE, c = 2)": -2 * torch.log1p(offset),
        "bounded (rotary)": rotary_profile(0, 0, len(offset)),
    }
    apart = {}
    for name, profile in profiles.items():
        total = normalisers(profile)
        # A difference of two numbers near 1 ends at rounding: what is left of a tail below 1e-12 is not shown.
        values = [float(1 - total[row] / total[2 * row + 1]) for row in rows]
        apart[name] = [value if value > 1e-12 else float("nan") for value in values]
    return long_table(apart, rows, ("row", "distance", "g"))


def draw_boundary(table: "pd.DataFrame") -> "Figure":
    """Distance against the row, both logarithmic."""
    from poskernel.report.curves import curves

    return curves(
        table,
        title="Attention settles exponentially, as a power law, or never",
        x="row",
        y="distance",
        series="g",
        labels=("row t", "total variation between rows t and 2t + 1"),
        scales=("log", "log"),
        level=(0.5, "one half"),
    )


PICTURES: tuple[Picture, ...] = (
    Picture(
        "deep-rows",
        ("theorem-2-deep-rows", "theorem-2-shallow-rows", "theorem-2-lucky-lengths"),
        "Deep rows are constant",
        "Why can no kernel of the offset follow a target whose offset grows?",
        deep_rows,
        draw_deep_rows,
        "Offset of the argmax by query row for three random kernels: it moves about on the first rows and "
        "stays at the peak from then on",
        "Three random kernels, each with one strict global peak. Above the peak's row nothing changes any "
        "more, whatever the length of the sequence; copy asks for a new offset at every length.",
        text=(
            "Theorem 2 needs no more than this: a window that holds the global peak has it as its maximum. So alpha "
            "tends to 1 exactly where almost all rows ask for one offset and a kernel that solves the training length "
            "peaks there."
        ),
    ),
    Picture(
        "density",
        ("theorem-2-density", "theorem-2-clipped-rows", "theorem-2-attainability"),
        "Density decides",
        "How many rows may ask for another offset?",
        density,
        draw_density,
        "Alpha against length: it tends to 1 with exceptions on squares or powers of two, stays at one half "
        "with exceptions on odd rows, and falls to 0 where the offset drifts",
        "One kernel, four tasks that ask for offset 1 except on some rows. The drifting one asks for offset 1 + log2 "
        "of the row: only rows below 2 ask for 1, so alpha is near 0 from the start.",
    ),
    Picture(
        "duality",
        ("proposition-4", "proposition-4-independent-rows"),
        "The duality",
        "Fixed offsets or fixed positions?",
        duality,
        draw_duality,
        "Alpha of two kernels on three tasks: the relative one is right on prev alone, the clamped one on "
        "first alone, neither on copy",
        "A kernel of the offset that peaks at 1, and a kernel on clamped positions that favours key 0.",
    ),
    Picture(
        "wrapped-cauchy",
        ("alibi-exponential-positive-definite", "alibi-not-positive-definite"),
        "The wrapped Cauchy density",
        "Is ALiBi a kernel in the sense of kernel machines?",
        cauchy,
        draw_cauchy,
        "Spectral densities of exp(-m |d|) for four slopes: positive everywhere, with the computed points on "
        "the curves of the formula",
        "Lines: (1 - r^2) / (2 pi (1 - 2 r cos w + r^2)), r = exp(-m). Points: Fourier sums of exp(-m |d|).",
        text="The bias -m |d| itself is no such kernel: three positions are enough to see a negative eigenvalue.",
    ),
    Picture(
        "causal-boundary",
        (
            "causal-boundary-identity",
            "causal-boundary-linear",
            "causal-boundary-logarithmic",
            "causal-boundary-bounded",
            "boundary-rate",
        ),
        "The causal boundary",
        "When does a head under a causal mask become stationary?",
        boundary,
        draw_boundary,
        "Total variation between the weights of rows t and 2t + 1: falls off a cliff for a linear kernel, "
        "along a straight line for a logarithmic one, and stays at one half for a bounded one",
        "Curves of all three cases, whichever claims were run. The logits are stationary in each; the mask acts on "
        "the softmax's denominator. Exactly: TV(t, T) = 1 - Z_t / Z_T.",
    ),
)
