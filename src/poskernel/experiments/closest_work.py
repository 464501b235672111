"""The closest works' claims on our models: one small measured answer a line.

Predictions were written before any run of these measures. Informed: that means alone nearly give the kernel of most
heads (from the validation of `extend`), and that induction heads match in unresolved planes (from throw-away runs for
E7). One line is answered elsewhere: what users ask a rope calculator for is the extension screen, which has a page and
rows of its own.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poskernel import statistics
from poskernel.experiments.experiment import Experiment, Listing, Picture, RegisteredPrediction, Scale
from poskernel.experiments.head_rows import by_seed, difference, mean, median, of_models
from poskernel.experiments.judging import Side
from poskernel.experiments.pretrained.closest_units import (
    HEAD_MEASURES,
    LAYER_MEASURES,
    LEAKAGE,
    SHARP,
    SLOW,
    UNIFORM,
    ClosestUnit,
)
from poskernel.experiments.pretrained.models import GEMMA, SMOLLM2, RealModelCell
from poskernel.study.units import Unit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SEEDS = (1, 2, 3, 4, 5)
MODELS = (SMOLLM2, GEMMA)
Measured = Callable[["pd.DataFrame"], Sequence[float]]
OWN: Mapping[str, object] = {"model": SMOLLM2.name, "state": "trained"}


def build(scale: Scale) -> list[Unit]:
    """Model by model, text by text."""
    if scale is Scale.QUICK:
        small = dataclasses.replace(SMOLLM2, product_layers=(29,))
        cell = RealModelCell(small, "topics", 4, 40)
        return [ClosestUnit(cell, 1, dropped=8, layers=(0, 29), leaking=(4, 24))]
    return [ClosestUnit(RealModelCell(model, "sotu", 8, 320), seed) for model in MODELS for seed in SEEDS]


def over_heads(metric: str, statistic: Callable[["pd.Series[float]"], float] = mean) -> Measured:
    """A statistic of a measure over SmolLM2's heads, a text each; heads without a number count as 0."""
    return lambda rows: by_seed(of_models(rows, metric, statistic, OWN, undefined=0.0)).tolist()


def typed(rows: "pd.DataFrame") -> Sequence[float]:
    """Share of heads of one of the three types."""
    kinds = [by_seed(of_models(rows, name, mean, OWN)) for name in (SHARP, SLOW, UNIFORM)]
    return (kinds[0] + kinds[1] + kinds[2]).tolist()


def ranked(first: str, second: str) -> Measured:
    """Rank correlation of two measures over SmolLM2's heads, a text each."""

    def correlation(rows: "pd.DataFrame") -> Sequence[float]:
        chosen = rows[(rows["model"] == SMOLLM2.name) & rows["head"].notna() & rows["metric"].isin([first, second])]
        wide = chosen.pivot(index=["seed", "layer", "head"], columns="metric", values="value")
        return [float(part[first].corr(part[second], method="spearman")) for _, part in wide.groupby(level="seed")]

    return correlation


def gap(first: str, second: str) -> Measured:
    """Mean over SmolLM2's heads of one measure less that of another."""
    return lambda rows: difference(
        of_models(rows, first, mean, OWN, undefined=0.0), of_models(rows, second, mean, OWN, undefined=0.0)
    )


def first_deposit(rows: "pd.DataFrame") -> Sequence[float]:
    """Effective number of heads of positional variance in SmolLM2's first layer."""
    return by_seed(of_models(rows, "deposit", mean, {**OWN, "layer": 0})).tolist()


def deposit_gained(rows: "pd.DataFrame") -> Sequence[float]:
    """Mean over layers of that number with weights drawn anew, less the trained model's."""
    fresh, own = (
        of_models(rows, "deposit", mean, {"model": SMOLLM2.name, "state": state}) for state in ("untrained", "trained")
    )
    return difference(fresh, own)


def removed(rows: "pd.DataFrame") -> Sequence[float]:
    """Share of the first position's part of the leakage that is gone when its token is swapped."""
    where = {"model": SMOLLM2.name}
    kept, swapped = (by_seed(of_models(rows, f"first_{name}", mean, where)) for name in ("kept", "swapped"))
    return (1 - swapped / kept).tolist()


@dataclass(frozen=True)
class Line:
    """A closest work, what it claims, and the prediction that answers it."""

    work: str
    claim: str
    prediction: str


LINES = (
    Line("TriAttention (arXiv 2604.04921)", "means before the rotation give the kernel", "means are enough"),
    Line("Positional kernels of attention heads (GPT-2, LessWrong)", "three types of kernels", "three types"),
    Line("Positional-symbolic exclusion (arXiv 2511.11579)", "a head is one or the other", "one or the other"),
    Line("the same", "scores tell what R2 and shares tell", "scores agree with shares"),
    Line("Where absolute position comes from (arXiv 2606.06160)", "swapping the first token removes 40%", "the swap"),
    Line("Round and round (arXiv 2410.06205)", "high frequencies are positional", "short planes are positional"),
    Line("the same", "low frequencies carry content", "long planes are symbolic"),
    Line("Deconstructing positional information (arXiv 2505.13027)", "one head takes it all", "one head in layer 0"),
    Line("the same", "training concentrates position in few heads", "training concentrates"),
    Line("Beyond position (arXiv 2410.18067)", "heads have a scale of their own", "a scale of its own"),
)
PREDICTIONS = (
    RegisteredPrediction(
        "means are enough",
        "The median correlation over heads of the exact kernel with that of mean queries and keys is above 0.9.",
        over_heads("means_correlation", median), Side.ABOVE, 0.9, "kernels that need what queries and keys share",
        informed=True,
    ),
    RegisteredPrediction(
        "three types", "More than 0.8 of heads are sharply local, slowly decaying or uniform.", typed,
        Side.ABOVE, 0.8, "a fifth of the heads with kernels of no such type", informed=False, step=1 / 270,
    ),
    RegisteredPrediction(
        "one or the other", "Over heads the two scores have a rank correlation below -0.5.",
        ranked("positional", "symbolic"), Side.BELOW, -0.5, "heads that are positional and symbolic at once",
        informed=False,
    ),
    RegisteredPrediction(
        "scores agree with shares",
        "Over heads the positional score has a rank correlation above 0.5 with the share of logit variance that the "
        "kernel of the offset holds.",
        ranked("positional", "share"), Side.ABOVE, 0.5, "scores that say otherwise than the kernels", informed=False,
    ),
    RegisteredPrediction(
        "the swap",
        "With a random first token in each text in place of the model's own, the first position's part of the leakage "
        "of absolute positions is smaller by more than 0.2 of itself.",
        removed, Side.ABOVE, 0.2, "a part that does not depend on the first token", informed=False, deciding=False,
    ),
    RegisteredPrediction(
        "short planes are positional",
        "By energy, planes of wavelengths up to 32 have a positional score above that of planes longer than the text "
        "by more than 0.1, mean over heads.",
        gap("positional_short", "positional_unresolved"), Side.ABOVE, 0.1, "frequencies that do not differ",
        informed=False,
    ),
    RegisteredPrediction(
        "long planes are symbolic", "The symbolic score is higher by more than 0.1 the other way round.",
        gap("symbolic_unresolved", "symbolic_short"), Side.ABOVE, 0.1, "frequencies that do not differ",
        informed=True,
    ),
    RegisteredPrediction(
        "one head in layer 0",
        "Positional variance of the first layer lies in fewer than 2 effective heads of 9. We do not know: the source "
        "saw it in models trained on one task.",
        first_deposit, Side.BELOW, 2.0, "a first layer whose heads share position", informed=False, deciding=False,
    ),
    RegisteredPrediction(
        "training concentrates",
        "Averaged over layers the effective number of heads is lower than with weights drawn anew by more than 0.5.",
        deposit_gained, Side.ABOVE, 0.5, "position as spread as before training", informed=False, deciding=False,
    ),
    RegisteredPrediction(
        "a scale of its own",
        "In the median head one octave of offsets holds more than half of the squared steps of g.",
        over_heads("octave", median), Side.ABOVE, 0.5, "kernels that change at all scales alike", informed=False,
        deciding=False,
    ),
)  # fmt: skip


def answers(rows: "pd.DataFrame") -> "pd.DataFrame":
    """A line a claim of another work: ours beside it."""
    import pandas as pd

    verdict, by_name = CLOSEST.verdict(rows), {each.name: each for each in PREDICTIONS}
    return pd.DataFrame([
        {
            "work": line.work, "claims": line.claim, "asked here": by_name[line.prediction].statement,
            "measured": verdict.judgements[line.prediction].estimate,
            "outcome": str(verdict.judgements[line.prediction].outcome),
        }
        for line in LINES
    ])  # fmt: skip


def score_data(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Mean over heads of both scores in both bands, with the interval over texts."""
    import pandas as pd

    words = {"positional": "positional score", "symbolic": "symbolic score"}
    bands = {"short": "wavelengths up to 32", "unresolved": "wavelengths beyond the text"}
    lines = []
    for model in rows["model"].unique():
        for name, score in words.items():
            for band, label in bands.items():
                where = {"model": model, "state": "trained"}
                values = by_seed(of_models(rows, f"{name}_{band}", mean, where, undefined=0.0)).dropna()
                line = {"label": f"{model}, {label}", "score": score, "estimate": statistics.mean(values)}
                lines.append(line)
    return pd.DataFrame(lines)


def draw_scores(table: "pd.DataFrame") -> "Figure":
    """An interval a band and score."""
    from poskernel.report.intervals import forest

    return forest(
        table, title="Which frequencies hold position?", axis_label="score, mean over heads", series="score"
    )  # fmt: skip


CLOSEST = Experiment(
    id="closest",
    title="The closest work",
    question="Do the claims of the closest works hold on these models?",
    claim="What the closest works say of means, types, scores and frequencies of heads holds in SmolLM2.",
    design=(
        "SmolLM2-135M and Gemma-3-270M on five disjoint parts of the corpus sotu, 8 x 320 tokens, the first 16 "
        "positions left out; a replicate is a part. Predictions are about SmolLM2; Gemma-3 stands in the rows and the "
        "figure. Leakage: 6 x 96 tokens on selected layers. Quick version: SmolLM2, one short text, two layers. What "
        "users ask a rope calculator for (koboldcpp #375, yarn #40, minimind #842) is answered by `poskernel extend`, "
        "on its page."
    ),
    measures=(*HEAD_MEASURES, *LAYER_MEASURES, *LEAKAGE),
    predictions=PREDICTIONS,
    falsified_by="heads of which a closest work's description is not true in one of the deciding measures",
    threats=(
        "Other works measured other models, some of them trained on one task: what fails here may hold there. Their "
        "measures are rebuilt from their descriptions, and types are told apart by thresholds of ours. SmolLM2's own "
        "first token does not stand before its training texts in the way it does here."
    ),
    build=build,
    pictures=(
        Picture(
            "scores",
            "Scores of planes weighted by their energy; mean over heads, interval over texts.",
            "Positional and symbolic score of short and of unresolved planes.",
            score_data,
            draw_scores,
        ),
    ),
    listings=(Listing("answers", "The closest works, line by line", answers),),
)  # fmt: skip
