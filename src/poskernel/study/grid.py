"""What a study measures: frozen cells with digest ids, and named products of axes.

A cell is one configuration; seeds and lengths are apart from it. Its id is a digest of what it sets, numbers as floats
and fields at their default left out: so it is the same in every process and for `rope` and `rope:base=10000`, and a
field that a later version adds leaves old ids alone. (A default, once released, must therefore never change.)
"""

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, ClassVar, TypeVar

import torch

from poskernel.encodings import Encoding
from poskernel.errors import InputError
from poskernel.models.training import Recipe, shortest_length
from poskernel.models.transformer import Architecture
from poskernel.realizability import parse_rule
from poskernel.specification import written
from poskernel.tasks import ContentTask, Task

TIERS: dict[int, tuple[int, int]] = {1: (1, 1), 2: (2, 4), 3: (4, 4)}
"""Layers and heads of the study's architectures."""
DIGEST_LETTERS = 16


def canonical(value: object, defaults: bool) -> Any:
    """A configuration as plain JSON values; `defaults` keeps fields that stand at their default.

    Encodings and tasks carry their name. Raises InputError for a value that has no canonical form.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = getattr(value, "name", None)
        kept = {} if name is None else {"name": str(name)}
        for item in dataclasses.fields(value):
            held = getattr(value, item.name)
            if item.init and (defaults or held != default_of(item)):
                kept[item.name] = canonical(held, defaults)
        return kept
    if isinstance(value, Enum):
        return canonical(value.value, defaults)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, tuple | list):
        return [canonical(item, defaults) for item in value]
    raise InputError(
        f"a configuration holds {value!r}, which has no canonical form: use numbers, texts or dataclasses."
    )


def default_of(item: "dataclasses.Field[Any]") -> object:
    """Default of a dataclass field; MISSING, which equals nothing, where it has none."""
    return item.default_factory() if item.default_factory is not dataclasses.MISSING else item.default


def short_specification(encoding: Encoding) -> str:
    """Name of an encoding and what departs from its defaults."""
    changes = departures(encoding)
    return encoding.name + (":" + ",".join(changes) if changes else "")


def departures(value: object, *apart: str) -> list[str]:
    """`steps=8000` for each field of a dataclass that does not stand at its default, but for some."""
    given = canonical(value, defaults=False)
    return [f"{key}={written(getattr(value, key))}" for key in given if key not in ("name", *apart)]


def canonical_json(value: object) -> str:
    """One text for one JSON value, whatever the order its keys were made in."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise InputError(f"the configuration {value} holds a number that is not finite: give finite numbers.") from None


SomeCell = TypeVar("SomeCell", bound="TaskCell")


@dataclass(frozen=True)
class Cell(ABC):
    """One configuration: what a row of the store was measured on."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def label(self) -> str:
        """What a table calls its encoding or model."""

    @property
    @abstractmethod
    def task_name(self) -> str:
        """What a table calls its task or data."""

    @property
    @abstractmethod
    def train_length(self) -> int:
        """Length it is trained or fitted at."""

    @property
    def tier(self) -> int | None:
        """The study's name for its architecture; None where it has none."""
        return None

    @property
    def selection_rule(self) -> str | None:
        """Selection rule of a prediction."""
        return None

    @cached_property
    def id(self) -> str:
        """Digest of what it sets."""
        text = canonical_json({"kind": self.kind, **canonical(self, defaults=False)})
        return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]

    @cached_property
    def config(self) -> str:
        """Canonical JSON with every effective parameter, defaults included."""
        return canonical_json({"kind": self.kind, **canonical(self, defaults=True)})


@dataclass(frozen=True)
class TaskCell(Cell):
    """An encoding and a task: a cell of the realizability studies."""

    encoding: Encoding
    task: Task
    test_encoding: Encoding | None = field(default=None, kw_only=True)
    """Encoding under which it is evaluated, where that is another than it was fitted or trained with: zero-shot."""

    @property
    def label(self) -> str:
        """The shortest specification of its encoding, and of the one it is evaluated under where that differs."""
        own = short_specification(self.encoding)
        return own if self.test_encoding is None else f"{own} at {short_specification(self.test_encoding)}"

    @property
    def task_name(self) -> str:
        """Name of the task."""
        return self.task.name

    def tested(self: SomeCell, encoding: Encoding) -> SomeCell:
        """The cell of the same fit or model, evaluated under another encoding."""
        return dataclasses.replace(self, test_encoding=encoding)

    def check_lengths(self, lengths: Iterable[int]) -> None:
        """InputError where the task scores nothing at one of these lengths."""
        for length in lengths:
            if isinstance(self.task, ContentTask):
                if length <= self.train_length:
                    raise InputError(
                        f"length {length} is not beyond the training length {self.train_length}: give a longer one."
                    )
            else:
                check_scored(self.task, self.train_length, length)


@lru_cache(maxsize=4096)
def check_scored(task: Task, train_length: int, length: int) -> None:
    """InputError where the task scores no row from train_length to length; a grid asks the same of all its cells."""
    task.new_targets(train_length, length)


@dataclass(frozen=True)
class TrainingCell(TaskCell):
    """An encoding and a task on an architecture, trained by a recipe."""

    kind = "training"
    architecture: Architecture = field(default_factory=Architecture)
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        with torch.random.fork_rng(devices=[]):
            self.encoding.module(self.architecture.shape)
        shortest = shortest_length(self.train_length)
        if not isinstance(self.task, ContentTask) and not len(self.task.targets(shortest).query):
            raise InputError(
                f"task '{self.task.name}' has no query row at length {shortest}, the shortest of a training length of "
                f"{self.train_length}: give a longer one."
            )

    @property
    def train_length(self) -> int:
        """Longest training sequence."""
        return self.architecture.train_length

    @property
    def tier(self) -> int | None:
        """Tier of this depth and number of heads."""
        depth = (self.architecture.layers, self.architecture.heads)
        return next((tier for tier, of_tier in TIERS.items() if of_tier == depth), None)


@dataclass(frozen=True)
class PredictionCell(TaskCell):
    """An encoding and a task whose kernel is selected at a training length, without training."""

    kind = "prediction"
    fitted_length: int = 20
    rule: str = "adam"

    def __post_init__(self) -> None:
        parse_rule(self.rule)

    @property
    def train_length(self) -> int:
        """Length the kernel is selected at."""
        return self.fitted_length

    @property
    def selection_rule(self) -> str | None:
        """How the kernel is selected."""
        return self.rule


@dataclass(frozen=True)
class Axes:
    """A product: every encoding x task, trained at every tier and seed, predicted by every rule, at every length."""

    encodings: tuple[Encoding, ...]
    tasks: tuple[Task, ...]
    tiers: tuple[int, ...]
    """Tiers to train; none leaves the predictions alone."""
    seeds: tuple[int, ...]
    lengths: tuple[int, ...]
    train_length: int = 20
    rules: tuple[str, ...] = ("adam",)
    """Selection rules to predict by; existence and the content alphas are asked beside the first."""
    existence: bool = True
    content: bool = False
    """Whether the alphas that count token matching are asked too."""
    width: int = 64
    vocabulary: int = 12
    recipe: Recipe = field(default_factory=Recipe)
    test_encodings: tuple[Encoding, ...] = ()
    """Encodings under which every kernel and model is evaluated beside its own, without another fit: zero-shot."""

    def __post_init__(self) -> None:
        unknown = [tier for tier in self.tiers if tier not in TIERS]
        if unknown:
            raise InputError(f"tier {unknown[0]} does not exist: choose from {', '.join(map(str, TIERS))}.")
        if not self.lengths:
            raise InputError("a study without lengths measures nothing: give at least one beyond the training length.")

    def training_cells(self) -> list[TrainingCell]:
        """Every encoding x task, tier by tier."""
        return [
            TrainingCell(encoding, task, self.architecture(tier), self.recipe)
            for tier in self.tiers
            for encoding in self.encodings
            for task in self.tasks
        ]

    def prediction_cells(self) -> list[PredictionCell]:
        """Every encoding x task, rule by rule."""
        return [
            PredictionCell(encoding, task, self.train_length, rule, test_encoding=tested)
            for rule in self.rules
            for encoding in self.encodings
            for task in self.tasks
            for tested in (None, *self.test_encodings)
        ]

    def architecture(self, tier: int) -> Architecture:
        """Architecture of a tier."""
        layers, heads = TIERS[tier]
        return Architecture(self.width, layers, heads, vocabulary=self.vocabulary, train_length=self.train_length)


@dataclass(frozen=True)
class Study:
    """A question and the products of axes that answer it."""

    name: str
    question: str
    axes: tuple[Axes, ...]

    def only(self, tiers: Iterable[int]) -> "Study":
        """The same study with some of its tiers; InputError for one it lacks."""
        wanted, held = list(tiers), {tier for axes in self.axes for tier in axes.tiers}
        for tier in wanted:
            if tier not in held:
                raise InputError(
                    f"study '{self.name}' has no tier {tier}: choose from {', '.join(map(str, sorted(held)))}."
                )
        kept = (
            dataclasses.replace(axes, tiers=tuple(tier for tier in axes.tiers if tier in wanted)) for axes in self.axes
        )
        return dataclasses.replace(self, axes=tuple(kept))
