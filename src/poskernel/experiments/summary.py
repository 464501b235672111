"""Every claim of every experiment on one page: what was predicted, what was seen, the verdict, from committed rows.

Nothing here is written by hand: an experiment whose rows are not there says so.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from poskernel.experiments.experiment import Experiment, Verdict
from poskernel.experiments.results_page import predictions_table
from poskernel.study.transfer import ROWS_FILE

if TYPE_CHECKING:
    import pandas as pd

NOT_RUN = "not run yet"
QUESTION = "What did the sources and we predict, and what came of it?"
LEAD = (
    "Every prediction was written with its line before the run; 'informed' says that an outcome had been seen on other "
    "data, so that it confirms and is no foresight. The measured number is the mean over replicates with its 95% "
    "interval; p values are corrected by Holm's method within an experiment. An experiment's claim is decided by the "
    "predictions marked as deciding. What did not come out as expected stands here like the rest."
)


@dataclass(frozen=True, eq=False)
class Summarised:
    """An experiment, and what its committed rows say; None where there are none."""

    experiment: Experiment
    verdict: Verdict | None
    missing: int = 0
    """Planned measurements that are not among the rows."""


def summarise(experiments: Iterable[Experiment], results: Path) -> list[Summarised]:
    """Each experiment with the verdict of results/ID/rows.parquet, where that is there."""
    import pandas as pd

    found = []
    for experiment in experiments:
        file = results / experiment.id / ROWS_FILE
        if not file.is_file():
            found.append(Summarised(experiment, None))
            continue
        rows = experiment.rows(pd.read_parquet(file))
        found.append(Summarised(experiment, experiment.verdict(rows), experiment.missing(rows)))
    return found


def experiments_table(found: Iterable[Summarised]) -> "pd.DataFrame":
    """A line an experiment: its claim, the verdict, and how many predictions came to what."""
    import pandas as pd

    lines = []
    for each in found:
        outcomes = [] if each.verdict is None else [str(j.outcome) for j in each.verdict.judgements.values()]
        lines.append({
            "experiment": each.experiment.id,
            "claim": each.experiment.claim,
            "verdict": NOT_RUN if each.verdict is None else str(each.verdict.outcome),
            **{name: outcomes.count(name) for name in ("held", "failed", "inconclusive")},
            "as expected": expected_count(each),
            "predictions": len(each.experiment.predictions),
            "missing rows": each.missing,
        })  # fmt: skip
    return pd.DataFrame(lines)


def expected_count(found: Summarised) -> int:
    """How many predictions became what was expected of them."""
    if found.verdict is None:
        return 0
    judged = found.verdict.judgements
    return sum(judged[each.name].outcome is each.expected for each in found.experiment.predictions)


def claims_table(found: Iterable[Summarised]) -> "pd.DataFrame":
    """A line a prediction of every experiment; those of experiments not run say so."""
    import pandas as pd

    parts = []
    for each in found:
        if each.verdict is not None:
            table = predictions_table(each.experiment, each.verdict)
        else:
            table = pd.DataFrame([
                {
                    "prediction": prediction.statement, "line": f"{prediction.side} {prediction.threshold:g}",
                    "expected": f"{prediction.expected}{', informed' if prediction.informed else ''}",
                    "measured": None, "n": 0, "p, corrected": float("nan"), "outcome": NOT_RUN,
                    "decides": "yes" if prediction.deciding else "no", "falsified by": prediction.falsified_by,
                }
                for prediction in each.experiment.predictions
            ])  # fmt: skip
        parts.append(table.assign(experiment=each.experiment.id, claim=[p.name for p in each.experiment.predictions]))
    table = pd.concat(parts, ignore_index=True)
    measured = table["measured"].map(lambda value: "" if value is None else format(value, "z.3f"))
    names = ["experiment", "claim", "prediction", "line", "expected", "measured", "n", "p, corrected", "outcome"]
    return table.assign(measured=measured)[[*names, "decides", "falsified by"]]


FORMATS = {"p, corrected": ".3g", "n": "d", "held": "d", "failed": "d", "inconclusive": "d", "as expected": "d",
           "predictions": "d", "missing rows": "d"}  # fmt: skip


def summary_html(results: Path) -> str:
    """Both tables for a page of the documentation."""
    from poskernel.experiments.catalogue import EXPERIMENTS
    from poskernel.report.page import prose
    from poskernel.report.tables import html_text

    found = summarise(EXPERIMENTS.values(), results)
    tables = (("Experiments", experiments_table(found)), ("Claim by claim", claims_table(found)))
    parts = [html_text(table, caption=caption, formats=formats_of(table)) for caption, table in tables]
    return "\n".join(map(str, [prose(LEAD), *parts]))


def formats_of(table: "pd.DataFrame") -> dict[str, str]:
    """Formats of the columns that a table has."""
    return {name: form for name, form in FORMATS.items() if name in table}


def write_summary(found: list[Summarised], folder: Path) -> Path:
    """report.html with both tables in a folder, which come as files too; the page's path."""
    from poskernel.experiments.reproduction.output import Output
    from poskernel.report.page import Section, write_page

    output, experiments, claims = Output(folder), experiments_table(found), claims_table(found)
    panels = [
        output.table(experiments, "experiments", "Experiments", formats_of(experiments)),
        output.table(claims, "claims", "Claim by claim", formats_of(claims)),
    ]
    section = Section("Claims", QUESTION, panels=panels, command="poskernel experiment summary")
    return write_page(folder / "report.html", "What was predicted and what was seen", LEAD, [section])
