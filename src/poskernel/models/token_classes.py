"""Classes of tokens without any tagger: function word, content word, digit, punctuation, space.

By what a token's text is, whatever stands around it; a fragment of a word is the content word that it most likely is
part of, unless it is spelt like a function word.
"""

import re
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

FUNCTION, CONTENT, DIGIT, PUNCTUATION, SPACE = range(5)
TOKEN_CLASSES = ("function word", "content word", "digit", "punctuation", "space")
LISTED = """
a about above after against all although am among an and another any are as at be because been before being below
between both but by can could did do does down during each either every few for from further had has have having he
her here hers him his how however i if in into is it its itself just least less many may me might mine more most
much must my near neither no none nor not now of off on once one only onto or other others ought our ours out over
own per same shall she should since so some such than that the their theirs them themselves then there these they
this those though through thus to too toward towards under unless until up upon us very was we were what when where
whether which while who whom whose why will with within without would yet you your yours
"""
FUNCTION_WORDS = frozenset(LISTED.split())
"""Articles, pronouns, prepositions, conjunctions, auxiliaries, particles and quantifiers of English."""
BYTE_LEVEL = str.maketrans({"Ġ": " ", "Ċ": "\n", "ĉ": "\t"})
"""How byte-level vocabularies spell white space."""


def token_class(text: str) -> int:
    """The class of one token's text."""
    word = text.strip()
    if not word:
        return SPACE
    if re.search(r"\d", word):
        return DIGIT
    if re.search(r"[^\W_]", word):
        return FUNCTION if word.lower() in FUNCTION_WORDS else CONTENT
    return PUNCTUATION


def token_classes(texts: Sequence[str]) -> Int[Tensor, " vocabulary"]:
    """The class of every token of a vocabulary, given what each stands for."""
    return torch.tensor([token_class(text) for text in texts])


def spelt_out(pieces: Sequence[str]) -> list[str]:
    """The pieces of a byte-level or character vocabulary as text; special tokens in angle brackets count as spaces."""
    return [" " if re.fullmatch(r"<\w+>", piece) else piece.translate(BYTE_LEVEL) for piece in pieces]
