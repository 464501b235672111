"""Parts of pages that are computed while the documentation is built: a line `% part: NAME WORDS` stands for one.

They run in Sphinx's own process, one import for all; examples that a reader sees are cells of their page instead.
"""

import html
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results"
PART = re.compile(r"^% part: (\w+) ?(.*)$", re.MULTILINE)
OMITTED = "<p>Left out of this build.</p>"


def table_html(columns: list[str], rows: list[list[str]]) -> str:
    """A plain table of cells that are HTML already."""
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def claim_groups() -> Mapping[str, tuple[str, ...]]:
    """Names of the claims by the table of the theory page that has them."""
    from poskernel.realizability.theorems.table import GROUPS, claim_name

    return {name: tuple(map(claim_name, group.checks)) for name, group in GROUPS.items()}


def claims(words: str) -> str:
    """A table of claims, run now: a group of `claim_groups`, or names of claims."""
    from poskernel.realizability.theorems.table import run_checks, verdict

    found = run_checks(claim_groups().get(words) or words.split())
    rows = [
        [f'<a href="#{each.name}">{each.name}</a>', html.escape(each.measured), html.escape(each.expected),
         html.escape(each.size), html.escape(verdict(each))]
        for each in found
    ]  # fmt: skip
    return table_html(["claim", "measured", "expected", "n", "holds"], rows)


def experiment(id: str) -> str:
    """The page of an experiment out of its committed rows, or how to make them."""
    from poskernel.errors import lookup
    from poskernel.experiments.catalogue import EXPERIMENTS
    from poskernel.experiments.results_page import page_html

    return page_html(lookup(EXPERIMENTS, id, "experiment"), RESULTS)


def summary(_words: str) -> str:
    """Every claim of every experiment with its verdict, out of committed rows."""
    from poskernel.experiments.summary import summary_html

    return summary_html(RESULTS)


def study(name: str) -> str:
    """The sections of a study out of all committed rows."""
    from poskernel.experiments.reproduction.evidence import Evidence
    from poskernel.experiments.reproduction.page import page_html

    with TemporaryDirectory() as folder:
        return page_html(name, Evidence.from_results(RESULTS), Path(folder))


def extension(words: str) -> str:
    """The validation of `extend` out of committed rows: all of it, or its `findings` alone."""
    from poskernel.errors import lookup
    from poskernel.experiments.extension.results import findings_html, page_html

    made = lookup({"": page_html, "findings": findings_html}, words, "part of the validation")
    with TemporaryDirectory() as folder:
        return made(RESULTS, Path(folder))


def write_atlases(folder: Path) -> None:
    """The page of every model whose heads' rows are committed."""
    from poskernel.experiments.atlas_page import Shown, write_heads_page

    for model in sorted((RESULTS / "atlas").iterdir()):
        write_heads_page(Shown.read(model), folder / f"{model.name}.html")


def benchmarks(_words: str) -> str:
    """Every file of rows that the benchmarks wrote."""
    parts = []
    for file in sorted((DOCS / "benchmarks").glob("*.json")):
        page = json.loads(file.read_text())
        made = "Made by <code>{command}</code> on {machine}, {date}."
        said = made.format_map({key: html.escape(str(page[key])) for key in ("command", "machine", "date")})
        columns = list(dict.fromkeys(key for row in page["rows"] for key in row))
        rows = [[html.escape(str(row.get(name, ""))) for name in columns] for row in page["rows"]]
        parts.append(f"<p><b>{html.escape(page['title'])}</b>. {said}</p>")
        parts.append(table_html([html.escape(name) for name in columns], rows))
    return "\n".join(parts) or "<p>No rows yet.</p>"


PARTS: Mapping[str, Callable[[str], str]] = {
    "benchmarks": benchmarks, "claims": claims, "experiment": experiment, "extension": extension, "study": study,
    "summary": summary,
}  # fmt: skip


def with_parts(text: str, omitted: list[str]) -> str:
    """A page's text with its parts as raw HTML; those whose name is among `omitted` are not computed and say so."""

    def made(found: re.Match[str]) -> str:
        name, words = found[1], found[2].strip()
        content = OMITTED if name in omitted else PARTS[name](words)
        return f"````{{raw}} html\n{content}\n````"

    return PART.sub(made, text)
