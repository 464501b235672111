"""Units of E2: a small model in three states, a pretrained one likewise, and either on text that carries tags."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.attention.content.class_kernels import Classes, TaggedClasses, TokenClasses
from poskernel.attention.content.sparse_autoencoder import AutoencoderRecipe
from poskernel.attention.sources.capture import AttentionSource
from poskernel.attention.sources.self_test import self_test
from poskernel.attention.sources.shuffled import ShuffledSource
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.attention.sources.untrained import untrained_source
from poskernel.experiments.content_measures import SCOPES, SPLIT, TAGGED, TAGS, Scope, content_values, planned
from poskernel.experiments.experiment import ExperimentUnit
from poskernel.experiments.kernel_measures import held_out_tokens
from poskernel.experiments.kernel_units import PretrainedCell, disjoint_text, encoded_windows
from poskernel.experiments.language_grid import FULL, Grid
from poskernel.experiments.language_units import LanguageCell, LanguageUnit
from poskernel.models.language import Text
from poskernel.models.language_training import TrainedLanguage
from poskernel.models.tagged_text import TAG_CLASSES, Word, brown, corpus_encoder, spacy_words, tagged_windows
from poskernel.models.text import Split, corpus, tokenized
from poskernel.models.token_classes import TOKEN_CLASSES, spelt_out, token_classes
from poskernel.models.training import initial_model
from poskernel.study.grid import Cell
from poskernel.study.units import Measurement

OWN, BROWN, SPACY = "own", "brown", "spacy"
"""Texts: the model's own kind; the Brown corpus with gold tags; the own kind with spaCy's tags."""
EXCERPTS, EXCERPT = 30, 4000
"""Passages that spaCy tags, evenly spread over a text, and their letters: many documents rather than whole ones."""
AUTOENCODER = AutoencoderRecipe()
ModelCell: TypeAlias = "LanguageCell | PretrainedCell"
Measures = list[tuple[Cell, str, int]]
Values = dict[tuple[Cell, str, int], float | str]


@dataclass(frozen=True)
class Extent:
    """Which heads are measured, and on how much text."""

    layers: tuple[int, ...]
    heads: int
    length: int
    dropped: int
    autoencoder: AutoencoderRecipe = AUTOENCODER

    def measures(self, cell: ModelCell, text: str) -> Measures:
        """Everything that is measured on a text, state by state."""
        found: Measures = []
        for state, scope in states_of(text).items():
            wanted = planned(scope, self.layers, self.heads)
            cells = {part: cell.at(text=text, state=state, **dict(part)) for part, _ in wanted}
            found += [(cells[part], metric, self.length) for part, metric in wanted]
        return found


@dataclass(frozen=True, eq=False)
class Sample:
    """The tokens that a model is measured on, and what gives their classes."""

    tokens: Int[Tensor, "sequence position"]
    classes: Mapping[str, Classes]


def text_name(text: str, own: str) -> str:
    """What a plan calls a text; `own` is the corpus of the model's own kind."""
    return {OWN: own, BROWN: "the Brown corpus", SPACY: f"{own} tagged by spaCy"}[text]


def states_of(text: str) -> Mapping[str, Scope]:
    """States and what is measured in them; on tagged text the trained model alone."""
    return SCOPES if text == OWN else {"trained": TAGGED}


def measured_states(
    cell: ModelCell,
    text: str,
    extent: Extent,
    sources: Mapping[str, Callable[[], AttentionSource]],
    sample: Sample,
) -> Values:
    """Every state of one model on one text."""
    values: Values = {}
    for state, scope in states_of(text).items():
        source = sources[state]()
        tokens = source.shuffled(sample.tokens) if isinstance(source, ShuffledSource) else sample.tokens
        found = content_values(source, tokens, extent.layers, extent.dropped, scope, sample.classes, extent.autoencoder)
        values |= {
            (cell.at(text=text, state=state, **dict(part)), metric, extent.length): value
            for (part, metric), value in found.items()
        }
    return values


def tagged_sample(
    words: Sequence[Word],
    encode: Callable[[str], Sequence[int]],
    split: TokenClasses,
    sequences: int,
    length: int,
) -> Sample:
    """The first windows of a tagged text, with their tags and the split of their tokens."""
    windows = tagged_windows(words, encode, sequences, length)
    return Sample(windows.tokens, {SPLIT: split, TAGS: TaggedClasses(windows.tokens, windows.tags, len(TAG_CLASSES))})


def third(words: Sequence[Word], number: int, texts: int) -> Sequence[Word]:
    """One of some contiguous parts of equal size."""
    size = len(words) // texts
    return words[number * size : (number + 1) * size]


def tagged_excerpts(text: str) -> list[Word]:
    """Passages of a text, tagged by spaCy."""
    starts = torch.linspace(0, max(0, len(text) - EXCERPT), EXCERPTS).long().tolist()
    return [word for start in starts for word in spacy_words(text[start : start + EXCERPT])]


def split_of(pieces: Sequence[str]) -> TokenClasses:
    """Classes of a vocabulary's tokens by what they stand for."""
    return TokenClasses(token_classes(pieces), len(TOKEN_CLASSES))


@dataclass(frozen=True)
class ContentUnit(LanguageUnit):
    """Every head of one small model: on held-out windows untrained, trained and shuffled, or trained on tagged text."""

    grid: Grid = FULL
    text: str = OWN
    autoencoder: AutoencoderRecipe = AUTOENCODER

    @property
    def extent(self) -> Extent:
        """All heads."""
        shape = self.cell.condition.architecture
        layers = tuple(range(shape.layers))
        return Extent(layers, shape.heads, shape.train_length, self.grid.dropped, self.autoencoder)

    @property
    def aspect(self) -> str:
        """Content, on which text."""
        return f"content on {text_name(self.text, self.cell.task_name)}"

    @property
    def measures(self) -> Measures:
        """All states of this text."""
        return self.extent.measures(self.cell, self.text)

    def measured(self, trained: TrainedLanguage) -> Values:
        """A number for each, or why there is none."""
        source, condition = TransformerSource(trained.model), self.cell.condition
        fresh = initial_model(condition.architecture, condition.encoding, self.seed).eval()
        sources: dict[str, Callable[[], AttentionSource]] = {
            "untrained": lambda: TransformerSource(fresh),
            "trained": lambda: source,
            "shuffled": lambda: ShuffledSource(source, self.extent.length, self.grid.dropped, self.seed),
        }
        return measured_states(self.cell, self.text, self.extent, sources, self.sample())

    def sample(self) -> Sample:
        """Windows of the text."""
        source, number, length = self.cell.condition.recipe.source, self.grid.sequences, self.extent.length
        assert isinstance(source, Text)
        split = split_of(spelt_out(tokenized(source.corpus, source.tokens).pieces))
        if self.text == OWN:
            return Sample(held_out_tokens(source, number, length), {SPLIT: split})
        words = (
            third(brown(), self.seed, len(self.grid.seeds))
            if self.text == BROWN
            else tagged_excerpts("\n\n".join(corpus(source.corpus).of(Split.TEST)))
        )
        return tagged_sample(words, corpus_encoder(source.corpus, source.tokens), split, number, length)


@dataclass(frozen=True)
class PretrainedContentUnit(ExperimentUnit):
    """Some layers of a pretrained model on one of several disjoint texts, in the same states."""

    cell: PretrainedCell
    text: str = OWN
    texts: int = 3
    layers: tuple[int, ...] = (0, 1, 3, 8, 14, 29)
    heads: int = 9
    dropped: int = 16
    autoencoder: AutoencoderRecipe = AUTOENCODER

    @property
    def extent(self) -> Extent:
        """All heads of those layers."""
        return Extent(self.layers, self.heads, self.cell.length, self.dropped, self.autoencoder)

    @property
    def cost(self) -> float:
        """A few core-minutes."""
        return 25.0 if self.text == OWN else 7.0

    @property
    def aspect(self) -> str:
        """Content, on which text."""
        return f"content on {text_name(self.text, self.cell.task_name)}"

    @property
    def measures(self) -> Measures:
        """All states of this text."""
        return self.extent.measures(self.cell, self.text)

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Load, test that what is captured is the model's own, measure."""
        from poskernel.attention.sources.loading import load

        loaded = load(self.cell.model)
        source = loaded.source
        self_test(source)
        sources: dict[str, Callable[[], AttentionSource]] = {
            "untrained": lambda: untrained_source(source, self.seed),
            "trained": lambda: source,
            "shuffled": lambda: ShuffledSource(source, self.cell.length, self.dropped, self.seed),
        }
        split = split_of([loaded.decode(token) for token in range(source.vocabulary)])
        sample = self.sample(loaded.encode, split)
        return self.done(measured_states(self.cell, self.text, self.extent, sources, sample))

    def sample(self, encode: Callable[[str], list[int]], split: TokenClasses) -> Sample:
        """Windows of the text."""
        number, length = self.cell.sequences, self.cell.length
        if self.text == OWN:
            windows = encoded_windows(encode, self.cell.source, self.seed, self.texts, number, length)
            return Sample(windows, {SPLIT: split})
        words = (
            third(brown(), self.seed, self.texts)
            if self.text == BROWN
            else tagged_excerpts(disjoint_text(self.cell.source, self.seed, self.texts))
        )
        return tagged_sample(words, encode, split, number, length)
