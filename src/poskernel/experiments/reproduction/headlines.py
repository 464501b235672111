"""Each headline of the paper beside ours, with its verdict and, where it differs, why as far as the rows say."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.paper_values import HEADLINES, VALUES
from poskernel.experiments.reproduction.verdicts import TOLERANCE, Headline, Verdict, verdict

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import Section


def headline_table(evidence: Evidence, headlines: Sequence[Headline]) -> "pd.DataFrame":
    """One line a headline: the paper's value, where, ours, n, verdict, why, and whether its rows are complete."""
    import pandas as pd

    whole = {
        (each.study, each.tier): complete(evidence, each.study, each.tier) for each in headlines if each.tier is not None
    }
    lines = []
    for each in headlines:
        ours = each.ours(evidence)
        found = verdict(each, ours)
        lines.append(
            {
                "what": each.name,
                "paper": each.printed,
                "where": each.where,
                "ours": each.shown(ours),
                "n": ours.n,
                "verdict": str(found),
                "rows": "complete" if whole.get((each.study, each.tier), True) else "partial",
                "why": each.explain(evidence) if found is Verdict.DIFFERS else missing_why(found, ours.method),
                "how": ours.method,
            }
        )
    return pd.DataFrame(lines)


def missing_why(found: Verdict, method: str) -> str:
    """Why there is no number; nothing where there is one."""
    return method if found is Verdict.NOT_MEASURED else ""


def complete(evidence: Evidence, study: str, tier: int | None) -> bool:
    """Whether every model of a study's tier is there."""
    lost = evidence.study(study).missing
    return not len(lost[(lost["kind"] == "model") & (lost["tier"] == tier)])


def counts(table: "pd.DataFrame") -> str:
    """How many agree, differ and are not measured."""
    number = {each: int((table["verdict"] == each).sum()) for each in Verdict}
    partial = int(((table["rows"] == "partial") & (table["verdict"] != Verdict.NOT_MEASURED)).sum())
    return ", ".join(f"{count} {each}" for each, count in number.items()) + (f"; {partial} of them from partial rows" if partial else "")


def rule_in_words() -> str:
    """The rule of the verdicts."""
    tolerances = ", ".join(f"{kind} {value:g}" for kind, value in TOLERANCE.items() if value)
    return (
        "The rule was fixed before any number: `agrees` where the paper's value lies in our 95% interval, or ours in the "
        "paper's (for mean and SD over 5 seeds: mean plus or minus 2 SD over the root of 5), each widened by half a unit of the last printed "
        f"digit, or where they differ by no more than that half unit or a tolerance ({tolerances}). Counts and claims have to be "
        "equal; alphas are computed and have to be equal as printed. An interval from few cells is wide, and agreement within it is weak: n stands beside."
    )


def headline_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """The headlines of the paper, and values worked out from its definitions."""
    from poskernel.report.page import Finding, Section

    paper, values = headline_table(evidence, HEADLINES), headline_table(evidence, VALUES)
    differs = paper[paper["verdict"] == Verdict.DIFFERS]
    findings = [Finding(f"Of the paper's {len(paper)} headline values:", "", counts(paper))]
    findings += [
        Finding(f"Differs: {line['what']} ({line['where']}). Paper {line['paper']}, ours", line["ours"], f"n = {line['n']}, rows {line['rows']}; {line['why']}")
        for line in differs.to_dict("records")
    ]  # fmt: skip
    findings.append(Finding(f"Of {len(values)} alphas worked out twice from the paper's definitions:", "", counts(values)))
    panels = [
        output.table(paper, "headlines", "Headline values: the paper's and ours"),
        output.table(values, "recomputed", "Alphas worked out from the paper's definitions, and ours", folded=True),
    ]
    question = "Which of the paper's headline values come out here?"
    return [Section("Headlines", question, findings, panels, text=rule_in_words(), command="poskernel study report paper")]
