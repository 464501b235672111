"""Is the verdict an accident of position 0, of size, of the training length, or of the encodings' parameters?"""

from typing import TYPE_CHECKING, Any

from poskernel.encodings import Rope, Sinusoidal
from poskernel.experiments.comparison import BINARY_ALPHA, GENERALIZES, compare
from poskernel.experiments.reproduction.agreement import learnable
from poskernel.experiments.reproduction.cells import TIER_WORDS, cell_table, dots, tiers_of
from poskernel.experiments.reproduction.evidence import PICTURED_LENGTH, TRAINED_AT, Evidence
from poskernel.experiments.reproduction.output import Output, not_run
from poskernel.experiments.study_rows import CELL
from poskernel.statistics import Estimate, spearman
from poskernel.study import Metric
from poskernel.study.studies import BASES, FREQUENCY_COUNTS

if TYPE_CHECKING:
    import pandas as pd

    from poskernel.report.page import FigurePanel, Panel, Section

TRAIN_LENGTHS = (10, 20, 40)
ALPHA_FORMAT = "z.3f"


def interior_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """Absolute targets away from the boundary: pos2 and pos5 beside first."""
    from poskernel.report.page import Finding, Section

    title, question = (
        "Interior positions",
        "Is the verdict on absolute targets an accident of position 0, the causal boundary?",
    )
    tiers = tiers_of(evidence, "interior")
    if not tiers:
        return [not_run(title, question, "interior")]
    panels: list[Panel] = [dots(evidence, output, "interior", tiers)]
    findings = []
    for tier in tiers:
        found = evidence.comparison("interior", tier)
        separation = found.separation
        findings.append(
            Finding(
                f"{TIER_WORDS[tier]}, {separation.positives} cells against {separation.negatives}: AUC",
                f"{separation.auc}",
                f"p = {separation.p:.2g}; {separation.auc.method}",
            )
        )
        table = cell_table(found.rows, PICTURED_LENGTH)
        panels.append(
            output.table(
                table, f"interior-cells-tier-{tier}", f"{TIER_WORDS[tier]}, length {PICTURED_LENGTH}", folded=tier > 1
            )
        )
    return [Section(title, question, findings, panels, command="poskernel study run interior")]


def common_correlation(evidence: Evidence, tier: int) -> tuple[Estimate, Estimate, int]:
    """Spearman at the default and the larger size, on the cells that both sizes learned; their number.

    Seeds differ in number between the two studies; every seed there is counts.
    """
    sizes = [
        learnable(evidence.comparison(name, tier).cells).dropna(subset=["alpha", "accuracy"])
        for name in ("paper", "scale")
    ]
    both = sizes[0].merge(sizes[1], on=CELL, suffixes=("", "_large"))
    default = spearman(both["alpha"], both["accuracy"], seed=evidence.seed)
    large = spearman(both["alpha_large"], both["accuracy_large"], seed=evidence.seed)
    return default, large, len(both)


def scale_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """A vocabulary of 64 and a width of 128, on the cells common to both sizes."""
    import pandas as pd

    from poskernel.report.page import Finding, Section

    title, question = "Scale", "Does the verdict hold for a vocabulary of 64 and a width of 128?"
    tiers = [tier for tier in tiers_of(evidence, "scale") if evidence.has_tier("paper", tier)]
    if not tiers:
        return [not_run(title, question, "scale")]
    lines: list[dict[str, Any]] = []
    for tier in tiers:
        default, large, number = common_correlation(evidence, tier)
        promise = evidence.comparison("scale", tier).precisions[0.5]
        lines.append(
            {
                "architecture": TIER_WORDS[tier],
                "cells learned at both sizes": number,
                "Spearman, width 64": default,
                "Spearman, width 128": large,
                "precision, width 128": promise.estimate,
            }
        )
    table = pd.DataFrame(lines)
    findings = [
        Finding(
            f"{line['architecture']}, {line['cells learned at both sizes']} cells that both sizes learned: "
            "Spearman at width 128",
            f"{line['Spearman, width 128']}",
            f"width 64: {line['Spearman, width 64']}; {line['Spearman, width 128'].method}",
        )
        for line in lines
    ]
    panels: list[Panel] = [
        dots(evidence, output, "scale", tiers),
        output.table(table, "scale", "Rank correlation of alpha and LG at two sizes"),
    ]
    return [Section(title, question, findings, panels, command="poskernel study run scale")]


def train_length_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """Training lengths 10, 20 and 40, each evaluated at three times that."""
    import pandas as pd

    from poskernel.report.page import Finding, Section

    title, question = "Training length", "Does the verdict depend on the training length, at three times that length?"
    study = evidence.study("train-length")
    lines: list[dict[str, Any]] = []
    tables = []
    for length in TRAIN_LENGTHS:
        rows = study.joined(1, train_length=length)
        if not rows["accuracy"].notna().any():
            continue
        found = compare(rows, evidence.seed)
        winners = generalizing(found.cells)
        lines.append(
            {
                "training length": length,
                "AUC": found.separation.auc,
                "p": found.separation.p,
                "cells": len(found.cells.dropna(subset=["alpha", "accuracy"])),
                "generalize": ", ".join(winners) or "none",
            }
        )
        tables.append(cell_table(rows, 3 * length).assign(**{"training length": length}))
    if not lines:
        return [not_run(title, question, "train-length")]
    findings = [
        Finding(
            f"Trained at {line['training length']}, tested at {3 * line['training length']}: AUC over "
            f"{line['cells']} cells",
            f"{line['AUC']}",
            f"p = {line['p']:.2g}; generalize: {line['generalize']}",
        )
        for line in lines
    ]
    same = len({line["generalize"] for line in lines}) == 1
    findings.append(
        Finding(
            f"The same cells generalize at each of the {len(lines)} training lengths there are rows of:",
            "yes" if same else "no",
        )
    )
    columns = ["training length", *CELL, "alpha", "LG", "SD", "seeds", "train accuracy"]
    panels: list[Panel] = [
        output.table(pd.DataFrame(lines), "train-length", "Separation and winners by training length", {"p": ".2g"}),
        output.table(
            pd.concat(tables)[columns], "train-length-cells", "Cells at three times the training length", folded=True
        ),
    ]
    return [Section(title, question, findings, panels, command="poskernel study run train-length")]


def generalizing(cells: "pd.DataFrame") -> list[str]:
    """Names of the cells whose mean LG is at least 0.5, sorted."""
    chosen = cells[cells["accuracy"] >= GENERALIZES]
    return sorted(f"{encoding} {task}" for encoding, task in zip(chosen["encoding"], chosen["task"], strict=True))


def sensitivity_table(evidence: Evidence, kind: type[Rope] | type[Sinusoidal]) -> "pd.DataFrame":
    """Alpha at length 60 of one encoding, a line a number of frequencies and base, a column a task."""
    import pandas as pd

    rows = evidence.study("sensitivity").only(Metric.ALPHA)
    values: dict[str, float] = dict(
        rows.loc[rows["length"] == PICTURED_LENGTH, ["cell", "value"]].itertuples(index=False)
    )
    lines: dict[tuple[int, float], dict[str, float]] = {}
    for unit in evidence.study("sensitivity").units:
        encoding = unit.cell.encoding
        if isinstance(encoding, kind) and unit.cell.id in values:
            lines.setdefault((encoding.frequencies, encoding.base), {})[unit.cell.task.name] = values[unit.cell.id]
    return pd.DataFrame([{"frequencies": f, "base": f"{b:g}", **tasks} for (f, b), tasks in sorted(lines.items())])


def sensitivity_sections(evidence: Evidence, output: Output) -> "list[Section]":
    """Alpha over the number of frequencies and the base, without training."""
    from poskernel.report.page import Finding, Section

    title = "Frequencies and base"
    question = "Does alpha's verdict depend on the number of frequencies or on the base?"
    panels: list[Panel] = []
    findings = []
    for kind, name in ((Rope, "rope"), (Sinusoidal, "sinusoidal")):
        table = sensitivity_table(evidence, kind)
        if table.empty:
            return [not_run(title, question, "sensitivity")]
        tasks = [str(column) for column in table if column not in ("frequencies", "base")]
        verdicts = table[tasks] >= BINARY_ALPHA
        moving = [task for task in tasks if verdicts[task].nunique() > 1]
        spread = "; ".join(f"{task} {table[task].min():.2f} to {table[task].max():.2f}" for task in tasks)
        planned = len(FREQUENCY_COUNTS) * len(BASES)
        findings.append(
            Finding(
                f"{name}: tasks whose verdict (alpha of at least {BINARY_ALPHA:g} at length "
                f"{PICTURED_LENGTH}) moves over "
                f"{len(table)} of {planned} settings:",
                f"{len(moving)}",
                f"{', '.join(moving) or 'none'}; alphas: {spread}",
            )
        )
        formats = dict.fromkeys(tasks, ALPHA_FORMAT)
        caption = f"{name}: alpha at length {PICTURED_LENGTH}, fitted at {TRAINED_AT}"
        panels.append(output.table(table, f"sensitivity-{name}", caption, formats, folded=True))
    panels.insert(0, sensitivity_figure(evidence, output))
    return [Section(title, question, findings, panels, command="poskernel study run sensitivity")]


def sensitivity_figure(evidence: Evidence, output: Output) -> "FigurePanel":
    """Alpha against the number of frequencies at the default base, a panel an encoding."""
    import pandas as pd

    from poskernel.report.sweeps import sweep

    both = pd.concat(
        [
            sensitivity_table(evidence, kind).assign(encoding=name)
            for kind, name in ((Rope, "rope"), (Sinusoidal, "sinusoidal"))
        ]
    )
    chosen = both[both["base"] == f"{1e4:g}"].melt(
        ["frequencies", "base", "encoding"], var_name="series", value_name="alpha"
    )
    figure = sweep(
        chosen,
        title=f"Alpha at length {PICTURED_LENGTH} by number of frequencies, base 10,000",
        x="frequencies",
        y="alpha",
        panel="encoding",
        labels=("frequencies", "α"),
    )
    return output.figure(
        figure, chosen, "sensitivity", "Lines of alpha against the number of frequencies", "No model is trained here."
    )
