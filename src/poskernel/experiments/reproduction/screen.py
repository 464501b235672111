"""Beyond the paper: the screen, alpha and existence of every encoding there is, trained or not."""

import math
from typing import TYPE_CHECKING, Any

from poskernel.experiments.comparison import BINARY_ALPHA
from poskernel.experiments.reproduction.evidence import PICTURED_LENGTH, TRAINED_AT, Evidence
from poskernel.experiments.reproduction.output import Output, not_run
from poskernel.experiments.study_rows import CELL, in_study_order
from poskernel.study import Metric, PredictionCell

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import Section

NAME = "encodings"


def screen_table(evidence: Evidence) -> "pd.DataFrame":
    """One line an encoding and task of the whole screen at length 60: alpha, existence, and why where there is none."""
    import pandas as pd

    study = evidence.study(NAME)
    at: dict[Metric, dict[str, tuple[float, str]]] = {}
    for metric in (Metric.ALPHA, Metric.EXISTS):
        rows = study.only(metric)
        rows = rows[rows["length"] == PICTURED_LENGTH]
        at[metric] = dict(zip(rows["cell"], zip(rows["value"], rows["reason"], strict=True), strict=True))
    cells = {unit.cell.id: unit.cell for unit in study.units if isinstance(unit.cell, PredictionCell)}
    lines = []
    for name, cell in cells.items():
        if cell.test_encoding is not None or not any(name in found for found in at.values()):
            continue
        line: dict[str, Any] = {"encoding": cell.label, "task": cell.task.name}
        for metric, found in at.items():
            line[str(metric)], line[f"{metric}_why"] = found.get(name, (math.nan, "not run"))
        lines.append(line)
    return pd.DataFrame(lines, columns=[*CELL, "alpha", "alpha_why", "exists", "exists_why"])


def screen_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """Alpha and existence of every encoding there is, trained or not."""
    from poskernel.report.figures import heat_maps
    from poskernel.report.page import Finding, Section

    title = "Beyond the paper: the screen"
    question = "What does alpha say of every encoding, trained or not, and would any kernel of its family do?"
    table = in_study_order(screen_table(evidence))
    if table.empty:
        return [not_run(title, question, NAME, "predictions")]
    output.table(table, "encodings-screen", f"Alpha and existence at length {PICTURED_LENGTH}")
    shown = table.assign(
        alpha_reason=["not run" if word == "not run" else "no alpha" for word in table["alpha_why"]],
        exists_reason=[word.replace("not-applicable", "no linear family") for word in table["exists_why"]],
    )
    headings = {"alpha": "alpha", "exists": "exists (1: yes)"}
    words = f"length {PICTURED_LENGTH}, fitted at {TRAINED_AT}"
    figure = heat_maps(shown, headings, title=f"Every encoding: selected and possible, {words}", unit="share, or yes")
    alt = "Two heat maps by encoding and task: alpha, and whether a kernel of the family solves both lengths"
    panel = output.figure(figure, table, "encodings-screen", alt, "No model is trained here. Encodings at defaults.")
    selected = table["alpha"] >= BINARY_ALPHA
    missed = table[(table["exists"] == 1) & (table["alpha"] < BINARY_ALPHA)]
    lacking = table[table["alpha"].isna()]
    reasons = sorted(set(lacking["encoding"] + ": " + lacking["alpha_why"]))
    findings = [
        Finding(f"Cells that alpha predicts to generalize, {words}:", f"{int(selected.sum())} of {len(table)}"),
        Finding("Cells whose family holds a kernel for both lengths that the rule does not select:", f"{len(missed)}",
                ", ".join(missed["encoding"] + " " + missed["task"])),
        Finding("Cells without an alpha:", f"{len(lacking)}", "; ".join(reasons)),
    ]  # fmt: skip
    return [Section(title, question, findings, [panel], command="poskernel screen --encodings all")]
