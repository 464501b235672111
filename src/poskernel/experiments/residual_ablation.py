"""The residual ablation: do models train as well without cross-terms of content and position?

K's fourth question on entanglement: train a standard transformer, and one whose residual connections are there while
cross-terms are projected out at each layer, onto the product kernel's subspace. If the second collapses, residuals have
to carry entanglement; if it does as well, entanglement is made anew by each layer.

What we do instead of what is written. Products k_c g + b with free origins are no subspace, and E2 asks whether they
say more than sums do; so logits are projected onto sums, k_c(x, y) + g(d) (`models.ablated`). That takes cross-terms
out of logits and leaves them in the stream, which no linear projection can clear of them and keep the text; what of the
stream reaches the kernels is therefore taken away in an arm of its own, in which queries and keys of every layer see
the first layer's input alone, and in a last arm both are. Values always see the whole stream.

Thresholds and expectations were written before any run of these models. Not informed by one of ours; that additive
relative biases (T5, arXiv 1910.10683) train about as well as rotations is well known.

Scaled down: see `language_grid`; RoPE with LayerNorm, and for scale the model without positions that E1 has.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from poskernel import statistics
from poskernel.encodings import Nope, Rope
from poskernel.experiments.experiment import Experiment, Listing, Picture, RegisteredPrediction, Scale
from poskernel.experiments.head_rows import by_seed, mean, of_models
from poskernel.experiments.judging import Side
from poskernel.experiments.language_grid import FULL, QUICK, grid_of
from poskernel.experiments.language_units import LOSS_MEASURES, LanguageCell, LossUnit
from poskernel.models.ablated import Ablation
from poskernel.study.units import Unit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ARMS = {
    "plain": ("rope", Ablation.NONE),
    "content and offset apart": ("rope", Ablation.APART),
    "queries and keys of the first input": ("rope", Ablation.FROZEN),
    "both": ("rope", Ablation.BOTH),
    "no positions": ("nope", Ablation.NONE),
}
"""Encoding and ablation, by name; the last one is a yardstick."""


def build(scale: Scale) -> list[Unit]:
    """All models of a seed, then of the next."""
    grid = grid_of(scale)
    rotary = grid.condition(Rope())
    conditions = [dataclasses.replace(rotary, ablation=each) for each in Ablation]
    return [
        LossUnit(LanguageCell(condition), seed)
        for seed in grid.seeds
        for condition in (*conditions, grid.condition(Nope()))
    ]


def at_end(rows: "pd.DataFrame", arm: str, metric: str = "validation_loss") -> "pd.Series[float]":
    """A number of an arm's models after training, a seed each."""
    encoding, ablation = ARMS[arm]
    lines = rows[rows["metric"] == metric]
    if lines.empty:
        return lines["value"].astype(float)
    where = {"encoding": encoding, "ablation": str(ablation), "length": int(lines["length"].max())}
    return by_seed(of_models(rows, metric, mean, where))


def cost(arm: str, over: str = "plain") -> "Callable[[pd.DataFrame], Sequence[float]]":
    """Held-out loss of one arm less that of another after training, nats a token."""
    return lambda rows: (at_end(rows, arm) - at_end(rows, over)).tolist()


def beyond_collapse(rows: "pd.DataFrame") -> Sequence[float]:
    """What both ablations together cost less half of what the plain model is better than a bigram."""
    return (at_end(rows, "both") - at_end(rows, "plain") - at_end(rows, "plain", "bigram_margin") / 2).tolist()


PREDICTIONS = (
    RegisteredPrediction(
        "cross-terms are not needed",
        "Trained with content and offset apart in every layer's logits, models lose less than 0.05 nats a token (K: "
        "comparable accuracy means that each layer makes its own entanglement).",
        cost("content and offset apart"),
        Side.BELOW,
        0.05,
        "models that need what depends on content and offset together",
        informed=False,
    ),
    RegisteredPrediction(
        "no collapse",
        "With queries and keys of the first input besides, they lose less than half of what a plain model is better "
        "than a bigram (K: collapse means that residuals have to carry entanglement to the kernels).",
        beyond_collapse,
        Side.BELOW,
        0.0,
        "models that do not train without what residuals carry to the kernels",
        informed=False,
    ),
    RegisteredPrediction(
        "what layers made reaches the kernels",
        "Queries and keys that see the first layer's input alone cost more than 0.02 nats a token.",
        cost("queries and keys of the first input"),
        Side.ABOVE,
        0.02,
        "kernels that need nothing of what earlier layers made",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "a kernel apart is a kernel",
        "With content and offset apart models are better than without positions by more than 0.02 nats a token.",
        cost("no positions", over="content and offset apart"),
        Side.ABOVE,
        0.02,
        "a kernel of the offset that does nothing where content does not meet it",
        informed=False,
        deciding=False,
    ),
)


def cost_data(rows: "pd.DataFrame") -> "pd.DataFrame":
    """What each arm costs over the plain model, with the interval over seeds."""
    import pandas as pd

    return pd.DataFrame([
        {"arm": arm, "estimate": statistics.mean((at_end(rows, arm) - at_end(rows, "plain")).dropna().tolist())}
        for arm in ARMS
        if arm != "plain"
    ])  # fmt: skip


def loss_table(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Held-out loss after training and what it is better than a bigram, an arm a line."""
    import pandas as pd

    names = {"validation_loss": "held-out loss, nats a token", "bigram_margin": "better than a bigram by"}
    return pd.DataFrame([
        {"arm": arm, **{name: statistics.mean(at_end(rows, arm, metric).dropna().tolist())
                        for metric, name in names.items()}}
        for arm in ARMS
    ])  # fmt: skip


def draw_costs(table: "pd.DataFrame") -> "Figure":
    """An interval an arm."""
    from poskernel.report.intervals import forest

    return forest(
        table, title="What it costs to train without cross-terms", label="arm",
        axis_label="held-out loss over that of the plain model, nats a token",
    )  # fmt: skip


ABLATION = Experiment(
    id="ablation",
    title="The residual ablation",
    question="Do models train as well with cross-terms of content and position taken out of every layer's logits?",
    claim="Models need no cross-terms of content and position in their logits, nor collapse without what layers mixed.",
    design=(
        f"RoPE with LayerNorm: {FULL.description}. Four arms with the same initial weights and data order: plain; "
        "logits of unrotated queries and keys plus one kernel of the offset a head, that of the biases of queries and "
        "keys under RoPE; queries and keys of every layer out of the first layer's input, values out of the whole "
        "stream; both. Beside them models without positions. Losses on validation documents, which choose nothing "
        f"here. Quick version: {QUICK.description}."
    ),
    measures=LOSS_MEASURES,
    predictions=PREDICTIONS,
    falsified_by="a loss that rises by 0.05 nats or more where no logit depends on content and offset together",
    threats=(
        "Cross-terms are taken out of logits, not out of the stream: layers still mix content with position, and a "
        "causal model tells positions apart without any encoding. The kernel left over is that of shared vectors which "
        "training can choose, not a projection of kernels that a plain model has learnt. Content that RoPE turns and "
        "content that it does not are read differently, so an arm differs from plain in more than what it lacks. The "
        "models are small and trained for minutes: what needs cross-terms may need more training than they get."
    ),
    build=build,
    pictures=(
        Picture(
            "cost",
            "Means over seeds with 95% intervals; seeds share initial weights and data with their plain model.",
            "Loss of each arm over that of the plain model.",
            cost_data,
            draw_costs,
        ),
    ),
    listings=(Listing("losses", "Losses after training", loss_table),),
)  # fmt: skip
