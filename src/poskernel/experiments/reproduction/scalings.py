"""Beyond the paper: a model trained with plain RoPE, tested with its frequencies scaled, without another step.

Which scaling helps on which task, against the same model unscaled, and did alpha foresee it? The rules were written
before the first model was tested under a scaling. One `helps` where LG rises by at least 0.1 over the unscaled model,
paired by seed, and the 95% interval of the difference lies above 0; it `harms` where it falls likewise; below 0.1 there
is `no change`, else it is `undecided`. Alpha foresees a rise or fall where alpha itself moves by at least 0.1 that way.
A scaling by 2, 4 or 8 is judged at the length it is for: that many times the training length.
"""

import math
from typing import TYPE_CHECKING, Any

from poskernel.encodings import Rope
from poskernel.experiments.comparison import GENERALIZES
from poskernel.experiments.reproduction.agreement import Statistic
from poskernel.experiments.reproduction.encodings import NAME, NO_VERDICT, NOT_SHOWN, gap_words
from poskernel.experiments.reproduction.evidence import TRAINED_AT, Evidence
from poskernel.experiments.reproduction.grading import cluster_finding
from poskernel.experiments.reproduction.output import Output, not_run
from poskernel.statistics import Estimate, auc, mean, spearman
from poskernel.study import PredictionCell
from poskernel.study.grid import canonical
from poskernel.study.studies import EXTENSIONS
from poskernel.study.units import LEARNABLE
from poskernel.tasks import POSITIONAL_TASKS

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import FigurePanel, Panel, Section

PREV = POSITIONAL_TASKS["prev"]
PLAIN = PredictionCell(Rope(), PREV).label
SETTINGS: dict[str, tuple[str, float]] = {
    PredictionCell(Rope(), PREV, test_encoding=scaled).label: (scaled.name, canonical(scaled, defaults=True)["factor"])
    for scaled in EXTENSIONS
}
"""Name and factor of each scaling, by what the rows call RoPE under it."""
PAIR = ["scaling", "factor", "task", "length"]
MOVED = 0.1
"""A change of LG or alpha smaller than this is called no change."""
HELPS, HARMS, STAYS, UNDECIDED = "helps", "harms", "no change", "undecided"
FORESEEN = "foresees"
RANK_BY_TASK, RANK_BY_SCALING = (
    f"Spearman of the change of alpha and the change of LG, whole {words} drawn" for words in ("tasks", "scalings")
)
LEARNED_RANK = "the same over the tasks that the model learned, whole scalings drawn"
LEVELS = "AUC of alpha against LG of at least 0.5 under a scaling, whole tasks drawn"
BASELINE = "unscaled"


def paired_rows(evidence: Evidence) -> "pd.DataFrame":
    """One line a scaling, task, length and seed: the model under the scaling, and as it was trained (`_plain`)."""
    rows, same = evidence.study(NAME).joined(1), ["task", "length", "seed"]
    plain = rows.loc[rows["encoding"] == PLAIN, [*same, "alpha", "accuracy", "train_accuracy"]]
    both = rows[rows["encoding"].isin(SETTINGS)].merge(plain, on=same, suffixes=("", "_plain"))
    both = both.dropna(subset=["accuracy", "accuracy_plain"])
    names = [name for name, _ in SETTINGS.values()]
    settings = [SETTINGS[label] for label in both["encoding"]]
    both = both.assign(scaling=[name for name, _ in settings], factor=[factor for _, factor in settings])
    both = both.assign(_place=both["scaling"].map(names.index)).sort_values(["factor", "_place"], kind="stable")
    return both.drop(columns="_place").reset_index(drop=True)


def change_table(rows: "pd.DataFrame") -> "pd.DataFrame":
    """One line a scaling, factor, task and length: LG and alpha scaled and unscaled, differences, and what they say."""
    import pandas as pd

    lines = []
    for key, group in rows.groupby(PAIR, sort=False):
        difference = mean(group["accuracy"] - group["accuracy_plain"])
        alpha, plain = group["alpha"].iloc[0], group["alpha_plain"].iloc[0]
        line: dict[str, Any] = dict(zip(PAIR, key, strict=True))
        line |= {"LG": mean(group["accuracy"]), "LG unscaled": mean(group["accuracy_plain"]), "difference": difference}
        line |= {"alpha": alpha, "alpha unscaled": plain, "change of alpha": alpha - plain}
        line |= {f"accuracy at {TRAINED_AT}": group["train_accuracy"].mean()}
        line |= {f"accuracy at {TRAINED_AT}, unscaled": group["train_accuracy_plain"].mean()}
        line |= {"trained": trained_word(difference), "predicted": predicted_word(alpha - plain)}
        lines.append(line | {"learned": bool(group["train_accuracy_plain"].mean() > LEARNABLE)})
    return pd.DataFrame(lines)


def trained_word(difference: Estimate) -> str:
    """What a difference of LG says, by the rule at the head of this module."""
    if difference.value >= MOVED and difference.low > 0:
        return HELPS
    if difference.value <= -MOVED and difference.high < 0:
        return HARMS
    return STAYS if abs(difference.value) < MOVED else UNDECIDED


def predicted_word(change: float) -> str:
    """What a change of alpha says; undecided where it is undefined."""
    if math.isnan(change):
        return UNDECIDED
    return HELPS if change >= MOVED else HARMS if change <= -MOVED else STAYS


def at_its_length(table: "pd.DataFrame") -> "pd.DataFrame":
    """Each scaling at the length it is for."""
    return table[table["length"] == table["factor"] * TRAINED_AT].reset_index(drop=True)


def foresight(own: "pd.DataFrame", seed: int) -> dict[str, Statistic]:
    """Whether alpha's change goes with LG's: by rank with whole clusters drawn; and alpha's level with LG's."""
    valued = own.dropna(subset=["change of alpha"])
    valued = valued.assign(change=[found.value for found in valued["difference"]])
    learned = valued[valued["learned"].astype(bool)]
    made = [
        Statistic(name, spearman(rows["change of alpha"], rows["change"], seed=seed, clusters=rows[cluster]))
        for name, rows, cluster in (
            (RANK_BY_TASK, valued, "task"),
            (RANK_BY_SCALING, valued, "scaling"),
            (LEARNED_RANK, learned, "scaling"),
        )
    ]
    over = [found.value >= GENERALIZES for found in valued["LG"]]
    level = auc(valued["alpha"], over, seed=seed, clusters=valued["task"])
    made.append(Statistic(LEVELS, level.auc, level.p, level.p_method))
    return {each.name: each for each in made}


def verdict(found: dict[str, Statistic]) -> str:
    """`foresees` where both rank correlations over all pairs have an interval above 0; else not shown."""
    lows = [found[name].estimate.low for name in (RANK_BY_TASK, RANK_BY_SCALING)]
    if any(map(math.isnan, lows)):
        return NO_VERDICT
    return FORESEEN if min(lows) > 0 else NOT_SHOWN


VERDICT_WORDS = {
    FORESEEN: "By rank alpha foresees what a scaling does.",
    NOT_SHOWN: "These rows do not show that alpha foresees what a scaling does.",
    NO_VERDICT: "Whether alpha foresees what a scaling does cannot be said: a rank correlation or its interval is "
    "undefined.",
}


def listed(rows: "pd.DataFrame") -> str:
    """Pairs of scaling and task in words, factors together: `yarn on prev x2 x4; ntk on first x8`."""
    words = []
    for scaling, group in rows.groupby("scaling", sort=False):
        tasks = [
            f"{task} {' '.join(f'x{factor:g}' for factor in sorted(part['factor']))}"
            for task, part in group.groupby("task", sort=False)
        ]
        words.append(f"{scaling} on {', '.join(tasks)}")
    return "; ".join(words)


def answer(own: "pd.DataFrame") -> str:
    """What helps on which tasks and whether alpha foresaw it, what harms likewise, and alpha's false alarms."""
    words = []
    for kind, verb, noun in ((HELPS, "helps", "rise"), (HARMS, "harms", "fall")):
        moved, told = own[own["trained"] == kind], own[own["predicted"] == kind]
        foreseen = int((moved["predicted"] == kind).sum())
        if moved.empty:
            words.append(f"No scaling {verb} on any task at the length it is for.")
        else:
            words.append(
                f"A scaling {verb} in {len(moved)} of {len(own)} pairs ({listed(moved)}), and alpha foresaw "
                f"{foreseen} of these {len(moved)}."
            )
        ceiling = moved[(kind == HELPS) & (moved["predicted"] != kind) & (moved["alpha unscaled"] > 1 - MOVED)]
        if len(ceiling):
            words.append(f"In {len(ceiling)} of the others alpha is near 1 unscaled and has no room to rise.")
        false = told[told["trained"] != kind]
        if len(false):
            words.append(f"Alpha announces a {noun} that is not seen in {len(false)} pairs ({listed(false)}).")
    undecided = int((own["trained"] == UNDECIDED).sum())
    if undecided:
        words.append(f"In {undecided} pairs the seeds do not decide.")
    return " ".join(words)


def scalings_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """The answer, alpha beside LG under every scaling, differences by task and by length."""
    from poskernel.report.page import Finding, Section

    title = "Beyond the paper: RoPE scaled zero-shot"
    question = "Which scaling helps a model trained with plain RoPE, on which tasks, and did alpha foresee it?"
    rows = paired_rows(evidence)
    if rows.empty:
        return [not_run(title, question, NAME, "models of RoPE under a scaling")]
    table = change_table(rows)
    own = at_its_length(table)
    found = foresight(own, evidence.seed)
    told = verdict(found)
    findings = [Finding("Alpha, on what a scaling does to a trained model:", told)]
    findings += [cluster_finding(each) for each in found.values()]
    for kind, sentence in (
        (HELPS, "Pairs of scaling and task in which LG rises:"),
        (HARMS, "Pairs of scaling and task in which LG falls:"),
    ):
        moved = own[own["trained"] == kind]
        foreseen = int((moved["predicted"] == kind).sum())
        findings.append(Finding(sentence, f"{len(moved)} of {len(own)}", f"{foreseen} of them foreseen by alpha"))
    output.table(table, "scalings", "Every scaling, task and length: LG, the unscaled model, difference, alpha")
    panels: list[Panel] = [
        map_figure(own, output),
        length_figure(rows, output),
        scatter_figure(own, output),
        output.table(by_task(own), "scalings-by-task", "Change of LG at the length a scaling is for, by task"),
        output.table(by_length(rows), "scalings-by-length", "Change of LG by length, mean over the tasks learned"),
    ]
    chance = (
        f" Of {len(own)} intervals of 95%, about {0.025 * len(own):.0f} would lie above 0, and as many below, if no "
        "scaling did anything; with three seeds they are wide."
    )
    lost = [task for task in POSITIONAL_TASKS if task not in set(own["task"])]
    gap = gap_words(evidence, SETTINGS, ["task", "seed"])
    gap += f" Tasks without models so far: {', '.join(lost)}." if lost else ""
    text = f"{answer(own)} {VERDICT_WORDS[told]}\n\n{rule_words()}{chance}{gap}"
    return [Section(title, question, findings, panels, text=text, command=f"poskernel study run {NAME}")]


def rule_words() -> str:
    """The rules of `helps`, `harms` and `foresees`."""
    return (
        "The rules were written before the first model was tested under a scaling: one `helps` where LG rises by at "
        f"least {MOVED:g} over the same models unscaled and the interval of the difference, paired by seed, lies above "
        f"0; `harms` likewise; alpha foresees it where alpha moves by at least {MOVED:g} that way. Each scaling is "
        f"judged at the length it is for, its factor times {TRAINED_AT}. Verdict: alpha `{FORESEEN}` where both "
        "rank correlations over all pairs, whole tasks drawn and whole scalings drawn, have an interval above 0."
    )


def by_task(own: "pd.DataFrame") -> "pd.DataFrame":
    """One line a scaling and factor, a column a task: change of LG with its interval."""
    import pandas as pd

    lines = []
    for (scaling, factor, length), group in own.groupby(["scaling", "factor", "length"], sort=False):
        changes = dict(zip(group["task"], group["difference"], strict=True))
        lines.append({"scaling": f"{scaling} x{factor:g}", "length": length, **changes})
    return pd.DataFrame(lines)


def by_length(rows: "pd.DataFrame") -> "pd.DataFrame":
    """One line a scaling and factor, a column a length: mean change of LG over the tasks learned, t over seeds."""
    import pandas as pd

    lines = []
    for (scaling, factor), group in learned_rows(rows).groupby(["scaling", "factor"], sort=False):
        line: dict[str, Any] = {"scaling": f"{scaling} x{factor:g}"}
        for length, part in group.groupby("length"):
            change = part["accuracy"] - part["accuracy_plain"]
            line[f"length {length}"] = mean(change.groupby(part["seed"]).mean())
        lines.append(line)
    return pd.DataFrame(lines, columns=None if lines else ["scaling"])


def learned_rows(rows: "pd.DataFrame") -> "pd.DataFrame":
    """The rows of tasks that the unscaled model learned."""
    learned = rows.groupby("task")["train_accuracy_plain"].transform("mean") > LEARNABLE
    return rows[learned]


def map_figure(own: "pd.DataFrame", output: Output) -> "FigurePanel":
    """Alpha and LG by scaling and task, the unscaled model above those of its length."""
    import pandas as pd

    from poskernel.report.figures import heat_maps

    parts = []
    for (factor, length), group in own.groupby(["factor", "length"], sort=False):
        start = f"{length}: "
        plain = group.drop_duplicates("task").assign(
            alpha=lambda part: part["alpha unscaled"], LG=lambda part: part["LG unscaled"]
        )
        names = start + group["scaling"] + f" x{factor:g}"
        parts += [plain.assign(**{"tested with": start + BASELINE}), group.assign(**{"tested with": names})]
    table = pd.concat(parts, ignore_index=True)[["tested with", "task", "alpha", "LG"]]
    table["LG"] = [found.value for found in table["LG"]]
    figure = heat_maps(
        table,
        {"alpha": "alpha, before training", "LG": "LG, after training"},
        title=f"RoPE trained at {TRAINED_AT}, tested under scalings at the length each is for",
        rows="tested with",
    )
    alt = "Two heat maps by scaling and task: alpha and LG, the unscaled model beside every scaling of its length"
    return output.figure(figure, table, "scalings-map", alt, "LG: mean over seeds. No scaling was trained with.")


def length_figure(rows: "pd.DataFrame", output: Output) -> "FigurePanel":
    """LG against length, mean over the tasks learned, a panel a factor, seeds as dots."""
    import pandas as pd

    from poskernel.report.sweeps import sweep

    chosen = learned_rows(rows)
    chosen = chosen if len(chosen) else rows
    parts = []
    for factor, group in chosen.groupby("factor"):
        one = group[group["scaling"] == group["scaling"].iloc[0]]
        parts.append(one.assign(series=BASELINE, value=one["accuracy_plain"], panel=f"x{factor:g}"))
        parts.append(group.assign(series=group["scaling"], value=group["accuracy"], panel=f"x{factor:g}"))
    runs = pd.concat(parts).groupby(["panel", "series", "length", "seed"], sort=False)["value"].mean().reset_index()
    lines = runs.groupby(["panel", "series", "length"], sort=False)["value"].mean().reset_index()
    figure = sweep(
        lines,
        title="LG under each scaling by length, mean over the tasks that the model learned",
        x="length",
        y="value",
        panel="panel",
        runs=runs,
        labels=("test length (tokens)", "LG"),
    )
    caption = f"Dots: seeds. Tasks: {', '.join(dict.fromkeys(chosen['task']))}."
    return output.figure(figure, runs, "scalings-length", "Lines of LG against length by scaling", caption)


def scatter_figure(own: "pd.DataFrame", output: Output) -> "FigurePanel":
    """LG against alpha under each scaling, a point a task, a panel a factor."""
    from poskernel.report.sweeps import scatter_panels

    table = own.assign(
        accuracy=[found.value for found in own["LG"]],
        status=["done" if learned else "unlearned" for learned in own["learned"]],
    )[["scaling", "factor", "task", "length", "alpha", "accuracy", "status"]]
    notes = {factor: f"x{factor:g}, length {factor * TRAINED_AT:g}" for factor in dict.fromkeys(table["factor"])}
    figure = scatter_panels(
        table,
        title="Alpha against LG under each scaling, a point a task",
        panel="factor",
        notes=notes,
        colour="scaling",
    )
    caption = "Hollow: tasks that the unscaled model did not learn."
    return output.figure(figure, table, "scalings-scatter", "Scatter of LG against alpha, a panel a factor", caption)
