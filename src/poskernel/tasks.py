"""Tasks: which key each query row has to attend to, and token batches made from that.

Positions count from 0 and a row sees the keys 0 to itself. The token to predict at a query row is the token standing
at its target key. Source: section 3 of the realizability paper; `first` is scored from row 1, row 0 being trivial.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.errors import InputError
from poskernel.specification import parse_specification

NO_TARGET = -1
"""Marks a row that is no query row, in target keys; any negative key does."""
IGNORED_LABEL = -100
"""Marks a row without a label; PyTorch's cross-entropy leaves it out."""


class OffsetRegime(StrEnum):
    """How the demanded offset (query - target key) behaves as rows and lengths grow."""

    FIXED_RELATIVE = "fixed relative"
    FIXED_ABSOLUTE = "fixed absolute"
    GROWING = "growing"
    CONTENT = "content"


@dataclass(frozen=True, eq=False)
class Targets:
    """Query rows of one sequence length and the target key of each."""

    query: Int[Tensor, " row"]
    key: Int[Tensor, " row"]

    @property
    def offset(self) -> Int[Tensor, " row"]:
        """query - key."""
        return self.query - self.key

    def rows(self, first: int, last: int) -> "Targets":
        """The query rows from `first` to `last` - 1."""
        chosen = (self.query >= first) & (self.query < last)
        return Targets(self.query[chosen], self.key[chosen])


class Task(ABC):
    """A frozen dataclass that names the target key of each query row. Subclass it, add an instance to TASKS."""

    regime: ClassVar[OffsetRegime]
    depends_on_length: ClassVar[bool] = False
    """Whether a row's target changes with the sequence length: then a longer solution says nothing of a shorter one."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name it goes by."""

    @abstractmethod
    def target_key(self, query: Int[Tensor, " query"], length: int) -> Int[Tensor, " query"]:
        """Target key of each query position in a sequence of that length; negative where the row is no query row."""

    def targets(self, length: int) -> Targets:
        """The query rows of a length with their targets, checked.

        InputError for a target after its query or none at all.
        """
        if length < 1:
            raise InputError(f"task '{self.name}' was asked for length {length}: give a length of at least 1.")
        query = torch.arange(length)
        try:
            key: object = self.target_key(query, length)
        except RuntimeError as error:
            if "Boolean value of Tensor" not in str(error):
                raise
            raise InputError(
                f"task '{self.name}' decides with `if` in target_key, which gets all rows at once as a tensor: choose "
                "with torch.where(condition, key, -1)."
            ) from None
        if not isinstance(key, Tensor):
            raise InputError(
                f"task '{self.name}' gave a {type(key).__name__} for {length} rows: give a tensor of one key a row, "
                "computed from `query`."
            )
        if key.shape != query.shape:
            raise InputError(
                f"task '{self.name}' gave {tuple(key.shape)} target keys for {length} rows: give one a row."
            )
        if key.dtype not in (torch.int64, torch.int32):
            raise InputError(f"task '{self.name}' gave target keys of {key.dtype}: give whole numbers (torch.int64).")
        late = key > query
        if late.any():
            row = int(query[late][0])
            raise InputError(
                f"task '{self.name}' has target key {int(key[row])} at query row {row} of length {length}, "
                "after its query: causal attention cannot see it, give a key of at most the row."
            )
        scored = key >= 0
        return Targets(query[scored], key[scored])

    def new_targets(self, train_length: int, length: int) -> Targets:
        """Scored rows of length generalization: the query rows in [train_length, length).

        InputError if there are none.
        """
        if length <= train_length:
            raise InputError(f"length {length} is not beyond the training length {train_length}: give a longer one.")
        scored = self.targets(length).rows(train_length, length)
        if not len(scored.query):
            raise InputError(
                f"task '{self.name}' has no query row in [{train_length}, {length}), "
                "so nothing is scored: give a longer length."
            )
        return scored

    def sequence_targets(self, tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
        """Target key of every row of every sequence, NO_TARGET where there is none."""
        length = tokens.shape[1]
        targets, keys = self.targets(length), torch.full((length,), NO_TARGET)
        keys[targets.query] = targets.key
        return keys.expand(tokens.shape)

    def labels(self, tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
        """Token to predict at every row: the one at the target key; IGNORED_LABEL where the row is no query row."""
        keys = self.sequence_targets(tokens)
        return tokens.gather(1, keys.clamp(min=0)).masked_fill(keys < 0, IGNORED_LABEL)


@dataclass(frozen=True)
class Skip(Task):
    """Attend a fixed number of positions back: target i - offset, from row i = offset on."""

    regime = OffsetRegime.FIXED_RELATIVE
    offset: int = 1

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise InputError(f"task skip has offset {self.offset}, in the future: give 0 or more.")

    @property
    def name(self) -> str:
        """prev for offset 1, else skip and the offset."""
        return "prev" if self.offset == 1 else f"skip{self.offset}"

    def target_key(self, query: Int[Tensor, " query"], length: int) -> Int[Tensor, " query"]:
        """I - offset."""
        return query - self.offset


@dataclass(frozen=True)
class Position(Task):
    """Attend a fixed absolute position: target k, from row max(k, 1) on."""

    regime = OffsetRegime.FIXED_ABSOLUTE
    position: int = 0

    def __post_init__(self) -> None:
        if self.position < 0:
            raise InputError(f"task pos has position {self.position}: give 0 or more.")

    @property
    def name(self) -> str:
        """First for position 0, else pos and the position."""
        return "first" if self.position == 0 else f"pos{self.position}"

    def target_key(self, query: Int[Tensor, " query"], length: int) -> Int[Tensor, " query"]:
        """K; row 0 of `first` would be trivially right and is not scored."""
        return torch.where(query >= max(self.position, 1), self.position, NO_TARGET)


@dataclass(frozen=True)
class Copy(Task):
    """Second half attends the first in order: target i - ceil(n/2)."""

    regime = OffsetRegime.GROWING
    depends_on_length = True
    name = "copy"

    def target_key(self, query: Int[Tensor, " query"], length: int) -> Int[Tensor, " query"]:
        """I - ceil(n/2)."""
        return query - (length + 1) // 2


@dataclass(frozen=True)
class Reverse(Task):
    """Second half attends the first backwards: target 2 ceil(n/2) - 1 - i."""

    regime = OffsetRegime.GROWING
    depends_on_length = True
    name = "reverse"

    def target_key(self, query: Int[Tensor, " query"], length: int) -> Int[Tensor, " query"]:
        """2 ceil(n/2) - 1 - i."""
        half = (length + 1) // 2
        return torch.where(query >= half, 2 * half - 1 - query, NO_TARGET)


class ContentTask(Task):
    """A task whose targets depend on the tokens: no positional kernel is asked to solve it, so alpha is undefined."""

    regime = OffsetRegime.CONTENT

    def target_key(self, query: Int[Tensor, " query"], length: int) -> Int[Tensor, " query"]:
        """Undefined without tokens: always an InputError."""
        raise InputError(f"task '{self.name}' has no positional target: its targets depend on the tokens.")


@dataclass(frozen=True)
class Induction(ContentTask):
    """Rows whose token occurred before attend to the key after the most recent earlier occurrence."""

    name = "induction"

    def sequence_targets(self, tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
        """One after the most recent earlier occurrence of the row's token, NO_TARGET where there is none."""
        match = latest_match(tokens)
        return torch.where(match >= 0, match + 1, NO_TARGET)


def latest_match(tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
    """Most recent earlier position of each row's token, NO_TARGET where it has not occurred before."""
    position = torch.arange(tokens.shape[1])
    earlier = (tokens[:, :, None] == tokens[:, None, :]) & (position[:, None] > position)
    return torch.where(earlier, position, NO_TARGET).amax(-1)


POSITIONAL_TASKS: dict[str, Task] = {
    task.name: task
    for task in (Skip(1), Skip(2), Skip(3), Skip(5), Copy(), Reverse(), Position(0), Position(2), Position(5))
}
STUDY_TASKS = tuple(POSITIONAL_TASKS[name] for name in ("prev", "skip2", "skip3", "skip5", "copy", "reverse", "first"))
"""The seven tasks of the paper's study: with its five encodings, the 35 cells."""
TASKS: dict[str, Task] = {**POSITIONAL_TASKS, "induction": Induction()}
TASK_PATTERNS: dict[str, Task] = {"skip": Skip(), "pos": Position(1)}
"""Beside TASKS, the two families a specification can parametrise: `skip:offset=7`, `pos:position=4`."""


def parse_task(text: str) -> Task:
    """The task a text names: `prev`, `skip:offset=7`."""
    return parse_specification({**TASKS, **TASK_PATTERNS}, text, "task")
