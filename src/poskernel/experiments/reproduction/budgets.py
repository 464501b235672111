"""Open question: sinusoidal prev and skips, where two rules transfer and trained models do not.

Which rule's alpha is nearest to LG after 2000, 8000 and 32,000 training steps, and is the agreement of the paper's
rule an accident of two things that both stopped early?
"""

from typing import TYPE_CHECKING

from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.output import Output, not_run
from poskernel.experiments.reproduction.rules import RULES, rule_words
from poskernel.experiments.study_rows import CELL
from poskernel.statistics import Estimate, mean
from poskernel.study.studies import BUDGETS

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import FigurePanel, Panel, Section

ALL_BUDGETS = (2000, *BUDGETS)
TASKS = ("prev", "skip2", "skip3", "skip5")
PICTURED = 60
MOVED = 0.1
"""A change of mean LG smaller than this is called no change."""


def sinusoidal_rows(evidence: Evidence, budget: int, rule: str = "adam") -> "pd.DataFrame":
    """Alpha and LG of the sinusoidal bounded-offset cells at one training budget."""
    rows = evidence.study("rules").joined(1, steps=budget, rule=rule)
    return rows[(rows["encoding"] == "sinusoidal") & rows["task"].isin(TASKS)]


def budgets_there(evidence: Evidence) -> list[int]:
    """Budgets with trained models in these cells."""
    return [budget for budget in ALL_BUDGETS if sinusoidal_rows(evidence, budget)["accuracy"].notna().any()]


def distance(evidence: Evidence, budget: int, rule: str) -> Estimate:
    """Mean |alpha - LG| over tasks and lengths, LG averaged over seeds; bootstrap over tasks and lengths."""
    rows = sinusoidal_rows(evidence, budget, rule).dropna(subset=["alpha", "accuracy"])
    means = rows.groupby([*CELL, "length"])[["alpha", "accuracy"]].mean()
    return mean((means["alpha"] - means["accuracy"]).abs(), seed=evidence.seed, interval="percentile")


def budget_table(evidence: Evidence) -> "pd.DataFrame":
    """One line a budget and rule: its distance from LG."""
    import pandas as pd

    return pd.DataFrame(
        [
            {"training steps": budget, "rule": rule_words(rule), "distance": distance(evidence, budget, rule)}
            for budget in budgets_there(evidence)
            for rule in RULES
        ]
    )


def trained_means(evidence: Evidence) -> "dict[int, Estimate]":
    """Mean LG over the four cells and five lengths at each budget; interval over cells and lengths."""
    found = {}
    for budget in budgets_there(evidence):
        means = (
            sinusoidal_rows(evidence, budget).dropna(subset=["accuracy"]).groupby([*CELL, "length"])["accuracy"].mean()
        )
        found[budget] = mean(means, seed=evidence.seed, interval="percentile")
    return found


def answer(table: "pd.DataFrame", trained: dict[int, Estimate]) -> str:
    """The answer in words, by fixed rules: which rule is nearest at each budget, and whether LG moves with training."""
    nearest = nearest_rules(table)
    if not nearest:
        return "No rule's alpha stands beside a trained model yet: run the predictions of this study."
    words = []
    for budget, (rule, found, level) in nearest.items():
        tied = f"; not told apart from it: {', '.join(level)}" if level else ""
        words.append(f"Nearest to LG after {budget} steps: {rule}, {found}{tied}.")
    stopping = [distance_of(table, min(trained), rule_words(rule)) for rule in ("adam", "adam:steps=10000")]
    words.append(
        f"Stopping the rule matters: after {min(trained)} training steps its distance is "
        f"{stopping[0].value:.2f} at 400 of its "
        f"own steps and {stopping[1].value:.2f} at 10,000."
    )
    if len(trained) < 2:
        return " ".join([*words, "With one budget there is no saying whether longer training changes this."])
    first, last = min(trained), max(trained)
    change = trained[last].value - trained[first].value
    if abs(change) < MOVED:
        words.append(
            f"Mean LG moves by {change:+.2f} from {first} to {last} steps, less than {MOVED:g}: the agreement "
            "is no accident of "
            "stopping the model early within these budgets."
        )
    elif change > 0:
        words.append(
            f"Mean LG rises by {change:+.2f} from {first} to {last} steps, towards the rules that transfer: "
            f"the agreement at {first} "
            "steps depends on where the model was stopped."
        )
    else:
        words.append(
            f"Mean LG falls by {change:+.2f} from {first} to {last} steps, away from the rules that transfer: "
            "longer training does not "
            "bring the model to the optimum's kernel."
        )
    if {first, last} <= set(nearest) and nearest[last][0] not in (nearest[first][0], *nearest[first][2]):
        words.append("Which rule is nearest changes with the budget.")
    return " ".join(words)


def distance_of(table: "pd.DataFrame", budget: int, rule: str) -> Estimate:
    """One line of the table of distances."""
    found: Estimate = table[(table["training steps"] == budget) & (table["rule"] == rule)]["distance"].iloc[0]
    return found


def nearest_rules(table: "pd.DataFrame") -> dict[int, tuple[str, Estimate, list[str]]]:
    """The rule at the least distance at each budget, and the rules whose interval reaches down into its own."""
    nearest = {}
    for budget, group in table.groupby("training steps"):
        pairs = [(rule, found) for rule, found in zip(group["rule"], group["distance"], strict=True) if found.n]
        if not pairs:
            continue
        best, least = min(pairs, key=lambda pair: pair[1].value)
        level = [rule for rule, found in pairs if rule != best and found.low <= least.high]
        nearest[int(str(budget))] = (best, least, level)
    return nearest


def budgets_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """Distances by rule and budget, and alpha beside LG by budget."""
    from poskernel.report.page import Finding, Section

    title = "Open question: sinusoidal prev and skips"
    question = (
        "Which rule predicts training there, over which budgets, and is the paper's agreement an accident of early "
        "stopping?"
    )
    if not budgets_there(evidence):
        return [not_run(title, question, "rules")]
    table, trained = budget_table(evidence), trained_means(evidence)
    findings = [
        Finding(f"Mean LG after {budget} steps, four tasks and five lengths:", f"{found}", found.method)
        for budget, found in trained.items()
    ]
    lacking = [str(budget) for budget in ALL_BUDGETS if budget not in trained]
    gap = f" Budgets without models so far: {', '.join(lacking)}." if lacking else ""
    wide = table.pivot_table(
        index="rule", columns="training steps", values="distance", aggfunc="first", sort=False
    ).reset_index()
    wide.columns = [str(column) if column == "rule" else f"distance after {column} steps" for column in wide.columns]
    panels: list[Panel] = [
        distance_figure(table, output),
        by_task_figure(evidence, output),
        output.table(wide, "budgets", "Mean |alpha - LG| over four tasks and five lengths, by rule and budget"),
    ]
    return [
        Section(
            title, question, findings, panels, text=answer(table, trained) + gap, command="poskernel study run rules"
        )
    ]


def distance_figure(table: "pd.DataFrame", output: Output) -> "FigurePanel":
    """One line a rule, one colour a budget."""
    from poskernel.report.intervals import forest

    shown = table.assign(budget=[f"{steps} training steps" for steps in table["training steps"]])
    figure = forest(
        shown,
        title="Distance between each rule's alpha and LG",
        label="rule",
        estimate="distance",
        series="budget",
        axis_label="mean |α - LG| over tasks and lengths; nearer to 0 predicts better",
        limits=(-0.01, 1.0),
    )
    return output.figure(
        figure,
        shown,
        "budgets-distance",
        "A line a rule: distance of alpha from LG by training budget",
        "Sinusoidal prev, skip2, skip3 and skip5; interval: bootstrap over tasks and lengths.",
    )


def by_task_figure(evidence: Evidence, output: Output) -> "FigurePanel":
    """LG against training steps, and alpha of the adam rule against its own steps, a panel a task."""
    import pandas as pd

    from poskernel.report.sweeps import sweep

    runs = pd.concat(
        [sinusoidal_rows(evidence, budget).assign(steps=budget) for budget in budgets_there(evidence)],
        ignore_index=True,
    )
    runs = runs[runs["length"] == PICTURED].assign(series="trained LG", value=lambda rows: rows["accuracy"])
    lines = [runs.groupby(["task", "steps", "series"])["value"].mean().reset_index()]
    for rule in RULES:
        alphas = sinusoidal_rows(evidence, ALL_BUDGETS[0], rule)
        alphas = alphas[alphas["length"] == PICTURED].drop_duplicates("task")
        if rule in ("optimum", "max-margin"):
            lines += [alphas.assign(series=f"α, {rule}", value=alphas["alpha"], steps=steps) for steps in (100, 32_000)]
        elif rule.startswith("adam") and rule != "adam0":
            steps = int(rule.rpartition("=")[2]) if "=" in rule else 400
            lines.append(alphas.assign(series="α, adam, by its own steps", value=alphas["alpha"], steps=steps))
    table = pd.concat(lines)[["task", "steps", "series", "value"]]
    figure = sweep(
        table,
        title=f"Steps of training and of the rule: LG and alpha at length {PICTURED}",
        x="steps",
        y="value",
        panel="task",
        runs=runs[["task", "steps", "series", "value"]],
        labels=("steps", "share of query rows"),
        ticks=(100, 400, 2000, 8000, 32_000),
    )
    return output.figure(
        figure,
        table,
        "budgets-by-task",
        "LG and alpha against steps, a panel a task",
        "Dots: seeds. The optimum and the max-margin rule have no steps: level lines.",
    )
