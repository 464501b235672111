"""Sections on long contexts: loss beside the predicted share of surviving heads, and where the context ends."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poskernel.experiments.extension.kernel_sections import direction, excess_loss, formats_of, named
from poskernel.experiments.extension.limits import LIMIT, SHARES
from poskernel.experiments.extension.rows import ExtensionRows, over_texts
from poskernel.experiments.reproduction.output import Output
from poskernel.statistics import Estimate, mean, spearman

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import FigurePanel, Finding, Section

LEAVES = 0.25
"""Nats by which the excess over the fresh context must grow, from the shortest long length on, for the context to have
ended: fixed before the run, after two texts of one model had been seen."""


@dataclass(frozen=True)
class Ending:
    """Where the loss left its control: after one length, at the next; both None where it did not."""

    after: int | None
    at: int | None


def limit_sections(rows: ExtensionRows, output: Output, suffix: str) -> "list[Section]":
    """Both questions, as far as there are rows."""
    long = long_table(rows)
    found = [loss_section(rows, long, output, suffix)] if len(long) else []
    return [*found, *([limit_section(rows, long, output, suffix)] if len(long) else [])]


def long_table(rows: ExtensionRows) -> "pd.DataFrame":
    """One line a setting, text and long length: predicted share, loss, the control's loss and the excess over it."""
    wide = rows.wide(["setting", "text", "length"], [*SHARES, "loss_before"]).dropna(subset=["loss_before"])
    control = rows.wide(["text", "length"], ["fresh_loss_before"]).set_index(["text", "length"])
    joined = wide.join(control, on=["text", "length"])
    return joined.assign(excess=joined["loss_before"] - joined["fresh_loss_before"])


def related(table: "pd.DataFrame") -> Estimate:
    """Rank correlation of the predicted share with the excess loss over lines of a table, whole texts drawn."""
    held = table.dropna(subset=["surviving_share", "excess"])
    return spearman(held["surviving_share"], held["excess"], seed=0, clusters=held["text"])


def loss_section(rows: ExtensionRows, long: "pd.DataFrame", output: Output, suffix: str) -> "Section":
    """Loss beside surviving heads over settings and lengths."""
    from poskernel.report.page import Finding, Section

    short = excess_loss(rows)
    findings = []
    for table, words in (
        (long, "at long contexts, the excess over the same tokens in a fresh context"),
        (short, "at 1, 2 and 4 times the measured length, the excess over the unscaled model on the same tokens"),
    ):
        found = related(table)
        said = direction(found, "fewer survivors, more loss", "fewer survivors, less loss: against the prediction")
        findings.append(
            Finding(f"Rank correlation of predicted surviving share and loss {words} ({said}):", f"{found}",
                    f"{found.method}; settings, lengths and texts as lines")
        )  # fmt: skip
    table = long_summary(long)
    brief = long_summary(short)
    asked = rows.validation
    return Section(
        f"Loss beside surviving heads{suffix}",
        "Does the loss rise where heads are predicted to lose their peaks?",
        findings,
        [
            *pictures(long, output, suffix),
            output.table(table, named("loss", suffix), "Long contexts", formats_of(table, ".2f"), folded=True),
            output.table(brief, named("loss-short", suffix), "Short contexts", formats_of(brief, ".3f"), folded=True),
        ],
        text=(
            f"One sequence of {max(asked.limit_lengths)} tokens a text and setting; the loss is a mean over the "
            f"{asked.window} tokens before each length, the control the unscaled model's on the same tokens with at "
            f"most {asked.fresh} tokens of context. Survivors are predicted from {asked.sequences} x "
            f"{asked.measured_length} tokens. Lines of one text are not independent: intervals draw whole texts."
        ),
        command=rows.run.command,
    )  # fmt: skip


def long_summary(table: "pd.DataFrame") -> "pd.DataFrame":
    """One line a setting and length, means over texts."""
    import pandas as pd

    lines = [
        {
            "setting": setting,
            "length": length,
            "surviving_share": over_texts(group["surviving_share"], 0.0, 1.0),
            "excess loss, nats": over_texts(group["excess"]),
            "texts": len(group.dropna(subset=["excess"])),
        }
        for (setting, length), group in table.groupby(["setting", "length"], sort=False)
    ]
    return pd.DataFrame(lines, columns=["setting", "length", "surviving_share", "excess loss, nats", "texts"])


def pictures(long: "pd.DataFrame", output: Output, suffix: str) -> "list[FigurePanel]":
    """Excess against survivors, a point a setting, length and text; then excess by length."""
    from poskernel.report.curves import curves
    from poskernel.report.relation import relation

    shown = long.dropna(subset=["surviving_share", "excess"])
    if shown.empty:
        return []
    points = relation(
        shown, title="Loss beside the predicted share of surviving heads", x="surviving_share", y="excess",
        series="setting", labels=("predicted share of heads whose peak survives", "loss over a fresh context, nats"),
    )  # fmt: skip
    means = shown.groupby(["setting", "length"], sort=False)["excess"].mean().reset_index()
    lines = curves(
        means, title="Loss over a fresh context, by length", x="length", y="excess", series="setting", points=means,
        labels=("tokens", "loss over a fresh context, nats, mean over texts"), level=(0.0, "fresh context"),
    )  # fmt: skip
    return [
        output.figure(
            points, shown, named("survivors", suffix), "Excess loss against the predicted share of surviving heads",
            "A point is a setting, a length and a text.",
        ),
        output.figure(
            lines, means, named("excess", suffix), "Excess loss by context length, a line a setting",
            "Means over texts; survivors fall where the lines are predicted to rise.",
        ),
    ]  # fmt: skip


def ending(lengths: Sequence[int], excess: Sequence[float]) -> Ending:
    """First length at which the excess lies LEAVES above its value at the first one."""
    for place in range(1, len(lengths)):
        if excess[place] - excess[0] >= LEAVES:
            return Ending(int(lengths[place - 1]), int(lengths[place]))
    return Ending(None, None)


def limits_table(rows: ExtensionRows, long: "pd.DataFrame") -> "pd.DataFrame":
    """One line a setting and text whose limit was predicted: it, its interval, where loss left, and whether they meet.

    nan stands for beyond the longest length.
    """
    import pandas as pd

    held = rows.table[rows.table["metric"].isin(list(LIMIT)) & ~rows.table["status"].isin(["failed", "timeout"])]
    held = held[held["value"].notna() | held["reason"].str.startswith("beyond")]
    predicted = held.pivot(index=["setting", "text"], columns="metric", values="value").reindex(columns=list(LIMIT))
    lines = []
    limits = predicted.to_dict("index")
    for (setting, text), group in long.dropna(subset=["excess"]).groupby(["setting", "text"], sort=False):
        if (setting, text) not in limits:
            continue
        ordered = group.sort_values("length")
        left = ending(ordered["length"].tolist(), ordered["excess"].tolist())
        limit = limits[setting, text]
        ends = [math.inf if math.isnan(limit[name]) else float(limit[name]) for name in LIMIT]
        lines.append({
            "setting": setting, "text": text, **{name: float(limit[name]) for name in LIMIT},
            "left_after": math.nan if left.after is None else left.after,
            "left_at": math.nan if left.at is None else left.at,
            "outcome": outcome(ends[0], ends[1], ends[2], left),
        })  # fmt: skip
    columns = ["setting", "text", *LIMIT, "left_after", "left_at", "outcome"]
    return pd.DataFrame(lines, columns=columns)


def outcome(limit: float, low: float, high: float, left: Ending) -> str:
    """Whether predicted and measured ends meet: intervals that overlap, or no end in either; else which is earlier."""
    if left.at is None or left.after is None:
        return "no end in either" if math.isinf(limit) else "predicted alone"
    if low <= left.at and high > left.after:
        return "meet"
    return "measured alone" if math.isinf(limit) else "predicted earlier" if high <= left.after else "predicted later"


AGREE = ("no end in either", "meet")


def limit_section(rows: ExtensionRows, long: "pd.DataFrame", output: Output, suffix: str) -> "Section":
    """Predicted limits beside where loss leaves the control."""
    from poskernel.report.page import Finding, Section

    table = limits_table(rows, long)
    findings = []
    if len(table):
        right = mean(table["outcome"].isin(AGREE).astype(float), clusters=table["text"], interval="percentile")
        findings.append(
            Finding("Settings and texts in which predicted and measured end meet, or neither has one:",
                    f"{int(table['outcome'].isin(AGREE).sum())} of {len(table)}", f"share {right}; {right.method}")
        )  # fmt: skip
        findings += [ended_alike(table), *wrong_findings(table)]
    listed = by_setting(table)
    return Section(
        f"Predicted limit against measured{suffix}",
        "Does the context end where it is predicted to?",
        findings,
        [
            output.table(listed, named("limits", suffix), "Limits by setting; texts as counts"),
            output.table(table, named("limits-by-text", suffix), "Limits by setting and text; dash: beyond",
                         dict.fromkeys((*LIMIT, "left_after", "left_at"), ".0f"), folded=True),
        ],
        text=(
            "The predicted limit is the first length at which the share of surviving heads is 0.05 below its value at "
            "the measured length, with a 95% interval over resampled sequences. The loss has left its control where "
            f"its excess over the fresh context is {LEAVES} nats above that at the shortest of the long lengths: "
            "somewhere between the last length before that and the one it was seen at. Both numbers were fixed before "
            "this run, on two other texts of one model. A setting that costs loss at every length is not said to end."
        ),
        command=rows.run.command,
    )  # fmt: skip


def ended_alike(table: "pd.DataFrame") -> "Finding":
    """How far apart the two are, where both have an end."""
    from poskernel.report.page import Finding

    both = table.dropna(subset=["limit", "left_at"])
    if both.empty:
        return Finding("In no setting and text do both have an end, so their ratio is not defined.")
    middle = (both["left_after"] * both["left_at"]) ** 0.5
    ratios = [math.log2(one / other) for one, other in zip(both["limit"], middle, strict=True)]
    found = mean(ratios, clusters=both["text"], interval="percentile")
    return Finding(
        f"Predicted end over measured end (middle of its range), log2, where both have one ({len(both)} lines):",
        f"{found}", found.method,
    )  # fmt: skip


def wrong_findings(table: "pd.DataFrame") -> "list[Finding]":
    """The ways of not agreeing, with the settings in which each was found."""
    from poskernel.report.page import Finding

    found = []
    for words, group in table[~table["outcome"].isin(AGREE)].groupby("outcome", sort=True):
        counts = group["setting"].value_counts(sort=False)
        found.append(
            Finding(f"{str(words).capitalize()}: "
                    f"{', '.join(f'{name} in {count} texts' for name, count in counts.items())}.")
        )  # fmt: skip
    return found


def by_setting(table: "pd.DataFrame") -> "pd.DataFrame":
    """One line a setting: ranges over texts and what came out."""
    import pandas as pd

    lines = [
        {
            "setting": setting,
            "predicted, over texts": ranged(group["limit"]),
            "predicted interval, widest": f"{ranged(group['limit_low'])} to {ranged(group['limit_high'])}",
            "loss left at, over texts": ranged(group["left_at"]),
            "agree": f"{int(group['outcome'].isin(AGREE).sum())} of {len(group)}",
        }
        for setting, group in table.groupby("setting", sort=False)
    ]
    columns = ["setting", "predicted, over texts", "predicted interval, widest", "loss left at, over texts", "agree"]
    return pd.DataFrame(lines, columns=columns)


def ranged(values: "pd.Series[float]") -> str:
    """Least and greatest, and how many lie beyond the longest length."""
    held, beyond = values.dropna(), int(values.isna().sum())
    parts = []
    if len(held):
        least, greatest = int(held.min()), int(held.max())
        parts.append(f"{least}" if least == greatest else f"{least}-{greatest}")
    return ", ".join([*parts, *([f"{beyond} beyond"] if beyond else [])])
