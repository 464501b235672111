"""Sections on kernels: predicted against measured under every setting, and where it fails."""

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from poskernel.attention.extension.settings import NONE
from poskernel.experiments.extension.kernels import GROUPS
from poskernel.experiments.extension.rows import ExtensionRows, over_texts, summary_table
from poskernel.experiments.reproduction.output import Output
from poskernel.statistics import Estimate, spearman

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import Finding, Section

MEDIAN_AIM, TENTH_AIM = 0.999, 0.99
"""What was aimed at before the run, for the median and the 10th percentile of the correlations of heads."""
AIMED_TYPES, AIMED_SETTINGS = ("yarn", "llama3", "ntk"), ("base:x2",)
HARD = "linear:8"
"""The setting of the longest interpolation, which was expected to be predicted worst."""
SHAPE = ("correlation", "correlation_p10", "rms", "total_variation", "unchanged_correlation", "unchanged_rms")
PEAKS = (
    *("peak_match", "unchanged_peak_match", "predicted_kept", "measured_kept"),
    *("predicted_alpha", "measured_alpha", "predicted_mass", "measured_mass", "decided"),
)
UNBOUNDED = ("rms", "unchanged_rms", "loss")
FOUR = ".4f"


class Reached(StrEnum):
    """Whether an aim was met."""

    MET = "met"
    MISSED = "missed"
    OPEN = "not decided"
    NONE = "no rows"


def has_aim(setting: str) -> bool:
    """Whether the aim was set for a setting."""
    return setting.partition(":")[0] in AIMED_TYPES or setting in AIMED_SETTINGS


def reached(found: Estimate, aim: float) -> Reached:
    """Met or missed where the whole interval is on one side; without an interval nothing is decided."""
    if math.isnan(found.value):
        return Reached.NONE
    if math.isnan(found.low):
        return Reached.OPEN
    return Reached.MET if found.low >= aim else Reached.MISSED if found.high < aim else Reached.OPEN


def both(first: Reached, second: Reached) -> Reached:
    """Of two aims that belong together: missed with either, met with both."""
    for one in (Reached.NONE, Reached.MISSED, Reached.OPEN):
        if one in (first, second):
            return one
    return Reached.MET


def kernel_sections(rows: ExtensionRows, output: Output, suffix: str) -> "list[Section]":
    """The first two questions, as far as there are rows."""
    if rows.wide(["setting", "text", "length"], ["correlation"]).empty:
        return []
    return [agreement_section(rows, output, suffix), failures_section(rows, output, suffix)]


def aims_table(rows: ExtensionRows) -> "pd.DataFrame":
    """One line a setting with an aim and a length: both estimates, their distance from the aim, and the verdict."""
    wide = rows.wide(["setting", "text", "length"], ["correlation", "correlation_p10"])
    table = summary_table(wide[wide["setting"].map(has_aim)], ["setting", "length"], ["correlation", "correlation_p10"])
    medians, tenths = list(table["correlation"]), list(table["correlation_p10"])
    return table.assign(
        median_over_aim=[found.value - MEDIAN_AIM for found in medians],
        p10_over_aim=[found.value - TENTH_AIM for found in tenths],
        aim=[
            str(both(reached(one, MEDIAN_AIM), reached(other, TENTH_AIM)))
            for one, other in zip(medians, tenths, strict=True)
        ],
    )


def aim_findings(aims: "pd.DataFrame") -> "list[Finding]":
    """The verdict over all, then length by length: where it is met, where not and by how much."""
    from poskernel.report.page import Finding

    counts = {each: int((aims["aim"] == each).sum()) for each in (Reached.MET, Reached.MISSED, Reached.OPEN)}
    found = [
        Finding(
            f"Aim set before the run (median of heads' correlations at least {MEDIAN_AIM}, 10th percentile at least "
            f"{TENTH_AIM}; yarn, llama3, ntk and base:x2), met at settings and lengths:",
            f"{counts[Reached.MET]} of {len(aims)}",
            f"missed at {counts[Reached.MISSED]}, not decided at {counts[Reached.OPEN]}, where an interval over texts "
            "crosses a line or only one text is there",
        )
    ]
    for length, group in aims.groupby("length", sort=True):
        parts = []
        for each in (Reached.MET, Reached.MISSED, Reached.OPEN):
            chosen = group[group["aim"] == each]
            if len(chosen):
                parts.append(f"{each} for {', '.join(chosen['setting'])}")
        worst = group.sort_values("p10_over_aim").iloc[0]
        parts.append(
            f"furthest from the aim: {worst['setting']}, median {worst['correlation']:.4f} "
            f"({worst['median_over_aim']:+.4f} from it), 10th percentile {worst['correlation_p10']:.4f} "
            f"({worst['p10_over_aim']:+.4f})"
        )
        found.append(Finding(f"At {length} tokens: {'; '.join(parts)}."))
    return found


def agreement_section(rows: ExtensionRows, output: Output, suffix: str) -> "Section":
    """Every setting and length: shapes, peaks, alpha and mass."""
    from poskernel.report.page import Section

    wide = rows.wide(["setting", "text", "length"], [*SHAPE, *PEAKS])
    shapes = summary_table(wide, ["setting", "length"], SHAPE, UNBOUNDED)
    peaks = summary_table(wide, ["setting", "length"], PEAKS)
    aims = aims_table(rows)
    measured = rows.run.asked.measured_length
    return Section(
        f"Predicted against measured kernels{suffix}",
        "Is a head's kernel under a setting what a pass of the unscaled model says?",
        aim_findings(aims) if len(aims) else [],
        [
            output.table(aims, named("aims", suffix), "The aim, by setting and length", formats_of(aims)),
            output.table(
                shapes, named("shapes", suffix), "Shapes of kernels, by setting and length", formats_of(shapes)
            ),
            output.table(
                peaks, named("peaks", suffix), "Peaks, alpha and mass of decided heads", formats_of(peaks, ".3f"), True
            ),
        ],
        text=(
            "Each number is over all heads (peaks, alpha and mass: over those whose own peak is resolved), "
            "then a mean over texts with a 95% t interval; the column texts counts them. Offsets go to half of the "
            f"length. Moments are measured at those that sequences of {measured} tokens have; beyond them products of "
            "late means stand in. `unchanged` is the kernel of the model as it is: what one would say without a "
            f"prediction. Alpha is there only where compared offsets go beyond {measured}."
        ),
        command=rows.run.command,
    )


def failures_section(rows: ExtensionRows, output: Output, suffix: str) -> "Section":
    """Which heads are predicted worse, how the hardest setting fails, and whether that goes with the loss."""
    from poskernel.report.page import Section

    names = [f"{group}_correlation" for group in GROUPS]
    tenths = [f"{group}_correlation_p10" for group in GROUPS]
    wide = rows.wide(["setting", "text", "length"], ["correlation", "correlation_p10", "rms", *names, *tenths])
    table = summary_table(wide, ["setting", "length"], names)
    low = summary_table(wide, ["setting", "length"], tenths)
    shortest = wide[wide["length"] == wide["length"].min()]
    return Section(
        f"Where the prediction is wrong{suffix}",
        "Which heads are predicted worse, under which settings, and why?",
        [*hard_findings(shortest), *loss_findings(rows, shortest)],
        [
            output.table(table, named("groups", suffix), "Median correlation, by group", formats_of(table), True),
            output.table(low, named("groups-p10", suffix), "10th percentile of it", formats_of(low), True),
        ],
        text=(
            "At the measured length every offset has a measured moment, and the closed form is an identity. So what is "
            "missing there is one thing: queries and keys before rotation, the content, are not those of the unscaled "
            "model any more. In the first layer they are the same; each further layer reads what attention under the "
            "setting has written. At greater lengths the moments of far offsets are wanting as well. Groups: "
            + "; ".join(f"`{name}`, heads {words}" for name, words in GROUPS.items()) + "."
        ),
        command=rows.run.command,
    )  # fmt: skip


def hard_findings(shortest: "pd.DataFrame") -> "list[Finding]":
    """The hardest setting, by depth."""
    from poskernel.report.page import Finding

    chosen = shortest[shortest["setting"] == HARD]
    if chosen.empty:
        return []
    median, tenth = over_texts(chosen["correlation"], -1.0, 1.0), over_texts(chosen["correlation_p10"], -1.0, 1.0)
    length = int(chosen["length"].iloc[0])
    depth = {name: over_texts(chosen[f"{name}_correlation"], -1.0, 1.0) for name in ("early", "middle", "late")}
    said = ", ".join(f"{name} {found:.4f}" for name, found in depth.items())
    drop = over_texts(chosen["early_correlation"] - chosen["late_correlation"])
    falls = (
        "it falls with depth, as it does where content shifts" if drop.low > 0
        else "it rises with depth, which shifted content alone does not explain" if drop.high < 0
        else "no fall with depth is shown"
    )  # fmt: skip
    return [
        Finding(
            f"{HARD} at {length} tokens (aimed at for others: {MEDIAN_AIM} and {TENTH_AIM}), median correlation:",
            f"{median:.4f}", f"10th percentile {tenth:.4f}; {median.method}",
        ),
        Finding(
            f"{HARD}, by third of the layers: {said}; {falls}. First less last third:", f"{drop:.4f}", drop.method,
        ),
    ]  # fmt: skip


def excess_loss(rows: ExtensionRows) -> "pd.DataFrame":
    """Loss under each setting less the unscaled model's on the same tokens at the same length, and survivors."""
    wide = rows.wide(["setting", "text", "length"], ["loss", "surviving_share", "correlation"])
    own = wide[wide["setting"] == NONE].set_index(["text", "length"])["loss"].rename("own_loss")
    joined = wide[wide["setting"] != NONE].join(own, on=["text", "length"])
    return joined.assign(excess=joined["loss"] - joined["own_loss"])


def loss_findings(rows: ExtensionRows, shortest: "pd.DataFrame") -> "list[Finding]":
    """Whether settings that hurt the model more are predicted worse."""
    from poskernel.report.page import Finding

    table = excess_loss(rows)
    table = table[table["length"] == shortest["length"].min()].dropna(subset=["excess", "correlation"])
    found = spearman(table["excess"], table["correlation"], seed=0, clusters=table["text"])
    return [
        Finding(
            "Rank correlation of what a setting costs (loss less that of the unscaled model, same tokens) with "
            "the median correlation of its predicted kernels, over settings and texts at the measured length "
            f"({direction(found, 'the more it costs, the worse it is predicted', 'the more it costs, the better')}):",
            f"{found}", found.method,
        )
    ]  # fmt: skip


def direction(found: Estimate, negative: str, positive: str) -> str:
    """What an interval says of a sign, in words."""
    if math.isnan(found.low):
        return "no interval, so nothing is shown"
    return negative if found.high < 0 else positive if found.low > 0 else "no relation is shown"


def named(name: str, suffix: str) -> str:
    """Name of a file."""
    return f"extension-{name}" + ("-second" if suffix else "")


def formats_of(table: "pd.DataFrame", number: str = FOUR) -> dict[str, str]:
    """One number format for every column of numbers that are not whole."""
    return {name: number for name in table.columns if name not in ("setting", "length", "texts", "aim", "kernel")}
