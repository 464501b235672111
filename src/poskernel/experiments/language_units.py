"""Small language models as units: the cell of a condition, its trained model shared by all experiments, loss curves."""

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poskernel.experiments.experiment import ConditionCell, ExperimentUnit, Quantity
from poskernel.models.ablated import Ablation
from poskernel.models.language import Objective, Text, bigram_loss
from poskernel.models.language_training import Condition, Place, TrainedLanguage, train_language
from poskernel.study.grid import Cell, short_specification
from poskernel.study.units import Measurement

CURVE_POINTS = 20
"""Points of a training-loss curve, each the mean since the one before."""
Part = tuple[tuple[str, str | int | float], ...]
"""Which part of a model a row speaks of: (("layer", 2), ("head", 0))."""


@dataclass(frozen=True)
class LanguageCell(ConditionCell):
    """One condition, or a part of the model trained under it."""

    kind = "language"
    condition: Condition
    part: Part = ()

    def at(self, **part: str | int | float) -> "LanguageCell":
        """The cell of a part of the same model: `at(layer=2, head=0)`."""
        return dataclasses.replace(self, part=tuple(part.items()))

    @property
    def whole(self) -> "LanguageCell":
        """The cell of the whole model: what its weights are kept under."""
        return dataclasses.replace(self, part=())

    @property
    def label(self) -> str:
        """Its encoding."""
        return short_specification(self.condition.encoding)

    @property
    def task_name(self) -> str:
        """What it learns from."""
        source = self.condition.recipe.source
        return source.corpus if isinstance(source, Text) else source.name

    @property
    def train_length(self) -> int:
        """Its context."""
        return self.condition.architecture.train_length

    @property
    def columns(self) -> Mapping[str, Any]:
        """Source, encoding, norm (of attention where it is another), direction, depth, and the part."""
        shape, recipe = self.condition.architecture, self.condition.recipe
        before = shape.attention_norm
        return {
            "source": self.task_name,
            "encoding": self.label,
            "norm": str(shape.norm) if before is None else f"{shape.norm}, {before} before attention",
            "direction": "causal" if shape.causal else "bidirectional",
            "objective": str(recipe.objective),
            "ablation": str(self.condition.ablation),
            "layers": shape.layers,
            "heads": shape.heads,
            **dict(self.part),
        }

    @property
    def description(self) -> str:
        """Encoding, text, norm, and what is out of the ordinary."""
        condition = self.condition
        unusual = ["masked tokens"] * (condition.recipe.objective is Objective.MASKED)
        unusual += ["no causal mask"] * (not condition.architecture.causal)
        unusual += [f"ablation {condition.ablation}"] * (condition.ablation is not Ablation.NONE)
        return ", ".join([f"{self.label} on {self.task_name}", f"norm {self.columns['norm']}", *unusual])


@dataclass(frozen=True)
class LanguageUnit(ExperimentUnit):
    """A unit that needs one trained language model; give `measures`, and `measured` with a number for each."""

    cell: LanguageCell

    @property
    def cost(self) -> float:
        """In trainings of a tier-1 model of the studies: proportional to tokens, weights and layers."""
        shape, schedule = self.cell.condition.architecture, self.cell.condition.recipe.schedule
        tokens = schedule.steps * schedule.batch * shape.train_length / (2000 * 64 * 20)
        return shape.layers * (shape.width / 64) ** 2 * tokens

    def weights_file(self, folder: Path) -> Path | None:
        """The trained model; checkpoints lie beside it."""
        return self.place(folder).final

    def place(self, folder: Path) -> Place:
        """Where the model's files lie: the same for every experiment that uses it."""
        return Place(folder, f"{self.cell.whole.id}-{self.seed}")

    def trained(self, weights: Path | None) -> TrainedLanguage:
        """The model: from its files, or trained now (on from where it was broken off)."""
        return train_language(self.cell.condition, self.seed, None if weights is None else self.place(weights))

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Train, unless the weights are there, and measure."""
        trained = self.trained(weights)
        if trained.failure is not None:
            return self.failures(f"training broke off: {trained.failure}", transient=False)
        return self.done(self.measured(trained))

    @abstractmethod
    def measured(self, trained: TrainedLanguage) -> Mapping[tuple[Cell, str, int], float | str]:
        """A number for each measure, or why there is none."""


LOSS_MEASURES = (
    Quantity("train_loss", "mean cross-entropy of the steps since the last point, nats a token", "training step"),
    Quantity("validation_loss", "cross-entropy on held-out documents, nats a token", "training step"),
    Quantity("bigram_margin", "loss of a bigram on the same tokens less the model's, nats; above 0 it is beaten"),
)


@dataclass(frozen=True)
class LossUnit(LanguageUnit):
    """Loss curves of one model, and whether it beats a bigram."""

    @property
    def points(self) -> tuple[int, ...]:
        """Steps at which the training loss is given."""
        steps = self.cell.condition.recipe.schedule.steps
        return tuple(sorted({max(1, round(steps * point / CURVE_POINTS)) for point in range(1, CURVE_POINTS + 1)}))

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Both curves, and the margin over a bigram where it predicts the next token of a text."""
        recipe = self.cell.condition.recipe
        looks = (*recipe.checkpoints, recipe.schedule.steps)
        margin = [(self.cell, "bigram_margin", self.cell.train_length)] if self.comparable else []
        curves = [(self.cell, "train_loss", step) for step in self.points]
        return [*curves, *((self.cell, "validation_loss", step) for step in looks), *margin]

    @property
    def comparable(self) -> bool:
        """Whether a bigram answers the same question."""
        recipe = self.cell.condition.recipe
        return isinstance(recipe.source, Text) and recipe.objective == "next"

    def measured(self, trained: TrainedLanguage) -> Mapping[tuple[Cell, str, int], float | str]:
        """The curves' points."""
        recipe, values = self.cell.condition.recipe, dict[tuple[Cell, str, int], float | str]()
        before = 0
        for step in self.points:
            values[self.cell, "train_loss", step] = float(trained.history[before:step].mean())
            before = step
        for step, found in trained.held_out.items():
            values[self.cell, "validation_loss", step] = found.loss
        if isinstance(recipe.source, Text) and self.comparable:
            length = self.cell.train_length
            bigram = bigram_loss(recipe.source, recipe, length)
            values[self.cell, "bigram_margin", length] = bigram - trained.held_out[recipe.schedule.steps].loss
        return values
