"""Each headline of the paper beside ours, with its verdict and, where it differs, why as far as the rows say."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from poskernel.experiments.reproduction.evidence import Evidence, missing
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.paper_values import HEADLINES
from poskernel.experiments.reproduction.recomputed import VALUES
from poskernel.experiments.reproduction.verdicts import TOLERANCE, Headline, Kind, Verdict, verdict

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import Section


def headline_table(evidence: Evidence, headlines: Sequence[Headline]) -> "pd.DataFrame":
    """One line a headline: the paper's value, where, ours, n, verdict, why, and whether its rows are complete."""
    import pandas as pd

    whole: dict[tuple[str, int | None], bool] = {
        (each.study, each.tier): complete(evidence, each.study, each.tier)
        for each in headlines
        if each.tier is not None
    }
    lines = []
    for each in headlines:
        ours = each.ours(evidence)
        rows_are_whole = whole.get((each.study, each.tier), True)
        if each.kind is Kind.COUNT and not rows_are_whole:
            ours = missing("a count needs every row of its study, and some are missing")
        found = verdict(each, ours)
        lines.append(
            {
                "what": each.name,
                "paper": each.printed,
                "where": each.where,
                "ours": each.shown(ours),
                "n": ours.n,
                "verdict": str(found),
                "rows": "complete" if rows_are_whole else "partial",
                "why": each.explain(evidence) if found is Verdict.DIFFERS else missing_why(found, ours.method),
                "how": ours.method,
            }
        )
    return pd.DataFrame(lines)


SHOWN = ["what", "paper", "where", "ours", "n", "verdict", "rows"]
REASONED = ["what", "paper", "ours", "why"]


def tally(table: "pd.DataFrame", found: Verdict) -> int:
    """How many headlines have this verdict."""
    return int((table["verdict"] == found).sum())


def missing_why(found: Verdict, method: str) -> str:
    """Why there is no number; nothing where there is one."""
    return method if found is Verdict.NOT_MEASURED else ""


def complete(evidence: Evidence, study: str, tier: int | None) -> bool:
    """Whether every model of a study's tier is there."""
    lost = evidence.study(study).missing
    return not len(lost[(lost["kind"] == "model") & (lost["tier"] == tier)])


def counts(table: "pd.DataFrame") -> str:
    """How many agree, differ and are not measured."""
    number = {each: tally(table, each) for each in Verdict}
    partial = int(((table["rows"] == "partial") & (table["verdict"] != Verdict.NOT_MEASURED)).sum())
    return ", ".join(f"{count} {each}" for each, count in number.items()) + (
        f"; {partial} of them from partial rows" if partial else ""
    )


def rule_in_words() -> str:
    """The rule of the verdicts."""
    tolerances = ", ".join(f"{kind} {value:g}" for kind, value in TOLERANCE.items() if value)
    return (
        "The rule was written before this table was first computed: `agrees` where the paper's value lies in "
        "our 95% interval, or "
        "ours in the "
        "paper's (for mean and SD over 5 seeds: mean plus or minus 2 SD over the root of 5), each widened by "
        "half a unit of the last printed "
        f"digit, or where they differ by no more than that half unit or a tolerance ({tolerances}). Counts "
        "and claims have to be "
        "equal, counts over all rows; alphas are computed and have to be equal as printed. An interval from "
        "few cells is wide, and "
        "agreement within it is weak: n stands beside."
    )


def headline_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """The headlines of the paper, and values worked out from its definitions."""
    from poskernel.report.page import Finding, Section

    paper, values = headline_table(evidence, HEADLINES), headline_table(evidence, VALUES)
    differs = paper[paper["verdict"] == Verdict.DIFFERS]
    findings = [
        Finding(f"Of the paper's {len(paper)} headline values:", str(tally(paper, Verdict.AGREES)), counts(paper)),
        Finding(
            f"Of {len(values)} alphas worked out twice from the paper's definitions:",
            str(tally(values, Verdict.AGREES)),
            counts(values),
        ),
    ]
    output.table(paper, "headlines-in-full", "Headline values with how each was made")
    panels = [output.table(paper[SHOWN], "headlines", "Headline values: the paper's and ours")]
    if len(differs):
        panels.append(
            output.table(
                differs[REASONED], "headlines-that-differ", "Those that differ, and why as far as the rows say"
            )
        )
    panels.append(
        output.table(
            values[SHOWN], "recomputed", "Alphas worked out from the paper's definitions, and ours", folded=True
        )
    )
    question = "Which of the paper's headline values come out here?"
    return [
        Section("Headlines", question, findings, panels, text=rule_in_words(), command="poskernel study report paper")
    ]
