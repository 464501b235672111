"""Classes of tokens by their text."""

import pytest

from poskernel.models.text import SPECIAL, tokenized
from poskernel.models.token_classes import (
    CONTENT,
    DIGIT,
    FUNCTION,
    PUNCTUATION,
    SPACE,
    TOKEN_CLASSES,
    spelt_out,
    token_class,
    token_classes,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" The", FUNCTION), ("of", FUNCTION), (" nation", CONTENT), ("ing", CONTENT), (" 1789", DIGIT), ("7", DIGIT),
        (",", PUNCTUATION), (" --", PUNCTUATION), ("_", PUNCTUATION), ("\n\n", SPACE), (" ", SPACE), ("é", CONTENT),
        ("3rd", DIGIT), ("�", PUNCTUATION),
    ],
)  # fmt: skip
def test_a_token_is_what_it_looks_like(text: str, expected: int) -> None:
    assert token_class(text) == expected


def test_a_vocabulary_has_every_class() -> None:
    pieces = spelt_out(tokenized("topics", "byte-pair:300").pieces)
    classes = token_classes(pieces)
    assert len(classes) == 300 and set(classes.tolist()) == set(range(len(TOKEN_CLASSES)))
    assert all(int(classes[number]) == SPACE for number in range(len(SPECIAL)))
    assert spelt_out(["Ġthe", "Ċ", "<mask>", "<="]) == [" the", "\n", " ", "<="]
