"""The section on held-out texts: do two texts give the same verdicts of a head, more often than by chance?"""

import math
from typing import TYPE_CHECKING

from poskernel.experiments.extension.kernel_sections import formats_of
from poskernel.experiments.extension.rows import ExtensionRows, over_texts
from poskernel.experiments.extension.verdicts import BOTH, CHANCE, MEANINGS, PEAK, SAME
from poskernel.experiments.reproduction.output import Output
from poskernel.statistics import Estimate

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import Finding, Section

BEYOND, NOT_BEYOND, BELOW = "beyond chance", "no agreement beyond chance", "less than by chance"
ALL_ALIKE = "all heads have one verdict, so chance gives it too"
UNKNOWN = "not decided: one held-out text"


def verdict_sections(rows: ExtensionRows, output: Output) -> "list[Section]":
    """The table by setting, as far as there are rows."""
    wide = rows.wide(["setting", "held_out"], list(MEANINGS)).dropna(subset=[SAME, CHANCE])
    return [held_out_section(rows, wide, output)] if len(wide) else []


def gained(wide: "pd.DataFrame") -> Estimate:
    """Share with the same verdict less what chance would give: settings averaged within a held-out text first."""
    return over_texts((wide[SAME] - wide[CHANCE]).groupby(wide["held_out"]).mean(), -1.0, 1.0)


def judged(wide: "pd.DataFrame") -> str:
    """Whether the agreement of some lines is more than chance gives."""
    if bool((wide[CHANCE] > 1 - 1e-9).all()):
        return ALL_ALIKE
    found = gained(wide)
    if math.isnan(found.low):
        return UNKNOWN
    return BEYOND if found.low > 0 else BELOW if found.high < 0 else NOT_BEYOND


def verdicts_table(wide: "pd.DataFrame") -> "pd.DataFrame":
    """One line a setting, means over held-out texts."""
    import pandas as pd

    lines = []
    for setting, group in wide.groupby("setting", sort=False):
        shares = {name: over_texts(group[name], 0.0, 1.0) for name in (SAME, CHANCE, PEAK, BOTH)}
        lines.append({
            "setting": setting, **shares, "over_chance": gained(group),
            "held-out texts": len(group), "verdict": judged(group),
        })  # fmt: skip
    return pd.DataFrame(lines)


def held_out_section(rows: ExtensionRows, wide: "pd.DataFrame", output: Output) -> "Section":
    """Every setting against chance, and all together."""
    from poskernel.report.page import Finding, Section

    table, by_text = verdicts_table(wide), wide
    every, same = gained(wide), over_texts(wide.groupby("held_out")[SAME].mean(), 0.0, 1.0)
    chance = over_texts(wide.groupby("held_out")[CHANCE].mean(), 0.0, 1.0)
    peaks = over_texts(wide.groupby("held_out")[PEAK].mean(), 0.0, 1.0)
    findings = [
        Finding(
            f"Heads with the same verdict on a held-out text, over all settings ({judged(wide)}):",
            f"{same}",
            f"by chance {chance}; {same.method}",
        ),
        Finding("That less what chance gives:", f"{every}", every.method),
        Finding("Heads with the same own peak on a held-out text:", f"{peaks}", peaks.method),
        *setting_findings(table),
    ]
    shown = formats_of(table)
    asked = rows.run.asked
    return Section(
        "Held-out texts",
        "Does another text give the same verdicts, head by head?",
        findings,
        [
            output.table(table, "extension-held-out", "Agreement with a held-out text, by setting",
                         {name: ".3f" for name in shown if name not in ("held-out texts", "verdict")}),
            output.table(by_text, "extension-held-out-texts", "The same by held-out text, with intervals over heads",
                         dict.fromkeys(MEANINGS, ".3f"), folded=True),
        ],
        text=(
            f"Every text is compared with the first one, `{asked.texts[0]}`: each alone gives a verdict of every head "
            "(kept, moved or lost) under each setting. Counted are heads whose peak both resolve. By chance is what "
            "heads paired at random would share: where nearly all heads have one verdict it is nearly 1, and agreement "
            "then says little. All comparisons share the first text, which the intervals do not know."
        ),
        command=rows.run.command,
    )  # fmt: skip


def setting_findings(table: "pd.DataFrame") -> "list[Finding]":
    """Which settings agree beyond chance and which do not."""
    from poskernel.report.page import Finding

    return [
        Finding(f"{str(words).capitalize()}: {', '.join(group['setting'])}.")
        for words, group in table.groupby("verdict", sort=True)
    ]
