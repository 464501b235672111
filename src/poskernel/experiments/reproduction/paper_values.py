"""The paper's values, frozen as printed, each with how ours is had from the rows.

Source: Han, Chai and Wang, A Positional Realizability Theory of Length Generalization in Single-Head Attention, arXiv
2610.41218: sections 6 and 7, tables 3 to 12, appendices B and D to I. Nothing here was changed after a number of ours
was seen. Where the paper does not say at which length, 60 is taken: that of its tables.
"""

import math
from collections.abc import Callable

from poskernel.experiments.comparison import BINARY_ALPHA, GENERALIZES, compare
from poskernel.experiments.reproduction.agreement import learnable
from poskernel.experiments.reproduction.depth import learnable_precision, rescued_names
from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.explanations import by_cells, by_seeds, by_violations
from poskernel.experiments.reproduction.grading import LEARNABLE_SPEARMAN, statistics
from poskernel.experiments.reproduction.robustness import common_correlation, generalizing
from poskernel.experiments.reproduction.rules import rule_correlation
from poskernel.experiments.reproduction.verdicts import Headline, Kind
from poskernel.errors import RunError
from poskernel.statistics import Estimate, mean
from poskernel.study import Metric
from poskernel.study.studies import STUDY_LENGTHS

Measure = Callable[[Evidence], Estimate]
RESCUED_2 = {"alibi prev", "alibi first", "alibi skip2", "nope prev", "nope first", "rope first"}
"""Cells that generalize at 2 layers against alpha; at 4 layers ALiBi skip3 joins them."""
FOUR_CELLS = ["learned first", "rope prev", "rope skip3", "sinusoidal first"]


def counted(number: float, n: int) -> Estimate:
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
        values = rows.loc[(rows["encoding"] == encoding) & (rows["task"] == task) & (rows["length"] == length), "accuracy"]
        return counted(values.min(), int(values.notna().sum()))

    return measure


def interior_auc(evidence: Evidence) -> Estimate:
    """AUC over the ten interior cells."""
    return evidence.comparison("interior", 1).separation.auc


def interior_floor(evidence: Evidence) -> Estimate:
    """Least mean LG at length 80 of the absolute encodings' interior cells: whether it is at least 0.97."""
    values = [evidence.accuracy(encoding, task, 80).value for encoding in ("learned", "sinusoidal") for task in ("pos2", "pos5")]
    return counted(min(values) >= 0.97, len(values)) if not any(map(math.isnan, values)) else counted(math.nan, 0)


def scale_correlation(tier: int, large: bool) -> Measure:
    """Spearman on the cells that both sizes learned."""

    def measure(evidence: Evidence) -> Estimate:
        for name in ("paper", "scale"):
            evidence.comparison(name, tier)
        return common_correlation(evidence, tier)[1 if large else 0]

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


def lg(name: tuple[str, str], value: float, sd: float, tier: int, where: str = "table 3", length: int = 60) -> Headline:
    """A cell's LG as the paper prints it: mean and SD over 5 seeds."""
    encoding, task = name
    why = by_seeds(encoding, task, length, tier, value)
    words = f"LG of {encoding} {task}, length {length}, tier {tier}"
    return Headline(words, value, where, Kind.ACCURACY, accuracy(encoding, task, length, tier), "paper", tier, sd=sd, explain=why)


def predicted(name: tuple[str, str], value: float, where: str, length: int = 60, study: str = "paper", places: int = 2) -> Headline:
    """A cell's alpha under the paper's rule."""
    words = f"alpha of {name[0]} {name[1]}, length {length}"
    return Headline(words, value, where, Kind.ALPHA, alpha(*name, length), study, places=places)


def rank(name: str, value: float, where: str, key: str, tier: int = 1, **bounds: float) -> Headline:
    """A rank correlation of the main study."""
    return Headline(name, value, where, Kind.CORRELATION, statistic(key, tier), "paper", tier, explain=by_cells, **bounds)  # type: ignore[arg-type]


def promise(tau: float, value: float, places: int) -> Headline:
    """A precision at tier 1."""
    measure = statistic(f"precision at alpha of {tau:g}")
    return Headline(
        f"precision at alpha of {tau:g}, tier 1", value, "section 6", Kind.PRECISION, measure, "paper", 1,
        places=places, explain=by_violations(1),
    )  # fmt: skip


SEPARATION = (
    Headline("AUC over all 35 cells, tier 1", 1.0, "section 6", Kind.SEPARATION, statistic("AUC, all cells"), "paper", 1, explain=by_cells),
    Headline("AUC over the non-trivial cells, tier 1", 1.0, "section 6", Kind.SEPARATION, statistic("AUC, non-trivial cells"), "paper", 1, explain=by_cells),
    Headline("cells that generalize, tier 1", 6, "section 6", Kind.COUNT, positives, "paper", 1, explain=by_cells),
    Headline("permutation p of the AUC is the least possible, 5e-5", 1, "section 6", Kind.CLAIM, permutation_p, "paper", 1, explain=by_cells),
    Headline("least alpha among the cells that generalize", 1.0, "section 6", Kind.ALPHA, extreme_alpha(generalizes=True), "paper", 1, explain=by_cells),
    Headline("greatest alpha among those that do not", 0.36, "section 6", Kind.ALPHA, extreme_alpha(generalizes=False), "paper", 1, explain=by_cells),
    Headline("learnable cells, tier 1", 15, "section 6", Kind.COUNT, learned_cells(1), "paper", 1, explain=by_cells),
)  # fmt: skip
RANKS = (
    rank("Spearman, all cells, tier 1", 0.47, "section 6", "Spearman, all cells"),
    rank("Spearman, learnable cells, tier 1", 0.90, "section 6", LEARNABLE_SPEARMAN, low=0.73, high=0.95),
    rank("the same, learnable above 0.5", 0.91, "appendix D", "Spearman, learnable cells (above 0.5)"),
    rank("the same, learnable above 0.7", 0.90, "appendix D", "Spearman, learnable cells (above 0.7)"),
    rank("the same, learnable above 0.9", 0.90, "appendix D", "Spearman, learnable cells (above 0.9)"),
    rank("the same, alpha binarised", 0.85, "section 6", "Spearman, learnable, alpha binarised"),
    rank("the same, non-trivial cells", 0.77, "section 6", "Spearman, learnable, non-trivial"),
    rank("sinusoidal bounded offsets, 4 cells", -0.20, "section 6", "Spearman, sinusoidal bounded offsets, cells"),
    rank("the same by cell and length", 0.09, "section 6", "Spearman, sinusoidal bounded offsets, cells and lengths"),
    rank("the same by row", 0.04, "section 6", "Spearman, sinusoidal bounded offsets, rows"),
    rank("blind rule, learnable cells", -0.24, "section 6", "blind rule (bounded offset): Spearman, learnable cells"),
    rank("hand taxonomy, learnable cells", 0.85, "section 6", "hand taxonomy: Spearman, learnable cells"),
)
PROMISES = (
    promise(0.5, 0.925, 3),
    promise(0.7, 0.95, 2),
    promise(0.9, 0.987, 3),
    Headline("rows that fall short at alpha of 0.5 (of 160)", 12, "section 6", Kind.COUNT, broken_rows, "paper", 1, explain=by_violations(1)),
    lg(("rope", "first"), 0.13, math.nan, 1, "section 6", 30),
    predicted(("rope", "first"), 0.80, "section 6", 30),
    lg(("sinusoidal", "prev"), 0.14, math.nan, 1, "section 6", 40),
    predicted(("sinusoidal", "prev"), 0.50, "section 6", 40),
    lg(("sinusoidal", "first"), 0.77, math.nan, 1, "section 6", 80),
    Headline("least LG of sinusoidal first among seeds, length 80", 0.49, "section 6", Kind.ACCURACY, worst_seed("sinusoidal", "first", 80), "paper", 1,
             explain=by_seeds("sinusoidal", "first", 80, 1, 0.49)),
)  # fmt: skip
TABLE_3 = (
    *(
        predicted(name, value, "table 3")
        for name, value in {
            ("rope", "skip5"): 1.0, ("rope", "prev"): 1.0, ("rope", "copy"): 0.0, ("sinusoidal", "first"): 1.0,
            ("sinusoidal", "skip3"): 0.25, ("learned", "first"): 1.0, ("learned", "prev"): 0.0, ("alibi", "prev"): 0.0,
            ("alibi", "first"): 0.0, ("nope", "first"): 0.0,
        }.items()
    ),
    *(
        lg(name, value, sd, tier)
        for name, values in {
            ("rope", "skip5"): ((1.00, 0.00), (0.97, 0.02)),
            ("rope", "prev"): ((0.87, 0.05), (0.85, 0.13)),
            ("rope", "copy"): ((0.10, 0.01), (0.14, 0.01)),
            ("sinusoidal", "first"): ((0.87, 0.13), (0.92, 0.04)),
            ("sinusoidal", "skip3"): ((0.22, 0.03), (0.11, 0.01)),
            ("learned", "first"): ((1.00, 0.00), (1.00, 0.00)),
            ("learned", "prev"): ((0.08, 0.00), (0.08, 0.00)),
            ("alibi", "prev"): ((0.18, 0.00), (1.00, 0.00)),
            ("alibi", "first"): ((0.15, 0.01), (1.00, 0.00)),
            ("nope", "first"): ((0.16, 0.01), (1.00, 0.00)),
        }.items()
        for tier, (value, sd) in zip((1, 2), values, strict=True)
    ),
)  # fmt: skip
DEPTH = (
    rank("Spearman, learnable cells, tier 2", 0.31, "table 4", LEARNABLE_SPEARMAN, 2),
    rank("Spearman, learnable cells, tier 3", 0.28, "table 4", LEARNABLE_SPEARMAN, 3),
    *(Headline(f"its interval includes 0, tier {tier}", 1, "table 4", Kind.CLAIM, zero_inside(tier), "paper", tier) for tier in (2, 3)),
    *(
        Headline(f"precision at alpha of 0.5, learnable cells, tier {tier}", value, "table 4", Kind.PRECISION,
                 lambda evidence, tier=tier: learnable_precision(evidence, "paper", tier).estimate, "paper", tier, low, high,
                 explain=by_violations(tier))
        for tier, value, low, high in ((2, 0.94, 0.89, 0.97), (3, 0.97, 0.94, 0.99))
    ),
    Headline("learnable cells, tier 2", 20, "appendix F", Kind.COUNT, learned_cells(2), "paper", 2),
    Headline("cells that generalize against alpha, tier 2, are the paper's six", 1, "appendix D", Kind.CLAIM, rescued_are(2, RESCUED_2), "paper", 2,
             explain=lambda evidence: f"here: {', '.join(sorted(rescued_names(evidence, 'paper', 2)))}"),
    Headline("the same, tier 3, with ALiBi skip3", 1, "appendix D", Kind.CLAIM, rescued_are(3, RESCUED_2 | {"alibi skip3"}), "paper", 3,
             explain=lambda evidence: f"here: {', '.join(sorted(rescued_names(evidence, 'paper', 3)))}"),
    *(
        Headline(f"mean LG of {encoding} {task} over lengths, tier {tier}", value, "appendix D", Kind.ACCURACY, cell_mean(encoding, task, tier), "paper", tier)
        for encoding, task, tier, value in (("nope", "prev", 2, 0.53), ("nope", "prev", 3, 0.74), ("rope", "first", 2, 0.83), ("rope", "first", 3, 1.00))
    ),
)  # fmt: skip
RULES = tuple(
    Headline(f"Spearman on the learnable rows, rule {rule}", value, "table 5", Kind.CORRELATION,
             lambda evidence, rule=rule: rule_correlation(evidence, rule, "learnable rows"), "rules", 1)
    for rule, value in (("min-norm", 0.56), ("adam", 0.91), ("adam0", 0.92))
)  # fmt: skip
ROBUSTNESS = (
    Headline("AUC over the ten interior cells, tier 1", 1.0, "appendix E", Kind.SEPARATION, interior_auc, "interior", 1),
    Headline("absolute encodings, interior: LG of at least 0.97 at length 80", 1, "appendix E", Kind.CLAIM, interior_floor, "interior", 1),
    *(predicted((encoding, task), value, "appendix E", study="interior") for encoding, value in (("learned", 1.0), ("sinusoidal", 1.0), ("rope", 0.0), ("alibi", 0.0), ("nope", 0.0)) for task in ("pos2", "pos5")),
    Headline("Spearman at width 128, common cells, tier 1", 0.92, "table 7", Kind.CORRELATION, scale_correlation(1, large=True), "scale", 1),
    Headline("Spearman at width 128, common cells, tier 2", 0.45, "table 7", Kind.CORRELATION, scale_correlation(2, large=True), "scale", 2),
    Headline("Spearman at width 64, the same cells, tier 2", 0.36, "table 7", Kind.CORRELATION, scale_correlation(2, large=False), "scale", 2),
    Headline("precision at alpha of 0.5, width 128, tier 1", 0.94, "appendix F", Kind.PRECISION, lambda evidence: evidence.comparison("scale", 1).precisions[0.5].estimate, "scale", 1),
    *(Headline(f"AUC trained at {length}, tested at {3 * length}", 1.0, "table 8", Kind.SEPARATION, train_length_auc(length), "train-length", 1, places=3) for length in (10, 20, 40)),
    *(Headline(f"the paper's four cells generalize, trained at {length}", 1, "appendix G", Kind.CLAIM, four_cells(length), "train-length", 1,
               explain=lambda evidence, length=length: "here: " + ", ".join(generalizing(compare(evidence.study("train-length").joined(1, train_length=length)).cells)))
      for length in (10, 20, 40)),
)  # fmt: skip
CONTENT = tuple(
    Headline(f"LG of induction, {encoding}, 2 layers", value, "table 9", Kind.ACCURACY, accuracy(encoding, "induction", 60, 2), "content", 2,
             explain=by_seeds(encoding, "induction", 60, 2, value))
    for encoding, value in (("alibi", 0.84), ("rope", 0.43), ("nope", 0.34))
)  # fmt: skip
SWEEPS = (
    Headline("LG of RoPE at scale 0.03, skip3", 0.88, "table 10", Kind.ACCURACY, accuracy("rope:scale=0.03", "skip3"), "rope-scale", 1, explain=by_seeds("rope:scale=0.03", "skip3", 60, 1, 0.88)),
    Headline("RoPE at scale 0.01 does not learn skip3", 1, "table 10", Kind.CLAIM, not_learned("0.01"), "rope-scale", 1),
    predicted(("rope:scale=0.03", "skip3"), 0.0, "table 10", study="rope-scale"),
    *(predicted((f"rope:frequencies={count}", task), 1.0, "table 11", study="sensitivity") for count in (8, 32) for task in ("prev", "skip3")),
    predicted(("sinusoidal:frequencies=8", "prev"), 0.47, "table 12", study="sensitivity"),
    predicted(("sinusoidal:frequencies=32", "prev"), 0.0, "table 12", study="sensitivity"),
    predicted(("sinusoidal:frequencies=8", "first"), 0.93, "table 12", study="sensitivity"),
    predicted(("sinusoidal:frequencies=32", "first"), 1.0, "table 12", study="sensitivity"),
)  # fmt: skip

HEADLINES: tuple[Headline, ...] = (*SEPARATION, *RANKS, *PROMISES, *TABLE_3, *DEPTH, *RULES, *ROBUSTNESS, *CONTENT, *SWEEPS)

RECOMPUTED = "worked out from the definitions"
VALUES: tuple[Headline, ...] = (
    *(predicted(("rope", "first"), value, RECOMPUTED, length) for length, value in ((30, 0.80), (40, 0.40), (60, 0.20))),
    *(predicted(("sinusoidal", "prev"), value, RECOMPUTED, length) for length, value in ((40, 0.50), (60, 0.45))),
    Headline("mean alpha of rope first over lengths", 0.36, RECOMPUTED, Kind.ALPHA, lambda evidence: evidence.mean_alpha("rope", "first", STUDY_LENGTHS), "paper"),
    *(Headline(f"mean alpha of learned {task} over lengths", 0.05, RECOMPUTED, Kind.ALPHA, lambda evidence, task=task: evidence.mean_alpha("learned", task, STUDY_LENGTHS), "paper")
      for task in ("copy", "reverse")),
    *(
        Headline(f"alpha of {encoding} {task}, length {length}, rule {rule}", value, RECOMPUTED, Kind.ALPHA, alpha(encoding, task, length, rule), "rules", places=3)
        for encoding, task, rule, values in (
            ("sinusoidal", "prev", "adam", (0.10, 0.50, 0.367, 0.45, 0.383)),
            ("sinusoidal", "prev", "optimum", (1, 1, 1, 1, 0.85)),
            ("sinusoidal", "prev", "max-margin", (1, 1, 1, 1, 0.917)),
            ("rope", "first", "adam", (0.80, 0.40, 0.267, 0.20, 0.133)),
            ("rope", "first", "optimum", (0.30, 0.15, 0.10, 0.075, 0.05)),
            ("rope", "first", "max-margin", (0.40, 0.20, 0.133, 0.10, 0.067)),
        )
        for length, value in zip(STUDY_LENGTHS, values, strict=True)
    ),
    *(Headline(f"alpha of sinusoidal prev, length 60, adam at {steps} steps", value, RECOMPUTED, Kind.ALPHA, alpha("sinusoidal", "prev", 60, f"adam:steps={steps}"), "rules", places=3)
      for steps, value in ((1000, 0.725), (1500, 1.0))),
    *(predicted((f"rope:scale={scale}", "skip3"), value, RECOMPUTED, study="rope-scale") for scale, value in (("0.5", 1), ("0.3", 1), ("0.1", 1), ("0.05", 0), ("0.03", 0), ("0.01", 0))),
    Headline("alpha of rope first, length 60, rule min-norm", 1.0, RECOMPUTED, Kind.ALPHA, alpha("rope", "first", 60, "min-norm"), "rules"),
)  # fmt: skip
"""Predictions that were worked out twice from the paper's definitions, independently of this package."""
