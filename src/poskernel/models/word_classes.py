"""Classes of tokens by their text alone, without a tagger: what a query or a key is, roughly."""

from collections.abc import Sequence
from enum import IntEnum

import torch
from jaxtyping import Int
from torch import Tensor

from poskernel.models.text import SPECIAL

WORD_START = "\u0120"
"""How byte-level vocabularies spell the space before a word."""
LINE_BREAK = "\u010a"
CLOSED_CLASSES = """
a an the this that these those each every either neither some any no such all both which what whose
i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
myself ourselves himself herself itself themselves who whom one
of in to for with on by at from into upon under over between among through during before after against without
within about above below since until toward towards as than per
and or but nor so yet if because although though while when where whether unless
be am is are was were been being have has had having do does did done
will would shall should can could may might must not never there then here now also only
"""
"""Determiners, pronouns, prepositions, conjunctions, auxiliaries and some adverbs: they hardly ever get new members."""
FUNCTION_WORDS = frozenset(CLOSED_CLASSES.split())


class WordClass(IntEnum):
    """What a token is; pieces inside a word count as content."""

    FUNCTION = 0
    CONTENT = 1
    DIGIT = 2
    PUNCTUATION = 3
    SPACE = 4


def word_class(piece: str) -> WordClass:
    """The class of one token, from its text as it is or as a byte-level vocabulary spells it."""
    if piece in SPECIAL:  # no text: what stands between two documents
        return WordClass.SPACE
    text = piece.replace(WORD_START, " ").replace(LINE_BREAK, "\n")
    bare = text.strip()
    if not bare:
        return WordClass.SPACE
    # A piece that begins no word ("at" of "that") is no word, whatever it spells.
    if bare.lower() in FUNCTION_WORDS and (text[0].isspace() or bare[0].isupper()):
        return WordClass.FUNCTION
    if any(letter.isalpha() for letter in bare):
        return WordClass.CONTENT
    return WordClass.DIGIT if any(letter.isdigit() for letter in bare) else WordClass.PUNCTUATION


def word_classes(pieces: Sequence[str]) -> Int[Tensor, " vocabulary"]:
    """The class of every token of a vocabulary, by its number."""
    return torch.tensor([int(word_class(piece)) for piece in pieces])
