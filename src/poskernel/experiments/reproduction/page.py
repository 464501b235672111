"""One page a study, and the page of the whole paper: every section from measurements, with its files beside it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from poskernel.errors import lookup
from poskernel.experiments.reproduction.budgets import budgets_sections
from poskernel.experiments.reproduction.cells import cells_sections
from poskernel.experiments.reproduction.depth import depth_sections
from poskernel.experiments.reproduction.encodings import encodings_sections
from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.grading import grading_sections
from poskernel.experiments.reproduction.headlines import headline_sections
from poskernel.experiments.reproduction.induction import induction_sections
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.robustness import (
    interior_sections,
    scale_sections,
    sensitivity_sections,
    train_length_sections,
)
from poskernel.experiments.reproduction.rope_scale import rope_scale_sections
from poskernel.experiments.reproduction.rules import rules_sections
from poskernel.experiments.reproduction.scalings import scalings_sections
from poskernel.experiments.reproduction.screen import screen_sections
from poskernel.experiments.reproduction.trained_heads import TITLE as TRAINED_HEADS
from poskernel.experiments.reproduction.trained_heads import trained_heads_sections
from poskernel.storage import write_whole
from poskernel.study import STUDIES
from poskernel.study.transfer import manifest

if TYPE_CHECKING:
    from poskernel.report.page import Section

Sections = Callable[[Evidence, Output], "list[Section]"]

THEMES: dict[str, tuple[Sections, ...]] = {
    "interior": (interior_sections,),
    "scale": (scale_sections,),
    "train-length": (train_length_sections,),
    "rules": (rules_sections, budgets_sections),
    "rope-scale": (rope_scale_sections,),
    "content": (induction_sections,),
    "sensitivity": (sensitivity_sections,),
    "encodings": (encodings_sections, scalings_sections, screen_sections),
}
"""The sections of each further study: the paper's, and encodings beyond it."""
MAIN: tuple[Sections, ...] = (
    *(headline_sections, cells_sections, grading_sections, depth_sections),
    trained_heads_sections,
)
"""The sections of the main study."""
DOCUMENTED = {
    *("What was measured", "Headlines", "Depth", "Selection rules", "Scale", "Training length", "Induction"),
    TRAINED_HEADS,
    *("Beyond the paper: encodings", "Beyond the paper: RoPE scaled zero-shot"),
}
"""Sections whose tables a page of the documentation has too; the report has all."""


def sections_of(name: str, evidence: Evidence, output: Output) -> "list[Section]":
    """A study's sections; `paper` has those of every study that the paper reports."""
    if name == "paper":
        chosen: tuple[Sections, ...] = (*MAIN, *(each for theme in THEMES.values() for each in theme))
        return [section for make in chosen for section in make(evidence, output)]
    if name in THEMES:
        return [section for make in THEMES[name] for section in make(evidence, output)]
    return [*cells_sections(evidence, output, name), *grading_sections(evidence, output, name)]


def coverage_section(names: list[str], evidence: Evidence, output: Output) -> "Section":
    """What was planned, what is there, and what is missing."""
    from poskernel.report.page import Finding, Section

    table = evidence.coverage(names)
    planned, there = int(table["planned"].sum()), int(table["there"].sum())
    findings = [Finding("Measurements there, of those planned:", f"{there} of {planned}", f"from {evidence.source}")]
    if evidence.clashes:
        sentence = "Measurements that two studies' files hold with different values (each study shows its own):"
        findings.append(Finding(sentence, str(evidence.clashes)))
    text = (
        "Unlearned and failed measurements stay in: an unlearned model's accuracy counts like any other, a "
        "failed one has "
        "no value and is left out where a value is needed. Where models are missing, numbers are those of the "
        "models there are."
    )
    panel = output.table(table, "coverage", "Measurements by study")
    return Section(
        "What was measured", "Which measurements are there, and which are missing?", findings, [panel], text=text
    )


def page_html(name: str, evidence: Evidence, folder: Path) -> str:
    """A study's sections for a page of the documentation: question, text, findings, figures, and some of the tables.

    What was measured stands first. Figures and tables are saved in the folder too.
    """
    output = Output(folder)
    names = ["paper", *THEMES] if name == "paper" else [name]
    sections = [coverage_section(names, evidence, output), *sections_of(name, evidence, output)]
    return "\n".join(section_html(section, section.title in DOCUMENTED) for section in sections)


def section_html(section: "Section", tables: bool = True, level: int = 2) -> str:
    """One section of such a page, with its tables or without; folded ones are closed. `level` is its heading's."""
    import html

    from poskernel.report.page import FigurePanel, TablePanel, prose

    title = html.escape(section.title, quote=False)
    parts = [f"<h{level}>{title}</h{level}>", f"<p><em>{html.escape(section.question)}</em></p>"]
    parts.append(str(prose(section.text)))
    found = [
        f"{html.escape(each.sentence)} <b>{html.escape(each.number)}</b>"
        + (f" ({html.escape(each.method)})" if each.method else "")
        for each in section.findings
    ]
    parts.append("<ul>" + "".join(f"<li>{each}</li>" for each in found) + "</ul>")
    for panel in section.panels:
        if isinstance(panel, FigurePanel):
            alt = html.escape(panel.alt, quote=True)
            parts.append(f'<img src="{panel.source}" alt="{alt}" style="width: 100%; background: white">')
        elif isinstance(panel, TablePanel) and tables:
            table = f'<div style="overflow-x: auto">{panel.html}</div>'
            caption = f"<summary>{html.escape(panel.caption)}</summary>"
            parts.append(f"<details>{caption}{table}</details>" if panel.folded else table)
    return "\n".join(parts)


def write_report(name: str, evidence: Evidence, folder: Path) -> Path:
    """Figures, tables, the manifest and report.html of one study in a folder; the page's path.

    InputError for an unknown study.
    """
    from poskernel.report.page import write_page

    study, output = lookup(STUDIES, name, "study"), Output(folder)
    names = ["paper", *THEMES] if name == "paper" else [name]
    sections = sections_of(name, evidence, output)
    sections.append(coverage_section(names, evidence, output))
    about = manifest({"report": name, "source": evidence.source, "seed": evidence.seed}, sys.argv, {})
    write_whole(folder / "manifest.json", json.dumps(about, indent=1) + "\n")
    versions = ", ".join(f"{library} {value}" for library, value in about["versions"].items())
    lead = (
        f"{study.question} Everything here is computed from {evidence.source}; figures and tables lie beside "
        "this page as png, svg, csv "
        "and LaTeX. Intervals are 95%."
    )
    title = "The realizability study, reproduced" if name == "paper" else f"Study: {name}"
    return write_page(folder / "report.html", title, lead, sections, f"Made with {versions}.")
