"""E4: damp or boost a band of the kernel's spectrum. Does the model do what the kernel says?

Thresholds and expectations are in `spectral.predictions`, written before any full run. Before it too, so that each of
them can be decided: sinusoidal models got as many seeds as rotary ones, and shares of heads a step (see `judging`).

Scaled down from the protocol: one depth and corpus (see `language_grid`), gains of 0.5 and 1.5 on queries, filters of
means for sinusoidal positions alone and without random controls, generated tasks with RoPE alone, SmolLM2 at one length
(it was trained on longer ones) and with damped bands alone.
"""

import dataclasses
from typing import TYPE_CHECKING

from poskernel import statistics
from poskernel.attention.interventions.bands import Band
from poskernel.encodings import Rope, Sinusoidal
from poskernel.experiments.experiment import Experiment, Picture, Scale
from poskernel.experiments.language_grid import FULL, QUICK, SEEDS, Grid, grid_of
from poskernel.experiments.language_units import LanguageCell
from poskernel.experiments.pretrained.models import SMOLLM2, RealModelCell
from poskernel.experiments.spectral.band_changes import DAMPED, gained
from poskernel.experiments.spectral.band_units import (
    ACCURACY,
    DISTANCES,
    LOSS,
    STRETCHES,
    FilterUnit,
    SpectralUnit,
)
from poskernel.experiments.spectral.outcomes import LARGE, SMALL, loss_rise, per_head
from poskernel.experiments.spectral.predictions import PREDICTIONS
from poskernel.experiments.spectral.pretrained_bands import PretrainedBandUnit
from poskernel.experiments.spectral.word_filters import CLASS_DISTANCE, CLASS_LOSS
from poskernel.models.generated import Dyck, Reordering, Source
from poskernel.models.language import LanguageRecipe
from poskernel.models.language_training import Condition
from poskernel.models.optimization import Schedule
from poskernel.models.transformer import Architecture
from poskernel.study.units import Unit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SOURCES: tuple[Source, ...] = (Dyck(), Reordering())
TASK_GRID = Grid(
    Architecture(width=64, layers=2, heads=2, train_length=64),
    LanguageRecipe(Dyck(), schedule=Schedule(steps=600, batch=16, learning_rate=3e-3, warmup=60)),
    SEEDS,
    sequences=64,
    dropped=4,
)
QUICK_TASK_GRID = Grid(
    Architecture(width=16, layers=1, heads=1, train_length=40),
    LanguageRecipe(Dyck(), schedule=Schedule(steps=20, batch=4, learning_rate=1e-2, warmup=4), evaluation_windows=4),
    QUICK.seeds,
    sequences=8,
    dropped=4,
)
TEXTS = 5
SEQUENCES, LENGTH = 4, 512
"""Of each text, for SmolLM2."""


def task_condition(grid: Grid, source: Source) -> Condition:
    """A rotary model of a generated task."""
    shape = dataclasses.replace(grid.shape, vocabulary=source.vocabulary)
    return Condition(shape, Rope(), dataclasses.replace(grid.recipe, source=source))


def build(scale: Scale) -> list[Unit]:
    """Language models and tasks of a seed, then of the next; last the pretrained model (not in the quick one)."""
    full = scale is Scale.FULL
    grid, tasks = grid_of(scale), TASK_GRID if full else QUICK_TASK_GRID
    units: list[Unit] = []
    for seed in tasks.seeds:
        units.append(SpectralUnit(LanguageCell(grid.condition(Rope())), seed, grid))
        units.append(FilterUnit(LanguageCell(grid.condition(Sinusoidal())), seed, grid))
        units += [SpectralUnit(LanguageCell(task_condition(tasks, source)), seed, tasks) for source in SOURCES]
    if full:
        cell = RealModelCell(SMOLLM2, "sotu", SEQUENCES, LENGTH)
        units += [PretrainedBandUnit(cell, text, TEXTS) for text in range(TEXTS)]
    return units


def scatter_data(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Mean predicted and measured change of distance by model and band, one layer at a time and all at once."""
    import pandas as pd

    lines = []
    for model, where in (("small models", SMALL), ("SmolLM2", LARGE)):
        for band in Band:
            for scope in ("one layer", "all layers"):
                heads = per_head(rows, where, [gained(band, DAMPED)], scope)
                for what, column in (("predicted", "said"), ("measured", "found")):
                    if heads.empty or (what == "predicted" and scope == "all layers"):
                        continue
                    means = heads.groupby("seed")[column].mean().dropna().tolist()
                    series = what if what == "predicted" else f"measured, {scope}"
                    lines.append({"planes": f"{model}, {band} x {DAMPED:g}", "series": series,
                                  "estimate": statistics.mean(means)})  # fmt: skip
    return pd.DataFrame(lines)


def loss_data(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Rise of the loss of small models by band and length."""
    import pandas as pd

    changes = [gained(band, DAMPED) for band in Band] + [gained("all", DAMPED)]
    return pd.DataFrame([
        {"change": change, "length": f"{stretch} x the training length",
         "estimate": statistics.mean(loss_rise(rows, change, stretch).dropna().tolist())}
        for change in changes for stretch in STRETCHES
    ])  # fmt: skip


def draw(title: str, label: str, axis: str, series: str, table: "pd.DataFrame") -> "Figure":
    """An interval a line."""
    from poskernel.report.intervals import forest

    return forest(table, title=title, axis_label=axis, label=label, series=series)


E4 = Experiment(
    id="E4",
    title="Spectral interventions",
    question="If a band of the kernel's spectrum is damped, does the model do what the kernel says?",
    claim="One layer at a time, the kernel tells how far heads attend once a resolved band is damped.",
    design=(
        f"RoPE and sinusoidal positions with LayerNorm: {FULL.description}. With RoPE, "
        "queries times 0.5 or 1.5 in the planes of a band: wavelengths to 32 positions (a quarter of the length where "
        "that is less), to the length, and beyond it (unresolved). The prediction puts the band's mean logits along "
        "diagonals, of other sequences, into the logits. Controls: 5 draws of random planes with the same within-row "
        "logit energy, head by head; whole queries times the gain; untrained models. With sinusoidal positions bands "
        "are taken out of the means of queries and keys, which come from validation documents. Loss at one, two and "
        "four training lengths, on as many tokens (controls of bands at one). Dyck-2 brackets and blocks of "
        "four reordered (two layers of width 64, length 64) with RoPE. Queries of function words or content words "
        f"alone. SmolLM2-135M on {TEXTS} disjoint parts of the corpus, {SEQUENCES} x {LENGTH} tokens each, bands "
        f"damped. Quick version: {QUICK.description}."
    ),
    measures=(*DISTANCES, LOSS, ACCURACY, CLASS_DISTANCE, CLASS_LOSS),
    predictions=PREDICTIONS,
    falsified_by="heads that move against their kernels, or move as much when other planes of equal energy are damped",
    threats=(
        "Damping anything flattens attention, which alone lengthens it: energy-matched planes answer that, but heads "
        "whose band outweighs all others have none and are left out, and the verdict depends on what is called energy. "
        "The first positions are left out, as queries and as keys, so the sink is. One layer at a time, prediction and "
        "measurement share the model's own logits and differ in what the band adds to them. Windows of four training "
        "lengths hold more context as well as unseen offsets. Word classes go by spelling, and pieces of words count "
        "as content. Few replicates and many predictions: small effects stay undecided."
    ),
    build=build,
    pictures=(
        Picture(
            "distance",
            "Means over heads, then over seeds or texts, with 95% intervals.",
            "Predicted and measured change of log attention distance by band: equal one layer at a time.",
            scatter_data,
            lambda table: draw("What damping a band does to how far heads attend", "planes",
                               "change of mean ln(1 + offset), nats", "series", table),
        ),
        Picture(
            "loss",
            "Small rotary language models, all layers changed; means over seeds with 95% intervals.",
            "Rise of the loss by band and length.",
            loss_data,
            lambda table: draw("What it costs, at one, two and four training lengths", "change",
                               "rise of the loss, nats a token", "length", table),
        ),
    ),
)  # fmt: skip
