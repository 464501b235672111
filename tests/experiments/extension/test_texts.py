"""Texts for measurements: long enough for the longest context, different, the same each time."""

import pytest

from poskernel.errors import InputError
from poskernel.experiments.extension.texts import TEXTS, text_named


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "torch-docs"])
def test_texts_are_long_and_the_same_each_time(name):
    text = text_named(name)
    assert len(text) > 100_000  # about four characters a token, 16384 tokens and some to spare
    assert text == text_named(name)


def test_texts_differ_and_files_are_read(tmp_path):
    assert len({text_named(name)[:500] for name in ("python-topics", "python-source", "numpy-docs")}) == 3
    (tmp_path / "own.txt").write_text("own words")
    assert text_named(f"file:{tmp_path / 'own.txt'}") == "own words"
    with pytest.raises(InputError, match=r"cannot read the text"):
        text_named(f"file:{tmp_path / 'none.txt'}")
    with pytest.raises(InputError, match="did you mean 'scipy-docs'"):
        text_named("scipy-doc")
