"""Units of E2: what they measure, of our models and of a pretrained one, on plain and on tagged text."""

import pytest
import torch

from poskernel.attention.content.sparse_autoencoder import AutoencoderRecipe
from poskernel.encodings import Rope
from poskernel.experiments import content_units
from poskernel.experiments.content_measures import SCOPES, SPLIT, TAGS
from poskernel.experiments.content_units import (
    BROWN,
    OWN,
    SPACY,
    ContentUnit,
    PretrainedContentUnit,
    tagged_excerpts,
    third,
)
from poskernel.experiments.kernel_units import PretrainedCell
from poskernel.experiments.language_grid import QUICK
from poskernel.experiments.language_units import LanguageCell
from poskernel.models.tagged_text import TAG_CLASSES
from poskernel.models.transformer import Architecture, Transformer
from poskernel.study import Status

CELL = LanguageCell(QUICK.condition(Rope()))
RECIPE = AutoencoderRecipe(12, 2, 5, 32)
SPELT = ["the", "value", "of", "a", "class", "is", "its", "name"]
DRAWN = torch.randint(len(SPELT), (7200,), generator=torch.Generator().manual_seed(0)).tolist()
WORDS = tuple((f" {SPELT[number]}", number % len(TAG_CLASSES)) for number in DRAWN)


def by_key(unit, weights=None):
    return {m.key: m for m in unit.run(weights)}


def test_texts_and_states_are_told_apart(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(content_units, "brown", lambda: WORDS)
    monkeypatch.setattr(content_units, "spacy_words", lambda text: WORDS[:40])
    keys, labels = [], set()
    for text in (OWN, BROWN, SPACY):
        unit = ContentUnit(CELL, 0, QUICK, text, RECIPE)
        found = by_key(unit, tmp_path)
        assert list(found) == list(unit.keys) and {m.status for m in found.values()} == {Status.DONE}
        assert {cell.columns["state"] for cell in unit.cells} == (set(SCOPES) if text == OWN else {"trained"})
        assert {cell.columns["text"] for cell in unit.cells} == {text}
        assert unit.weights_file(tmp_path).is_file()
        labels.add(unit.description)
        keys += unit.keys
    assert len(keys) == len(set(keys)) and len(labels) == 3


def test_the_states_differ_as_they_should(tmp_path) -> None:
    unit = ContentUnit(CELL, 1, QUICK, OWN, RECIPE)
    found = by_key(unit, tmp_path)
    position = {
        state: found[unit.cell.at(text=OWN, state=state, layer=0, head=0).id, "fit_position", 40, 1].value
        for state in SCOPES
    }
    assert position["trained"] != position["untrained"] and abs(position["shuffled"]) < 0.1


def test_tagged_samples_carry_tags_and_parts_of_a_text_do_not_overlap() -> None:
    unit = ContentUnit(CELL, 0, QUICK, BROWN)
    encode = {f" {word}": [number] for number, word in enumerate(SPELT)}.__getitem__
    sample = content_units.tagged_sample(WORDS, encode, content_units.split_of([" the"] * 8), 3, 16)
    assert set(sample.classes) == {SPLIT, TAGS} and sample.tokens.shape == (3, 16)
    assert torch.equal(sample.tokens % len(TAG_CLASSES), sample.classes[TAGS].tags)
    assert [third(WORDS[:8], number, 3) for number in range(3)] == [WORDS[:2], WORDS[2:4], WORDS[4:6]]
    assert unit.cost > 0


def test_excerpts_are_spread_over_the_text(monkeypatch) -> None:
    monkeypatch.setattr(content_units, "spacy_words", lambda text: [(text, 0)])
    text = "".join(chr(97 + number % 26) for number in range(content_units.EXCERPT * 40))
    found = [word for word, _ in tagged_excerpts(text)]
    assert len(found) == content_units.EXCERPTS and found[0] == text[: content_units.EXCERPT]
    assert found[-1] == text[-content_units.EXCERPT :] and tagged_excerpts("short")[0][0] == "short"


class Words:
    """What loading gives, of a model of our own."""

    def __init__(self) -> None:
        from poskernel.attention.sources.small_source import TransformerSource

        torch.manual_seed(0)
        self.source = TransformerSource(Transformer(Architecture(16, 2, 2, vocabulary=20), Rope()).eval())

    def encode(self, text: str) -> list[int]:
        return [ord(letter) % 20 for letter in text]

    def decode(self, token: int) -> str:
        return chr(97 + token)


@pytest.mark.parametrize("text", [OWN, BROWN])
def test_a_pretrained_model_is_measured_likewise(text, monkeypatch) -> None:
    from poskernel.attention.sources import loading

    monkeypatch.setattr(loading, "load", lambda model: Words())
    monkeypatch.setattr(content_units, "brown", lambda: WORDS)
    cell = PretrainedCell("made-up", "topics", sequences=8, length=24)
    units = [
        PretrainedContentUnit(cell, seed, text, 2, layers=(1,), heads=2, dropped=4, autoencoder=RECIPE)
        for seed in (0, 1)
    ]
    found = [by_key(unit) for unit in units]
    assert [list(each) for each in found] == [list(unit.keys) for unit in units]
    assert {m.status for each in found for m in each.values()} == {Status.DONE}
    place = cell.at(text=text, state="trained", layer=1, head=0).id
    assert found[0][place, "fit_position", 24, 0].value != found[1][place, "fit_position", 24, 1].value


def test_a_model_of_another_shape_is_a_failure(monkeypatch) -> None:
    from poskernel.attention.sources import loading

    monkeypatch.setattr(loading, "load", lambda model: Words())
    cell = PretrainedCell("made-up", "topics", sequences=8, length=24)
    unit = PretrainedContentUnit(cell, 0, layers=(1,), heads=3, dropped=4, autoencoder=RECIPE)
    assert {m.status for m in unit.run()} == {Status.FAILED}
