"""Cell by cell: alpha before training beside LG after it, existence, the hand taxonomy, and every seed as a dot."""

import math
from typing import TYPE_CHECKING

from poskernel.experiments.comparison import BINARY_ALPHA, GENERALIZES, Comparison, along_lengths, at_length
from poskernel.experiments.reproduction.agreement import encoding_class, regime, taxonomy_rule
from poskernel.experiments.reproduction.evidence import PICTURED_LENGTH, TRAINED_AT, Evidence
from poskernel.experiments.reproduction.output import Output, not_run
from poskernel.experiments.study_rows import CELL
from poskernel.statistics import mean
from poskernel.tasks import OffsetRegime

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import FigurePanel, Panel, Section

EXISTS = {"yes": True, "no": False, "conflict": False}
"""Whether a kernel solves both lengths; other answers are none."""
GROUNDS = {
    "relative encoding, bounded offset": "#cfe3f3",
    "absolute encoding, fixed position": "#d6ecd9",
    "growing offset": "#fbe3c8",
    "no match of encoding and task": "#ececec",
}
"""The classes of the hand taxonomy, with the ground they are drawn on."""
TIER_WORDS = {1: "1 layer, 1 head", 2: "2 layers, 4 heads", 3: "4 layers, 4 heads"}


def tiers_of(evidence: Evidence, name: str) -> list[int]:
    """The tiers a study has models of."""
    return [tier for tier in TIER_WORDS if evidence.has_tier(name, tier)]


def pictured_length(rows: "pd.DataFrame") -> int:
    """The length to show: 60 as in the paper's tables, or the longest where that was not measured."""
    lengths = set(rows["length"])
    return PICTURED_LENGTH if PICTURED_LENGTH in lengths else int(max(lengths))


def cell_table(rows: "pd.DataFrame", length: int) -> "pd.DataFrame":
    """One line a cell at one length: alpha, existence, LG with its t interval over seeds, SD, seeds, train accuracy."""
    import pandas as pd

    lines = []
    for (encoding, task), group in rows[rows["length"] == length].groupby(CELL, sort=False):
        values = group["accuracy"].dropna()
        lines.append(
            {
                "encoding": encoding,
                "task": task,
                "alpha": group["alpha"].iloc[0],
                "exists": group["exists"].iloc[0],
                "LG": mean(values),
                "SD": values.std(ddof=1),
                "seeds": len(values),
                "train accuracy": group["train_accuracy"].mean(),
            }
        )
    return pd.DataFrame(lines)


def cells_sections(evidence: Evidence, output: Output, name: str = "paper") -> "list[Section]":
    """Who generalizes, tier by tier; the taxonomy; how it fades with length."""
    title, question = "Who generalizes", "Does alpha tell, cell by cell, which trained models generalize in length?"
    tiers = tiers_of(evidence, name)
    if not tiers:
        return [not_run(title, question, name)]
    return [
        who_generalizes(evidence, output, name, tiers),
        taxonomy_section(evidence.comparison(name, tiers[0]), output, name),
        length_section(evidence, output, name, tiers),
    ]


def who_generalizes(evidence: Evidence, output: Output, name: str, tiers: list[int]) -> "Section":
    """Heat maps and tables of alpha and LG at length 60, and every seed as a dot."""
    from poskernel.report.page import Finding, Section

    panels: list[Panel] = []
    findings = []
    for tier in tiers:
        found = evidence.comparison(name, tier)
        separation = found.separation
        findings.append(
            Finding(
                f"{TIER_WORDS[tier]}: alpha against LG of at least {GENERALIZES:g}, "
                f"{separation.positives} cells that generalize and {separation.negatives} that do not: AUC",
                f"{separation.auc}",
                f"p = {separation.p:.2g}; {separation.auc.method}; {separation.p_method}",
            )
        )
        panels.append(heat_map(found, output, name, tier))
    panels.append(dots(evidence, output, name, tiers))
    for tier in tiers:
        rows = evidence.comparison(name, tier).rows
        table = cell_table(rows, pictured_length(rows))
        caption = f"{TIER_WORDS[tier]}: alpha and LG at length {pictured_length(rows)}, trained at {TRAINED_AT}"
        panels.append(output.table(table, f"{name}-cells-tier-{tier}", caption, folded=True))
    text = (
        "LG is the token accuracy on the positions from the training length on; its interval is a t interval over "
        "seeds and says how models of other seeds would come out, not how other cells would."
    )
    question = "Does alpha tell, cell by cell, which trained models generalize in length?"
    return Section("Who generalizes", question, findings, panels, text=text, command=f"poskernel study run {name}")


def heat_map(found: Comparison, output: Output, name: str, tier: int) -> "FigurePanel":
    """Alpha and LG of one tier side by side."""
    from poskernel.report.figures import heat_maps

    length = pictured_length(found.rows)
    cells = at_length(found.rows, length)
    seeds = found.rows["seed"].nunique()
    headings = {"alpha": "alpha, before training", "accuracy": "LG, after training"}
    figure = heat_maps(cells, headings, title=f"{TIER_WORDS[tier]}: length {length}, trained at {TRAINED_AT}")
    caption = f"LG: mean over up to {seeds} seeds. Chance is one over the vocabulary."
    alt = f"Two heat maps, alpha and LG at length {length}, by encoding and task, {TIER_WORDS[tier]}"
    return output.figure(figure, cells, f"{name}-heat-maps-tier-{tier}", alt, caption)


def dots(evidence: Evidence, output: Output, name: str, tiers: list[int]) -> "FigurePanel":
    """Predicted against trained by cell, seeds as dots."""
    import pandas as pd

    from poskernel.report.sweeps import seed_dots

    rows = pd.concat([evidence.comparison(name, tier).rows for tier in tiers], ignore_index=True)
    length = pictured_length(rows)
    shown = rows[rows["length"] == length].assign(cell=rows["encoding"] + " " + rows["task"])
    data = shown[["tier", "cell", "seed", "alpha", "accuracy", "train_accuracy", "status"]]
    title = f"Predicted and trained at length {length}, seed by seed"
    figure = seed_dots(
        data.drop_duplicates(["tier", "cell"]),
        data,
        title=title,
        axis_label="share of query rows",
        panels={tier: TIER_WORDS[tier] for tier in tiers},
    )
    caption = (
        "A bar is alpha, computed before training; a dot is LG of one trained model. Dots that lie apart are seeds "
        "that disagree."
    )
    return output.figure(figure, data, f"{name}-seeds", "A line a cell: a bar for alpha, a dot a seed for LG", caption)


def taxonomy_table(found: Comparison) -> "pd.DataFrame":
    """One line a cell: its class, what taxonomy and alpha predict, what was trained, whether a kernel exists."""
    length = pictured_length(found.rows)
    rows = found.rows[found.rows["length"] == length]
    exists = rows.drop_duplicates(CELL).set_index(CELL)["exists"]
    cells = at_length(found.rows, length)
    lines = cells[[*CELL, "alpha", "accuracy"]].copy()
    pairs = list(zip(lines["encoding"], lines["task"], strict=True))
    lines["class"] = [cell_class(*pair) for pair in pairs]
    lines["taxonomy"] = [taxonomy_rule(*pair) for pair in pairs]
    lines["predicted"] = yes_or_none(lines["alpha"], BINARY_ALPHA)
    lines["trained"] = yes_or_none(lines["accuracy"], GENERALIZES)
    lines["exists"] = [EXISTS.get(str(exists.get(pair))) for pair in pairs]
    known = lines["predicted"].notna() & lines["trained"].notna()
    lines["disagree"] = [
        bool(k and p != t) for k, p, t in zip(known, lines["predicted"], lines["trained"], strict=True)
    ]
    return lines


def yes_or_none(values: "pd.Series[float]", least: float) -> "list[bool | None]":
    """Whether each value is at least `least`; None where there is none."""
    return [None if math.isnan(value) else bool(value >= least) for value in values]


def cell_class(encoding: str, task: str) -> str:
    """The class of a cell in the hand taxonomy."""
    kind, offsets = encoding_class(encoding), regime(task)
    if offsets is OffsetRegime.GROWING:
        return "growing offset"
    if kind == "relative" and offsets is OffsetRegime.FIXED_RELATIVE:
        return "relative encoding, bounded offset"
    if kind == "absolute" and offsets is OffsetRegime.FIXED_ABSOLUTE:
        return "absolute encoding, fixed position"
    return "no match of encoding and task"


def taxonomy_section(found: Comparison, output: Output, name: str) -> "Section":
    """Class, prediction, training and existence of every cell in one view."""
    from poskernel.report.intervals import tiles
    from poskernel.report.page import Finding, Section

    table = taxonomy_table(found)
    marks = {"predicted": "α", "trained": "LG", "exists": "∃"}
    length = pictured_length(found.rows)
    title = f"Which cells carry over from {TRAINED_AT} to {length}: class, prediction, training, existence"
    figure = tiles(
        table, title=title, group="class", grounds=GROUNDS, marks=marks, disagree="disagree", note="α and LG disagree"
    )
    caption = (
        f"α: alpha of at least {BINARY_ALPHA:g}. LG: mean accuracy of at least {GENERALIZES:g}. ∃: some kernel of the "
        "encoding solves both lengths. A filled ∃ beside a hollow α is selection, not impossibility."
    )
    alt = "A grid of encodings and tasks; each tile shows three answers: predicted, trained, exists"
    panel = output.figure(figure, table, f"{name}-taxonomy", alt, caption)
    known = table.dropna(subset=["predicted", "trained"])
    agreed = int((~known["disagree"]).sum())
    by_hand = int((known["taxonomy"] == known["trained"]).sum())
    selected = table[table["exists"].eq(True) & table["predicted"].eq(False)]
    findings = [
        Finding("Cells in which alpha and the trained models agree:", f"{agreed} of {len(known)}"),
        Finding("Cells in which the hand-made taxonomy and the trained models agree:", f"{by_hand} of {len(known)}"),
        Finding(
            "Cells whose encoding holds a kernel for both lengths while the selected one fails:",
            f"{len(selected)}",
            ", ".join(f"{e} {t}" for e, t in zip(selected["encoding"], selected["task"], strict=True)),
        ),
    ]
    question = "Does the picture of relative, absolute and growing targets hold, and is a failure one of selection?"
    return Section("The taxonomy", question, findings, [panel], command="poskernel screen")


def length_section(evidence: Evidence, output: Output, name: str, tiers: list[int]) -> "Section":
    """Alpha and LG against length, with the seeds as a band."""
    from poskernel.report.figures import length_curves
    from poskernel.report.page import Finding, Section

    found = evidence.comparison(name, tiers[0])
    table = along_lengths(found.rows)
    title = f"Alpha (dashed) and LG (solid) against length, {TIER_WORDS[tiers[0]]}"
    curves = output.figure(
        length_curves(table, title=title, train_length=TRAINED_AT),
        table,
        f"{name}-length-curves",
        "Curves of alpha and LG against test length, a panel an encoding",
        "The band spans the seeds.",
    )
    findings = []
    for length in (table["length"].min(), table["length"].max()):
        cells = table[table["length"] == length].dropna(subset=["alpha", "accuracy"])
        gap = mean((cells["accuracy"] - cells["alpha"]).abs(), seed=evidence.seed, interval="percentile")
        findings.append(
            Finding(f"Mean distance between alpha and LG over {gap.n} cells, length {length}:", f"{gap}", gap.method)
        )
    question = "How do alpha and accuracy change as sequences grow?"
    return Section("How it fades with length", question, findings, [curves], command=f"poskernel study run {name}")
