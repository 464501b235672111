"""E6: what does the causal mask do to stationarity? Matched causal and bidirectional models, and three exact cases.

Thresholds and expectations below were written before any full run. Informed: SmolLM2's heads sit before the limit
(total variation .17, .10, .06, .03 at t = 8, 32, 128, 512), and the exact cases are theorems. These models had not been
seen.

Scaled down: see `language_grid`; RoPE with LayerNorm alone. A masked model and a causal one differ in mask and
objective, so a causal model with the masked objective stands between them. K's R2(t) is not fitted: a free g_t for each
row is always perfect, and logits do not see the mask.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.estimators.distance import kernel_boundary, tile_weights
from poskernel.attention.estimators.row_tiles import tile_of
from poskernel.attention.measuring import Subject, measure
from poskernel.attention.sources.capture import LayerCapture
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.encodings import Rope
from poskernel.experiments.boundary_cases import CASE_MEASURES, CASES, CaseCell, CaseUnit
from poskernel.experiments.experiment import Experiment, Picture, Quantity, RegisteredPrediction, Scale
from poskernel.experiments.head_rows import by_seed, difference, greatest, mean, of_models, paired
from poskernel.experiments.judging import Side
from poskernel.experiments.kernel_measures import held_out_tokens
from poskernel.experiments.language_grid import FULL, QUICK, Grid, grid_of
from poskernel.experiments.language_units import LanguageCell, LanguageUnit
from poskernel.models.language import Objective, Text
from poskernel.models.language_training import TrainedLanguage
from poskernel.study.grid import Cell
from poskernel.study.units import Unit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

KEYS = "keys of the earlier row"
ROW_MEASURES = tuple(
    Quantity(f"{name}{end}", f"{words}{'' if end else ', first positions left out'}", KEYS)
    for end in ("", "_whole")
    for name, words in (
        ("variation", "total variation between mean weights, by offset, of a row and the one with twice its keys"),
        ("noise", "the same between two halves of the sequences at the earlier row"),
    )
)
KERNEL_MEASURES = (
    Quantity("kernel_variation", "1 - Z_t / Z_(2t + 1) of the head's own g; causal models alone", KEYS),
    Quantity("log_z_slope", "slope of log Z of g against log row, to the row with twice the keys", KEYS),
)
CROSSOVER = Quantity("crossover", "first row from which that slope stays at least 1/2, to the last row; causal models")
FIRST = 8
"""Keys of the earliest row compared; the others have 16, 32, ..."""


def compared(kept: int) -> list[int]:
    """Keys of rows for which the row with twice as many is there too."""
    found = [FIRST]
    while 4 * found[-1] <= kept:
        found.append(2 * found[-1])
    return found


class RowSums:
    """Mean attention weights at chosen rows by signed offset, of two halves of the sequences; masked or not."""

    def __init__(self, length: int, dropped: int) -> None:
        self.length, self.dropped = length, dropped
        self.keys = compared(length - dropped)
        self.weights: dict[tuple[int, int, int], Float[Tensor, "half offset"]] = {}
        self.counts = torch.zeros(2)

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer of one batch; batches have an even number of sequences, so that both halves grow alike."""
        for keys in [*self.keys, 2 * self.keys[-1]]:
            tile = tile_of(capture, torch.tensor([self.dropped + keys - 1]), self.dropped)
            place = tile.offsets[0] + self.length - 1
            for head in range(capture.heads):
                weights = tile_weights(capture, head, tile, self.dropped)[:, 0].double()
                halves = torch.stack([weights[0::2].mean(0), weights[1::2].mean(0)])
                name = (capture.layer, head, keys)
                sums = self.weights.setdefault(name, torch.zeros(2, 2 * self.length - 1, dtype=torch.float64))
                sums[:, place] += halves

    def values(self, layer: int, head: int, keys: int, batches: int) -> tuple[float, float]:
        """(variation, noise): both between different halves, so that they hold the same sampling noise."""
        early, late = (self.weights[layer, head, each] / batches for each in (keys, 2 * keys))
        crossed = (early[0] - late[1]).abs().sum() + (early[1] - late[0]).abs().sum()
        return float(crossed) / 4, float((early[0] - early[1]).abs().sum()) / 2


@dataclass(frozen=True)
class BoundaryUnit(LanguageUnit):
    """Every head of one trained model."""

    grid: Grid = FULL

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Rows with and without the first positions; of causal models the kernel's own boundary too."""
        shape, found = self.cell.condition.architecture, list[tuple[Cell, str, int]]()
        kept, whole = compared(shape.train_length - self.grid.dropped), compared(shape.train_length)
        for layer in range(shape.layers):
            for head in range(shape.heads):
                part = self.cell.at(layer=layer, head=head)
                for each in ROW_MEASURES:
                    found += [(part, each.name, keys) for keys in (whole if each.name.endswith("_whole") else kept)]
                if shape.causal:
                    found += [(part, each.name, keys) for each in KERNEL_MEASURES for keys in kept]
                    found.append((part, CROSSOVER.name, shape.train_length))
        return found

    def measured(self, trained: TrainedLanguage) -> Mapping[tuple[Cell, str, int], float | str]:
        """One pass of held-out windows for everything."""
        source, shape = self.cell.condition.recipe.source, self.cell.condition.architecture
        assert isinstance(source, Text)
        tokens = held_out_tokens(source, self.grid.sequences, shape.train_length)
        kept, whole = (RowSums(shape.train_length, dropped) for dropped in (self.grid.dropped, 0))
        subject = Subject(
            TransformerSource(trained.model), tokens, range(shape.layers), self.grid.dropped, null=False,
            causal=shape.causal,
        )  # fmt: skip
        batches = -(-len(tokens) // 16)
        kernels = {(each.layer, each.head): each for each in measure(subject, [kept.consume, whole.consume])}
        values: dict[tuple[Cell, str, int], float | str] = {}
        for (layer, head), kernel in kernels.items():
            part = self.cell.at(layer=layer, head=head)
            for rows, end in ((kept, ""), (whole, "_whole")):
                for keys in rows.keys:
                    found = rows.values(layer, head, keys, batches)
                    values[part, f"variation{end}", keys], values[part, f"noise{end}", keys] = found
            if shape.causal:
                boundary = kernel_boundary(kernel.g)
                never = boundary.crossover is None
                crossed = "never: the slope is below 1/2 at the last row" if never else float(boundary.crossover or 0)
                values[part, CROSSOVER.name, shape.train_length] = crossed
                for keys in kept.keys:
                    values[part, "kernel_variation", keys] = float(boundary.variation[keys - 1])
                    values[part, "log_z_slope", keys] = float(boundary.slope[keys - 1])
        return values


def build(scale: Scale) -> list[Unit]:
    """The exact cases, then all models of a seed, and of the next."""
    grid = grid_of(scale)
    offsets = (1 << 16) if scale is Scale.FULL else (1 << 14)
    conditions = [
        grid.condition(Rope()),
        grid.condition(Rope(), objective=Objective.MASKED),
        grid.condition(Rope(), causal=False, objective=Objective.MASKED),
    ]
    units: list[Unit] = [CaseUnit(CaseCell(case, offsets), seed) for case in CASES for seed in grid.seeds]
    return units + [BoundaryUnit(LanguageCell(each), seed, grid) for seed in grid.seeds for each in conditions]


CAUSAL: Mapping[str, object] = {"direction": "causal", "objective": "next"}
MATCHED: Mapping[str, object] = {"direction": "causal", "objective": "masked"}
BOTH_WAYS: Mapping[str, object] = {"direction": "bidirectional", "objective": "masked"}


def above_noise(rows: "pd.DataFrame", where: Mapping[str, object], keys: int) -> "pd.DataFrame":
    """A model's mean variation over heads less the noise, at one row."""
    found, noise = (of_models(rows, metric, mean, {**where, "length": keys}) for metric in ("variation", "noise"))
    return paired(found, noise, ["direction", "objective"])


def last_keys(rows: "pd.DataFrame") -> int:
    """The latest row compared."""
    return int(rows.loc[rows["metric"] == "variation", "length"].max())


def fall(rows: "pd.DataFrame") -> Sequence[float]:
    """Variation above noise of the causal model at its first row less that at its last."""
    return difference(above_noise(rows, CAUSAL, FIRST), above_noise(rows, CAUSAL, last_keys(rows)))


def mask_effect(rows: "pd.DataFrame") -> Sequence[float]:
    """At the first row: causal less bidirectional, both with the masked objective."""
    return difference(above_noise(rows, MATCHED, FIRST), above_noise(rows, BOTH_WAYS, FIRST))


def kernel_error(rows: "pd.DataFrame") -> Sequence[float]:
    """Mean over heads and rows of what the kernel's identity says less what the weights show above noise, in size."""
    errors = []
    for keys in sorted(rows.loc[rows["metric"] == "kernel_variation", "length"].unique()):
        said = of_models(rows, "kernel_variation", mean, {**CAUSAL, "length": int(keys)})
        shown = above_noise(rows, CAUSAL, int(keys))
        errors.append((by_seed(said) - by_seed(shown)).abs())
    return (sum(errors[1:], errors[0]) / len(errors)).tolist() if errors else []


def law_holds(name: str, statement: str, law: tuple[str, str], most: float, falsified_by: str) -> RegisteredPrediction:
    """A theorem on one kind of kernels: how far a metric is from its law there, a kernel each, stays below `most`."""
    metric, case = law

    def error(rows: "pd.DataFrame") -> Sequence[float]:
        return (by_seed(of_models(rows, metric, mean, {"case": case})) - 1).abs().tolist()

    return RegisteredPrediction(name, statement, error, Side.BELOW, most, falsified_by, informed=True, deciding=False)


PREDICTIONS = (
    RegisteredPrediction(
        "early rows are not stationary",
        "In the causal model the total variation between a row with 8 keys and one with 16, above its noise, is larger "
        "than that at the last row compared by more than 0.02 (K: boundary effects at the start).",
        fall,
        Side.ABOVE,
        0.02,
        "weights of early rows that differ from later ones no more than those of late rows",
        informed=True,
    ),
    RegisteredPrediction(
        "the mask does it",
        "At the first row the variation of the causal model is above that of the bidirectional one by more than 0.02, "
        "both trained to guess masked tokens.",
        mask_effect,
        Side.ABOVE,
        0.02,
        "a bidirectional model whose early rows differ as much",
        informed=False,
    ),
    RegisteredPrediction(
        "the denominator explains it",
        "What 1 - Z_t / Z_(2t + 1) of the heads' own kernels says is within 0.1 of what their weights show, means over "
        "heads and rows.",
        kernel_error,
        Side.BELOW,
        0.1,
        "weights whose distance from stationary is not that of their kernel under the mask",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "the identity is exact",
        "TV(t, T) = 1 - Z_t / Z_T to 1e-9 for kernels of all three kinds.",
        lambda rows: by_seed(of_models(rows, "identity_error", mean, {}), greatest).tolist(),
        Side.BELOW,
        1e-9,
        "a kernel for which the two sides differ",
        informed=True,
        step=1e-12,
    ),
    law_holds(
        "linear kernels: exponentially",
        "For g = -m d the rate of log TV is m to 5 in 100.",
        ("rate", "linear"),
        0.05,
        "another rate",
    ),
    law_holds(
        "logarithmic kernels: as a power",
        "For g = -c ln(1 + d) the power of TV in t is 1 - c to 10 in 100, over the last decade of rows.",
        ("rate", "logarithmic"),
        0.1,
        "another power, or no power law",
    ),
    law_holds(
        "bounded kernels: never",
        "For random rotary kernels TV(t, 2t + 1) is 1/2 to 5 in 100 at the last row.",
        ("limit", "bounded"),
        0.05,
        "a bounded kernel whose weights become stationary",
    ),
)


def curve_data(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Variation less noise against keys, means over heads and seeds, a line a model; with the first positions too."""
    import pandas as pd

    tables = []
    for end, words in (("", ""), ("_whole", ", with the first positions")):
        found, noise = (of_models(rows, f"{metric}{end}", mean, {}) for metric in ("variation", "noise"))
        both = paired(found, noise, ["direction", "objective", "length"])
        names = both["direction"] + ", " + both["objective"] + " token" + words
        tables.append(both.assign(model=names))
    return pd.concat(tables).groupby(["model", "length"], sort=False)["value"].mean().reset_index()


def slope_data(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Slope of log Z against keys, mean over heads and seeds, of causal models."""
    models = of_models(rows, "log_z_slope", mean, {})
    found = models.assign(model=models["objective"] + " token")
    return found.groupby(["model", "length"], sort=False)["value"].mean().reset_index()


def draw_rows(title: str, label: str, table: "pd.DataFrame") -> "Figure":
    """Against the number of keys."""
    from poskernel.report.curves import curves

    return curves(
        table, title=title, x="length", y="value", labels=("keys of the earlier row", label), series="model",
        scales=("log", "linear"),
    )  # fmt: skip


E6 = Experiment(
    id="E6",
    title="The causal boundary",
    question="What does the causal mask do to the stationarity of attention, and for how many rows?",
    claim="The mask keeps early rows from being stationary, through the softmax's denominator and nothing else.",
    design=(
        "RoPE and LayerNorm, three models a seed: next token under the causal mask (E1's), masked tokens under it, "
        f"masked tokens without a mask: {FULL.description}. Mean weights of a row with t keys are compared, offset by "
        "offset, with those of the row with 2t, from different halves of the windows; with the first positions and "
        f"without. Beside it three kinds of kernels alone, drawn at random. Quick version: {QUICK.description}."
    ),
    measures=(*CASE_MEASURES, *ROW_MEASURES, *KERNEL_MEASURES, CROSSOVER),
    predictions=PREDICTIONS,
    falsified_by="early rows of causal models as stationary as late ones, or of bidirectional models as far from it",
    threats=(
        "Windows start anywhere in a text, so early rows are early in a window, not in a document. Mean weights over "
        "texts are not weights of a mean kernel: content that varies flattens both rows. Noise is taken off by its own "
        "estimate, which is larger at rows with more keys. The masked objective trains on one token in seven."
    ),
    build=build,
    pictures=(
        Picture(
            "variation",
            "Total variation less noise, means over heads and seeds.",
            "Variation against keys: causal models fall from the left, the bidirectional one lies low.",
            curve_data,
            lambda table: draw_rows("How far is a row from one twice as long?", "total variation", table),
        ),
        Picture(
            "slope",
            "Causal models, means over heads and seeds: 1 is a kernel that stays bounded, 0 one that has fallen away.",
            "Slope of log Z against keys.",
            slope_data,
            lambda table: draw_rows("Which of the three cases are real heads?", "slope of log Z", table),
        ),
    ),
)  # fmt: skip
