"""Classes of tokens by their text: byte-level spellings, pieces of words, what is neither letter nor digit."""

import pytest
import torch

from poskernel.models.text import SPECIAL, tokenized
from poskernel.models.word_classes import WordClass, word_class, word_classes


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        ("\u0120the", WordClass.FUNCTION),
        (" of", WordClass.FUNCTION),
        ("The", WordClass.FUNCTION),
        ("at", WordClass.CONTENT),
        ("\u0120nation", WordClass.CONTENT),
        ("ing", WordClass.CONTENT),
        ("\u01201850", WordClass.DIGIT),
        ("7", WordClass.DIGIT),
        (",", WordClass.PUNCTUATION),
        ("\u0120(", WordClass.PUNCTUATION),
        ("\u0120", WordClass.SPACE),
        ("\u010a\u010a", WordClass.SPACE),
        ("\n", WordClass.SPACE),
    ],
)
def test_a_piece_has_the_class_of_its_text(piece: str, expected: WordClass) -> None:
    assert word_class(piece) is expected


def test_a_vocabulary_has_a_class_for_every_token() -> None:
    pieces = tokenized("topics", "byte-pair:300").pieces
    found = word_classes(pieces)
    assert found.shape == (len(pieces),) and found.dtype == torch.int64
    assert set(found.tolist()) >= {0, 1, 2, 3, 4}
    assert [WordClass(int(each)) for each in found[: len(SPECIAL)]] == [WordClass.SPACE] * len(SPECIAL)
