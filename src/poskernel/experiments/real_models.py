"""E7: what the small models showed, on real weights: kernels, sums against products, the circuit, the causal boundary.

One table compares the models by depth. Predictions stand in `pretrained.predictions`; which of them were informed, and
by what, is said there. Scaled down from the protocols: five texts of 8 x 320 tokens, products on a few layers of each
model, one corpus.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from poskernel import statistics
from poskernel.experiments.experiment import Experiment, Listing, Picture, Scale
from poskernel.experiments.head_rows import mean, median, of_models
from poskernel.experiments.kernel_measures import KERNEL
from poskernel.experiments.pretrained.circuit_units import COUNTS, STATE_MEASURES, CircuitSize, CircuitUnit
from poskernel.experiments.pretrained.models import GEMMA, MINILM, SMOLLM2, RealModelCell
from poskernel.experiments.pretrained.predictions import PREDICTIONS
from poskernel.experiments.pretrained.protocol_units import (
    BOUNDARY,
    PRODUCT_MEASURES,
    SHARES,
    SINK,
    SLOPE,
    WEIGHTS,
    KernelProtocolUnit,
    ProductProtocolUnit,
    relative_depth,
)
from poskernel.statistics import Estimate
from poskernel.study.units import Unit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MODELS = (SMOLLM2, MINILM, GEMMA)
SEEDS = (1, 2, 3, 4, 5)
"""A text and a draw of patterns each. Throw-away runs had used 0."""
CORPUS = "sotu"
QUICK_LAYERS = (0, 29)
QUICK_CIRCUIT = CircuitSize(
    choosing=(4, 40), patterns=2, period=24, draws=1, changed=("none", "damped", "moved by 1")
)  # fmt: skip
PARTS = ("first third", "middle third", "last third")


def build(scale: Scale) -> list[Unit]:
    """Model by model, so that each is loaded once; within it text by text."""
    if scale is Scale.QUICK:
        small = dataclasses.replace(SMOLLM2, product_layers=QUICK_LAYERS)
        kernel, product, patterns = (
            RealModelCell(small, "topics", *size) for size in ((6, 40), (4, 40), (QUICK_CIRCUIT.patterns, 48))
        )
        return [
            KernelProtocolUnit(kernel, 1, dropped=8, layers=QUICK_LAYERS, fresh=False),
            ProductProtocolUnit(product, 1, dropped=8),
            CircuitUnit(patterns, 1, QUICK_CIRCUIT),
        ]
    units: list[Unit] = []
    for model in MODELS:
        for seed in SEEDS:
            units.append(KernelProtocolUnit(RealModelCell(model, CORPUS, 8, 320), seed))
            units.append(ProductProtocolUnit(RealModelCell(model, CORPUS, 6, 160), seed))
            if model.causal:
                size = CircuitSize()
                units.append(CircuitUnit(RealModelCell(model, CORPUS, size.patterns, 2 * size.period), seed, size))
    return units


def third(layer: "pd.Series[float]", model: "pd.Series[str]") -> "pd.Series[str]":
    """Which third of its model a layer lies in."""
    layers = model.map({each.name: each.layers for each in MODELS})
    return (layer * 3 // layers).astype(int).map(dict(enumerate(PARTS)))


def estimates(models: "pd.DataFrame", keys: Sequence[str], name: str) -> "pd.DataFrame":
    """Mean over seeds with its interval, a row a combination of keys."""
    import pandas as pd

    kept = models.dropna(subset="value")
    found = [
        {**dict(zip(keys, group, strict=True)), name: statistics.mean(values)}
        for group, values in kept.groupby(list(keys), sort=False)["value"]
    ]
    return pd.DataFrame(found, columns=[*keys, name])


def beside(table: "pd.DataFrame", one: "pd.DataFrame", name: str) -> "pd.DataFrame":
    """A further column of estimates, undefined where a model gave no number."""
    keys = [key for key in one.columns if key != name]
    joined = table.merge(one, on=keys, how="left", sort=False)
    absent = statistics.undefined(0, "undefined: not measured")
    joined[name] = joined[name].map(lambda value: value if isinstance(value, Estimate) else absent)
    return joined


def comparison(rows: "pd.DataFrame") -> "pd.DataFrame":
    """The models side by side by depth: medians over heads, means over texts with their intervals."""
    import pandas as pd

    heads = rows[rows["protocol"].eq("kernel") & rows["layer"].notna() & rows["state"].eq("trained")]
    heads = heads.assign(depth=third(heads["layer"], heads["model"]))
    keys = ["model", "depth"]
    columns: tuple[tuple[str, str], ...] = (
        ("r2", "R2"),
        ("signal", "signal, nats"),
        ("share", "share of position"),
        ("first_mass", "on token 0"),
    )
    columns += tuple((f"{term}_share", f"{term}, split") for term in ("key", "query", "interaction"))
    found = pd.DataFrame([{"model": model.name, "depth": part} for model in MODELS for part in PARTS])
    for metric, name in columns:
        # Model by model: what is missing of one is seen by what it has elsewhere, and models differ in size.
        parts = [of_models(heads, metric, median, {"model": each.name}, undefined=0.0) for each in MODELS]
        found = beside(found, estimates(pd.concat(parts), keys, name), name)
    return found


def products(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Held-out R2 of the fits and absolute positions on the selected layers: means over heads and texts."""
    import pandas as pd

    chosen = rows[rows["protocol"].eq("product")]
    found = pd.DataFrame([{"model": model.name, "layer": layer} for model in MODELS for layer in model.product_layers])
    for metric in ("position", "additive_token", "additive_input", "both_input", "free_input", "leakage"):
        parts = [
            of_models(chosen, metric, mean, {"model": model.name, "layer": layer}).assign(layer=layer)
            for model in MODELS
            for layer in model.product_layers
        ]
        name = metric.replace("_", ", ")
        found = beside(found, estimates(pd.concat(parts), ["model", "layer"], name), name)
    return found


def changed(rows: "pd.DataFrame") -> "pd.DataFrame":
    """What the circuit predicts under every change: means over draws and seeds."""
    import pandas as pd

    words = {"copied": "the right token", "ahead_1": "the one after it", "ahead_2": "two after it",
             "itself": "the row's own token"}  # fmt: skip
    chosen = rows[rows["protocol"].eq("circuit") & rows["change"].notna()]
    parts = []
    for metric, name in words.items():
        models = of_models(chosen, metric, mean, {})
        over_draws = models.groupby(["model", "change", "seed"], sort=False)["value"].mean().reset_index()
        parts.append(estimates(over_draws, ["model", "change"], "estimate").assign(predicts=name))
    found = pd.concat(parts)
    return found.assign(label=found["model"] + ": " + found["change"])


def by_depth(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Share of position against relative depth: median over the heads of a layer, mean over texts."""
    import pandas as pd

    heads = rows[rows["protocol"].eq("kernel") & rows["state"].eq("trained")]
    parts = []
    for model in MODELS:
        own = heads[heads["model"] == model.name]
        layered = [
            of_models(own, "share", median, {"layer": layer}, undefined=0.0).assign(
                depth=relative_depth(layer, model.layers)
            )
            for layer in sorted(own["layer"].dropna().unique())
        ]
        parts += layered
    return pd.concat(parts).groupby(["model", "depth"], sort=False)["value"].mean().reset_index()


def draw_depth(table: "pd.DataFrame") -> "Figure":
    """A line a model."""
    from poskernel.report.curves import curves

    return curves(
        table, title="How much of the logits is position?", x="depth", y="value", series="model",
        labels=("depth (0: first layer, 1: last)", "share of position, median over heads"),
    )  # fmt: skip


def draw_circuit(table: "pd.DataFrame") -> "Figure":
    """An interval a change and kind of prediction."""
    from poskernel.report.intervals import forest

    return forest(
        table, title="What does the circuit predict when its kernel is changed?", series="predicts", limits=(0.0, 1.0),
        axis_label="share of rows in the repeat",
    )  # fmt: skip


E7 = Experiment(
    id="E7",
    title="Pretrained models",
    question="Does what small models show of positional kernels hold on real weights?",
    claim=(
        "Pretrained rotary models have stationary kernels, logits that are sums and no products, a circuit that breaks "
        "and moves with its kernel, and early rows that the causal mask bends."
    ),
    design=(
        "".join(f"{each.name} ({each.description}; {each.location}). " for each in MODELS)
        + f"Five disjoint parts of the corpus {CORPUS}; a replicate is a part. E1 and E6: 8 x 320 tokens, all heads, "
        "the first 16 positions left out, and weights drawn anew as control. E2: 6 x 160 tokens, selected layers, "
        "fitted on half of the sequences. Circuit: heads chosen by kind on 6 x 256 tokens of the part and on other "
        "patterns, changed on 4 random patterns of 50 tokens that come twice; each change alone. "
        "Quick version: SmolLM2 alone, one text, two layers, three changes."
    ),
    measures=(*KERNEL, *SHARES, SINK, *BOUNDARY, SLOPE, WEIGHTS, *PRODUCT_MEASURES, *COUNTS, *STATE_MEASURES),
    predictions=PREDICTIONS,
    falsified_by=(
        "kernels that are not of the offset in a second rotary model, a product that explains what the sum does not, a "
        "circuit that other planes break as well or that does not move with its kernel"
    ),
    threats=(
        "Weights are quantized, and so another model than the published one by a little. Two rotary models are no "
        "sample of rotary models. Texts share a corpus: replicates tell how much texts matter, not models. SmolLM2's "
        "outcomes were known from other texts and patterns. Heads of the circuit are chosen by thresholds on text, "
        "which may leave out heads that take part and take in some that do not. No token is put before a text: a "
        "model that was trained to begin with one (Gemma-3) is measured a little off its habit. For heads "
        "whose carrying planes hold most of the energy no energy-matched control exists; the comparison is made on "
        "the others alone."
    ),
    build=build,
    pictures=(
        Picture(
            "depth",
            "Median over the heads of a layer, mean over texts.",
            "Share of position against depth, a line a model.",
            by_depth,
            draw_depth,
        ),
        Picture(
            "circuit",
            "Means over draws; intervals over seeds. The chance of any one token is below 0.0001.",
            "Share of right and shifted predictions under every change of the circuit.",
            changed,
            draw_circuit,
        ),
    ),
    listings=(
        Listing("comparison", "The models by depth", comparison),
        Listing("products", "Position and content on selected layers, held-out R2", products),
    ),
)  # fmt: skip
