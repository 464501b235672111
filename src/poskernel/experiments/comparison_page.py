"""The sections of a page that compare predictions with trained models."""

from pathlib import Path
from typing import TYPE_CHECKING

from poskernel.experiments.comparison import (
    GENERALIZES,
    KEEPS_PROMISE,
    PRECISION_TAUS,
    Comparison,
    along_lengths,
    at_length,
)
from poskernel.statistics import mean

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from poskernel.report.page import FigurePanel, Section

PICTURED_LENGTH = 60
"""Length of the heat maps: three times the training length, as in the paper."""


def comparison_sections(comparison: Comparison, folder: Path) -> list["Section"]:
    """Verdicts beside trained accuracies, existence, the scatter, and the curves; figures are saved in the folder."""
    sections = (verdict_section, existence_section, grading_section, length_section)
    return [section(comparison, folder) for section in sections]


def picture(figure: "Figure", table: "pd.DataFrame", folder: Path, name: str, alt: str, caption: str) -> "FigurePanel":
    """A figure saved as png, svg and csv, and its panel for the page."""
    from poskernel.report.figures import save_figure
    from poskernel.report.page import FigurePanel

    files = save_figure(figure, table, folder / "figures", name)
    return FigurePanel(files["svg"].read_text(), alt, caption)


def verdict_section(comparison: Comparison, folder: Path) -> "Section":
    """Heat maps of alpha and LG, and how well one separates the other."""
    from poskernel.report.figures import heat_maps
    from poskernel.report.page import Finding, Section, TablePanel

    cells = at_length(comparison.rows, PICTURED_LENGTH)
    agreed = comparison.certain_above_hopeless
    headings = {"alpha": "alpha, before training", "accuracy": "LG, after training"}
    title = f"{'Alpha tells who generalizes' if agreed else 'Alpha and LG'}: length {PICTURED_LENGTH}, trained at 20"
    separation, unlearned = comparison.separation, int((comparison.cells["status"] == "unlearned").sum())
    findings = [
        Finding(
            f"Alpha separates the {separation.positives} cells whose models generalize (LG of at least "
            f"{GENERALIZES:g}) "
            f"from the {separation.negatives} whose models do not: AUC",
            f"{separation.auc}, p = {separation.p:.2g}",
            f"{separation.auc.method}; {separation.p_method}",
        )
    ]
    if agreed is not None:
        sure, hopeless = (comparison.cells.loc[comparison.cells["alpha"] == value, "accuracy"] for value in (1, 0))
        findings.append(
            Finding(
                f"The least LG among the {len(sure)} cells with alpha 1 {'lies' if agreed else 'does not lie'} "
                "above the "
                f"greatest among the {len(hopeless)} with alpha 0:",
                f"{sure.min():.2f} against {hopeless.max():.2f}",
                "means over lengths 30 to 80",
            )
        )
    maps = picture(
        heat_maps(cells, headings, title=title),
        cells,
        folder,
        "alpha-and-lg",
        "Two heat maps, alpha and trained accuracy, for five encodings and seven tasks",
        "Left: computed before training. Right: LG, token accuracy beyond the training length, of trained "
        "Transformers of "
        f"one layer and one head, one seed. Chance is 1/12 = 0.08; {unlearned} of the {len(comparison.cells)} "
        "models did not "
        "learn their task at the training length either.",
    )
    table = TablePanel(comparison.cells, "Cells: means over lengths 30 to 80", folded=True)
    question = "Does alpha, computed before training, tell who generalizes to three times the training length?"
    command = "poskernel study run quick && poskernel report"
    return Section("Who generalizes", question, findings, [maps, table], command=command)


def existence_section(comparison: Comparison, folder: Path) -> "Section":
    """Whether cells that fail could have been solved by another kernel of the same encoding."""
    from poskernel.report.page import Finding, Section, TablePanel
    from poskernel.report.tables import write_csv

    rows = comparison.rows[comparison.rows["length"] == PICTURED_LENGTH].drop_duplicates(["encoding", "task"])
    failing = rows[rows["alpha"] < 1]
    possible, known = int((failing["exists"] == "yes").sum()), int(failing["exists"].isin(["yes", "no"]).sum())
    table = rows.pivot_table(index="encoding", columns="task", values="exists", aggfunc="first", sort=False)
    table = table.reset_index().rename_axis(None, axis=1)
    write_csv(table, folder / "exists.csv")
    finding = Finding(
        f"Cells with alpha below 1 at length {PICTURED_LENGTH} whose encoding holds a kernel that solves both lengths:",
        f"{possible} of {known}",
        "exact: a kernel found and checked, or a certificate that there is none",
    )
    text = (
        "A low alpha says that the kernel which a fit at length 20 selects does not carry over. It does not say that "
        "the encoding holds no kernel that would. A linear programme, checked by substitution, answers that on its "
        "own: yes, no, or conflict, where the two lengths ask different things of the same row."
    )
    question = "Where alpha is low, is the encoding unable to do it, or does the fit select another kernel?"
    panel = TablePanel(table, f"Does any kernel of the encoding solve length 20 and length {PICTURED_LENGTH} together?")
    return Section("Selection or impossibility", question, [finding], [panel], text=text, command="poskernel screen")


def grading_section(comparison: Comparison, folder: Path) -> "Section":
    """Rank correlations, precision, and the scatter."""
    from poskernel.report.figures import scatter
    from poskernel.report.page import Finding, Section

    everywhere, learned = comparison.correlation, comparison.learnable_correlation
    findings = [
        Finding(f"Rank correlation over all {everywhere.n} cells:", str(everywhere), everywhere.method),
        Finding(f"Over the {learned.n} cells whose models learned their task:", str(learned), learned.method),
    ]
    for tau in PRECISION_TAUS:
        found = comparison.precisions[tau]
        sentence = (
            f"Of the {found.estimate.n} rows with alpha of at least {tau:g}, the share with LG of at least "
            f"{KEEPS_PROMISE:g} ({len(found.violations)} fall short):"
        )
        findings.append(Finding(sentence, str(found.estimate), found.estimate.method))
    points = picture(
        scatter(comparison.cells, title="Alpha against LG", interval=f"Spearman over all cells: {everywhere}"),
        comparison.cells,
        folder,
        "scatter",
        "Scatter of trained accuracy against alpha, a point a cell",
        "One point a cell, means over lengths. Hollow: the model did not learn its task even at the training length.",
    )
    question = "Does a higher alpha mean a higher accuracy, or is it a yes or no?"
    return Section("How well it predicts", question, findings, [points], command="poskernel report")


def length_section(comparison: Comparison, folder: Path) -> "Section":
    """Alpha and LG against length."""
    from poskernel.report.figures import length_curves
    from poskernel.report.page import Finding, Section

    table = along_lengths(comparison.rows)
    curves = picture(
        length_curves(table, title="Alpha (dashed) and LG (solid) against length", train_length=20),
        table,
        folder,
        "length-curves",
        "Curves of alpha and trained accuracy against test length, a panel an encoding",
        "The dotted line is the training length.",
    )
    findings = []
    for length in (table["length"].min(), table["length"].max()):
        cells = table[table["length"] == length].dropna(subset=["alpha", "accuracy"])
        gap = mean((cells["accuracy"] - cells["alpha"]).abs(), seed=0, interval="percentile")
        sentence = f"Mean distance between alpha and LG over the {gap.n} cells at length {length}:"
        findings.append(Finding(sentence, str(gap), gap.method))
    question = "How do alpha and accuracy change as sequences grow?"
    return Section("How it fades with length", question, findings, [curves], command="poskernel report")
