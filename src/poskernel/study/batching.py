"""Units that train several models at a time: one batch on a CPU's core, or a whole tier on a GPU.

Which models share a batch follows from the study and the batch size alone, never from what is missing: a batch is made
again as a whole, with the same numbers, and the store keeps what it has.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from poskernel.errors import InputError
from poskernel.models.ensemble_training import Condition, token_accuracies, train_ensemble
from poskernel.models.training import TrainedModel, load_checkpoint, save_checkpoint
from poskernel.models.transformer import Transformer
from poskernel.study.grid import Cell, TrainingCell
from poskernel.study.units import GridUnit, Key, Measure, Measurement, Metric, TrainingUnit, Unit

DEVICES = ("cpu", "cuda")
"""Where models train."""


@dataclass(frozen=True)
class EnsembleUnit(GridUnit):
    """Train models of one architecture and recipe in one batch, and evaluate each as its own unit would.

    `cell` and `lengths` are those of the first model; make one with `of`.
    """

    members: tuple[TrainingUnit, ...]
    device: str = "cpu"

    @classmethod
    def of(cls, members: Sequence[TrainingUnit], device: str = "cpu") -> "EnsembleUnit":
        """The unit that does these at once; ValueError where they differ in architecture or recipe."""
        if len({kind_of(member.cell) for member in members}) != 1:
            raise ValueError("models in one batch need one architecture and one recipe: batch each kind by itself.")
        return cls(members[0].cell, members[0].lengths, tuple(members), device)

    @property
    def parts(self) -> tuple[Unit, ...]:
        """The units of the single models."""
        return self.members

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Those of its models, one after another."""
        return tuple(measure for member in self.members for measure in member.measures)

    @property
    def keys(self) -> tuple[Key, ...]:
        """Those of its models, one after another."""
        return tuple(key for member in self.members for key in member.keys)

    @property
    def kind(self) -> str:
        """Models are trained."""
        return "training"

    @property
    def cost(self) -> float:
        """That of its models."""
        return sum(member.cost for member in self.members)

    @property
    def description(self) -> str:
        """How many models, the first and the last."""
        first, last = self.members[0].description, self.members[-1].description.removeprefix("train ")
        return first if len(self.members) == 1 else f"{first}, and so on: {len(self.members)} models to {last}"

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Train all that are not there, evaluate those that did not fail."""
        trained, refused = self.trained(weights), dict[int, str]()
        values: list[dict[Measure, float]] = [{} for _ in self.members]
        for number, (member, made) in enumerate(zip(self.members, trained, strict=True)):
            if made.train_accuracy is not None:
                values[number][member.measures[0]] = made.train_accuracy
        for (_, length, first), questions in self.asked(trained).items():
            for question, answer in zip(questions, self.answers(questions, length, first), strict=True):
                if isinstance(answer, InputError):
                    refused[question.number] = str(answer)
                else:
                    values[question.number][question.measure] = answer
        found = []
        for number, (member, made) in enumerate(zip(self.members, trained, strict=True)):
            reason = refused.get(number)
            found += member.judged(made, values[number]) if reason is None else member.failures(reason, transient=False)
        return found

    def answers(self, questions: "Sequence[Question]", length: int, first: int) -> list[float | InputError]:
        """Accuracies at one length from one row on; a model that cannot be asked leaves the others alone."""
        members = [self.members[question.number] for question in questions]
        try:
            return list(
                token_accuracies(
                    [question.model for question in questions],
                    [member.cell.task for member in members],
                    [member.seed for member in members],
                    length,
                    first=first,
                    sequences=self.members[0].cell.recipe.evaluation_sequences,
                    device=self.device,
                )
            )
        except InputError as error:
            if len(questions) == 1:
                return [error]
            return [answer for question in questions for answer in self.answers([question], length, first)]

    def asked(self, trained: Sequence[TrainedModel]) -> "dict[tuple[int, int, int], list[Question]]":
        """What is asked alike, by number of the test encoding (0: as trained), length and first row."""
        asked: dict[tuple[int, int, int], list[Question]] = defaultdict(list)
        for number, (member, made) in enumerate(zip(self.members, trained, strict=True)):
            models = {} if made.train_accuracy is None else member.models(made)
            for turn, (tested, model) in enumerate(models.items()):
                for measure in member.measures:
                    cell, metric, length = measure
                    first = cell.train_length if metric is Metric.LENGTH_GENERALIZATION else 0
                    known = turn == 0 and metric is Metric.TRAIN_ACCURACY
                    if cell == tested and not known:
                        asked[turn, length, first].append(Question(number, measure, model))
        return asked

    def trained(self, weights: Path | None) -> list[TrainedModel]:
        """Every model: from its weights where they are kept; if any is not, the whole batch is trained for them."""
        files = [None if weights is None else member.weights_file(weights) for member in self.members]
        kept = {n: load_checkpoint(file) for n, file in enumerate(files) if file is not None and file.exists()}
        if len(kept) == len(self.members):
            return list(kept.values())
        first = self.members[0].cell
        conditions = [Condition(member.cell.encoding, member.cell.task, member.seed) for member in self.members]
        trained = train_ensemble(first.architecture, conditions, first.recipe, self.device)
        for number, file in enumerate(files):
            if file is not None and number not in kept:
                save_checkpoint(trained[number], file)
        return [kept.get(number, made) for number, made in enumerate(trained)]


@dataclass(frozen=True, eq=False)
class Question:
    """One accuracy of one model."""

    number: int
    """Of the model in its batch."""
    measure: Measure
    model: Transformer


def kind_of(cell: Cell) -> object:
    """What models in one batch have in common."""
    assert isinstance(cell, TrainingCell)
    return cell.architecture, cell.recipe


@dataclass(frozen=True)
class Batching:
    """How many models are trained at a time, and where."""

    models: int = 1
    device: str = "cpu"
    """One of DEVICES. One model on the CPU is trained by itself; all others in batches, of one or more."""

    def __post_init__(self) -> None:
        if self.models < 1:
            raise InputError(f"a batch of {self.models} models trains nothing: give at least 1.")
        if self.device not in DEVICES:
            raise InputError(f"models of a study do not train on '{self.device}': choose from {', '.join(DEVICES)}.")

    def check_device(self) -> None:
        """InputError where the device is not in this machine."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("there is no CUDA device here: use --device cpu, or an executor on a machine with one.")

    def of(self, units: Sequence[Unit]) -> list[Unit]:
        """The same work with models batched in the order of the plan; the last batch of a kind may be smaller."""
        if self == ONE_BY_ONE:
            return list(units)
        places: list[Unit | list[TrainingUnit]] = []
        filling: dict[object, list[TrainingUnit]] = {}
        for unit in units:
            if not isinstance(unit, TrainingUnit):
                places.append(unit)
                continue
            kind = kind_of(unit.cell)
            if kind not in filling or len(filling[kind]) == self.models:
                filling[kind] = []
                places.append(filling[kind])
            filling[kind].append(unit)
        return [EnsembleUnit.of(each, self.device) if isinstance(each, list) else each for each in places]


ONE_BY_ONE = Batching()
"""Every model in a process of its own: what a study does unless told otherwise."""
