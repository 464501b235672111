"""Trained heads' own kernels beside the fitted ones: does the head that training found explain where alpha was wrong?

A row is a one-layer cell at a length, means over seeds. It is mispredicted where the fitted kernel's alpha and LG lie
on different sides of one half. What it is put down to follows from two more numbers of the trained head, in this order:
alpha of its own kernel on the side of LG (another kernel was selected), else the attention its kernel gives the target
on that side (the right argmax, but no margin), else the attention in real sequences (content), else nothing here.
"""

from typing import TYPE_CHECKING

from poskernel.experiments.comparison import BINARY_ALPHA, GENERALIZES
from poskernel.experiments.reproduction.evidence import PICTURED_LENGTH, Evidence
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.study_rows import CELL
from poskernel.experiments.trained_kernels import (
    ALPHA,
    ATTENDED,
    HIT,
    LEARNED,
    LEARNED_OTHERS,
    MASS,
    NAME,
    OTHERS,
    TIER,
    TrainedKernels,
)
from poskernel.statistics import Estimate, mean, spearman
from poskernel.study.units import LEARNABLE

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import FigurePanel, Finding, Panel, Section

TITLE = "Trained heads' own kernels"
QUESTION = "Does the kernel that the trained head ended up with explain where the fitted kernel mispredicts?"
COMMAND = f"poskernel study kernels WEIGHTS --out results/{NAME}"
SCORES = {
    "alpha": "α, fitted kernel",
    ALPHA: "α, trained head's kernel",
    OTHERS: "the same, the query itself left out",
    MASS: "its attention on the target",
    ATTENDED: "attention on it in real sequences",
}
NUMBERS = [*SCORES, HIT, LEARNED, LEARNED_OTHERS, "accuracy", "train_accuracy"]
DRAWN = ("alpha", ALPHA, OTHERS, MASS)
CAUSES = {
    ALPHA: "another kernel was selected",
    MASS: "right argmax, too little margin",
    ATTENDED: "content of real sequences",
    "": "none of the three",
}
NAMED = (("rope", "first", 30), ("sinusoidal", "first", 80), ("sinusoidal", "prev", PICTURED_LENGTH))
"""The cells that the paper leaves open."""


def models_table(evidence: Evidence) -> "pd.DataFrame":
    """One line a model and length: alpha of the fitted kernel, LG, and every number of the trained head."""
    import pandas as pd

    trained_id = {
        unit.cell.id: unit.cell.trained.id for unit in TrainedKernels().units() if hasattr(unit.cell, "trained")
    }
    held = evidence.every[evidence.every["cell"].isin(list(trained_id)) & evidence.every["value"].notna()]
    metrics = [ALPHA, OTHERS, MASS, ATTENDED, HIT]
    wide = held[held["metric"].isin(metrics)].pivot(index=["cell", "length", "seed"], columns="metric", values="value")
    wide = wide.reindex(columns=metrics).reset_index()
    for name in (LEARNED, LEARNED_OTHERS):
        own = held[held["metric"] == name].set_index(["cell", "seed"])["value"].rename(name)
        wide = wide.join(own, on=["cell", "seed"])
    wide["cell"] = wide["cell"].map(trained_id)
    joined: pd.DataFrame = evidence.study("paper").joined(TIER).merge(wide, on=["cell", "length", "seed"])
    return joined.dropna(subset=["alpha", "accuracy"])


def rows_table(models: "pd.DataFrame") -> "pd.DataFrame":
    """One line a cell and length, means over seeds; `learned` where its models learned their task in distribution."""
    means = models.groupby([*CELL, "length"], sort=False)[NUMBERS].mean()
    means["seeds"] = models.groupby([*CELL, "length"], sort=False).size()
    table = means.reset_index()
    return table.assign(learned=table["train_accuracy"] > LEARNABLE)


def clusters(rows: "pd.DataFrame") -> "pd.Series[str]":
    """The cell of each row: its lengths are not independent."""
    joined: pd.Series[str] = rows["encoding"] + " " + rows["task"]
    return joined


def distance(rows: "pd.DataFrame", score: str, seed: int) -> Estimate:
    """Mean |score - LG|, whole cells drawn."""
    gap = (rows[score] - rows["accuracy"]).abs()
    return mean(gap, seed=seed, clusters=clusters(rows), interval="percentile")


def closer(rows: "pd.DataFrame", score: str, seed: int) -> Estimate:
    """By how much a score lies nearer to LG than the fitted kernel's alpha does: mean over rows, whole cells drawn."""
    gaps = {name: (rows[name] - rows["accuracy"]).abs() for name in ("alpha", score)}
    return mean(gaps["alpha"] - gaps[score], seed=seed, clusters=clusters(rows), interval="percentile")


def sided(rows: "pd.DataFrame", score: str) -> "pd.Series[bool]":
    """Whether a score lies on the side of one half that LG lies on."""
    found: pd.Series[bool] = (rows[score] >= BINARY_ALPHA) == (rows["accuracy"] >= GENERALIZES)
    return found


def scores_table(rows: "pd.DataFrame", seed: int) -> "pd.DataFrame":
    """One line a score: how near to LG it is, over all rows and over those of learned cells."""
    import pandas as pd

    lines = []
    for name, words in SCORES.items():
        line: dict[str, object] = {"score": words}
        for scope, chosen in (("all", rows), ("learned", rows[rows["learned"]])):
            line[f"distance, {scope}"] = distance(chosen, name, seed)
            line[f"Spearman, {scope}"] = spearman(
                chosen[name], chosen["accuracy"], seed=seed, clusters=clusters(chosen)
            )
            line[f"right side, {scope}"] = f"{int(sided(chosen, name).sum())} of {len(chosen)}"
        lines.append(line)
    return pd.DataFrame(lines)


def mispredicted(rows: "pd.DataFrame") -> "pd.DataFrame":
    """The rows that the fitted kernel has on the wrong side, with what each is put down to."""
    wrong = rows[~sided(rows, "alpha")]
    sides = {name: sided(wrong, name) for name in CAUSES if name}
    causes = [CAUSES[next((name for name, side in sides.items() if side[row]), "")] for row in wrong.index]
    return wrong.assign(cause=causes)


def undone(rows: "pd.DataFrame") -> "pd.DataFrame":
    """The rows that the fitted kernel has right and the trained head's own kernel wrong."""
    return rows[sided(rows, "alpha") & ~sided(rows, ALPHA)]


def trained_heads_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """Scores against LG, the mispredicted rows, the open cells."""
    from poskernel.report.page import Finding, Section

    models = models_table(evidence)
    if models.empty:
        sentence = "No trained head has been measured: this section is empty until they are."
        return [Section(TITLE, QUESTION, [Finding(sentence)], command=COMMAND)]
    rows = rows_table(models)
    wrong, new = mispredicted(rows), undone(rows)
    explained = wrong.assign(explained=(wrong["cause"] == CAUSES[ALPHA]).astype(float))
    findings = [
        Finding(
            "Rows that the fitted kernel mispredicts and the trained head's own kernel does not:",
            f"{int(explained['explained'].sum())} of {len(wrong)}",
            share_in_words(explained, evidence.seed),
        ),
        Finding(
            "Rows that the fitted kernel has right and the trained head's own kernel wrong:",
            f"{len(new)} of {len(rows) - len(wrong)}",
            ", ".join(dict.fromkeys(clusters(new))),
        ),
        *(closer_finding(rows, name, evidence.seed) for name in (ALPHA, OTHERS, MASS)),
        itself_first(rows),
        *(open_cell(models, *each) for each in NAMED),
    ]
    shown = ["encoding", "task", "length", *SCORES, "accuracy", "train_accuracy", "cause"]
    words = {**SCORES, "accuracy": "LG", "train_accuracy": "train accuracy", "cause": "put down to"}
    panels: list[Panel] = [
        picture(rows, output),
        output.table(scores_table(rows, evidence.seed), f"{NAME}-scores", "Four scores against LG, by cell and length"),
        output.table(
            wrong[shown].rename(columns=words), f"{NAME}-mispredicted", "Rows that the fitted kernel mispredicts"
        ),
        output.table(
            new[[*shown[:-1]]].rename(columns=words),
            f"{NAME}-undone", "Rows that only the trained head's kernel has wrong", folded=True,
        ),
        output.table(
            rows.drop(columns="learned"), f"{NAME}-rows", "Every cell and length, means over seeds", folded=True
        ),
    ]  # fmt: skip
    return [Section(TITLE, QUESTION, findings, panels, text=text_of(rows, wrong), command=COMMAND)]


def share_in_words(explained: "pd.DataFrame", seed: int) -> str:
    """The share of explained rows with its interval; nothing where no row is mispredicted."""
    if explained.empty:
        return ""
    found = mean(explained["explained"], seed=seed, clusters=clusters(explained), interval="percentile")
    return f"share {found}; {found.method}"


def closer_finding(rows: "pd.DataFrame", score: str, seed: int) -> "Finding":
    """By how much a score is nearer to LG than alpha, in the cells that were learned."""
    from poskernel.report.page import Finding

    chosen = rows[rows["learned"]]
    found = closer(chosen, score, seed)
    return Finding(
        f"'{SCORES[score]}' lies nearer to LG than '{SCORES['alpha']}' by, over {len(chosen)} rows of learned cells:",
        f"{found}", found.method,
    )  # fmt: skip


def itself_first(rows: "pd.DataFrame") -> "Finding":
    """Cells that learned their task though their head's argmax is not the target at the training length."""
    from poskernel.report.page import Finding

    cells = rows[rows["learned"]].drop_duplicates(CELL)
    short = cells[cells[LEARNED] < BINARY_ALPHA]
    said = [
        f"{name}: {own:.2f}, and {others:.2f} among keys other than the query"
        for name, own, others in zip(clusters(short), short[LEARNED], short[LEARNED_OTHERS], strict=True)
    ]
    return Finding(
        "Learned cells whose heads have the target as strict argmax in less than half of the rows they trained on:",
        f"{len(short)} of {len(cells)}", "; ".join(said),
    )  # fmt: skip


def open_cell(models: "pd.DataFrame", encoding: str, task: str, length: int) -> "Finding":
    """One cell at one length: both alphas, attention and LG, with intervals over seeds."""
    from poskernel.report.page import Finding

    chosen = models[(models["encoding"] == encoding) & (models["task"] == task) & (models["length"] == length)]
    said = "; ".join(
        f"{words} {mean(chosen[name])}" for name, words in {**SCORES, "accuracy": "LG"}.items() if name != "alpha"
    )
    fitted = f"{chosen['alpha'].iloc[0]:.2f}" if len(chosen) else "no row"
    return Finding(f"{encoding} {task} at length {length}, fitted alpha:", fitted, said if len(chosen) else "")


def text_of(rows: "pd.DataFrame", wrong: "pd.DataFrame") -> str:
    """What was done, and the answer by fixed rules from the rows alone."""
    counts = wrong["cause"].value_counts()
    told = ", ".join(f"{cause}: {int(counts.get(cause, 0))}" for cause in CAUSES.values())
    return (
        "In the first layer, over independent tokens, a head's mean logit of two positions is that of its mean query "
        "and its mean key: its kernel is read off the weights exactly (RoPE: the closed form of `extend`; the "
        "others: means of queries and keys at each position). "
        f"The {len(rows)} rows are cells at a length, means over seeds; a row is mispredicted where alpha and LG lie "
        "on different sides of one half. What a mispredicted row is put down to is the first of these that lies on "
        f"LG's side: {told}."
    )


def picture(rows: "pd.DataFrame", output: Output) -> "FigurePanel":
    """The four scores against LG, a point a cell and length."""
    from poskernel.report.sweeps import scatter_panels

    data = rows.assign(status=["done" if learned else "unlearned" for learned in rows["learned"]])
    long = data.melt([*CELL, "length", "accuracy", "status"], list(DRAWN), var_name="score", value_name="value")
    figure = scatter_panels(
        long, title="LG against what is known before training, and of the trained head", panel="score",
        notes={name: SCORES[name] for name in DRAWN},
        x="value", labels=("share of query rows, or attention", "trained LG"),
    )  # fmt: skip
    caption = "A point is a cell at a length, means over seeds; hollow where its models did not learn their task."
    return output.figure(figure, long, f"{NAME}-scores", "Four panels: LG against each score, a point a row", caption)
