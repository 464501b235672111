"""A task whose targets the tokens name: what counting token matching adds to alpha."""

from typing import TYPE_CHECKING

from poskernel.experiments.reproduction.cells import TIER_WORDS, tiers_of
from poskernel.experiments.reproduction.evidence import PICTURED_LENGTH, Evidence
from poskernel.experiments.reproduction.output import Output, not_run
from poskernel.statistics import Estimate, mean, spearman
from poskernel.study import Metric

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import FigurePanel, Panel, Section

ALPHAS = {Metric.ALPHA_CONTENT: "content alpha", Metric.ALPHA_PLUS: "alpha+", Metric.ALPHA_GRADED: "graded alpha+"}


def induction_table(evidence: Evidence) -> "pd.DataFrame":
    """One line an encoding and tier at length 60: the alphas, train accuracy, LG with its interval over seeds."""
    import pandas as pd

    lines = []
    for tier in tiers_of(evidence, "content"):
        rows = {metric: at_sixty(evidence, tier, metric) for metric in (Metric.ALPHA, *ALPHAS)}
        for encoding, group in rows[Metric.ALPHA].groupby("encoding", sort=False):
            values = group["accuracy"].dropna()
            alphas = {name: first_of(rows[metric], str(encoding)) for metric, name in ALPHAS.items()}
            lines.append(
                {
                    "architecture": TIER_WORDS[tier],
                    "encoding": encoding,
                    "alpha": group["alpha"].iloc[0],
                    **alphas,
                    "train accuracy": mean(group["train_accuracy"].dropna()),
                    "LG": mean(values),
                    "seeds": len(values),
                }
            )
    return pd.DataFrame(lines)


def at_sixty(evidence: Evidence, tier: int, metric: Metric) -> "pd.DataFrame":
    """The rows of one tier at length 60 beside one of the alphas."""
    rows = evidence.study("content").joined(tier, metric=metric)
    return rows[rows["length"] == PICTURED_LENGTH]


def first_of(rows: "pd.DataFrame", encoding: str) -> float:
    """The alpha of an encoding: the same for every seed."""
    return float(rows.loc[rows["encoding"] == encoding, "alpha"].iloc[0])


def ranking(table: "pd.DataFrame", architecture: str, column: str, seed: int) -> Estimate:
    """How well one alpha ranks the encodings' mean LG at one depth."""
    chosen = table[table["architecture"] == architecture].dropna(subset=[column])
    return spearman(chosen[column], [found.value for found in chosen["LG"]], seed=seed)


def induction_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """Table of the alphas beside LG, and how well each ranks the encodings."""
    from poskernel.report.page import Finding, Section

    title = "Induction"
    question = "Does counting token matching as a way to the target close alpha's blind spot?"
    if not tiers_of(evidence, "content"):
        return [not_run(title, question, "content")]
    table = induction_table(evidence)
    findings = []
    for architecture in dict.fromkeys(table["architecture"]):
        for name in ("alpha+", "graded alpha+"):
            found = ranking(table, architecture, name, evidence.seed)
            findings.append(
                Finding(
                    f"{architecture}: Spearman of {name} and LG over {found.n} encodings:", f"{found}", found.method
                )
            )
    text = (
        "The target is the token after the previous occurrence of the current one: no positional kernel names "
        "it, so alpha is "
        "undefined as a share of a fixed target and the paper counts it as 0. alpha+ is 1 where one rule "
        "'match the token, "
        "then shift' names every target; it is the same for every encoding, so it cannot rank them. The graded "
        "alpha+ weights it by the encoding's alpha on prev, which the matching circuit needs."
    )
    panels: list[Panel] = [
        induction_figure(output, table),
        output.table(table, "induction", f"Induction at length {PICTURED_LENGTH}"),
    ]
    return [Section(title, question, findings, panels, text=text, command="poskernel study run content")]


def induction_figure(output: Output, table: "pd.DataFrame") -> "FigurePanel":
    """LG by encoding and depth with its interval, the graded alpha+ beside it."""
    from poskernel.report.intervals import forest

    figure = forest(
        table,
        title=f"Induction: LG at length {PICTURED_LENGTH} and what predicts it",
        label="encoding",
        estimate="LG",
        series="architecture",
        other=("graded alpha+", "graded α+"),
        axis_label="LG (share of rows); interval over seeds",
        limits=(-0.04, 1.04),
    )
    return output.figure(
        figure, table, "induction", "LG of induction by encoding, one and two layers", "Diamond: graded alpha+."
    )
