"""The main job, end to end: predict, train, compare, and look inside a real model; one page that explains itself.

What it asks, and what was expected before it ran: every cell with alpha 1 generalizes better than every cell with
alpha 0, and the heads of a pretrained rotary model are nearly functions of the offset (median unbiased R2 above 0.9).
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from poskernel.attention.atlas import Atlas, analyze
from poskernel.attention.measuring import Progress
from poskernel.experiments.atlas_page import Shown, atlas_section, save_heads
from poskernel.experiments.comparison import Comparison, compare
from poskernel.experiments.comparison_page import comparison_sections
from poskernel.experiments.study_rows import StudyRows
from poskernel.storage import write_whole
from poskernel.study import STUDIES, Store, progress_for, run, units_of
from poskernel.study.transfer import export, manifest

if TYPE_CHECKING:
    from poskernel.report.page import Section


@dataclass(frozen=True, eq=False)
class Overview:
    """Everything the page shows."""

    comparison: Comparison
    atlas: Atlas | None
    """None where no model was asked for."""


def overview(
    store: Store,
    folder: Path,
    model: str | None,
    workers: int | None,
    quiet: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Run what is missing, then write figures, tables and report.html into the folder; the page's path.

    `model` names the real model; None leaves that part out. `progress` follows its layers. Finished measurements in the
    store are used as they are.
    """
    study = STUDIES["quick"]

    def announce(text: str) -> None:
        if not quiet:
            sys.stderr.write(f"{text}\n")

    announce("1 of 3: predictions and training of the 35 cells (3 to 5 minutes on 2 cores)")
    summary = run(study, store, workers=workers, progress=progress_for(quiet))
    announce(f"       {summary.done} units run, {summary.skipped} were there, {summary.failed} failed")
    comparison = compare(StudyRows.of(study, store.to_frame(units_of(study))).joined(tier=1), seed=seed)
    atlas = None
    if model is not None:
        announce(f"2 of 3: {model}, all heads (2 to 3 minutes the first time, then less)")
        atlas = analyze(model, seed=seed, progress=progress)
    announce("3 of 3: figures and the page")
    export(study, store, "csv", folder / "rows.csv")
    return write_report(Overview(comparison, atlas), folder)


def write_report(found: Overview, folder: Path) -> Path:
    """Figures as png, svg and csv, the manifest, and the page itself."""
    import json

    from poskernel.report.page import write_page

    sections = [how_to_read(), *comparison_sections(found.comparison, folder)]
    if found.atlas is not None:
        shown = Shown.of(found.atlas)
        save_heads(found.atlas, shown, folder)
        sections.append(atlas_section(shown))
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
