"""One self-contained HTML page: sections of findings, figures, tables and charts; nothing is loaded from anywhere.

Every text is plain text and escaped; a blank line starts a paragraph, `backticks` set code. A content security policy
forbids the browser to fetch anything, so a page that would need the network shows itself broken at once.
"""

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from poskernel.errors import InputError, MissingExtraError, RunError
from poskernel.storage import write_whole

try:
    from jinja2 import BaseLoader, Environment, StrictUndefined
    from markupsafe import Markup, escape
except ImportError as missing:
    raise MissingExtraError("a page", "report") from missing
from poskernel.report.tables import Link, html_text

LARGEST = 5_000_000
"""Bytes of the largest page: it has to travel by mail and open at once."""
HEADS_STYLE = ("heads.css",)
HEADS_SCRIPTS = ("plots.js", "head_plots.js", "heads.js")


@dataclass(frozen=True)
class Finding:
    """One thing that was found: a sentence, and the number behind it with its interval and how it was made."""

    sentence: str
    number: str = ""
    """For instance "0.90 [0.73, 0.95]": format(estimate)."""
    method: str = ""
    """How the interval was made and over what: estimate.method."""


@dataclass(frozen=True)
class FigurePanel:
    """A still picture."""

    svg: str
    """Text of an svg file: `figures.svg_text` or one that `figures.save_figure` wrote."""
    alt: str
    """What the picture shows, in words, for someone who cannot see it."""
    caption: str

    @property
    def source(self) -> str:
        """The picture as a data address: it stands alone, so ids of two pictures cannot clash."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode()


@dataclass(frozen=True, eq=False)
class TablePanel:
    """A table; cells may be estimates. `formats` maps columns to number formats (default: two decimals)."""

    table: pd.DataFrame
    caption: str
    formats: Mapping[str, str] = field(default_factory=dict)
    folded: bool = False
    """Shown closed, to be opened by the reader: for long tables."""
    widths: Mapping[str, int] = field(default_factory=dict)
    """Percent of the width by column, of a table of sentences: on a narrow screen its cells stand one below the other.
    """

    @property
    def html(self) -> Markup:
        """The table as escaped HTML."""
        return html_text(self.table, caption=self.caption, formats=self.formats, widths=self.widths)


@dataclass(frozen=True)
class Entry:
    """One thing explained, which cells of tables lead to by its anchor."""

    anchor: str
    title: str
    back: str
    """Anchor of what leads here."""
    text: str
    facts: Mapping[str, str | Link]
    """What there is to know of it besides, by what it is called."""

    @property
    def told(self) -> list[tuple[str, Markup]]:
        """The facts as escaped HTML."""
        return [(name, fact.html if isinstance(fact, Link) else escape(fact)) for name, fact in self.facts.items()]


@dataclass(frozen=True)
class EntriesPanel:
    """Entries one below the other."""

    entries: Sequence[Entry]
    caption: str


@dataclass(frozen=True, eq=False)
class HeadsPanel:
    """An interactive map of heads."""

    data: Mapping[str, Any]
    """What `head_map.head_map` made."""
    alt: str
    caption: str

    @property
    def packed(self) -> str:
        """The data as JSON, zipped, in letters and digits: a third of the size, and nothing in it can be markup."""
        plain = json.dumps(self.data, allow_nan=False, separators=(",", ":")).encode()
        return base64.b64encode(gzip.compress(plain, mtime=0)).decode()


Panel = FigurePanel | TablePanel | EntriesPanel | HeadsPanel


@dataclass(frozen=True, eq=False)
class Section:
    """One question and its answer: what was asked, what was found, the panels, and how to run it again."""

    title: str
    question: str
    findings: Sequence[Finding] = ()
    panels: Sequence[Panel] = ()
    text: str = ""
    """Explanation for someone who has not read the papers; stands before the findings."""
    command: str = ""
    """The line that makes this section's numbers again."""

    @property
    def anchor(self) -> str:
        """The part of the address after #: the title in lower-case letters, digits and dashes."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


def write_page(path: Path, title: str, lead: str, sections: Sequence[Section], footer: str = "") -> Path:
    """Write the page to `path`, whole or not at all, and return the path.

    Raises InputError for two sections of one title, RunError for a page above LARGEST bytes or a path that cannot be
    written.
    """
    content = page_text(title, lead, sections, footer).encode()
    if len(content) > LARGEST:
        largest = max(sections, key=section_size).title
        raise RunError(
            f"the page would take {len(content) / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f}: "
            f"show fewer rows or heads in its largest section, '{largest}'."
        )
    return write_whole(path, content)


def page_text(title: str, lead: str, sections: Sequence[Section], footer: str = "") -> str:
    """The page as HTML text; the script that draws heads is there once, and only where there are any."""
    anchors = [section.anchor for section in sections]
    twice = [section.title for section, anchor in zip(sections, anchors, strict=True) if anchors.count(anchor) > 1]
    if twice:
        raise InputError(f"two sections are called '{twice[0]}': rename one, its address would be ambiguous.")
    heads = any(isinstance(panel, HeadsPanel) for section in sections for panel in section.panels)
    environment = Environment(
        loader=BaseLoader(), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["prose"] = prose
    environment.tests["figure"] = lambda panel: isinstance(panel, FigurePanel)
    environment.tests["entries"] = lambda panel: isinstance(panel, EntriesPanel)
    environment.tests["heads"] = lambda panel: isinstance(panel, HeadsPanel)
    return environment.from_string(template("page.html")).render(
        title=title,
        lead=lead,
        sections=sections,
        footer=footer,
        style=Markup("\n".join(template(name) for name in ("page.css", *(HEADS_STYLE if heads else ())))),
        scripts=[Markup(template(name)) for name in HEADS_SCRIPTS] if heads else [],
    )


def template(name: str) -> str:
    """Text of a file in `templates`."""
    return (files("poskernel.report") / "templates" / name).read_text("utf-8")


def prose(text: str) -> Markup:
    """Plain text as paragraphs; backticks set code; everything else escaped."""
    paragraphs = [str(escape(part.strip())) for part in re.split(r"\n\s*\n", text) if part.strip()]
    marked = [re.sub(r"`([^`]+)`", r"<code>\1</code>", paragraph) for paragraph in paragraphs]
    return Markup("\n".join(f"<p>{paragraph}</p>" for paragraph in marked))


def section_size(section: Section) -> int:
    """Rough bytes of a section's panels, to name the one to shorten."""
    return sum(
        len(panel.svg) if isinstance(panel, FigurePanel)
        else len(panel.html) if isinstance(panel, TablePanel)
        else sum(len(entry.text) for entry in panel.entries) if isinstance(panel, EntriesPanel)
        else len(panel.packed)
        for panel in section.panels
    )  # fmt: skip
