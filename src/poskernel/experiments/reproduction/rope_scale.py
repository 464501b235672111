"""Open question: low-frequency RoPE on skip3, which the paper's rule predicts to fail and trained models solve.

Alpha under every rule and step count, existence, and LG, over scales of the frequencies from 1 to 0.01.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from poskernel.encodings import Rope
from poskernel.experiments.comparison import BINARY_ALPHA, GENERALIZES
from poskernel.experiments.reproduction.evidence import PICTURED_LENGTH, Evidence
from poskernel.experiments.reproduction.output import Output, not_run
from poskernel.experiments.reproduction.rules import RULES, rule_words
from poskernel.statistics import mean
from poskernel.study import Metric
from poskernel.study.grid import short_specification
from poskernel.study.studies import FIVE_RULES, ROPE_SCALES

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import FigurePanel, Panel, Section

TASK = "skip3"
STEPS = (2000, 8000)


def encoding_at(scale: float) -> str:
    """RoPE with its frequencies scaled, as the rows name it."""
    return short_specification(Rope(scale=scale))


def scale_table(evidence: Evidence) -> "pd.DataFrame":
    """One line a scale, at length 60: alpha under every rule, existence, LG and train accuracy by training steps."""
    import pandas as pd

    lines = []
    for scale in ROPE_SCALES:
        name = encoding_at(scale)
        line: dict[str, object] = {"scale": f"{scale:g}"}
        line |= {rule_words(rule): evidence.alpha(name, TASK, PICTURED_LENGTH, rule).value for rule in RULES}
        line["exists"] = exists_word(evidence, scale)
        for steps in STEPS:
            runs = runs_at(evidence, scale, steps)
            line[f"LG, {steps} steps"] = mean(runs["accuracy"].dropna())
            line[f"train accuracy, {steps} steps"] = mean(runs["train_accuracy"].dropna())
        lines.append(line)
    return pd.DataFrame(lines)


def exists_word(evidence: Evidence, scale: float) -> str | None:
    """Whether some kernel of the family solves both lengths: the stored word."""
    study = evidence.study("rope-scale")
    rows = study.only(Metric.EXISTS)
    chosen = rows[(rows["encoding"] == encoding_at(scale)) & (rows["length"] == PICTURED_LENGTH)]
    return str(chosen["reason"].iloc[0]) if len(chosen) else None


def runs_at(evidence: Evidence, scale: float, steps: int) -> "pd.DataFrame":
    """The models of one scale and budget at length 60, a line a seed."""
    rows = evidence.study("rope-scale").joined(1, steps=steps)
    return rows[(rows["encoding"] == encoding_at(scale)) & (rows["length"] == PICTURED_LENGTH)]


def false_negatives(table: "pd.DataFrame") -> "pd.DataFrame":
    """Scales at which trained models generalize, at any budget, though the paper's rule has alpha below 0.5."""
    generalizes = (
        table[[f"LG, {steps} steps" for steps in STEPS]].map(lambda found: found.value >= GENERALIZES).any(axis=1)
    )
    return table[generalizes & (table[rule_words("adam")] < BINARY_ALPHA)]


def answer(table: "pd.DataFrame") -> str:
    """The answer in words, by fixed rules from the table alone."""
    wrong = false_negatives(table)
    trained = table[f"LG, {STEPS[0]} steps"].map(lambda found: found.n > 0).any()
    if not trained:
        return "No model of this study is there yet, so there is no false negative to explain; predictions stand below."
    if wrong.empty:
        return "No scale has models that generalize where the paper's rule predicts failure: no false negative here."
    words = [f"False negatives of the paper's rule at scale {', '.join(wrong['scale'])}."]
    return " ".join([*words, *(reason(line) for line in wrong.to_dict("records"))])


def reason(line: Mapping[Any, Any]) -> str:
    """What the rows of one scale say of its false negative."""
    scale, transfers = line["scale"], {rule: line[rule_words(rule)] >= BINARY_ALPHA for rule in RULES}
    longer = [rule_words(rule) for rule in RULES if rule.startswith("adam:") and transfers[rule]]
    if line["exists"] != "yes":
        return (
            f"Scale {scale}: no kernel of the family is known to solve both lengths ({line['exists']}): no selection."
        )
    start = f"Scale {scale}: a kernel of the family solves both lengths, so the family is not what fails."
    if transfers["optimum"]:
        more = f", and so does adam run longer ({', '.join(longer)})" if longer else ""
        return f"{start} The exact minimum of the same objective transfers{more}: the rule's early stopping fails."
    if transfers["max-margin"]:
        return (
            f"{start} The exact minimum of the same objective (optimum) fails as well, so fitting longer "
            "would not mend "
            "it, while the max-margin kernel transfers: the objective with its decay fails, not the stopping alone."
        )
    return f"{start} No rule here selects one that transfers: a gap of selection that no rule closes."


def rope_scale_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """The sweep, the table and the answer."""
    from poskernel.report.page import Finding, Section

    title = "Open question: low-frequency RoPE on skip3"
    question = "Is the paper's false negative the optimiser of the predictor, or the family of kernels?"
    if evidence.study("rope-scale").table.empty:
        return [not_run(title, question, "rope-scale")]
    table = scale_table(evidence)
    wrong = false_negatives(table)
    sentence = "Scales with models that generalize though the paper's rule predicts failure:"
    findings = [Finding(sentence, f"{len(wrong)} of {len(table)}", ", ".join(wrong["scale"]))]
    findings += [
        Finding(
            f"Scale {line['scale']}: LG at length {PICTURED_LENGTH} after {steps} steps, where the paper's "
            "rule has alpha "
            f"{line[rule_words('adam')]:.2f} and existence is '{line['exists']}':",
            f"{line[f'LG, {steps} steps']}",
            line[f"LG, {steps} steps"].method,
        )
        for line in wrong.to_dict("records")
        for steps in STEPS
        if line[f"LG, {steps} steps"].n
    ]
    fives = [
        "scale",
        *map(rule_words, FIVE_RULES),
        "exists",
        *(f"LG, {steps} steps" for steps in STEPS),
        *(f"train accuracy, {steps} steps" for steps in STEPS),
    ]
    by_steps = ["scale", *(rule_words(rule) for rule in RULES if rule.startswith("adam") and rule != "adam0")]
    panels: list[Panel] = [
        scale_map(table, output),
        scale_figure(evidence, table, output),
        output.table(table[fives], "rope-scale", f"RoPE with scaled frequencies on {TASK}, length {PICTURED_LENGTH}"),
        output.table(table[by_steps], "rope-scale-steps", "Alpha of the adam rule by its number of steps"),
    ]
    return [Section(title, question, findings, panels, text=answer(table), command="poskernel study run rope-scale")]


def scale_map(table: "pd.DataFrame", output: Output) -> "FigurePanel":
    """Every rule's alpha, and LG, at every scale: a heat map."""
    from poskernel.report.figures import heat_maps

    shown = {rule_words(rule): f"α, {rule_words(rule)}" for rule in RULES}
    trained = [f"LG, {steps} steps" for steps in STEPS]
    values = table.assign(**{name: [found.value for found in table[name]] for name in trained})
    values["exists"] = [{"yes": 1.0, "no": 0.0, "conflict": 0.0}.get(word) for word in table["exists"]]
    names = {**shown, "exists": "exists (1: yes)", **{name: f"trained {name}" for name in trained}}
    long = values.melt("scale", list(names), var_name="what", value_name="value")
    long = long.assign(what=long["what"].map(names), value=long["value"].astype(float), value_reason="no rows")
    figure = heat_maps(
        long,
        {"value": f"length {PICTURED_LENGTH}"},
        title=f"{TASK} under RoPE with scaled frequencies: predicted, possible, trained",
        rows="what",
        columns="scale",
    )
    caption = "Models of 8000 steps were planned for scales below 0.1 alone."
    return output.figure(
        figure, long, "rope-scale-map", "Heat map of alpha by rule, existence and LG by scale", caption
    )


def scale_figure(evidence: Evidence, table: "pd.DataFrame", output: Output) -> "FigurePanel":
    """Alpha by rule and LG against scale, seeds as dots."""
    import pandas as pd

    from poskernel.report.sweeps import sweep

    runs = [
        runs_at(evidence, scale, steps).assign(scale=scale, series=f"trained LG, {steps} steps")
        for scale in ROPE_SCALES
        for steps in STEPS
    ]
    dots = pd.concat(runs).assign(value=lambda rows: rows["accuracy"])[["scale", "series", "value"]].dropna()
    lines = dots.groupby(["series", "scale"])["value"].mean().reset_index()
    shown = [*map(rule_words, FIVE_RULES), rule_words("adam:steps=10000")]
    alphas = table.melt("scale", shown, var_name="series", value_name="value")
    alphas = alphas.assign(scale=alphas["scale"].astype(float), series="α, " + alphas["series"])
    both = pd.concat([lines, alphas], ignore_index=True)
    figure = sweep(
        both,
        title=f"Alpha by rule, and LG, at length {PICTURED_LENGTH} by scale of RoPE's frequencies",
        x="scale",
        y="value",
        runs=dots,
        labels=("scale of the frequencies", "share of query rows"),
    )
    return output.figure(
        figure,
        both,
        "rope-scale",
        "Lines of alpha by rule and of LG against the scale of RoPE's frequencies",
        "Thick lines: trained models, a dot a seed. Dashed: alpha by selection rule.",
    )
