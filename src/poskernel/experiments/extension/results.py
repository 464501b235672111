"""The validation of `extend` as a page: what committed rows say, and which command makes those that are missing."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from poskernel.experiments.extension.kernel_sections import kernel_sections
from poskernel.experiments.extension.limit_sections import limit_sections
from poskernel.experiments.extension.means_sections import means_sections
from poskernel.experiments.extension.rows import GEMMA_VALIDATION, NAMES, VALIDATION, VERDICTS, ExtensionRows, Run
from poskernel.experiments.extension.validation import MEANINGS
from poskernel.experiments.extension.verdict_sections import verdict_sections
from poskernel.experiments.extension.verdicts import MEANINGS as VERDICT_MEANINGS
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.page import section_html

if TYPE_CHECKING:
    from poskernel.report.page import Section

COVERAGE = "What was measured on models and texts"
METRICS = {**MEANINGS, **VERDICT_MEANINGS}
"""What each metric of the rows is: the page ends with them."""


def extension_sections(
    results: Path, output: Output, runs: tuple[Run, Run, Run] = (VALIDATION, VERDICTS, GEMMA_VALIDATION)
) -> "list[Section]":
    """Coverage first; then every question of the first model, held-out texts, and the second model's."""
    first, held_out, second = (ExtensionRows.read(run, results) for run in runs)
    return [
        coverage_section([first, held_out, second]),
        *validation_sections(first, output, ""),
        *verdict_sections(held_out, output),
        *validation_sections(second, output, f": {NAMES.get(second.run.asked.model, second.run.asked.model)}"),
    ]


def validation_sections(rows: ExtensionRows, output: Output, suffix: str) -> "list[Section]":
    """All that one model's rows say."""
    return [
        section for make in (kernel_sections, means_sections, limit_sections) for section in make(rows, output, suffix)
    ]


def coverage_section(parts: Sequence[ExtensionRows]) -> "Section":
    """What is there of each run, what is missing, and of which weights and texts it is."""
    from poskernel.report.page import Finding, Section

    there = sum(len(rows.table) - len(rows.lost) for rows in parts)
    planned = sum(rows.planned for rows in parts)
    said = [f"{NAMES.get(rows.run.asked.model, rows.run.asked.model)}: {rows.coverage_words()}" for rows in parts]
    said += [about_words(rows) for rows in parts if rows.about]
    question = "Which measurements are there, of which weights and texts, and how are those made that are not?"
    return Section(COVERAGE, question, [Finding("Measurements there, of those planned:", f"{there} of {planned}")],
                   text="\n\n".join(said), command=parts[0].run.command)  # fmt: skip


def about_words(rows: ExtensionRows) -> str:
    """Weights and texts by their digests."""
    about = rows.about
    texts = ", ".join(
        f"`{name}` (sha256 {digest['sha256'][:12]}, {digest['tokens']} tokens)"
        for name, digest in about["texts"].items()
    )
    quantized = f", quantized as {about['quantization']}" if about["quantization"] else ""
    return (
        f"{about['model']}: {about['dtype']}{quantized}, weights sha256 {str(about['weights_digest'])[:12]}. Texts, "
        f"which depend on what is installed: {texts}."
    )


def page_html(results: Path, folder: Path) -> str:
    """Every section with its tables as HTML for a page of the documentation; files are saved in the folder too."""
    parts = [section_html(section, tables=True) for section in extension_sections(results, Output(folder))]
    return "\n".join([*parts, meanings_html()])


def findings_html(results: Path, folder: Path) -> str:
    """What was found alone, section by section: for a page that leads to the whole."""
    from dataclasses import replace

    coverage, *others = extension_sections(results, Output(folder))
    shown = [coverage, *(replace(section, panels=(), text="") for section in others)]
    return "\n".join(section_html(section, level=3) for section in shown)


def meanings_html() -> str:
    """What every metric of the rows is."""
    import html

    lines = "".join(f"<dt><code>{name}</code></dt><dd>{html.escape(words)}</dd>" for name, words in METRICS.items())
    return f"<details><summary>Metrics of the rows</summary><dl>{lines}</dl></details>"
