"""The claims as a page: the tables, a picture where a picture says more, and what each claim says and supposes."""

import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from inspect import Parameter, getdoc, signature, unwrap
from pathlib import Path
from typing import TYPE_CHECKING

from poskernel.experiments.theory_pictures import PICTURES, Picture
from poskernel.realizability.theorems.check import DEPARTED, Check
from poskernel.realizability.theorems.table import (
    GROUPS,
    claims,
    counts,
    counts_in_words,
    departs,
    group_of,
    verdict,
    where,
)

if TYPE_CHECKING:
    from poskernel.report.page import Entry, Finding, Section, TablePanel

LEAD = (
    "What the two sources claim, run as checks that can fail: what is expected, what was measured, whether it agrees. "
    "The name of a claim leads to what it says, what it supposes and which function computes it, further down."
)
WIDTHS = {"claim": 26, "holds": 9, "n": 8, "measured": 29, "expected": 28}
"""Percent of the width of the tables."""
GIVEN = ("effort", "seed", "samples")
"""Parameters that every claim may have: how much is drawn, no hypothesis."""
LONGEST_VALUE = 60
"""Characters of a parameter's value that are shown."""
SOURCE_AND_FUNCTION = re.compile(
    r"\s+(?:Theorem|Proposition|Section|Appendix|Partial progress|Conjecture|Ours)\b(?:(?!\.\s+[A-Z(])[^;{])*;\s*"
    r"\{py:func\}`[^`]*`\.$"
)
"""The last sentence of a section of the documentation: an entry's facts say it too."""
WORDS = {True: "holds", False: "FAILS", None: "unclear"}
"""Of a claim beside a picture."""

CHECKOUT = Path(__file__).parents[3]
"""Where the documentation lies beside the source, if this is no installed package."""


def ignored(picture: Picture) -> None:
    """Progress that nobody looks at."""


def write_theory(
    checks: Sequence[Check],
    path: Path,
    command: str = "poskernel theory",
    progress: Callable[[Picture], None] = ignored,
) -> Path:
    """The page of these checks, whole or not at all; `command` makes them again. `progress` hears of each picture."""
    from poskernel.report.page import write_page

    sections = theory_sections(checks, command, path.parent, progress)
    return write_page(path, "Theory as checks that can fail", LEAD, sections)


def save_pictures(checks: Sequence[Check], folder: Path, progress: Callable[[Picture], None] = ignored) -> None:
    """figures/NAME.png, .svg and .csv of every picture whose claims are among the checks."""
    from poskernel.report.figures import save_figure

    for each in pictures_of(checks):
        data = each.data()
        save_figure(each.draw(data), data, folder / "figures", each.name)
        progress(each)


def pictures_of(checks: Sequence[Check]) -> list[Picture]:
    """The pictures whose claims are among the checks."""
    names = {check.name for check in checks}
    return [picture for picture in PICTURES if names & set(picture.claims)]


def theory_sections(
    checks: Sequence[Check],
    command: str = "poskernel theory",
    folder: Path = Path(),
    progress: Callable[[Picture], None] = ignored,
) -> "list[Section]":
    """The tables of all checks, a section for every picture, and what each claim says.

    `folder` is where the page will lie: what its links to source are relative to.
    """
    pictures = []
    for each in pictures_of(checks):
        pictures.append(picture_section(each, checks))
        progress(each)
    return [table_section(checks, command), *pictures, explanations_section(checks, folder)]


def picture_section(shown: Picture, checks: Sequence[Check]) -> "Section":
    """What was measured of the claims, above their picture."""
    from poskernel.report.figures import svg_text
    from poskernel.report.page import FigurePanel, Section

    panel = FigurePanel(svg_text(shown.draw(shown.data())), shown.alt, shown.caption)
    return Section(shown.title, shown.question, findings(checks, shown.claims), [panel], text=shown.text)


def by_group(checks: Sequence[Check]) -> dict[str, list[Check]]:
    """The checks by the title of their source, in the order of the sources; what is no claim's under "Others"."""
    titles = {key: group.title for key, group in GROUPS.items()} | {"": "Others"}
    found = {title: [check for check in checks if group_of(check.name) == key] for key, title in titles.items()}
    return {title: group for title, group in found.items() if group}


def table_section(checks: Sequence[Check], command: str) -> "Section":
    """All checks: how many hold, then a table a source, one row a claim, whose name leads to what explains it."""
    from poskernel.report.page import Finding, Section

    found = [Finding(f"{counts_in_words(counts(checks))}.")]
    found += [Finding(f"Does not hold: {check.name}.") for check in checks if check.holds is False]
    found += [
        Finding(f"Unclear, the draws are too few to tell: {check.name}.")
        for check in checks
        if check.holds is None and not check.data
    ]
    return Section(
        "The claims",
        "Which claims of the sources survive being computed?",
        found,
        [claims_panel(title, group) for title, group in by_group(checks).items()],
        text=(
            "A check can fail: beside each, a test breaks one of its hypotheses and the check says so. `expected` says "
            "which figures under `measured` would make it say NO: those outside what is written there.\n\n"
            f"Claims that do not survive in their source's form stand as departures, where `{DEPARTED}` is what a yes "
            "says. There, `source: 0; ours: above 0.1` is what each form expects of the figures measured, in their "
            "order. A search, of which nothing is expected, is `data`, and is not counted as a claim."
        ),
        command=command,
    )


def claims_panel(title: str, checks: Sequence[Check]) -> "TablePanel":
    """One table of claims."""
    import pandas as pd

    from poskernel.report.page import TablePanel
    from poskernel.report.tables import Link

    rows = pd.DataFrame(
        {
            "claim": Link(check.name, f"#{anchor(check.name)}", anchor=row_anchor(check.name), below=check.claim),
            "holds": verdict(check),
            "n": check.size,
            "measured": check.measured,
            "expected": check.expected,
        }
        for check in checks
    )
    return TablePanel(rows, title, widths=WIDTHS)


def explanations_section(checks: Sequence[Check], folder: Path) -> "Section":
    """One entry a claim: what it says, why, its source, its function and hypotheses."""
    from poskernel.report.page import EntriesPanel, Section

    panels = [
        EntriesPanel([entry(check, folder) for check in group], title) for title, group in by_group(checks).items()
    ]
    return Section(
        "The claims, one by one",
        "What does each claim say and suppose, where does it come from, and which function computes it?",
        panels=panels,
        text=(
            "A function is named `module:function`. Its parameters are the claim's hypotheses, with the values that "
            "satisfy them: another value breaks one."
        ),
    )


def entry(check: Check, folder: Path) -> "Entry":
    """What there is to know of a claim besides its figures."""
    from poskernel.report.page import Entry
    from poskernel.report.tables import Link

    function, words = claims().get(check.name), explanation(check.name)
    computed = "" if function is None else (getdoc(unwrap(function)) or "").replace("`", "")
    facts: dict[str, str | Link] = {
        "holds": verdict(check),
        "source": check.source,
        "looked at": check.size,
        "what is computed": computed,
        "function": Link(where(check.name)["function"], function_address(check.name, folder)) if function else "",
        "hypotheses": "; ".join(hypotheses(check.name)),
        "note": check.note,
    }
    return Entry(
        anchor(check.name),
        check.name,
        row_anchor(check.name),
        f"{check.claim}\n\n{words}".strip(),
        {name: fact for name, fact in facts.items() if fact},
    )


def hypotheses(name: str) -> list[str]:
    """A claim's own parameters with their defaults, `length = 40`; a value that is no short text is left out."""
    function = claims().get(name)
    if function is None:
        return []
    own = [each for each in signature(function).parameters.values() if each.name not in GIVEN]
    return [f"{each.name} = {value}" if (value := value_text(each)) else each.name for each in own]


def value_text(parameter: Parameter) -> str:
    """A default in words: numbers, texts and names of functions; nothing for what is computed or long."""
    value = parameter.default
    text = value.__name__ if callable(value) and hasattr(value, "__name__") else repr(value)
    return text if value is not None and len(text) <= LONGEST_VALUE and "<" not in text else ""


@cache
def documentation() -> str:
    """docs/theory.md, as the wheel or the checkout has it; empty where neither does."""
    packed, beside = files("poskernel.experiments") / "theory.md", CHECKOUT / "docs" / "theory.md"
    if packed.is_file():
        return packed.read_text("utf-8")
    return beside.read_text("utf-8") if beside.is_file() else ""


def explanation(name: str) -> str:
    """The section of the documentation that explains a claim, as plain text with `code`; empty without one."""
    found = re.search(rf"^### {re.escape(name)}\n(.*?)(?=^##|\Z)", documentation(), re.MULTILINE | re.DOTALL)
    if found is None:
        return ""
    text = SOURCE_AND_FUNCTION.sub("", found[1].strip())
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"(?<![\w*`])\*([^*`\n]+)\*(?![\w*])", r"\1", text).strip()


def anchor(name: str) -> str:
    """What a claim's entry is reached by."""
    return f"claim-{name}"


def row_anchor(name: str) -> str:
    """What a claim's row of the tables is reached by."""
    return f"row-{name}"


def function_address(name: str, folder: Path, checkout: Path = CHECKOUT) -> str:
    """Path from a folder inside the checkout to a claim's function and its line; empty elsewhere."""
    function = claims().get(name)
    if function is None:
        return ""
    code = unwrap(function).__code__
    found = relative_address(Path(code.co_filename), folder, checkout)
    return f"{found}#L{code.co_firstlineno}" if found else ""


def relative_address(target: Path, folder: Path, checkout: Path) -> str:
    """The way from a page's folder to a file, both inside the checkout; empty where a page would point outside."""
    target, folder, checkout = target.resolve(), folder.resolve(), checkout.resolve()
    inside = target.is_file() and target.is_relative_to(checkout) and folder.is_relative_to(checkout)
    return Path(os.path.relpath(target, folder)).as_posix() if inside else ""


def findings(checks: Sequence[Check], names: Sequence[str]) -> "list[Finding]":
    """What was measured for some claims, where they are among the checks."""
    from poskernel.report.page import Finding

    known = {check.name: check for check in checks}
    chosen = [known[name] for name in names if name in known]
    return [
        Finding(
            check.claim,
            "ours holds" if check.holds and departs(check.name) else WORDS[check.holds],
            f"{check.measured} (expected: {check.expected})",
        )
        for check in chosen
    ]
