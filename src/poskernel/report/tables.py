"""One table, three forms: csv to compute with, LaTeX to print, HTML for the page.

A cell may be anything with value, low and high (an estimate): it becomes three csv columns, and "0.90 [0.73, 0.95]"
elsewhere. What is undefined shows as an empty csv field and as a dash.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from poskernel.errors import InputError, MissingExtraError
from poskernel.storage import write_whole

try:
    from markupsafe import Markup, escape
except ImportError as missing:
    raise MissingExtraError("an HTML table", "report") from missing

DASH = "–"
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "α": r"$\alpha$", "ρ": r"$\rho$", "τ": r"$\tau$", "θ": r"$\theta$", "≥": r"$\geq$", "≤": r"$\leq$", "±": r"$\pm$",
    "×": r"$\times$", "−": r"$-$", "–": "--", "—": "---", "→": r"$\to$", "…": r"\ldots{}",
}  # fmt: skip
"""Characters that LaTeX reads as commands, and those that plain pdflatex cannot print."""


@runtime_checkable
class Interval(Protocol):
    """A value with the interval around it."""

    @property
    def value(self) -> float:
        """The number."""

    @property
    def low(self) -> float:
        """Its lower bound."""

    @property
    def high(self) -> float:
        """Its upper bound."""


@dataclass(frozen=True)
class Link:
    """A cell that leads somewhere in HTML, and is its text elsewhere."""

    text: str
    address: str = ""
    """`#anchor` of a cell on the page, or a path relative to the page; the text alone where it is empty."""
    anchor: str = ""
    """What other cells lead to this one by."""
    below: str = ""
    """Text under it that leads nowhere."""

    def __str__(self) -> str:
        return f"{self.text}: {self.below}" if self.below else self.text

    @property
    def html(self) -> Markup:
        """The text, escaped, with its address and anchor; a long path may break after its separators."""
        words = breakable(self.text)
        if self.address:
            words = Markup('<a href="{}">{}</a>').format(self.address, words)
        words = Markup('<span id="{}">{}</span>').format(self.anchor, words) if self.anchor else words
        return words + (Markup("<p>{}</p>").format(self.below) if self.below else "")


def breakable(text: str) -> Markup:
    """A path, escaped, that may break after its separators."""
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[./:#_])(?=.)", text))


def write_csv(table: pd.DataFrame, path: Path) -> Path:
    """Write the table with full precision; an interval column c becomes c, c_low and c_high. Atomic."""
    return write_whole(path, csv_text(table).encode())


def csv_text(table: pd.DataFrame) -> str:
    """The table as csv text, floats in the shortest form that reads back to the same number."""
    columns: list[tuple[str, Any]] = []
    for name in table.columns:
        cells = list(table[name])
        if any(isinstance(cell, Interval) for cell in cells):
            for suffix, part in (("", "value"), ("_low", "low"), ("_high", "high")):
                columns.append((f"{name}{suffix}", [getattr(cell, part, math.nan) for cell in cells]))
        else:
            columns.append((str(name), table[name].array))
    names = [name for name, _ in columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two csv columns would be named '{twice}': rename one.")
    return pd.DataFrame(dict(columns)).to_csv(index=False, lineterminator="\n")


def write_latex(
    table: pd.DataFrame, path: Path, *, caption: str, label: str, formats: Mapping[str, str] | None = None
) -> Path:
    """Write the table as a LaTeX float for the booktabs package. Atomic."""
    return write_whole(path, latex_text(table, caption=caption, label=label, formats=formats).encode())


def latex_text(table: pd.DataFrame, *, caption: str, label: str, formats: Mapping[str, str] | None = None) -> str:
    """The table as a LaTeX float: booktabs rules, text escaped, numbers to the right. `formats`: see `cell_text`."""
    columns = [str(name) for name in table.columns]
    alignment = "".join("r" if is_numeric(table[name]) else "l" for name in table.columns)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_escape(caption)}}}",
        rf"\label{{{re.sub(r'[^A-Za-z0-9:._-]', '-', label)}}}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        " & ".join(latex_escape(name) for name in columns) + r" \\",
        r"\midrule",
    ]
    for cells in rows_of_text(table, formats or {}):
        # A leading bracket would be read as the optional argument of the row end before it.
        lines.append(
            " & ".join("{}" + cell if cell.startswith("[") else cell for cell in map(latex_escape, cells)) + r" \\"
        )
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it stands; a minus before a digit becomes a real one."""
    escaped = "".join(LATEX.get(character, character) for character in text)
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)


def html_text(
    table: pd.DataFrame,
    *,
    caption: str,
    formats: Mapping[str, str] | None = None,
    widths: Mapping[str, int] | None = None,
) -> Markup:
    """The table as HTML: a caption, column and row scopes, everything escaped. The first column heads its row.

    With `widths`, percent by column, cells also name their column, so that they can be read one below the other.
    """
    shares = [Markup('<col style="width:{}%">').format((widths or {}).get(str(name), 1)) for name in table.columns]
    columns = Markup("<colgroup>{}</colgroup>\n").format(Markup("").join(shares)) if widths else ""
    numeric = [is_numeric(table[name]) for name in table.columns]
    labels = [Markup(' data-label="{}"').format(name) if widths else "" for name in table.columns]
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(number_class(right), name)
        for name, right in zip(map(str, table.columns), numeric, strict=True)
    )
    body = Markup("\n").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(
                Markup('<th scope="row"{}{}>{}</th>' if first else "<td{}{}>{}</td>").format(
                    number_class(right), label, cell
                )
                for first, cell, right, label in zip(
                    [True] + [False] * len(cells), cells, numeric, labels, strict=False
                )
            )
        )
        for cells in html_cells(table, formats or {})
    )
    shape = Markup(
        "<table>\n<caption><span>{}</span></caption>\n{}<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody>\n</table>"
    )
    return shape.format(caption, columns, head, body)


def html_cells(table: pd.DataFrame, formats: Mapping[str, str]) -> list[list[str | Markup]]:
    """Every cell as text to be escaped, or as a link."""
    plain = rows_of_text(table, formats)
    return [
        [cell.html if isinstance(cell, Link) else text for cell, text in zip(cells, texts, strict=True)]
        for cells, texts in zip(table.itertuples(index=False, name=None), plain, strict=True)
    ]


def number_class(right: bool) -> Markup:
    """Attribute of a cell that holds a number."""
    return Markup(' class="number"') if right else Markup("")


def rows_of_text(table: pd.DataFrame, formats: Mapping[str, str]) -> list[list[str]]:
    """Every cell as text; InputError for a format that names no column."""
    unknown = [name for name in formats if name not in table.columns]
    if unknown:
        raise InputError(f"no column '{unknown[0]}' to format: choose from {', '.join(map(str, table.columns))}.")
    return [
        [cell_text(cell, formats.get(str(name), "z.2f")) for name, cell in zip(table.columns, cells, strict=True)]
        for cells in table.itertuples(index=False, name=None)
    ]


def cell_text(cell: object, number: str = "z.2f") -> str:
    """A cell in words: floats and intervals in the given format, yes and no, a dash where nothing is defined."""
    if isinstance(cell, Interval):
        return format(cell, number)
    if isinstance(cell, (bool, np.bool_)):
        return "yes" if cell else "no"
    if cell is None or cell is pd.NA or (isinstance(cell, (float, np.floating)) and math.isnan(cell)):
        return DASH
    if isinstance(cell, (float, np.floating)):
        return f"{float(cell):{number}}"
    return str(cell)


def is_numeric(column: "pd.Series[Any]") -> bool:
    """Whether a column is set to the right: numbers, or intervals."""
    if pd.api.types.is_bool_dtype(column):
        return False
    return pd.api.types.is_numeric_dtype(column) or any(isinstance(cell, Interval) for cell in column)
