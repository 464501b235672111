"""Training dynamics: does the positional kernel come with the architecture, or with training?

Thresholds and expectations below were written before any full run; informed where SmolLM2's untrained architecture had
shown the outcome (R2 near 1 without training, next to no signal).

The models are E1's with LayerNorm and their checkpoints: nothing is trained again. Beside RoPE, learned positions,
whose logits are stationary only if training makes them so. Scaled down: see `language_grid`; seven looks a model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from poskernel.encodings import Learned, Rope
from poskernel.experiments.experiment import Experiment, Picture, Quantity, RegisteredPrediction, Scale
from poskernel.experiments.head_rows import Statistic, by_seed, difference, lines_gained, mean, median, of_models
from poskernel.experiments.judging import Outcome, Side
from poskernel.experiments.kernel_measures import KERNEL, SPECTRUM
from poskernel.experiments.kernel_units import measured_model
from poskernel.experiments.language_grid import FULL, QUICK, Grid, grid_of
from poskernel.experiments.language_units import LanguageCell, LanguageUnit
from poskernel.models.language import Text
from poskernel.models.language_training import TrainedLanguage, read_model
from poskernel.study.grid import Cell
from poskernel.study.units import Measurement

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

HEAD_MEASURES = tuple(Quantity(each.name, each.meaning, "training step") for each in (*KERNEL, *SPECTRUM))
LOSS = Quantity("validation_loss", "cross-entropy on held-out documents, nats a token", "training step")
EARLY = 4
"""By this part of training (a quarter of the steps) most of the signal is expected to be there."""


@dataclass(frozen=True)
class DynamicsUnit(LanguageUnit):
    """Every head of one model at every checkpoint and at the end."""

    grid: Grid = FULL

    @property
    def looks(self) -> tuple[int, ...]:
        """Training steps at which it is measured."""
        recipe = self.cell.condition.recipe
        return (*recipe.checkpoints, recipe.schedule.steps)

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Loss and all heads at each look."""
        shape = self.cell.condition.architecture
        heads = [self.cell.at(layer=layer, head=head) for layer in range(shape.layers) for head in range(shape.heads)]
        losses = [(self.cell, LOSS.name, step) for step in self.looks]
        return [*losses, *((head, each.name, step) for head in heads for each in HEAD_MEASURES for step in self.looks)]

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Checkpoints are files: without a folder for weights they are kept for as long as it takes."""
        if weights is not None:
            return self.measured_in(weights)
        with TemporaryDirectory() as folder:
            return self.measured_in(Path(folder))

    def measured_in(self, folder: Path) -> list[Measurement]:
        """Train, or find the model, in a folder and measure its checkpoints."""
        trained = self.trained(folder)
        if trained.failure is not None:
            return self.failures(f"training broke off: {trained.failure}", transient=False)
        condition, place = self.cell.condition, self.place(folder)
        values = dict(self.measured(trained))
        for step in condition.recipe.checkpoints:
            values |= self.measured(read_model(place.checkpoint(step), condition, self.seed))
        return self.done(values)

    def measured(self, trained: TrainedLanguage) -> Mapping[tuple[Cell, str, int], float | str]:
        """One look: a checkpoint, or the end."""
        source, step = self.cell.condition.recipe.source, trained.step
        assert isinstance(source, Text)
        values: dict[tuple[Cell, str, int], float | str] = {(self.cell, LOSS.name, step): trained.held_out[step].loss}
        found = measured_model(trained.model, source, self.grid, variants=False)
        for (layer, head), numbers in found.values.items():
            part = self.cell.at(layer=layer, head=head)
            values |= {(part, metric, step): number for metric, number in numbers.items()}
        return values


def build(scale: Scale) -> list[DynamicsUnit]:
    """Both encodings of a seed, then of the next."""
    grid = grid_of(scale)
    cells = [LanguageCell(grid.condition(encoding)) for encoding in (Rope(), Learned())]
    return [DynamicsUnit(cell, seed, grid) for seed in grid.seeds for cell in cells]


def at(rows: "pd.DataFrame", encoding: str, metric: str, statistic: Statistic, part: float) -> "pd.DataFrame":
    """One number a model at the last look that is not beyond a part of training; an undefined one counts as none."""
    steps = sorted(step for step in rows["length"].unique() if step <= part * rows["length"].max())
    return of_models(rows, metric, statistic, {"encoding": encoding, "length": int(steps[-1])}, undefined=0.0)


def start(encoding: str, metric: str, statistic: Statistic, rows: "pd.DataFrame") -> Sequence[float]:
    """Before training, a seed each."""
    return by_seed(at(rows, encoding, metric, statistic, 0.0)).tolist()


def gain(encoding: str, metric: str, statistic: Statistic, rows: "pd.DataFrame") -> Sequence[float]:
    """At the end less at the start."""
    last, first = (at(rows, encoding, metric, statistic, part) for part in (1.0, 0.0))
    return difference(last, first)


def signal_share(part: float, rows: "pd.DataFrame") -> Sequence[float]:
    """RoPE's mean signal after a part of training over that at the end."""
    early, late = (by_seed(at(rows, "rope", "signal", mean, each)) for each in (part, 1.0))
    return (early / late).tolist()


def lines_added(rows: "pd.DataFrame") -> Sequence[float]:
    """Share of what random lines leave that RoPE's own explain, at the end less at the start."""
    steps = int(rows["length"].max()), 0
    last, first = (lines_gained(rows, {"encoding": "rope", "length": step}, ["encoding"]) for step in steps)
    return difference(last, first)


PREDICTIONS = (
    RegisteredPrediction(
        "stationarity is there before training",
        "With RoPE the median R2 over heads is above 0.8 at step 0.",
        lambda rows: start("rope", "r2", median, rows),
        Side.ABOVE,
        0.8,
        "untrained RoPE models whose mean logits are no function of the offset",
        informed=True,
    ),
    RegisteredPrediction(
        "the kernel is not",
        "With RoPE the mean signal over heads at step 0 is below a quarter of that at the end.",
        lambda rows: signal_share(0.0, rows),
        Side.BELOW,
        0.25,
        "a kernel that is as large before training",
        informed=True,
    ),
    RegisteredPrediction(
        "training does not add stationarity",
        "With RoPE the median R2 rises by less than 0.1 from step 0 to the end.",
        lambda rows: gain("rope", "r2", median, rows),
        Side.BELOW,
        0.1,
        "a RoPE model that becomes more stationary by training",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "elsewhere stationarity is learned",
        "With learned positions the median R2 rises by more than 0.2.",
        lambda rows: gain("learned", "r2", median, rows),
        Side.ABOVE,
        0.2,
        "learned positions whose mean logits never become a function of the offset, or are one from the start",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "the kernel comes early",
        "With RoPE more than half of the final signal is there after a quarter of the steps.",
        lambda rows: signal_share(1 / EARLY, rows),
        Side.ABOVE,
        0.5,
        "a kernel that grows late in training",
        informed=False,
        deciding=False,
    ),
    RegisteredPrediction(
        "lines are not sharpened by training",
        "What RoPE's lines explain of what random ones leave rises by less than 0.2 from step 0 to the end.",
        lines_added,
        Side.BELOW,
        0.2,
        "lines that come out by training alone",
        informed=False,
        expected=Outcome.HELD,
        deciding=False,
    ),
)


def curve_data(rows: "pd.DataFrame", metric: str, statistic: Statistic) -> "pd.DataFrame":
    """A metric over training, mean over seeds, a line an encoding."""
    models = of_models(rows, metric, statistic, {}, undefined=0.0)
    found = models.groupby(["encoding", "length"], sort=False)["value"].mean().reset_index()
    return found.rename(columns={"length": "step", "value": metric})


def draw_curve(metric: str, title: str, label: str, table: "pd.DataFrame") -> "Figure":
    """Against the training step."""
    from poskernel.report.curves import curves

    return curves(table, title=title, x="step", y=metric, labels=("training step", label), series="encoding")


dynamics = Experiment(
    id="dynamics",
    title="Training dynamics of the positional kernel",
    question="Does the positional kernel come with the architecture, or with training?",
    claim="With RoPE stationarity comes with the architecture, and the kernel itself with training.",
    design=(
        f"E1's models with LayerNorm and RoPE or learned positions: {FULL.description}. Every head at steps "
        f"{', '.join(map(str, FULL.recipe.checkpoints))} and at the end. Quick version: {QUICK.description}."
    ),
    measures=(LOSS, *HEAD_MEASURES),
    predictions=PREDICTIONS,
    falsified_by="untrained RoPE models that are not stationary, or whose kernels are as large as trained ones",
    threats=(
        "What is called architecture includes how weights are drawn at the start. R2 of a small signal rests on "
        "little: it is estimated without bias, and a head whose R2 is undefined counts as 0. Training is short; the "
        "learning rate falls to zero over it, so 'early' is early in this schedule."
    ),
    build=build,
    pictures=(
        Picture(
            "signal",
            "Mean over heads and seeds.",
            "Signal against training step, a line an encoding: it starts near zero.",
            lambda rows: curve_data(rows, "signal", mean),
            lambda table: draw_curve("signal", "How large is the kernel?", "signal of g, nats", table),
        ),
        Picture(
            "r2",
            "Median over heads, mean over seeds; heads without an R2 count as 0.",
            "R2 against training step, a line an encoding.",
            lambda rows: curve_data(rows, "r2", median),
            lambda table: draw_curve("r2", "Is it a function of the offset?", "R2", table),
        ),
    ),
)  # fmt: skip
