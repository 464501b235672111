"""The page of one experiment, out of its rows: the answer first, then figures, predictions, method and threats."""

from pathlib import Path
from typing import TYPE_CHECKING

from poskernel.experiments.experiment import Experiment, Scale, Verdict
from poskernel.experiments.judging import LEVEL, REPLICATES, least_effect
from poskernel.experiments.reproduction.output import Output

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import Panel, Section


def predictions_table(experiment: Experiment, verdict: Verdict) -> "pd.DataFrame":
    """A line a prediction: what was expected and whether that was informed, what came out, and the outcome."""
    import pandas as pd

    lines = []
    for each in experiment.predictions:
        judged = verdict.judgements[each.name]
        lines.append({
            "prediction": each.statement,
            "line": f"{each.side} {each.threshold:g}",
            "expected": f"{each.expected}{', informed' if each.informed else ''}",
            "measured": judged.estimate,
            "n": judged.estimate.n,
            "p, corrected": judged.adjusted,
            "outcome": str(judged.outcome),
            "decides": "yes" if each.deciding else "no",
            "falsified by": each.falsified_by,
        })  # fmt: skip
    return pd.DataFrame(lines)


def answer(experiment: Experiment, rows: "pd.DataFrame", verdict: Verdict) -> str:
    """One paragraph: the verdict on the claim, what else was asked, and what is missing."""
    others = [
        f"{each.name}: {verdict.judgements[each.name].outcome} ({verdict.judgements[each.name].reason})"
        for each in experiment.predictions
        if not each.deciding
    ]
    parts = [f"{experiment.claim} {verdict.sentence[0].upper()}{verdict.sentence[1:]}."]
    parts += [f"Beside it: {'; '.join(others)}."] if others else []
    missing, failed = experiment.missing(rows), int(rows["status"].isin(["failed", "timeout"]).sum())
    parts += [f"{missing} of {missing + len(rows)} measurements are not there yet."] if missing else []
    parts += [f"{failed} measurements failed; they stay in the rows with their reason."] if failed else []
    parts += ["This is the quick version, which shows that everything runs and is no evidence."] * (
        experiment.scale is Scale.QUICK
    )
    return " ".join(parts)


def surprises(experiment: Experiment, verdict: Verdict) -> list[str]:
    """Predictions that did not become what we expected of them."""
    return [
        f"{each.name}: expected {each.expected}, became {verdict.judgements[each.name].outcome}"
        for each in experiment.predictions
        if verdict.judgements[each.name].outcome is not each.expected
    ]


def method(experiment: Experiment) -> str:
    """Design, what is measured and how it is judged."""
    measured = "\n\n".join(
        f"`{each.name}`: {each.meaning}; the column length counts: {each.counts}." for each in experiment.measures
    )
    return (
        f"{experiment.design}\n\n{measured}\n\nEach prediction has a line that was written before the run. Its "
        "replicates are compared with that line by a two-sided t test, corrected by Holm's method over all predictions "
        f"of the experiment; below {LEVEL:g} the side decides between held and failed, otherwise nothing is decided. "
        f"With {REPLICATES} replicates the strictest step of that correction asks for a mean "
        f"{least_effect(REPLICATES, len(experiment.predictions)):.1f} standard deviations from its line; the standard "
        "deviation of a measure that counts is taken as one count at least."
        f"\n\nThe claim would be false with: {experiment.falsified_by}."
    )


def sections(experiment: Experiment, rows: "pd.DataFrame", folder: Path) -> "list[Section]":
    """Answer with figures and predictions, method, threats; figures and tables are saved in the folder too."""
    from poskernel.report.page import Finding, Section

    verdict, output = experiment.verdict(rows), Output(folder)
    panels: list[Panel] = []
    for picture in experiment.pictures:
        data = picture.data(rows)
        panels.append(output.figure(picture.draw(data), data, picture.name, picture.alt, picture.caption))
    panels += [output.table(each.data(rows), each.name, each.caption, each.formats) for each in experiment.listings]
    table, name = predictions_table(experiment, verdict), f"{experiment.id}-predictions"
    panels.append(output.table(table, name, "Predictions and what became of them", {"p, corrected": ".3g"}))
    findings = [Finding(answer(experiment, rows, verdict))]
    findings += [Finding(f"Not as we expected. {each}.") for each in surprises(experiment, verdict)]
    return [
        Section("Answer", experiment.question, findings, panels, command=experiment.command),
        Section("Method", "How was it measured and judged?", text=method(experiment)),
        Section("Threats to validity", "What could make the answer wrong all the same?", text=experiment.threats),
    ]


def page_html(experiment: Experiment, results: Path) -> str:
    """The same for a page of the documentation, out of committed rows; how to make them where there are none."""
    import html

    import pandas as pd

    from poskernel.report.figures import svg_text
    from poskernel.report.page import prose
    from poskernel.report.tables import html_text

    file = results / experiment.id / "rows.parquet"
    command = f"poskernel experiment run {experiment.id} --out results/{experiment.id}"
    if not file.is_file():
        missing = f"The full run is not there yet: `{command}` makes it."
        return str(prose(f"{missing}\n\n{method(experiment)}"))
    rows = experiment.rows(pd.read_parquet(file))
    verdict = experiment.verdict(rows)
    parts = [str(prose("\n\n".join([answer(experiment, rows, verdict), *surprises(experiment, verdict)])))]
    for picture in experiment.pictures:
        drawn = svg_text(picture.draw(picture.data(rows)))
        caption, alt = html.escape(picture.caption), html.escape(picture.alt, quote=True)
        inner = drawn[drawn.index("<svg") :]
        parts.append(f'<figure role="img" aria-label="{alt}">{inner}<figcaption>{caption}</figcaption></figure>')
    for each in experiment.listings:
        parts.append(str(html_text(each.data(rows), caption=each.caption, formats=each.formats)))
    table = predictions_table(experiment, verdict)
    parts.append(str(html_text(table, caption="Predictions and what became of them", formats={"p, corrected": ".3g"})))
    parts.append(str(prose(f"{method(experiment)}\n\nThreats to validity. {experiment.threats}\n\n`{command}`")))
    return "\n".join(parts)


def write_report(experiment: Experiment, rows: "pd.DataFrame", folder: Path) -> Path:
    """report.html with its figures and tables in a folder; the page's path."""
    from poskernel.report.page import write_page

    title = f"{experiment.id}: {experiment.title}"
    return write_page(folder / "report.html", title, experiment.question, sections(experiment, rows, folder))
