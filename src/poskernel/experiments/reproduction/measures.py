"""How a headline's value is had from the rows, and the forms in which many headlines come."""

import math
from collections.abc import Callable

from poskernel.errors import RunError
from poskernel.experiments.comparison import BINARY_ALPHA, GENERALIZES, compare
from poskernel.experiments.reproduction.agreement import learnable
from poskernel.experiments.reproduction.depth import learnable_precision, rescued_names
from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.explanations import by_cells, by_seeds, by_violations
from poskernel.experiments.reproduction.grading import LEARNABLE_SPEARMAN, statistics
from poskernel.experiments.reproduction.robustness import common_correlation, generalizing
from poskernel.experiments.reproduction.rules import rule_correlation
from poskernel.experiments.reproduction.verdicts import Headline, Kind
from poskernel.statistics import Estimate, mean
from poskernel.study import Metric
from poskernel.study.studies import STUDY_LENGTHS

Measure = Callable[[Evidence], Estimate]
FOUR_CELLS = ["learned first", "rope prev", "rope skip3", "sinusoidal first"]
"""Cells that the paper finds to generalize at every training length."""


def counted(number: float | int, n: int) -> Estimate:
    """A count, or 1 and 0 for a claim."""
    return Estimate(float(number), math.nan, math.nan, n, "counted")


def statistic(name: str, tier: int = 1) -> Measure:
    """A statistic of the main study."""
    return lambda evidence: statistics(evidence, "paper", tier)[name].estimate


def accuracy(encoding: str, task: str, length: int = 60, tier: int = 1, steps: int = 2000) -> Measure:
    """Mean LG of one cell over seeds."""
    return lambda evidence: evidence.accuracy(encoding, task, length, tier, steps=steps)


def alpha(encoding: str, task: str, length: int = 60, rule: str = "adam") -> Measure:
    """Alpha of one cell."""
    return lambda evidence: evidence.alpha(encoding, task, length, rule)


def cell_mean(encoding: str, task: str, tier: int) -> Measure:
    """Mean LG of one cell over lengths, interval over seeds."""

    def measure(evidence: Evidence) -> Estimate:
        rows = evidence.comparison("paper", tier).rows
        chosen = rows[(rows["encoding"] == encoding) & (rows["task"] == task)].dropna(subset=["accuracy"])
        return mean(chosen.groupby("seed")["accuracy"].mean())

    return measure


def positives(evidence: Evidence) -> Estimate:
    """Cells that generalize."""
    found = evidence.comparison("paper", 1).separation
    return counted(found.positives, found.positives + found.negatives)


def permutation_p(evidence: Evidence) -> Estimate:
    """Whether the permutation p is the least that 20,000 shuffles can give."""
    found = evidence.comparison("paper", 1).separation
    return counted(found.p < 1e-4, found.positives + found.negatives)


def extreme_alpha(generalizes: bool) -> Measure:
    """Least alpha among the cells that generalize, or greatest among the others."""

    def measure(evidence: Evidence) -> Estimate:
        cells = evidence.comparison("paper", 1).cells
        chosen = cells.loc[(cells["accuracy"] >= GENERALIZES) == generalizes, "alpha"]
        return counted(chosen.min() if generalizes else chosen.max(), len(chosen))

    return measure


def learned_cells(tier: int) -> Measure:
    """Number of learnable cells."""

    def measure(evidence: Evidence) -> Estimate:
        cells = evidence.comparison("paper", tier).cells
        return counted(len(learnable(cells)), len(cells))

    return measure


def broken_rows(evidence: Evidence) -> Estimate:
    """Rows with alpha of at least 0.5 whose LG falls short of 0.7."""
    found = evidence.comparison("paper", 1).precisions[BINARY_ALPHA]
    return counted(len(found.violations), found.estimate.n)


def zero_inside(tier: int) -> Measure:
    """Whether the interval of the learnable Spearman includes 0."""

    def measure(evidence: Evidence) -> Estimate:
        found = statistics(evidence, "paper", tier)[LEARNABLE_SPEARMAN].estimate
        if math.isnan(found.low):
            raise RunError(f"the correlation of tier {tier} has no interval ({found.method}): run more cells.")
        return counted(found.low <= 0 <= found.high, found.n)

    return measure


def rescued_are(tier: int, cells: set[str]) -> Measure:
    """Whether just these cells generalize against alpha."""
    return lambda evidence: counted(rescued_names(evidence, "paper", tier) == cells, len(cells))


def worst_seed(encoding: str, task: str, length: int) -> Measure:
    """Least LG among the seeds."""

    def measure(evidence: Evidence) -> Estimate:
        rows = evidence.comparison("paper", 1).rows
        values = rows.loc[
            (rows["encoding"] == encoding) & (rows["task"] == task) & (rows["length"] == length), "accuracy"
        ]
        return counted(values.min(), int(values.notna().sum()))

    return measure


def interior_auc(evidence: Evidence) -> Estimate:
    """AUC over the ten interior cells."""
    return evidence.comparison("interior", 1).separation.auc


def interior_floor(evidence: Evidence) -> Estimate:
    """Least mean LG at length 80 of the absolute encodings' interior cells: whether it is at least 0.97."""
    values = [
        evidence.accuracy(encoding, task, 80).value
        for encoding in ("learned", "sinusoidal")
        for task in ("pos2", "pos5")
    ]
    return counted(min(values) >= 0.97, len(values)) if not any(map(math.isnan, values)) else counted(math.nan, 0)


def scale_correlation(tier: int, large: bool) -> Measure:
    """Spearman on the cells that both sizes learned."""

    def measure(evidence: Evidence) -> Estimate:
        for name in ("paper", "scale"):
            evidence.comparison(name, tier)
        default, wide, _ = common_correlation(evidence, tier)
        return wide if large else default

    return measure


def train_length_auc(length: int) -> Measure:
    """AUC at one training length."""
    return lambda evidence: compare(evidence.study("train-length").joined(1, train_length=length)).separation.auc


def four_cells(length: int) -> Measure:
    """Whether the paper's four cells generalize, and of its tasks no other (skip2 is not among them)."""

    def measure(evidence: Evidence) -> Estimate:
        cells = compare(evidence.study("train-length").joined(1, train_length=length)).cells
        return counted(generalizing(cells[cells["task"] != "skip2"]) == FOUR_CELLS, len(cells))

    return measure


def not_learned(scale: str) -> Measure:
    """Whether the mean accuracy in distribution stays at 0.8 or below."""

    def measure(evidence: Evidence) -> Estimate:
        found = evidence.accuracy(f"rope:scale={scale}", "skip3", 20, metric=Metric.TRAIN_ACCURACY)
        return found if math.isnan(found.value) else counted(found.value <= 0.8, found.n)

    return measure


def kept_at_depth(tier: int) -> Measure:
    """Precision at alpha of 0.5 over the rows of learnable cells."""
    return lambda evidence: learnable_precision(evidence, "paper", tier).estimate


def rescued_here(tier: int) -> Callable[[Evidence], str]:
    """Which cells generalize against alpha in our rows."""
    return lambda evidence: f"here: {', '.join(sorted(rescued_names(evidence, 'paper', tier)))}"


def rule_rank(rule: str) -> Measure:
    """Spearman of a rule's alpha and LG on the learnable rows."""
    return lambda evidence: rule_correlation(evidence, rule, "learnable rows")


def mean_alpha(encoding: str, task: str) -> Measure:
    """Mean of the default rule's alpha over the study's lengths."""
    return lambda evidence: evidence.mean_alpha(encoding, task, STUDY_LENGTHS)


def wide_precision(evidence: Evidence) -> Estimate:
    """Precision at alpha of 0.5 of the larger models."""
    return evidence.comparison("scale", 1).precisions[BINARY_ALPHA].estimate


def winners_here(length: int) -> Callable[[Evidence], str]:
    """Which cells generalize in our rows at one training length."""

    def explain(evidence: Evidence) -> str:
        cells = compare(evidence.study("train-length").joined(1, train_length=length)).cells
        return f"here: {', '.join(generalizing(cells))}"

    return explain


def lg(
    name: tuple[str, str], value: float | int, sd: float, tier: int, where: str = "table 3", length: int = 60
) -> Headline:
    """A cell's LG as the paper prints it: mean and SD over 5 seeds."""
    encoding, task = name
    why = by_seeds(encoding, task, length, tier, value)
    words = f"LG of {encoding} {task}, length {length}, tier {tier}"
    return Headline(
        words, value, where, Kind.ACCURACY, accuracy(encoding, task, length, tier), "paper", tier, sd=sd, explain=why
    )


def predicted(
    name: tuple[str, str], value: float | int, where: str, length: int = 60, study: str = "paper", places: int = 2
) -> Headline:
    """A cell's alpha under the paper's rule."""
    words = f"alpha of {name[0]} {name[1]}, length {length}"
    return Headline(words, value, where, Kind.ALPHA, alpha(*name, length), study, places=places)


def rank(
    name: str, value: float, where: str, key: str, tier: int = 1, low: float = math.nan, high: float = math.nan
) -> Headline:
    """A rank correlation of the main study."""
    measure = statistic(key, tier)
    return Headline(name, value, where, Kind.CORRELATION, measure, "paper", tier, low, high, explain=by_cells)


def promise(tau: float, value: float, places: int) -> Headline:
    """A precision at tier 1."""
    measure = statistic(f"precision at alpha of {tau:g}")
    return Headline(
        f"precision at alpha of {tau:g}, tier 1",
        value,
        "section 6",
        Kind.PRECISION,
        measure,
        "paper",
        1,
        places=places,
        explain=by_violations(1),
    )
