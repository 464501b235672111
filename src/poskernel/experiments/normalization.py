"""E3: does a norm before attention make the positional kernel, and does it matter alike under two encodings?

Thresholds and expectations below were written before any full run. Related outcomes were known (a convolution is
learned as well without a norm; RoPE is stationary by construction); what these models do had not been seen.

Scaled down: see `language_grid`. LayerNorm and RMSNorm are E1's models; the norm before attention removed, and one
global scale in its place, are two more conditions an encoding, with LayerNorm elsewhere. Of experiment 2 the exact
split and the product fit with one content kernel (a bilinear form of token embeddings) are repeated.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poskernel import statistics
from poskernel.attention.content.product import ProductSettings, fit_products
from poskernel.attention.estimators.decompose import TERMS, SplitEstimator
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.encodings import Rope, Sinusoidal
from poskernel.experiments.experiment import Experiment, Picture, Quantity, RegisteredPrediction, Scale
from poskernel.experiments.head_rows import Statistic, by_seed, least, lines_gained, mean, median, of_models
from poskernel.experiments.judging import Outcome, Side
from poskernel.experiments.kernel_measures import KERNEL, SPECTRUM, held_out_tokens, number
from poskernel.experiments.kernel_units import measured_model
from poskernel.experiments.language_grid import FULL, QUICK, Grid, grid_of
from poskernel.experiments.language_units import LanguageCell, LanguageUnit
from poskernel.models.language import Text
from poskernel.models.language_training import TrainedLanguage
from poskernel.models.transformer import Norm
from poskernel.study.grid import Cell

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TOKEN = "token"
"""Content kernel of the fits."""
FITTED = ("position", "additive", "product")
SPLIT = tuple(
    Quantity(f"{term}_share", f"variance of the {term} term over that of the logits, exact split") for term in TERMS
)
FITS = tuple(Quantity(f"fit_{fit}", f"held-out R2 of the {fit} form of position and token content") for fit in FITTED)
LOSS = Quantity("validation_loss", "cross-entropy on held-out documents, nats a token", "training step")
HEAD_MEASURES = (*KERNEL, *SPECTRUM, *SPLIT, *FITS)
NORMS: Mapping[str, tuple[Norm, Norm | None]] = {
    "layer": (Norm.LAYER, None),
    "rms": (Norm.RMS, None),
    "layer, none before attention": (Norm.LAYER, Norm.NONE),
    "layer, scale before attention": (Norm.LAYER, Norm.SCALE),
}
"""By the name that rows have for them: norm, and norm before attention where it is another."""
REMOVED, SCALED = list(NORMS)[2:]
ENCODED = ("rope", "sinusoidal")


@dataclass(frozen=True)
class NormUnit(LanguageUnit):
    """Every head of one trained model: kernel, spectrum, exact split and product fits."""

    grid: Grid = FULL

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Loss, then all heads."""
        shape, steps = self.cell.condition.architecture, self.cell.condition.recipe.schedule.steps
        heads = [self.cell.at(layer=layer, head=head) for layer in range(shape.layers) for head in range(shape.heads)]
        found = [(head, each.name, shape.train_length) for head in heads for each in HEAD_MEASURES]
        return [(self.cell, LOSS.name, steps), *found]

    def measured(self, trained: TrainedLanguage) -> Mapping[tuple[Cell, str, int], float | str]:
        """A number for each measure, or why there is none."""
        source, length, steps = self.cell.condition.recipe.source, self.cell.train_length, trained.step
        assert isinstance(source, Text)
        values: dict[tuple[Cell, str, int], float | str] = {(self.cell, LOSS.name, steps): trained.held_out[steps].loss}
        kernels = measured_model(trained.model, source, self.grid, variants=False).values
        content = content_values(trained, source, self.grid)
        for (layer, head), numbers in kernels.items():
            part = self.cell.at(layer=layer, head=head)
            both = {**numbers, **content[layer, head]}
            values |= {(part, metric, length): each for metric, each in both.items()}
        return values


def content_values(trained: TrainedLanguage, text: Text, grid: Grid) -> dict[tuple[int, int], dict[str, float | str]]:
    """Shares of the exact split and held-out R2 of the fits, by layer and head."""
    shape = trained.model.architecture
    source, tokens = TransformerSource(trained.model), held_out_tokens(text, grid.sequences, shape.train_length)
    split = SplitEstimator(dict.fromkeys(range(shape.layers), shape.heads), shape.train_length, grid.dropped)
    for batch in tokens.split(8):
        source.forward(batch, split.consume)
    shares = {(each.layer, each.head): each.shares for each in split.estimates()}
    fits = fit_products(source, tokens, settings=ProductSettings(grid.dropped, (TOKEN,)))
    flat = "undefined: the logits do not vary within rows"
    return {
        (fit.layer, fit.head): {
            **{f"{term}_share": number(shares[fit.layer, fit.head][term].value, flat) for term in TERMS},
            **{f"fit_{name}": number(fit.r2(name).value, flat) for name in FITTED},
        }
        for fit in fits
    }


def build(scale: Scale) -> list[NormUnit]:
    """All conditions of a seed, then of the next."""
    grid = grid_of(scale)
    cells = [
        LanguageCell(grid.condition(encoding, norm, before))
        for encoding in (Rope(), Sinusoidal())
        for norm, before in NORMS.values()
    ]
    return [NormUnit(cell, seed, grid) for seed in grid.seeds for cell in cells]


def one(rows: "pd.DataFrame", metric: str, statistic: Statistic, encoding: str, norm: str) -> "pd.Series[float]":
    """A model's number, a seed each; a head without one counts as 0."""
    where = {"encoding": encoding, "norm": norm}
    if metric == "lines":
        return by_seed(lines_gained(rows, where, ["encoding", "norm"]))
    return by_seed(of_models(rows, metric, statistic, where, undefined=0.0))


def norm_effect(rows: "pd.DataFrame", metric: str, statistic: Statistic, without: str) -> Sequence[float]:
    """LayerNorm less another norm, mean of both encodings."""
    per = [
        one(rows, metric, statistic, name, "layer") - one(rows, metric, statistic, name, without) for name in ENCODED
    ]
    return ((per[0] + per[1]) / 2).tolist()


def encoding_effect(rows: "pd.DataFrame", metric: str, statistic: Statistic) -> Sequence[float]:
    """RoPE less sinusoidal, mean of all norms."""
    per = [one(rows, metric, statistic, "rope", n) - one(rows, metric, statistic, "sinusoidal", n) for n in NORMS]
    return (sum(per[1:], per[0]) / len(per)).tolist()


def interaction(rows: "pd.DataFrame", metric: str, statistic: Statistic) -> Sequence[float]:
    """What removing the norm costs with sinusoidal positions less what it costs with RoPE."""
    costs = [
        one(rows, metric, statistic, name, "layer") - one(rows, metric, statistic, name, REMOVED)
        for name in ("sinusoidal", "rope")
    ]
    return (costs[0] - costs[1]).tolist()


def worst_rope(rows: "pd.DataFrame") -> Sequence[float]:
    """RoPE's median R2 under its worst norm."""
    return by_seed(of_models(rows, "r2", median, {"encoding": "rope"}, undefined=0.0), least).tolist()


PREDICTIONS = (
    RegisteredPrediction(
        "the norm is needed for stationarity",
        "Removing the norm before attention lowers the median R2 by more than 0.1, mean of both encodings (K's "
        "experiment 3). We expect this to fail.",
        lambda rows: norm_effect(rows, "r2", median, REMOVED),
        Side.ABOVE,
        0.1,
        "models without the norm that are as stationary",
        informed=False,
        expected=Outcome.FAILED,
    ),
    RegisteredPrediction(
        "the norm is needed for the lines",
        "Removing it lowers what the encoding's lines explain of what random ones leave by more than 0.1 (K's "
        "experiment 3). We expect this to fail.",
        lambda rows: norm_effect(rows, "lines", mean, REMOVED),
        Side.ABOVE,
        0.1,
        "models without the norm whose kernels hold the lines as well",
        informed=False,
        expected=Outcome.FAILED,
    ),
    RegisteredPrediction(
        "a scale does not replace it",
        "One global scale in its place lowers the median R2 by more than 0.1 (K). We expect this to fail.",
        lambda rows: norm_effect(rows, "r2", median, SCALED),
        Side.ABOVE,
        0.1,
        "models with a global scale that are as stationary",
        informed=False,
        expected=Outcome.FAILED,
        deciding=False,
    ),
    RegisteredPrediction(
        "RMSNorm lies near LayerNorm",
        "With RMSNorm the median R2 is lower by less than 0.1: centring is not what matters.",
        lambda rows: norm_effect(rows, "r2", median, "rms"),
        Side.BELOW,
        0.1,
        "RMSNorm models that are clearly less stationary",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "RoPE is stationary under every norm",
        "With RoPE the median R2 is above 0.8 whatever stands before attention (K: by its architecture).",
        worst_rope,
        Side.ABOVE,
        0.8,
        "a norm under which RoPE's mean logits are no function of the offset",
        informed=True,
        deciding=False,
    ),
    RegisteredPrediction(
        "the encoding matters",
        "RoPE's median R2 is above that of sinusoidal positions by more than 0.05, mean of all norms (K).",
        lambda rows: encoding_effect(rows, "r2", median),
        Side.ABOVE,
        0.05,
        "sinusoidal models that are as stationary as RoPE's",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "the norm matters more with sinusoidal positions",
        "Removing the norm costs sinusoidal models more R2 than RoPE models, by more than 0.05.",
        lambda rows: interaction(rows, "r2", median),
        Side.ABOVE,
        0.05,
        "a norm that matters alike, or more with RoPE",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "the norm helps the product form",
        "Removing the norm lowers the mean held-out R2 of the product of position and token content by more than 0.05 "
        "(K). We expect this to fail: the product explains next to nothing anywhere.",
        lambda rows: norm_effect(rows, "fit_product", mean, REMOVED),
        Side.ABOVE,
        0.05,
        "a product form that fits as well, or as badly, without the norm",
        informed=True,
        expected=Outcome.FAILED,
        deciding=False,
    ),
)
SHOWN: Mapping[str, tuple[str, Statistic]] = {
    "R2": ("r2", median),
    "signal, nats": ("signal", mean),
    "lines gained": ("lines", mean),
    "position's share": ("position_share", mean),
    "product fit": ("fit_product", mean),
    "additive fit": ("fit_additive", mean),
}


def effects_data(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Both main effects and their interaction on everything shown, with t intervals over seeds."""
    import pandas as pd

    lines = []
    for name, (metric, statistic) in SHOWN.items():
        effects = {
            "LayerNorm less none": norm_effect(rows, metric, statistic, REMOVED),
            "RoPE less sinusoidal": encoding_effect(rows, metric, statistic),
            "interaction": interaction(rows, metric, statistic),
        }
        for effect, values in effects.items():
            there = [value for value in values if not math.isnan(value)]
            lines.append({"measure": name, "effect": effect, "estimate": statistics.mean(there)})
    return pd.DataFrame(lines)


def draw_effects(table: "pd.DataFrame") -> "Figure":
    """An interval an effect."""
    from poskernel.report.intervals import forest

    return forest(
        table, title="What the norm and the encoding do, and whether together", axis_label="effect", label="measure",
        series="effect",
    )  # fmt: skip


E3 = Experiment(
    id="E3",
    title="Normalization and encoding",
    question="Does a norm before attention make the positional kernel, and alike under two encodings?",
    claim="Per-token normalization before attention makes mean logits stationary and shows the encoding's lines.",
    design=(
        "RoPE and sinusoidal positions, each with LayerNorm, RMSNorm, no norm before attention and one global scale "
        f"there (LayerNorm elsewhere): {FULL.description}. Conditions of a seed share data, initial weights "
        "and budget. Trained models alone; E1 has the untrained ones. Two-way effects are differences of means within "
        f"a seed. Quick version: {QUICK.description}."
    ),
    measures=(LOSS, *HEAD_MEASURES),
    predictions=PREDICTIONS,
    falsified_by="models without the norm that are as stationary, with the encoding's lines as clear in their kernels",
    threats=(
        "RMSNorm stands everywhere, the other two changes before attention alone. The norm also changes how fast a "
        "model learns: the loss stands beside, and a kernel of a worse model is not only a kernel without a norm. "
        "Five seeds see large effects alone. A model that needs no norm at this depth may need one at another."
    ),
    build=build,
    pictures=(
        Picture(
            "effects",
            "Means over seeds with 95% intervals; interaction: effect of the norm with sinusoidal less with RoPE.",
            "Effects of norm and encoding and their interaction on six measures.",
            effects_data,
            draw_effects,
        ),
    ),
)  # fmt: skip
