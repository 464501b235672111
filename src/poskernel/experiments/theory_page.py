"""The claims as a page: the table, a picture where a picture says more, and the way from a row to what explains it."""

import os
from collections.abc import Sequence
from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING

from poskernel.experiments.theory_pictures import PICTURES, Picture
from poskernel.realizability.theorems.check import SHOWN, Check
from poskernel.realizability.theorems.table import claims, first_sentence, where

if TYPE_CHECKING:
    from poskernel.report.page import Finding, Section

WORDS = {True: "holds", False: "FAILS", None: "unclear"}
LEAD = (
    "What the two sources claim, run as checks that can fail: what is expected, what was measured, whether it agrees."
)


CHECKOUT = Path(__file__).parents[3]
"""Where the documentation lies beside the source, if this is no installed package."""


def write_theory(checks: Sequence[Check], path: Path, command: str = "poskernel theory") -> Path:
    """The page of these checks, whole or not at all; `command` makes them again."""
    from poskernel.report.page import write_page

    return write_page(path, "Theory as checks that can fail", LEAD, theory_sections(checks, command, path.parent))


def save_pictures(checks: Sequence[Check], folder: Path) -> None:
    """figures/NAME.png, .svg and .csv of every picture whose claims are among the checks."""
    from poskernel.report.figures import save_figure

    for each in pictures_of(checks):
        data = each.data()
        save_figure(each.draw(data), data, folder / "figures", each.name)


def pictures_of(checks: Sequence[Check]) -> list[Picture]:
    """The pictures whose claims are among the checks."""
    names = {check.name for check in checks}
    return [picture for picture in PICTURES if names & set(picture.claims)]


def theory_sections(
    checks: Sequence[Check], command: str = "poskernel theory", folder: Path = Path()
) -> "list[Section]":
    """The table of all checks, a section for every picture, and where each claim comes from.

    `folder` is where the page will lie: what its links are relative to.
    """
    pictures = [picture_section(each, checks) for each in pictures_of(checks)]
    return [table_section(checks, command), *pictures, sources_section(checks, folder)]


def picture_section(shown: Picture, checks: Sequence[Check]) -> "Section":
    """What was measured of the claims, above their picture."""
    from poskernel.report.figures import svg_text
    from poskernel.report.page import FigurePanel, Section

    panel = FigurePanel(svg_text(shown.draw(shown.data())), shown.alt, shown.caption)
    return Section(shown.title, shown.question, findings(checks, shown.claims), [panel], text=shown.text)


def table_section(checks: Sequence[Check], command: str) -> "Section":
    """All checks: how many hold, then one row each, whose name leads to where it comes from."""
    import pandas as pd

    from poskernel.report.page import Finding, Section, TablePanel
    from poskernel.report.tables import Link

    counted = Finding("Claims that hold:", f"{sum(check.holds is True for check in checks)} of {len(checks)}")
    wrong = [Finding(f"Does not hold: {check.name}.") for check in checks if check.holds is False]
    wrong += [
        Finding(f"Unclear, the draws are too few to tell: {check.name}.") for check in checks if check.holds is None
    ]
    rows = pd.DataFrame(
        {
            "name": Link(check.name, f"#{anchor(check.name)}"),
            "holds": SHOWN[check.holds],
            "claim": check.claim,
            "measured": check.measured,
            "expected": check.expected,
        }
        for check in checks
    )
    return Section(
        "The claims",
        "Which claims of the sources survive being computed?",
        [counted, *wrong],
        [TablePanel(rows, "Every claim; its name leads to its source, its function and the page that explains it")],
        text=(
            "A check can fail: beside each, a test breaks one of its hypotheses and the check says so. Claims that do "
            "not survive in their source's form stand as departures: there, the source's form fails and ours holds, "
            "both in numbers: `source: 0; ours: above 0` is what each form expects of the figures measured, in order."
        ),
        command=command,
    )


def sources_section(checks: Sequence[Check], folder: Path) -> "Section":
    """One row a claim: source, sample size, parameters, what its function computes, that function and its page."""
    import pandas as pd

    from poskernel.report.page import Section, TablePanel
    from poskernel.report.tables import Link

    known = claims()
    rows = pd.DataFrame(
        {
            "name": Link(check.name, anchor=anchor(check.name)),
            "function": Link(where(check.name)["function"], function_address(check.name, folder)),
            "explained in": Link(where(check.name)["page"], page_address(check.name, folder)),
            "source": check.source,
            "n": check.n,
            "computes": first_sentence(known[check.name]).replace("`", "") if check.name in known else "",
            "note": check.note,
        }
        for check in checks
    )
    return Section(
        "Sources and functions",
        "Where does each claim come from, which function computes it, and where is it explained?",
        panels=[TablePanel(rows, "Sources, sample sizes, functions and pages", {"n": "d"})],
        text=(
            "A function is named `module:function`; its parameters are the claim's hypotheses, to be broken one by "
            "one. Pages are those of the documentation."
        ),
    )


def anchor(name: str) -> str:
    """What a claim's row of sources is reached by."""
    return f"claim-{name}"


def page_address(name: str, folder: Path, checkout: Path = CHECKOUT) -> str:
    """Path from a folder inside the checkout to the section that explains a claim; empty elsewhere."""
    page, _, section = where(name)["page"].partition("#")
    found = relative_address(checkout / page, folder, checkout)
    return f"{found}#{section}" if found else ""


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
    return [Finding(check.claim, WORDS[check.holds], check.measured) for check in chosen]
