"""Beyond the paper: does the prediction hold for encodings that the paper never looked at?

Nine encodings were trained that the paper does not have. Its own five stand beside them and enter no statistic of
theirs. The rule of the verdict was written before the first of these models was trained: the prediction `holds` where
the AUC of alpha against "LG of at least 0.5" lies above 0.5 with whole encodings drawn, and the labels, shuffled within
tasks, reach it in at most one of twenty shuffles. The second half asks for more than the task: a rule that says "short
offsets are easy" passes the first half alone.
"""

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from poskernel.experiments.comparison import BINARY_ALPHA, GENERALIZES, Comparison, compare
from poskernel.experiments.reproduction.agreement import CLUSTERS, Statistic, blind_rule, statistics_of
from poskernel.experiments.reproduction.cells import heat_map
from poskernel.experiments.reproduction.evidence import Evidence, missing
from poskernel.experiments.reproduction.grading import LEARNABLE_SPEARMAN, cluster_finding, statistics
from poskernel.experiments.reproduction.output import Output, not_run
from poskernel.experiments.reproduction.verdicts import NOT_EXPLAINED
from poskernel.experiments.study_rows import CELL
from poskernel.statistics import mean
from poskernel.study.grid import short_specification
from poskernel.study.studies import TRAINED_BEYOND_THE_PAPER
from poskernel.study.units import LEARNABLE

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import FigurePanel, Finding, Panel, Section

NAME = "encodings"
TRAINED = tuple(short_specification(encoding) for encoding in TRAINED_BEYOND_THE_PAPER)
"""The encodings trained beyond the paper, as the rows name them."""
HOLDS, TASK_ALONE, NOT_SHOWN, NO_VERDICT = "holds", "no more than the task tells", "not shown", "no verdict"
BY_ENCODING, BY_TASK = (f"AUC, all cells, {words}" for words in CLUSTERS.values())
SAME_SIDE = "share of cells on the side that alpha says, whole encodings drawn"
BLIND_SIDE = "share of cells on the side that the rule 'bounded offset' says, blind to the encoding"
GAIN = "that share less the share of the rule 'bounded offset', which is blind to the encoding; paired by cell"
SHOWN = (BY_ENCODING, BY_TASK, "Spearman, all cells, whole encodings drawn", LEARNABLE_SPEARMAN,
         "Spearman, learnable cells, whole encodings drawn", "precision at alpha of 0.5, whole cells drawn",
         SAME_SIDE, BLIND_SIDE, GAIN)  # fmt: skip
GROUPS = ("beyond the paper", "the paper's five")
SAME, DIFFER, UNDEFINED = "same", "differ", "undefined"
MOST_SHUFFLES = 0.05
"""Share of label shuffles that may do as well by chance."""


def beyond_rows(evidence: Evidence) -> "pd.DataFrame":
    """Models of the encodings beyond the paper beside their predictions, a line a model, length and seed."""
    rows = evidence.study(NAME).joined(1)
    return rows[rows["encoding"].isin(TRAINED)]


def cell_lines(rows: "pd.DataFrame") -> "pd.DataFrame":
    """One line a cell, means over lengths: alpha, existence, LG with a t interval over seeds, sides, and why not."""
    import pandas as pd

    lines = []
    for (encoding, task), group in rows.groupby(CELL, sort=False):
        alpha = group["alpha"].mean()
        found = mean(seed_means(group))
        line: dict[str, Any] = {"encoding": encoding, "task": task, "alpha": alpha, "exists": in_lengths(group)}
        line |= {"LG": found, "train accuracy": group.drop_duplicates("seed")["train_accuracy"].mean()}
        known = not math.isnan(alpha) and found.n > 0
        same = (alpha >= BINARY_ALPHA) == (found.value >= GENERALIZES)
        line["sides"] = UNDEFINED if not known else SAME if same else DIFFER
        line["why"] = why(group) if line["sides"] == DIFFER else undefined_why(group) if not known else ""
        lines.append(line)
    return pd.DataFrame(lines)


def seed_means(group: "pd.DataFrame") -> "pd.Series[float]":
    """LG of one cell by seed, mean over lengths."""
    return group.dropna(subset=["accuracy"]).groupby("seed")["accuracy"].mean()


def in_lengths(group: "pd.DataFrame") -> str:
    """What is said of existence: one word where it is the same at every length, else each with its lengths."""
    words = group.drop_duplicates("length").set_index("length")["exists"].fillna("not asked")
    said = {word: ", ".join(map(str, words.index[words == word])) for word in words.unique()}
    return next(iter(said)) if len(said) == 1 else "; ".join(f"{word} at {where}" for word, where in said.items())


def why(group: "pd.DataFrame") -> str:
    """Why prediction and training lie on different sides in one cell, as far as its rows say."""
    learned = group.drop_duplicates("seed")["train_accuracy"].mean()
    by_seed, parts = seed_means(group), []
    if learned <= LEARNABLE:
        parts.append(f"not learned at the training length (accuracy {learned:.2f} there)")
    generalize = int((by_seed >= GENERALIZES).sum())
    if 0 < generalize < len(by_seed):
        parts.append(f"seeds lie on both sides ({generalize} of {len(by_seed)} generalize)")
    for column, words, least in (("accuracy", "LG", GENERALIZES), ("alpha", "alpha", BINARY_ALPHA)):
        by_length = group.groupby("length")[column].mean()
        over = [str(length) for length in by_length.index[by_length >= least]]
        if 0 < len(over) < len(by_length):
            parts.append(f"{words} is at least {least:g} at length {', '.join(over)} alone")
    if group["alpha"].mean() < BINARY_ALPHA:
        parts.append(existence_words(set(group["exists"])))
    return "; ".join(filter(None, parts)) or NOT_EXPLAINED


def existence_words(answers: set[Any]) -> str:
    """What existence says of a cell that training solves and alpha does not."""
    if answers == {"yes"}:
        return "a kernel of the family solves both lengths and the rule does not select it"
    if answers <= {"no", "conflict"}:
        return "no kernel of the family solves both lengths in full"
    return "existence is not defined for this family" if answers == {"not-applicable"} else ""


def undefined_why(group: "pd.DataFrame") -> str:
    """Why a cell has no side: the reason that its rows give."""
    for value, column in (("alpha", "alpha_reason"), ("accuracy", "reason")):
        if group[value].isna().all():
            reasons = [str(reason) for reason in group[column].dropna() if reason]
            return f"{value} {reasons[0]}" if reasons else f"no {value} among the rows"
    return ""


def side_statistics(cells: "pd.DataFrame", seed: int) -> list[Statistic]:
    """How many cells lie on the side that alpha says, that the blind rule says, and the difference of the two."""
    known = cells.dropna(subset=["alpha", "accuracy"])
    trained = known["accuracy"] >= GENERALIZES
    right = ((known["alpha"] >= BINARY_ALPHA) == trained).astype(float)
    pairs = zip(known["encoding"], known["task"], trained, strict=True)
    blind = [float(blind_rule(encoding, task) == side) for encoding, task, side in pairs]
    shares = {SAME_SIDE: right, BLIND_SIDE: right * 0 + blind, GAIN: right - blind}
    return [
        Statistic(name, mean(share, seed=seed, clusters=known["encoding"], interval="percentile"))
        for name, share in shares.items()
    ]


def compared(evidence: Evidence, found: Comparison) -> tuple[dict[str, Statistic], dict[str, Statistic]]:
    """Every statistic of the encodings beyond the paper, and of the paper's five (empty without their models)."""
    seed = evidence.seed
    beyond = statistics_of(found, seed) | {each.name: each for each in side_statistics(found.cells, seed)}
    if not evidence.has_tier("paper", 1):
        return beyond, {}
    cells = evidence.comparison("paper", 1).cells
    return beyond, statistics(evidence, "paper", 1) | {each.name: each for each in side_statistics(cells, seed)}


def verdict(found: dict[str, Statistic]) -> str:
    """The verdict by the rule that stands at the head of this module."""
    separates, tells = found[BY_ENCODING].estimate, found[BY_TASK].p
    if math.isnan(separates.low) or math.isnan(tells):
        return NO_VERDICT
    if separates.low <= 0.5:
        return NOT_SHOWN
    return HOLDS if tells <= MOST_SHUFFLES else TASK_ALONE


VERDICT_WORDS = {
    HOLDS: "Alpha tells which of these cells generalize, and tells the encodings of one task apart.",
    TASK_ALONE: "Alpha orders the cells, but shuffling the encodings of each task does as well: it is not shown to "
    "tell more than the task does.",
    NOT_SHOWN: "These rows do not show that alpha tells which cells generalize: a negative result as far as they go.",
    NO_VERDICT: "These rows decide nothing: the AUC or its interval is undefined.",
}


def statistics_beside(beyond: dict[str, Statistic], paper: dict[str, Statistic]) -> "pd.DataFrame":
    """One line a statistic: beyond the paper, and of its own five encodings."""
    import pandas as pd

    lines = []
    for name in SHOWN:
        line: dict[str, Any] = {"statistic": name}
        for found, words in zip((beyond, paper), GROUPS, strict=True):
            each = found.get(name)
            estimate = each.estimate if each else missing("no models of the main study")
            line |= {words: estimate, f"n, {words}": estimate.n, f"p, {words}": each.p if each else math.nan}
        lines.append(line)
    return pd.DataFrame(lines)


def by_encoding(cells: "pd.DataFrame", seed: int) -> "pd.DataFrame":
    """One line an encoding: cells on the side that alpha says, distance, and tasks by what became of them."""
    import pandas as pd

    lines = []
    for encoding, group in cells.groupby("encoding", sort=False):
        trained = pd.Series([found.value for found in group["LG"]], group.index)
        known = group["sides"] != UNDEFINED
        chosen = {
            "predicted to generalize": group["alpha"] >= BINARY_ALPHA,
            "generalizes": trained >= GENERALIZES,
            "on different sides": group["sides"] == DIFFER,
            "not learned": group["train accuracy"] <= LEARNABLE,
        }
        distance = (trained - group["alpha"]).abs()[known]
        lines.append(
            {
                "encoding": encoding,
                "same side": f"{int((group['sides'] == SAME).sum())} of {int(known.sum())}",
                "mean |alpha - LG|": mean(distance, seed=seed, interval="percentile"),
                **{words: ", ".join(group.loc[which, "task"]) or "none" for words, which in chosen.items()},
            }
        )
    return pd.DataFrame(lines)


def line_findings(table: "pd.DataFrame", cells: "pd.DataFrame") -> "list[Finding]":
    """A line an encoding: those without a model say so."""
    from poskernel.report.page import Finding

    by_name, found = {line["encoding"]: line for line in table.to_dict("records")}, []
    for name in TRAINED:
        if name not in by_name:
            found.append(Finding(f"{name}: no model among the rows yet."))
            continue
        line = by_name[name]
        unknown = cells[(cells["encoding"] == name) & (cells["sides"] == UNDEFINED)]
        words = [f"{key}: {line[key]}" for key in ("predicted to generalize", "generalizes", "on different sides")]
        words += [f"mean |alpha - LG| {line['mean |alpha - LG|']}"]
        words += [f"{len(unknown)} cells without a side: {unknown['why'].iloc[0]}"] if len(unknown) else []
        found.append(Finding(f"{name}: cells on the side that alpha says:", line["same side"], "; ".join(words)))
    return found


def encodings_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """Statistics beside the paper's encodings, a line an encoding, and every cell on different sides with why."""
    from poskernel.report.page import Finding, Section

    title = "Beyond the paper: encodings"
    question = "Does the prediction hold for encodings that the paper never looked at?"
    rows = beyond_rows(evidence)
    if not rows["accuracy"].notna().any():
        return [not_run(title, question, NAME, "models of encodings beyond the paper")]
    found, cells = compare(rows, evidence.seed), cell_lines(rows)
    beyond, paper = compared(evidence, found)
    lines, apart = by_encoding(cells, evidence.seed), cells[cells["sides"] == DIFFER]
    told = verdict(beyond)
    findings = [Finding(f"The prediction beyond the paper, {len(cells)} cells of {len(lines)} encodings:", told)]
    findings += [cluster_finding(beyond[name]) for name in (BY_ENCODING, BY_TASK, SAME_SIDE, GAIN)]
    names = ", ".join(apart["encoding"] + " " + apart["task"])
    number = f"{len(apart)} of {int((cells['sides'] != UNDEFINED).sum())}"
    findings += [Finding("Cells where prediction and training lie on different sides:", number, names)]
    findings += line_findings(lines, cells)
    beside = statistics_beside(beyond, paper)
    panels: list[Panel] = [
        scatter_figure(found, beyond, output),
        heat_map(found, output, NAME, 1),
        output.table(beside, "encodings-statistics", "Alpha against LG: encodings beyond the paper, and its own five",
                     {f"p, {words}": ".2g" for words in GROUPS}),
        output.table(lines, "encodings-lines", "A line an encoding"),
    ]  # fmt: skip
    if len(apart):
        caption = "Cells on different sides, and why as far as the rows say"
        panels.append(output.table(apart.drop(columns="sides"), "encodings-different-sides", caption))
    output.table(cells, "encodings-cells", "Every cell of the encodings beyond the paper")
    text = f"{VERDICT_WORDS[told]} {rule_words()}{gap_words(evidence, TRAINED, ['cell', 'seed'])}"
    return [Section(title, question, findings, panels, text=text, command=f"poskernel study run {NAME}")]


def rule_words() -> str:
    """The rule of the verdict."""
    return (
        "The rule was written before the first of these models was trained: `holds` where the AUC lies above 0.5 with "
        f"whole encodings drawn and at most {MOST_SHUFFLES:.0%} of the shuffles of labels within tasks reach it. A "
        f"cell is on the side of alpha where 'mean alpha of at least {BINARY_ALPHA:g}' and 'mean LG of at least "
        f"{GENERALIZES:g}' are both true or both false; intervals of LG are over seeds, all others over encodings or "
        "tasks. The paper's five encodings stand beside for comparison and enter none of these numbers."
    )


def gap_words(evidence: Evidence, names: Collection[str], model: list[str]) -> str:
    """How many planned models of these encodings are not there; "" where all are. `model` tells models apart."""
    study = evidence.study(NAME)
    planned, lost = (
        len(table[table["encoding"].isin(names) & (table["kind"] == "model")].drop_duplicates(model))
        for table in (study.planned, study.missing)
    )
    return f" Partial rows: {lost} of {planned} models are not there yet." if lost else ""


def scatter_figure(found: Comparison, beyond: dict[str, Statistic], output: Output) -> "FigurePanel":
    """LG against alpha, a point a cell, the exceptions named."""
    from poskernel.report.figures import scatter

    rank = beyond["Spearman, all cells, whole encodings drawn"].estimate
    figure = scatter(
        found.cells,
        title="Encodings beyond the paper: alpha against LG",
        interval=f"Spearman over {rank.n} cells {rank}, whole encodings drawn",
    )
    alt = "Scatter of LG against alpha, a point a cell, coloured by encoding; the largest exceptions are named"
    return output.figure(
        figure,
        found.cells,
        "encodings-scatter",
        alt,
        "One layer, one head; means over lengths and seeds. Hollow: not learned.",
    )
