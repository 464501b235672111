"""Small language models: what they learn from, how, and their loss on held-out text.

Windows of text, masks and initial weights come from (seed, purpose) alone: conditions with one seed see the same tokens
in the same order, whatever their encoding, norm or mask.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.errors import InputError
from poskernel.models.generated import Sequences, Source
from poskernel.models.optimization import Schedule
from poskernel.models.text import MASK, Split, tokenized
from poskernel.models.transformer import Transformer
from poskernel.random_streams import random_stream
from poskernel.tasks import IGNORED_LABEL

EVALUATION_BATCH = 16
"""Windows in one forward pass of an evaluation."""
MASKED_SHARE = 0.15
"""Share of tokens that a masked model has to guess (Devlin et al. 2019); all of them are shown as MASK."""
ADD_K = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Counts a bigram may add to every pair; the training text chooses."""


class Objective(StrEnum):
    """What a model learns to predict."""

    NEXT = "next"
    """Each token from those before it."""
    MASKED = "masked"
    """Tokens hidden at random from all others."""


@dataclass(frozen=True)
class Text(Source):
    """Windows of the training documents of a corpus, at random places."""

    name: ClassVar[str] = "text"
    corpus: str = "sotu"
    tokens: str = "byte-pair:1024"

    @property
    def vocabulary(self) -> int:
        """Number of distinct tokens."""
        return tokenized(self.corpus, self.tokens).vocabulary

    def draw(self, stream: torch.Generator, sequences: int, length: int) -> Sequences:
        """Windows that start anywhere in the training text."""
        return self.windows(Split.TRAIN, stream, sequences, length)

    def windows(self, split: Split, stream: torch.Generator, sequences: int, length: int) -> Sequences:
        """Windows at random places of a split; every token is scored."""
        text = self.stream(split, length)
        start = torch.randint(len(text) - length + 1, (sequences,), generator=stream)
        return whole(text[start[:, None] + torch.arange(length)])

    def spread(self, split: Split, sequences: int, length: int) -> Sequences:
        """Windows evenly spread over a split, the same every time."""
        text = self.stream(split, length)
        start = torch.linspace(0, len(text) - length, sequences).long()
        return whole(text[start[:, None] + torch.arange(length)])

    def stream(self, split: Split, length: int) -> Int[Tensor, " token"]:
        """Tokens of a split; InputError where it holds no window of that length."""
        text = tokenized(self.corpus, self.tokens).streams[split]
        if len(text) < length:
            raise InputError(
                f"the {split} text of '{self.corpus}' has {len(text)} tokens, fewer than a window of {length}: "
                "give a shorter one."
            )
        return text


def whole(tokens: Int[Tensor, "sequence position"]) -> Sequences:
    """Sequences of which every token is scored."""
    return Sequences(tokens, torch.ones_like(tokens, dtype=torch.bool))


@dataclass(frozen=True)
class LanguageRecipe:
    """What a language model learns, from what and how."""

    source: Source = field(default_factory=Text)
    objective: Objective = Objective.NEXT
    schedule: Schedule = field(default_factory=Schedule)
    checkpoints: tuple[int, ...] = ()
    """Steps after which the weights are kept and the held-out loss is measured; 0 is the untrained model."""
    evaluation_windows: int = 64

    def __post_init__(self) -> None:
        steps = self.schedule.steps
        wrong = [step for step in self.checkpoints if step != int(step) or not 0 <= step < steps]
        if wrong:
            raise InputError(
                f"a checkpoint after step {wrong[0]} is out of range: give whole numbers of 0 to {steps - 1}."
            )
        if self.evaluation_windows < 1:
            raise InputError(f"{self.evaluation_windows} windows measure nothing: give at least 1.")
        if self.objective is Objective.MASKED and not isinstance(self.source, Text):
            raise InputError(f"'{self.source.name}' has no token to stand for a masked one: mask text alone.")

    def check_vocabulary(self, vocabulary: int) -> None:
        """InputError unless an architecture has the source's vocabulary."""
        if vocabulary != self.source.vocabulary:
            raise InputError(
                f"the architecture has {vocabulary} tokens, the source '{self.source.name}' has "
                f"{self.source.vocabulary}: give it as many."
            )


@dataclass(frozen=True, eq=False)
class Lesson:
    """What a model sees and what it has to say."""

    tokens: Int[Tensor, "sequence row"]
    labels: Int[Tensor, "sequence row"]
    """IGNORED_LABEL at rows that are not scored."""


def lesson(sequences: Sequences, objective: Objective, stream: torch.Generator) -> Lesson:
    """Next tokens of the scored ones, or masked tokens and what stood there; rows one fewer than positions.

    A masked lesson keeps to the same rows as the other, so that the two objectives see the same tokens; in each
    sequence at least one token is masked.
    """
    tokens, scored = sequences.tokens, sequences.scored
    if objective is Objective.NEXT:
        return Lesson(tokens[:, :-1], tokens[:, 1:].masked_fill(~scored[:, 1:], IGNORED_LABEL))
    shown = tokens[:, :-1]
    chance = torch.rand(shown.shape, generator=stream)
    hidden = (chance < MASKED_SHARE) | (chance == chance.amin(dim=1, keepdim=True))
    return Lesson(shown.masked_fill(hidden, MASK), shown.masked_fill(~hidden, IGNORED_LABEL))


def training_lesson(recipe: LanguageRecipe, seed: int, step: int, length: int) -> Lesson:
    """The lesson of one step: of (seed, step) alone, so that a training can be taken up anywhere."""
    drawn = recipe.source.draw(random_stream(seed, f"data/{step}"), recipe.schedule.batch, length + 1)
    return lesson(drawn, recipe.objective, random_stream(seed, f"mask/{step}"))


def evaluation_lessons(recipe: LanguageRecipe, seed: int, length: int, split: Split) -> Iterator[Lesson]:
    """Lessons on held-out sequences, a batch at a time: the same for every model and seed where they are text."""
    source, number = recipe.source, recipe.evaluation_windows
    if isinstance(source, Text):
        sequences, seed = source.spread(split, number, length + 1), 0
    else:
        sequences = source.draw(random_stream(seed, f"{split}/{length}"), number, length + 1)
    everything = lesson(sequences, recipe.objective, random_stream(seed, f"{split}/{length}/mask"))
    pieces = zip(everything.tokens.split(EVALUATION_BATCH), everything.labels.split(EVALUATION_BATCH), strict=True)
    return (Lesson(tokens, labels) for tokens, labels in pieces)


def lesson_loss(model: Transformer, given: Lesson) -> Float[Tensor, ""]:
    """Mean cross-entropy over the scored rows, nats a token."""
    logits = model(given.tokens)
    return nn.functional.cross_entropy(logits.flatten(0, 1), given.labels.flatten(), ignore_index=IGNORED_LABEL)


@dataclass(frozen=True)
class HeldOut:
    """How well a model predicts what it has not seen."""

    loss: float
    """Nats a scored token."""
    accuracy: float
    """Share of scored tokens that are the likeliest."""
    tokens: int


@torch.inference_mode()
def held_out(
    model: Transformer, recipe: LanguageRecipe, seed: int, length: int | None = None, split: Split = Split.VALIDATION
) -> HeldOut:
    """Loss and accuracy on held-out sequences of a length (default: the training length)."""
    length = model.architecture.train_length if length is None else length
    total, right, number = 0.0, 0, 0
    for given in evaluation_lessons(recipe, seed, length, split):
        logits, labels = model(given.tokens).flatten(0, 1), given.labels.flatten()
        total += float(nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL, reduction="sum"))
        right += int((logits.argmax(-1) == labels).sum())
        number += int((labels != IGNORED_LABEL).sum())
    return HeldOut(total / number, right / number, number)


def bigram_loss(source: Text, recipe: LanguageRecipe, length: int, split: Split = Split.VALIDATION) -> float:
    """Loss of a bigram with add-k smoothing on the very tokens a model is measured on, nats a token.

    Pairs are counted in the training text; k is the one of ADD_K that predicts its last tenth best from the rest.
    """
    text, vocabulary = source.stream(Split.TRAIN, 2), source.vocabulary
    cut = len(text) * 9 // 10
    rest, last = pair_counts(text[:cut], vocabulary), text[cut:]
    k = min(ADD_K, key=lambda k: float(pair_losses(rest, k, last[:-1], last[1:]).mean()))
    counts = pair_counts(text, vocabulary)
    tokens = source.spread(split, recipe.evaluation_windows, length + 1).tokens
    return float(pair_losses(counts, k, tokens[:, :-1].flatten(), tokens[:, 1:].flatten()).mean())


def pair_counts(text: Int[Tensor, " token"], vocabulary: int) -> Float[Tensor, "vocabulary vocabulary"]:
    """How often each token follows each."""
    return torch.bincount(text[:-1] * vocabulary + text[1:], minlength=vocabulary**2).view(vocabulary, -1).double()


def pair_losses(
    counts: Float[Tensor, "vocabulary vocabulary"], k: float, first: Int[Tensor, " pair"], second: Int[Tensor, " pair"]
) -> Float[Tensor, " pair"]:
    """-log of the smoothed probability of the second token after the first, nats. MASK never occurs in text."""
    possible = counts.shape[1] - 1
    return -((counts[first, second] + k) / (counts.sum(1)[first] + k * possible)).log()
