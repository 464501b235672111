"""Why a value differs, as far as the rows say: which cells moved, and how the seeds lie. Never a guess."""

from collections.abc import Callable

from poskernel.experiments.comparison import PRECISION_TAUS
from poskernel.experiments.reproduction.agreement import learnable, violations
from poskernel.experiments.reproduction.evidence import Evidence, trained_cell
from poskernel.experiments.reproduction.robustness import generalizing
from poskernel.experiments.reproduction.verdicts import NOT_EXPLAINED
from poskernel.study import Metric

PAPER_GENERALIZING = {"rope prev", "rope skip2", "rope skip3", "rope skip5", "learned first", "sinusoidal first"}
"""The six cells with alpha 1; the paper says that six generalize and that alpha separates them without fault."""
PAPER_LEARNABLE = {
    f"{encoding} {task}"
    for encoding in ("learned", "sinusoidal", "rope")
    for task in ("prev", "skip2", "skip3", "skip5", "first")
}
"""Fifteen cells: the paper says that all of NoPE, ALiBi, copy and reverse drop out."""
PAPER_VIOLATIONS = {("rope first", 30), ("sinusoidal prev", 40), ("sinusoidal first", 60), ("sinusoidal first", 80)}


def moved(ours: set[str], paper: set[str], what: str) -> str:
    """How two sets of cells differ, in words; "" where they do not."""
    more, fewer = sorted(ours - paper), sorted(paper - ours)
    parts = [f"here also {', '.join(more)}"] * bool(more) + [f"here not {', '.join(fewer)}"] * bool(fewer)
    return f"{what}: {'; '.join(parts)}" if parts else ""


def by_cells(evidence: Evidence) -> str:
    """Whether other cells generalize or are learned at tier 1 than the paper says."""
    cells = evidence.comparison("paper", 1).cells
    learned = learnable(cells)
    names = set(learned["encoding"] + " " + learned["task"])
    told = [
        moved(set(generalizing(cells)), PAPER_GENERALIZING, "cells that generalize"),
        moved(names, PAPER_LEARNABLE, "cells learned"),
    ]
    found = "; ".join(filter(None, told))
    return (
        found
        or "the same cells are learned and generalize as in the paper; their order within is not explained by the rows"
    )


def by_violations(tier: int) -> Callable[[Evidence], str]:
    """Which rows break the promise of alpha >= 0.5."""

    def explain(evidence: Evidence) -> str:
        broken = violations(evidence.comparison("paper", tier).rows, PRECISION_TAUS[0])
        lines = [
            f"{line['encoding']} {line['task']} at {line['length']} ({line['seeds']} seeds)"
            + (
                ""
                if tier > 1 or (f"{line['encoding']} {line['task']}", line["length"]) in PAPER_VIOLATIONS
                else ", not in the paper's list"
            )
            for line in broken.to_dict("records")
        ]
        return f"rows that fall short: {', '.join(lines)}" if lines else "no row falls short here"

    return explain


def by_seeds(
    encoding: str, task: str, length: int, tier: int, paper: float, steps: int = 2000
) -> Callable[[Evidence], str]:
    """How the seeds lie about the paper's value."""

    def explain(evidence: Evidence) -> str:
        values = evidence.values(trained_cell(encoding, task, tier, steps), Metric.LENGTH_GENERALIZATION, length)
        if not len(values):
            return NOT_EXPLAINED
        above = int((values > paper).sum())
        return (
            f"our {len(values)} seeds range from {values.min():.2f} to {values.max():.2f}, {above} of them "
            "above the paper's value; "
            "why is not explained by the rows"
        )

    return explain
