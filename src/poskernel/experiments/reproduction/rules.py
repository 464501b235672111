"""Which selection rule's alpha goes with trained models: five rules, and the adam rule by its number of steps."""

import math
from typing import TYPE_CHECKING

from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.output import Output, not_run
from poskernel.experiments.study_rows import CELL
from poskernel.statistics import Estimate, spearman
from poskernel.study.studies import ADAM_STEPS, FIVE_RULES
from poskernel.study.units import LEARNABLE

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import Panel, Section

DEFAULT_STEPS = 400
"""Steps of the adam rule where none are named."""
RULES = (*FIVE_RULES, *(f"adam:steps={steps}" for steps in ADAM_STEPS))
SCOPES = ("learnable rows", "all rows", "learnable cells", "all cells")
LEVELS = {"rows": [*CELL, "length"], "cells": CELL}


def rule_words(rule: str) -> str:
    """A rule as a reader names it."""
    if rule == "adam":
        return f"adam ({DEFAULT_STEPS} steps, the paper's)"
    return rule.replace("adam:steps=", "adam, ") + (" steps" if ":" in rule else "")


def aggregated(evidence: Evidence, rule: str, scope: str, budget: int = 2000) -> "pd.DataFrame":
    """Mean alpha and LG by cell and length ("rows") or by cell ("cells"), over seeds; learnable ones alone or all."""
    rows = evidence.study("rules").joined(1, steps=budget, rule=rule)
    which, level = scope.split(" ")
    if which == "learnable":
        seeds = rows.drop_duplicates([*CELL, "seed"]).groupby(CELL)["train_accuracy"].mean()
        kept = seeds[seeds > LEARNABLE].reset_index()[CELL]
        rows = rows.merge(kept, on=CELL)
    return (
        rows.dropna(subset=["alpha", "accuracy"])
        .groupby(LEVELS[level], sort=False)[["alpha", "accuracy"]]
        .mean()
        .reset_index()
    )


def rule_correlation(evidence: Evidence, rule: str, scope: str) -> Estimate:
    """Spearman of a rule's alpha and LG; whole cells are drawn for the interval, their lengths are not independent."""
    chosen = aggregated(evidence, rule, scope)
    return spearman(
        chosen["alpha"], chosen["accuracy"], seed=evidence.seed, clusters=chosen["encoding"] + " " + chosen["task"]
    )


def rules_table(evidence: Evidence) -> "pd.DataFrame":
    """One line a rule: Spearman in each scope, and how many rows it has an alpha for."""
    import pandas as pd

    lines = []
    for rule in RULES:
        found = {scope: rule_correlation(evidence, rule, scope) for scope in SCOPES}
        lines.append(
            {"rule": rule_words(rule), **found, "rows": found["all rows"].n, "learnable n": found["learnable rows"].n}
        )
    return pd.DataFrame(lines)


def nan_last(value: float) -> float:
    """A value to take the greatest of: below every other where it is undefined."""
    return -math.inf if math.isnan(value) else value


def rules_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """The ranking of the rules."""
    from poskernel.report.intervals import forest
    from poskernel.report.page import Finding, Section

    title, question = "Selection rules", "Which selection rule's alpha ranks trained models best?"
    if not evidence.has_models("rules"):
        return [not_run(title, question, "rules")]
    table = rules_table(evidence)
    long = table.melt("rule", ["learnable rows", "all cells"], var_name="scope", value_name="estimate")
    figure = forest(
        long,
        title="Spearman of alpha and LG, by selection rule",
        label="rule",
        series="scope",
        axis_label="Spearman, 95% interval with whole cells drawn",
    )
    picture = output.figure(
        figure, long, "rules", "A line a rule: rank correlation with its interval", "One layer, one head, 2000 steps."
    )
    whole = table[table["learnable n"] == table["learnable n"].max()]
    best = max(whole.to_dict("records"), key=lambda line: nan_last(line["learnable rows"].value))
    overlapping = [
        line["rule"]
        for line in whole.to_dict("records")
        if line["rule"] != best["rule"] and line["learnable rows"].high >= best["learnable rows"].low
    ]
    findings = [
        Finding(
            f"Highest on the {best['learnable n']} learnable rows: {best['rule']}",
            f"{best['learnable rows']}",
            best["learnable rows"].method,
        ),
        Finding(
            "Rules whose interval reaches into that of the highest: the rows do not tell these apart.",
            f"{len(overlapping)} of {len(whole) - 1}",
            ", ".join(overlapping),
        ),
    ]
    panels: list[Panel] = [
        picture,
        output.table(
            table,
            "rules",
            "Spearman of alpha and LG by selection rule; rows: those with an alpha, a rule without a kernel has none",
        ),
    ]
    return [Section(title, question, findings, panels, command="poskernel study run rules")]
