"""The claims as a page: the table, and a picture where a picture says more."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from poskernel.encodings import Learned
from poskernel.kernel import PositionalKernel
from poskernel.realizability.alignment import row_margins
from poskernel.realizability.theorems.boundary import normalisers, rotary_profile
from poskernel.realizability.theorems.check import SHOWN, Check
from poskernel.realizability.theorems.kernels import exponential, wrapped_cauchy
from poskernel.realizability.theorems.offsets import OffsetTask, prefix_winners, tent
from poskernel.realizability.theorems.relative import is_power_of_two, is_square, whole_log2
from poskernel.realizability.theorems.table import where
from poskernel.tasks import TASKS, Copy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from poskernel.report.page import Finding, Section

TRAIN_LENGTH = 20
WORDS = {True: "holds", False: "FAILS", None: "unclear"}
LEAD = (
    "What the two sources claim, run as checks that can fail: what is expected, what was measured, whether it agrees."
)


def write_theory(checks: Sequence[Check], path: Path, command: str = "poskernel theory") -> Path:
    """The page of these checks, whole or not at all; `command` makes them again."""
    from poskernel.report.page import write_page

    return write_page(path, "Theory as checks that can fail", LEAD, theory_sections(checks, command))


def theory_sections(checks: Sequence[Check], command: str = "poskernel theory") -> "list[Section]":
    """The table of all checks, then a section for every picture whose claims are among them."""
    names = {check.name for check in checks}
    pictures = [picture_section(each, checks) for each in PICTURES if names & set(each.claims)]
    return [table_section(checks, command), *pictures]


@dataclass(frozen=True)
class Picture:
    """One picture of the page, and the claims that it shows."""

    claims: Sequence[str]
    title: str
    question: str
    draw: "Callable[[], Figure]"
    alt: str
    caption: str
    text: str = ""


def picture_section(shown: Picture, checks: Sequence[Check]) -> "Section":
    """What was measured of the claims, above their picture."""
    from poskernel.report.figures import svg_text
    from poskernel.report.page import FigurePanel, Section

    panel = FigurePanel(svg_text(shown.draw()), shown.alt, shown.caption)
    return Section(shown.title, shown.question, findings(checks, shown.claims), [panel], text=shown.text)


def table_section(checks: Sequence[Check], command: str) -> "Section":
    """All checks: how many hold, then one row each."""
    import pandas as pd

    from poskernel.report.page import Finding, Section, TablePanel

    counted = Finding("Claims that hold:", f"{sum(check.holds is True for check in checks)} of {len(checks)}")
    wrong = [Finding(f"Does not hold: {check.name}.") for check in checks if check.holds is False]
    wrong += [
        Finding(f"Unclear, the draws are too few to tell: {check.name}.") for check in checks if check.holds is None
    ]
    rows = pd.DataFrame(
        {
            "name": check.name,
            "holds": SHOWN[check.holds],
            "claim": check.claim,
            "measured": check.measured,
            "expected": check.expected,
            "n": check.n,
            "source": check.source,
            "note": check.note,
            **where(check.name),
        }
        for check in checks
    )
    return Section(
        "The claims",
        "Which claims of the sources survive being computed?",
        [counted, *wrong],
        [
            TablePanel(rows[["name", "holds", "claim", "measured", "expected"]], "Every claim"),
            TablePanel(
                rows[["name", "n", "source", "note", "function", "page"]],
                "Sample sizes, sources and parameters",
                {"n": "d"},
                True,
            ),
        ],
        text=(
            "A check can fail: beside each, a test breaks one of its hypotheses and the check says so. Claims that do "
            "not survive in their source's form stand as departures: there, the source's form fails and ours holds, "
            "both in numbers: `source: 0; ours: above 0` is what each form expects of the figures measured, in order."
        ),
        command=command,
    )


def findings(checks: Sequence[Check], names: Sequence[str]) -> "list[Finding]":
    """What was measured for some claims, where they are among the checks."""
    from poskernel.report.page import Finding

    known = {check.name: check for check in checks}
    chosen = [known[name] for name in names if name in known]
    return [Finding(check.claim, WORDS[check.holds], check.measured) for check in chosen]


def long_table(
    columns: dict[str, list[float]], x: Sequence[int] | Sequence[float], names: tuple[str, str, str]
) -> "pd.DataFrame":
    """Curves by name over one x as a tidy table; `names` are those of x, of the values and of the curves."""
    import pandas as pd

    parts = [pd.DataFrame({names[0]: x, names[1]: values, names[2]: name}) for name, values in columns.items()]
    return pd.concat(parts, ignore_index=True)


def draw_deep_rows() -> "Figure":
    """Offset taken by row, for kernels with one strict peak, beside what copy asks."""
    from poskernel.report.curves import curves

    length, stream = 64, torch.Generator().manual_seed(0)
    taken = {}
    for peak in (3, 12, 30):
        profile = torch.rand(1, length, generator=stream, dtype=torch.float64)
        profile[0, peak] = 2.0
        taken[f"peak at {peak}"] = prefix_winners(profile)[0].double().tolist()
    table = long_table(taken, range(length), ("row", "offset", "kernel"))
    return curves(
        table,
        title="Once a row sees the peak, it takes the peak's offset, for ever",
        x="row",
        y="offset",
        series="kernel",
        labels=("query row", "offset of the strict argmax"),
        level=(length / 2, f"copy at {length} asks"),
        steps=True,
    )


def draw_density() -> "Figure":
    """Alpha of the kernel peaked at offset 1 against the length, for tasks with ever rarer exceptions and without."""
    from poskernel.report.curves import curves

    lengths = [round(30 * 2 ** (step / 2)) for step in range(25)]
    tasks = [
        OffsetTask("exceptions on squares", lambda row: torch.where(is_square(row), 2, 1)),
        OffsetTask("exceptions on powers of two", lambda row: torch.where(is_power_of_two(row), 2, 1)),
        OffsetTask("exceptions on odd rows", lambda row: 1 + row % 2),
        OffsetTask("offset drifts", lambda row: 1 + whole_log2(row)),
    ]
    whole = {task.name: row_margins(tent(1), task.new_targets(TRAIN_LENGTH, lengths[-1])) for task in tasks}
    alphas = {name: [margins.until(length).share for length in lengths] for name, margins in whole.items()}
    return curves(
        long_table(alphas, lengths, ("length", "alpha", "task")),
        title="Exceptions that thin out cost nothing in the limit",
        x="length",
        y="alpha",
        series="task",
        labels=("length (trained at 20)", "alpha of a kernel with its peak at offset 1"),
        scales=("log", "linear"),
        limits=(-0.04, 1.04),
    )


def draw_duality() -> "Figure":
    """Alpha at three times the training length of a peaked relative kernel and of a clamped table's column kernel."""
    import pandas as pd

    from poskernel.report.figures import heat_maps

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
    return heat_maps(pd.DataFrame(rows), {"alpha": "alpha"}, title=f"Each solves what the other cannot, at {length}")


def draw_cauchy() -> "Figure":
    """The spectrum of exp(-m |d|): formula as lines, Fourier sums as points."""
    from poskernel.report.curves import curves

    fine, coarse = (torch.linspace(0.01, math.pi, count, dtype=torch.float64) for count in (400, 17))
    slopes = {f"m = 1/{2**power}": 2.0**-power for power in (1, 2, 4, 6)}
    lines = {name: wrapped_cauchy(fine, math.exp(-slope)).tolist() for name, slope in slopes.items()}
    sums = {}
    for name, slope in slopes.items():
        offset = torch.arange(1, math.ceil(40 / slope), dtype=torch.float64)
        series = 1 + 2 * (coarse[:, None] * offset).cos() @ exponential(offset, slope)
        sums[name] = (series / (2 * math.pi)).tolist()
    return curves(
        long_table(lines, fine.tolist(), ("frequency", "density", "slope")),
        title="ALiBi after softmax: its spectrum is positive everywhere",
        x="frequency",
        y="density",
        series="slope",
        labels=("frequency (radians a position)", "spectral density of exp(-m |d|)"),
        scales=("linear", "log"),
        points=long_table(sums, coarse.tolist(), ("frequency", "density", "slope")),
    )


def draw_boundary() -> "Figure":
    """TV(t, 2t + 1) against the row for the three cases."""
    from poskernel.report.curves import curves

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
    return curves(
        long_table(apart, rows, ("row", "distance", "g")),
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
        ("theorem-2-deep-rows", "theorem-2-shallow-rows", "theorem-2-lucky-lengths"),
        "Deep rows are constant",
        "Why can no kernel of the offset follow a target whose offset grows?",
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
        ("theorem-2-density", "theorem-2-clipped-rows", "theorem-2-attainability"),
        "Density decides",
        "How many rows may ask for another offset?",
        draw_density,
        "Alpha against length: it tends to 1 with exceptions on squares or powers of two, stays at one half "
        "with exceptions on odd rows, and falls to 0 where the offset drifts",
        "One kernel, four tasks that ask for offset 1 except on some rows. The drifting one asks for offset 1 + log2 "
        "of the row: only rows below 2 ask for 1, so alpha is near 0 from the start.",
    ),
    Picture(
        ("proposition-4", "proposition-4-independent-rows"),
        "The duality",
        "Fixed offsets or fixed positions?",
        draw_duality,
        "Alpha of two kernels on three tasks: the relative one is right on prev alone, the clamped one on "
        "first alone, neither on copy",
        "A kernel of the offset that peaks at 1, and a kernel on clamped positions that favours key 0.",
    ),
    Picture(
        ("alibi-exponential-positive-definite", "alibi-not-positive-definite"),
        "The wrapped Cauchy density",
        "Is ALiBi a kernel in the sense of kernel machines?",
        draw_cauchy,
        "Spectral densities of exp(-m |d|) for four slopes: positive everywhere, with the computed points on "
        "the curves of the formula",
        "Lines: (1 - r^2) / (2 pi (1 - 2 r cos w + r^2)), r = exp(-m). Points: Fourier sums of exp(-m |d|).",
        text="The bias -m |d| itself is no such kernel: three positions are enough to see a negative eigenvalue.",
    ),
    Picture(
        (
            "causal-boundary-identity",
            "causal-boundary-linear",
            "causal-boundary-logarithmic",
            "causal-boundary-bounded",
            "boundary-rate",
        ),
        "The causal boundary",
        "When does a head under a causal mask become stationary?",
        draw_boundary,
        "Total variation between the weights of rows t and 2t + 1: falls off a cliff for a linear kernel, "
        "along a straight line for a logarithmic one, and stays at one half for a bounded one",
        "Curves of all three cases, whichever claims were run. The logits are stationary in each; the mask acts on "
        "the softmax's denominator. Exactly: TV(t, T) = 1 - Z_t / Z_T.",
    ),
)
