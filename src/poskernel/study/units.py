"""Work units: the smallest pieces a study is run in. A unit gives all its measurements at once, or none."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from poskernel.encodings import Encoding
from poskernel.errors import InputError
from poskernel.models.training import (
    TrainedModel,
    evaluate,
    load_checkpoint,
    save_checkpoint,
    token_accuracy,
    train,
    under,
)
from poskernel.models.transformer import Transformer
from poskernel.realizability import ContentRow, content_alphas, existence_answers, predict
from poskernel.study.grid import Cell, PredictionCell, Study, TaskCell, TrainingCell, departures
from poskernel.threads import one_thread

NO_SEED = -1
"""Seed of measurements without randomness: predictions. Tables show it as missing."""
LEARNABLE = 0.8
"""A model whose in-distribution accuracy is not above this has not learned its task (the paper's learnable subset)."""
EXISTENCE_VALUE = {"yes": 1.0, "no": 0.0, "conflict": 0.0}
"""What `exists` is as a number; other answers have no value. The reason keeps the word."""

OUT_OF_MEMORY = ("allocate memory", "out of memory")
"""How torch says it, on a CPU and on an accelerator."""


class Status(StrEnum):
    """How a measurement ended. A failure is a status, never a number."""

    DONE = "done"
    UNLEARNED = "unlearned"
    """The model did not learn its task in distribution; the value is kept."""
    FAILED = "failed"
    TIMEOUT = "timeout"


class Metric(StrEnum):
    """What is measured; each a share between 0 and 1."""

    TRAIN_ACCURACY = "train_accuracy"
    """Token accuracy on all query rows at the training length."""
    LENGTH_GENERALIZATION = "length_generalization"
    """Token accuracy on the query rows from the training length on."""
    ALPHA = "alpha"
    """Share of those rows whose strict argmax under the selected kernel is the target."""
    EXISTS = "exists"
    """1 where some kernel of the family solves the training length and this length, else 0."""
    ALPHA_CONTENT = "alpha_content"
    """1 where one rule of token matching names every target, else 0."""
    ALPHA_PLUS = "alpha_plus"
    """The larger of alpha and the content alpha."""
    ALPHA_GRADED = "alpha_graded"
    """The larger of alpha and the content alpha times the encoding's alpha on `prev`."""


Key = tuple[str, str, int, int]
"""Cell id, metric, length, seed: what a measurement is known by."""


@dataclass(frozen=True)
class Measurement:
    """One row of the store."""

    cell: str
    metric: str
    length: int
    seed: int
    value: float | None
    status: Status
    reason: str = ""
    transient: bool = False
    """Whether a failure came from outside (a killed worker, no memory, no time): running again may mend it."""

    @property
    def key(self) -> Key:
        """What it is known by."""
        return (self.cell, self.metric, self.length, self.seed)


@dataclass(frozen=True)
class Unit(ABC):
    """Measurements that are made together."""

    cell: Cell

    @property
    @abstractmethod
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Cell, metric and length of each measurement."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """What its work is: a word for the table of what is there."""

    @property
    def run_seed(self) -> int:
        """Seed of its measurements."""
        return NO_SEED

    @property
    def keys(self) -> tuple[Key, ...]:
        """What it measures."""
        return tuple((cell.id, metric, length, self.run_seed) for cell, metric, length in self.measures)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells it measures: its own, and those that differ from it in the test setting."""
        return tuple(dict.fromkeys(cell for cell, _, _ in self.measures))

    @property
    @abstractmethod
    def cost(self) -> float:
        """Rough work, relative to training one tier-1 model: for the time left."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What a reader calls it."""

    @abstractmethod
    def measure(self, weights: Path | None) -> list[Measurement]:
        """Do the work; exceptions become failures in `run`."""

    def run(self, weights: Path | None = None) -> list[Measurement]:
        """All measurements, on one thread so that numbers do not depend on the machine's cores; failures as statuses.

        `weights` is a folder for trained weights: kept there, and used again where they are there already.
        """
        try:
            with one_thread():
                return self.measure(weights)
        except Exception as error:  # a failed unit is a status; the rest of the study goes on
            starved = isinstance(error, MemoryError) or any(words in str(error).lower() for words in OUT_OF_MEMORY)
            name = "out of memory" if starved else type(error).__name__
            reason = str(error) if isinstance(error, InputError) else f"{name}: {error}"
            return self.failures(reason, transient=starved)

    def failures(self, reason: str, transient: bool, status: Status = Status.FAILED) -> list[Measurement]:
        """Every measurement, failed for one reason."""
        return [Measurement(*key, value=None, status=status, reason=reason, transient=transient) for key in self.keys]

    def weights_file(self, folder: Path) -> Path | None:
        """Where its trained weights are kept; None where it trains nothing."""
        return None

    @property
    def parts(self) -> "tuple[Unit, ...]":
        """The units that it does together; itself alone but for a batch of models."""
        return (self,)


Measure = tuple[TaskCell, Metric, int]
"""Cell, metric and length of one measurement of a study's unit."""


@dataclass(frozen=True)
class GridUnit(Unit):
    """A unit of a study's grid: one encoding and task, at some lengths."""

    cell: TaskCell
    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        self.cell.check_lengths(self.lengths)

    @property
    @abstractmethod
    def measures(self) -> tuple[Measure, ...]:
        """Cell, metric and length of each measurement."""


@dataclass(frozen=True)
class TrainingUnit(GridUnit):
    """Train one model and evaluate it at every length."""

    cell: TrainingCell
    seed: int = 0
    test_encodings: tuple[Encoding, ...] = ()
    """Encodings under which the trained model is evaluated too, without training: zero-shot."""

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """Accuracy in distribution, then length generalization: as trained, then under each test encoding."""
        return tuple(
            measure
            for cell in (self.cell, *(self.cell.tested(encoding) for encoding in self.test_encodings))
            for measure in (
                (cell, Metric.TRAIN_ACCURACY, cell.train_length),
                *((cell, Metric.LENGTH_GENERALIZATION, length) for length in self.lengths),
            )
        )

    @property
    def kind(self) -> str:
        """A model is trained."""
        return "training"

    @property
    def run_seed(self) -> int:
        """Seed of init, data and evaluation."""
        return self.seed

    @property
    def cost(self) -> float:
        """Proportional to tokens and weights."""
        shape, recipe = self.cell.architecture, self.cell.recipe
        return (
            shape.layers * (shape.width / 64) ** 2 * shape.train_length / 20 * recipe.steps / 2000 * recipe.batch / 64
        )

    @property
    def description(self) -> str:
        """Encoding, task, tier, what else departs from the paper's study, and seed."""
        shape = self.cell.architecture
        depth = f"tier {self.cell.tier}" if self.cell.tier else f"{shape.layers} layers, {shape.heads} heads"
        unusual = departures(shape, "layers", "heads") + departures(self.cell.recipe)
        return ", ".join([f"train {self.cell.label} {self.cell.task.name}", depth, *unusual, f"seed {self.seed}"])

    def weights_file(self, folder: Path) -> Path | None:
        """One safetensors file a cell and seed."""
        return folder / f"{self.cell.id}-{self.seed}.safetensors"

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Train, unless the weights are there, and evaluate."""
        trained = self.trained(weights)
        if trained.train_accuracy is None:
            return self.judged(trained, {})
        models = self.models(trained)
        return self.judged(
            trained, {each: self.accuracy(trained, models[each[0]], *each[1:]) for each in self.measures}
        )

    def models(self, trained: TrainedModel) -> dict[TaskCell, Transformer]:
        """What each cell measures: the trained model, and the same under each test encoding."""
        models: dict[TaskCell, Transformer] = {self.cell: trained.model}
        for encoding in self.test_encodings:
            models[self.cell.tested(encoding)] = under(trained.model, encoding)
        return models

    def judged(self, trained: TrainedModel, values: Mapping[Measure, float]) -> list[Measurement]:
        """Measurements from their values: with the status that the training has earned them."""
        if trained.train_accuracy is None:
            return self.failures(f"training broke off: {trained.failure}", transient=False)
        learned = trained.train_accuracy > LEARNABLE
        status = Status.DONE if learned else Status.UNLEARNED
        reason = "" if learned else f"in-distribution accuracy {trained.train_accuracy:.3f} is not above {LEARNABLE}"
        return [
            Measurement(*key, value=values[measure], status=status, reason=reason)
            for key, measure in zip(self.keys, self.measures, strict=True)
        ]

    def accuracy(self, trained: TrainedModel, model: Transformer, metric: Metric, length: int) -> float:
        """One measurement of a model that is the trained one or stands under a test encoding."""
        sequences = self.cell.recipe.evaluation_sequences
        if metric is Metric.LENGTH_GENERALIZATION:
            return evaluate(model, trained.task, length, sequences, self.seed)
        if model is trained.model and trained.train_accuracy is not None:
            return trained.train_accuracy
        return token_accuracy(model, trained.task, length, first=0, sequences=sequences, seed=self.seed)

    def trained(self, weights: Path | None) -> TrainedModel:
        """The trained model: from its weights if they are there, else trained now and kept where they belong."""
        file = None if weights is None else self.weights_file(weights)
        if file is not None and file.exists():
            return load_checkpoint(file)
        cell = self.cell
        trained = train(cell.architecture, cell.encoding, cell.task, cell.recipe, self.seed)
        if file is not None:
            save_checkpoint(trained, file)
        return trained


@dataclass(frozen=True)
class PredictionUnit(GridUnit):
    """Alpha of the selected kernel, and whether another would do, at every length."""

    cell: PredictionCell
    existence: bool = True
    existence_seconds: float = 60.0
    content: bool = False

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Alpha, then existence and the content alphas if asked."""
        metrics = [Metric.ALPHA]
        metrics += [Metric.EXISTS] if self.existence else []
        metrics += [Metric.ALPHA_CONTENT, Metric.ALPHA_PLUS, Metric.ALPHA_GRADED] if self.content else []
        return tuple((self.cell, metric, length) for metric in metrics for length in self.lengths)

    @property
    def kind(self) -> str:
        """A kernel is fitted."""
        return "prediction"

    @property
    def cost(self) -> float:
        """About a second."""
        return 0.1

    @property
    def description(self) -> str:
        """Encoding, task, what departs from the paper's study, and rule."""
        unusual = departures(self.cell, "encoding", "task", "test_encoding", "rule")
        return ", ".join([f"predict {self.cell.label} {self.cell.task.name}", *unusual, f"rule {self.cell.rule}"])

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Select, transfer, score; existence on its own, so that no measurement depends on what else was asked."""
        cell = self.cell
        prediction = predict(
            cell.encoding,
            cell.task,
            cell.train_length,
            self.lengths,
            rule=cell.rule,
            existence=False,
            horizon=max(self.lengths),  # the reach beyond them is not asked for here
            test_encoding=cell.test_encoding,
        )
        rows = {row.length: row for row in prediction.rows}
        answers: dict[int, str | None] = {}
        if self.existence:
            answers = existence_answers(
                cell.encoding, cell.task, cell.train_length, self.lengths, self.existence_seconds, cell.test_encoding
            )
        content: dict[int, ContentRow] = {}
        if self.content:
            found = content_alphas(cell.encoding, cell.task, cell.train_length, self.lengths, cell.rule)
            content = {row.length: row for row in found}
        made = []
        for (_, metric, length), key in zip(self.measures, self.keys, strict=True):
            match metric:
                case Metric.EXISTS:
                    made.append(exists_measurement(key, answers[length]))
                case Metric.ALPHA_CONTENT:
                    made.append(alpha_measurement(key, content[length].content, ""))
                case Metric.ALPHA_PLUS:
                    made.append(alpha_measurement(key, content[length].plus, ""))
                case Metric.ALPHA_GRADED:
                    made.append(alpha_measurement(key, content[length].graded, ""))
                case _:
                    made.append(alpha_measurement(key, rows[length].alpha, rows[length].reason))
        return made


def alpha_measurement(key: Key, alpha: float | None, reason: str) -> Measurement:
    """An alpha; where it is undefined it has no value and the reason says why."""
    return Measurement(*key, value=alpha, status=Status.DONE, reason=reason)


def exists_measurement(key: Key, answer: str | None) -> Measurement:
    """An answer about existence: undecided is a timeout that may be asked again."""
    undecided = answer == "undecided"
    status = Status.TIMEOUT if undecided else Status.DONE
    word = "not asked" if answer is None else answer
    return Measurement(*key, value=EXISTENCE_VALUE.get(word), status=status, reason=word, transient=undecided)


def units_of(study: Study) -> list[GridUnit]:
    """Every unit of a study once: predictions first, then all models of the first seed, of the second, and so on."""
    units: dict[GridUnit, None] = {}
    for axes in study.axes:
        for cell in axes.prediction_cells():
            first = cell.rule == axes.rules[0]
            unit = PredictionUnit(
                cell, axes.lengths, existence=axes.existence and first, content=axes.content and first
            )
            units[unit] = None
    for axes in study.axes:
        cells: Sequence[TrainingCell] = axes.training_cells()
        for seed in axes.seeds:
            units |= {TrainingUnit(cell, axes.lengths, seed, axes.test_encodings): None for cell in cells}
    return list(units)
