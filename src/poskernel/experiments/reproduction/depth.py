"""Depth: how the agreement changes with layers and heads, and which cells generalize against alpha."""

from typing import TYPE_CHECKING

from poskernel.experiments.comparison import BINARY_ALPHA, GENERALIZES, KEEPS_PROMISE, PRECISION_TAUS
from poskernel.experiments.reproduction.agreement import learnable
from poskernel.experiments.reproduction.cells import TIER_WORDS, tiers_of
from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.grading import LEARNABLE_SPEARMAN, statistics
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.study_rows import CELL
from poskernel.statistics import Precision, precision

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import Panel, Section


def learnable_precision(evidence: Evidence, name: str, tier: int) -> Precision:
    """Pr[LG >= 0.7 | alpha >= 0.5] over the rows of learnable cells."""
    found = evidence.comparison(name, tier)
    cells = learnable(found.cells)[CELL]
    rows = found.rows.merge(cells, on=CELL).dropna(subset=["alpha", "accuracy"])
    return precision(
        rows["alpha"], rows["accuracy"], tau=PRECISION_TAUS[0], threshold=KEEPS_PROMISE, seed=evidence.seed
    )


def rescued(evidence: Evidence, name: str, tier: int) -> "pd.DataFrame":
    """Cells with alpha below 0.5 whose mean LG is at least 0.5: they generalize by another way than position."""
    cells = evidence.comparison(name, tier).cells
    return cells[(cells["alpha"] < BINARY_ALPHA) & (cells["accuracy"] >= GENERALIZES)]


def rescued_names(evidence: Evidence, name: str, tier: int) -> set[str]:
    """The same by name."""
    cells = rescued(evidence, name, tier)
    return {f"{encoding} {task}" for encoding, task in zip(cells["encoding"], cells["task"], strict=True)}


def depth_table(evidence: Evidence, name: str) -> "pd.DataFrame":
    """One line a tier: learnable cells, Spearman and precision with intervals, rescued cells."""
    import pandas as pd

    lines = []
    for tier in tiers_of(evidence, name):
        found, kept = evidence.comparison(name, tier), learnable_precision(evidence, name, tier)
        lines.append(
            {
                "architecture": TIER_WORDS[tier],
                "models": len(found.rows.drop_duplicates([*CELL, "seed"])),
                "learnable cells": len(learnable(found.cells)),
                "Spearman": statistics(evidence, name, tier)[LEARNABLE_SPEARMAN].estimate,
                "precision": kept.estimate,
                "rows": kept.estimate.n,
                "violations": len(kept.violations),
                "rescued": ", ".join(sorted(rescued_names(evidence, name, tier))) or "none",
            }
        )
    return pd.DataFrame(lines)


def depth_sections(evidence: Evidence, output: Output, name: str = "paper") -> "list[Section]":
    """The depth trend; nothing where no tier was trained."""
    from poskernel.report.intervals import interval_trend
    from poskernel.report.page import Finding, Section

    table = depth_table(evidence, name)
    if table.empty:
        return []
    long = table.melt("architecture", ["Spearman", "precision"], var_name="series", value_name="estimate")
    long["series"] = long["series"].map(
        {"Spearman": "Spearman, learnable cells", "precision": "LG ≥ 0.7 where α ≥ 0.5"}
    )
    figure = interval_trend(
        long, title="Rank correlation and precision by depth", x="architecture", labels=("", "value, 95% interval")
    )
    panels: list[Panel] = [
        output.figure(
            figure,
            long,
            f"{name}-depth",
            "Two lines with intervals: rank correlation and precision by architecture",
            "Rank correlation: learnable cells, bootstrap over cells. Precision: rows of learnable cells with "
            "alpha of at least 0.5.",
        ),
        output.table(table, f"{name}-depth", "Depth trend, learnable cells"),
    ]
    findings = [
        Finding(
            f"{line['architecture']}: cells with alpha below {BINARY_ALPHA:g} that generalize all the same:",
            str(0 if line["rescued"] == "none" else len(line["rescued"].split(", "))),
            line["rescued"],
        )
        for line in table.to_dict("records")
    ]
    question = "Does alpha still rank cells, and is a high alpha still a promise, with more layers and heads?"
    return [Section("Depth", question, findings, panels, command=f"poskernel study run {name}")]
