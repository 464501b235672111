"""Sections on what stands in for moments: means late or over all positions, tails, the covariance part by head."""

import math
from typing import TYPE_CHECKING

from poskernel.attention.extension.settings import NONE
from poskernel.experiments.extension.kernel_sections import (
    MEDIAN_AIM,
    TENTH_AIM,
    Reached,
    both,
    direction,
    formats_of,
    named,
    reached,
)
from poskernel.experiments.extension.kernels import OF_HEADS
from poskernel.experiments.extension.rows import ExtensionRows, over_texts, summary_table
from poskernel.experiments.reproduction.output import Output

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import Finding, Section

MEANS_SUFFICE = 0.99
"""Share of a kernel's variance from which on means alone are said to give it."""
LISTED = 20
"""Heads with the largest covariance part that a table names."""
HOW = {
    "predicted": "measured moments, then late means",
    "tail": "measured moments, then their tail",
    "means": "late means at every offset",
    "overall": "means over all positions at every offset",
}
NUMBERS = ("correlation", "correlation_p10", "rms")
COMPARED = (
    ("", "means_", "measured moments with late means beyond", "late means alone"),
    ("means_", "overall_", "late means", "means over all positions"),
    ("tail_", "", "measured moments with their tail beyond", "with late means beyond"),
)
"""Ways whose errors over all offsets are compared, and their names."""
FAR = (
    ("tail", "late", "beyond the measured offsets the moments' own tail", "late means"),
    ("late", "overall", "beyond the measured offsets late means", "means over all positions"),
)
"""The same over the offsets beyond the measured ones alone."""
DIFFERENCE = "difference of errors, nats"
SAME = 1e-9
"""Errors that differ by less are those of one kernel."""


def replacement_section(rows: ExtensionRows, output: Output, suffix: str) -> "Section":
    """Means against moments, late against all, the tail: when is which enough."""
    from poskernel.report.page import Section

    numbers = [
        f"{prefix}{name}" for prefix in prefixes().values() for name in ("correlation", "correlation_p10", "rms")
    ]
    wide = rows.wide(["setting", "text", "length"], numbers)
    beyond = rows.wide(["setting", "text", "length"], [f"{how}_beyond_rms" for how in ("late", "overall", "tail")])
    panels = []
    for scope, words, chosen in (("none", "of the model as it is", is_none), ("settings", "under settings", not_none)):
        table = methods_table(wide[chosen(wide)], numbers)
        panels.append(output.table(table, named(f"methods-{scope}", suffix), f"Kernels {words}", formats_of(table)))
    if len(beyond):
        far = summary_table(beyond, ["setting", "length"], list(beyond.columns[3:]), list(beyond.columns[3:]))
        caption = "Error beyond the measured offsets, nats, by what stands in for moments there"
        panels.append(output.table(far, named("beyond", suffix), caption, formats_of(far, ".3f"), folded=True))
    closer = differences(wide, beyond)
    panels.append(
        output.table(closer, named("nearer", suffix), "Which stands in better", {DIFFERENCE: ".3f"}, folded=True)
    )
    return Section(
        f"What may stand in for moments{suffix}",
        "When are means enough, late ones or all, and what goes beyond the measured offsets?",
        [*enough(wide[is_none(wide)], numbers), *nearer(closer)],
        panels,
        text=(
            "Moments at every measured offset hold what query and key of one text have in common; products of means "
            "do not, and are a short vector a head. Compared are four kernels on the same measured ones: "
            + "; ".join(HOW.values()) + ". Settings are averaged within a text first."
        ),
        command=rows.run.command,
    )  # fmt: skip


def prefixes() -> dict[str, str]:
    """What the metrics of each way begin with."""
    return {how: "" if how == "predicted" else f"{how}_" for how in HOW}


def is_none(wide: "pd.DataFrame") -> "pd.Series[bool]":
    """Lines of the unscaled model."""
    found: pd.Series[bool] = wide["setting"] == NONE
    return found


def not_none(wide: "pd.DataFrame") -> "pd.Series[bool]":
    """Lines of settings."""
    return ~is_none(wide)


def methods_table(wide: "pd.DataFrame", numbers: list[str]) -> "pd.DataFrame":
    """One line a length and a way; settings averaged within a text."""
    import pandas as pd

    lines = []
    for length, group in wide.groupby("length", sort=True):
        texts = group.groupby("text")[numbers].mean()
        for how, prefix in prefixes().items():
            line: dict[str, object] = {"length": length, "kernel": HOW[how]}
            for name in ("correlation", "correlation_p10", "rms"):
                bounds = (0.0, math.inf) if name == "rms" else (-1.0, 1.0)
                line[name] = over_texts(texts[f"{prefix}{name}"], *bounds)
            lines.append({**line, "texts": len(texts)})
    return pd.DataFrame(lines, columns=["length", "kernel", "correlation", "correlation_p10", "rms", "texts"])


def enough(wide: "pd.DataFrame", numbers: list[str]) -> "list[Finding]":
    """By length, the ways that reach the aim on the model as it is."""
    from poskernel.report.page import Finding

    found = []
    table = methods_table(wide, numbers)
    for length, group in table.groupby("length", sort=True):
        verdicts = {
            row["kernel"]: both(reached(row["correlation"], MEDIAN_AIM), reached(row["correlation_p10"], TENTH_AIM))
            for _, row in group.iterrows()
        }
        met = [kernel for kernel, verdict in verdicts.items() if verdict is Reached.MET]
        open_ones = [kernel for kernel, verdict in verdicts.items() if verdict is Reached.OPEN]
        said = "; ".join(met) if met else "none"
        said += f" (not decided: {'; '.join(open_ones)})" if open_ones else ""
        found.append(Finding(f"Enough for the aim at {length} tokens, model as it is: {said}."))
    return found


def differences(wide: "pd.DataFrame", beyond: "pd.DataFrame") -> "pd.DataFrame":
    """One line a comparison and length: difference of the errors, paired by text, and which is nearer.

    Left out where the two are the same kernel.
    """
    import pandas as pd

    pairs = [
        *((wide, f"{first}rms", f"{second}rms", one, other) for first, second, one, other in COMPARED),
        *((beyond, f"{first}_beyond_rms", f"{second}_beyond_rms", one, other) for first, second, one, other in FAR),
    ]
    lines = []
    for table, first, second, one, other in pairs:
        for length, group in table.groupby("length", sort=True):
            gap = (group[first] - group[second]).groupby(group["text"]).mean().dropna()
            if gap.empty or float(gap.abs().max()) < SAME:
                continue
            found = over_texts(gap)
            lines.append({
                "comparison": f"{one} against {other}", "length": length, DIFFERENCE: found,
                "nearer": direction(found, one, other), "texts": len(gap),
            })  # fmt: skip
    return pd.DataFrame(lines, columns=["comparison", "length", DIFFERENCE, "nearer", "texts"])


def nearer(table: "pd.DataFrame") -> "list[Finding]":
    """One sentence a comparison: which is nearer at which lengths."""
    from poskernel.report.page import Finding

    found = []
    for comparison, group in table.groupby("comparison", sort=False):
        said = [
            f"{words} at {', '.join(map(str, part['length']))}" for words, part in group.groupby("nearer", sort=False)
        ]
        numbers = ", ".join(f"{each:.3f}" for each in group[DIFFERENCE])
        sentence = f"{comparison}, nearer: {'; '.join(said)} tokens. Differences of errors, nats:"
        found.append(Finding(sentence[0].upper() + sentence[1:], numbers, "model as it is and all settings"))
    return found


def means_sections(rows: ExtensionRows, output: Output, suffix: str) -> "list[Section]":
    """Both questions, as far as there are rows."""
    found = []
    if not rows.wide(["setting", "text", "length"], ["means_correlation"]).empty:
        found.append(replacement_section(rows, output, suffix))
    if not rows.wide(["layer", "head", "text"], ["share_of_means"]).empty:
        found.append(covariance_section(rows, output, suffix))
    return found


def covariance_section(rows: ExtensionRows, output: Output, suffix: str) -> "Section":
    """How much of each head's kernel is the covariance of query and key content."""
    from poskernel.report.page import Finding, Section

    heads = rows.wide(["layer", "head", "text"], list(OF_HEADS))
    by_text = heads.groupby("text", sort=False)["share_of_means"]
    median = over_texts(by_text.median(), high=1.0)
    enough_share = over_texts(
        (heads["share_of_means"] >= MEANS_SUFFICE).astype(float).groupby(heads["text"]).mean(), 0.0, 1.0
    )
    half = over_texts((heads["share_of_means"] < 0.5).astype(float).groupby(heads["text"]).mean(), 0.0, 1.0)
    table = heads_table(heads)
    measured = rows.run.asked.measured_length
    return Section(
        f"The covariance part, by head{suffix}",
        "How much of a head's kernel is more than the product of its mean query and mean key?",
        [
            Finding("Share of the variance of g that late means alone give, median over heads:", f"{median:.4f}",
                    median.method),
            Finding(f"Share of heads in which they give at least {MEANS_SUFFICE} of it:", f"{enough_share}",
                    enough_share.method),
            Finding("Share of heads in which they give less than half:", f"{half}", half.method),
            *depth_findings(heads),
        ],
        [
            output.table(table.head(LISTED), named("covariance", suffix),
                         f"The {min(LISTED, len(table))} heads with the largest covariance part, of {len(table)}",
                         formats_of(table, ".3f"), folded=True)
        ],
        text=(
            f"Of the model as it is, at the measured offsets of sequences of {measured} tokens. The covariance part is "
            "g less the kernel of products of late means; its share of the variance over offsets is 1 less that of "
            "the means, which is below 0 where means alone are worse than a constant."
        ),
        command=rows.run.command,
    )  # fmt: skip


def heads_table(heads: "pd.DataFrame") -> "pd.DataFrame":
    """One line a head, means over texts, the largest covariance part first."""
    import pandas as pd

    lines = []
    for (layer, head), group in heads.groupby(["layer", "head"], sort=True):
        peaks = group["peak_offset"].dropna()
        same = len(peaks) > 0 and peaks.nunique() == 1
        lines.append({
            "head": f"{layer}.{head}",
            "covariance_rms": over_texts(group["covariance_rms"], 0.0),
            "share_of_means": over_texts(group["share_of_means"], high=1.0),
            "own peak": f"{int(peaks.iloc[0])}" if same else "differs" if len(peaks) else "undecided",
            "texts": len(group),
        })  # fmt: skip
    lines.sort(key=lambda line: -line["covariance_rms"].value)  # type: ignore[attr-defined]
    return pd.DataFrame(lines)


def depth_findings(heads: "pd.DataFrame") -> "list[Finding]":
    """Whether the covariance part grows with depth: the last third of the layers less the first, paired by text."""
    from poskernel.report.page import Finding

    layers = sorted(heads["layer"].unique())
    third = max(1, len(layers) // 3)
    first, last = (
        heads[heads["layer"].isin(part)].groupby("text")["covariance_rms"].median()
        for part in (layers[:third], layers[-third:])
    )
    found = over_texts((last - first).dropna())
    said = direction(found, "it is smaller in late layers", "it is larger in late layers")
    return [
        Finding(f"Covariance part, last less first third of the layers ({said}), median over heads, nats:",
                f"{found:.3f}",
                found.method)
    ]  # fmt: skip
