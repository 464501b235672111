"""Pretrained models of E7: what is counted on is checked, texts do not overlap."""

import dataclasses

import pytest
import torch

pytest.importorskip("transformers")

from families import HEADS, LAYERS, loaded
from poskernel.errors import InputError
from poskernel.experiments.kernel_units import LETTERS_A_TOKEN, disjoint_text
from poskernel.experiments.pretrained import models
from poskernel.experiments.pretrained.models import (
    PretrainedModel,
    RealModelCell,
    opened,
    text_windows,
)
from poskernel.models.text import corpus

MODEL = PretrainedModel("tiny", "package:tiny", LAYERS, HEADS, True, (0, 1), "RoPE")


def test_windows_are_of_disjoint_documents_and_hold_no_other_token() -> None:
    words = loaded("llama")
    first, second = (text_windows(words, "topics", number, 5, 4, 16) for number in (0, 1))
    assert first.shape == (4, 16) and not torch.equal(first, second)
    assert first.flatten().tolist() == words.encode(disjoint_text("topics", 0, 5))[:64]
    documents = set(corpus("topics").documents.values())
    parts = [{each for each in documents if each in disjoint_text("topics", number, 5)} for number in range(5)]
    assert set().union(*parts) == documents and all(len(part) < len(documents) / 2 for part in parts)


def test_a_text_that_is_too_short_is_refused() -> None:
    short = dataclasses.replace(loaded("llama"), encode=lambda text: [0] * (len(text) // (2 * LETTERS_A_TOKEN)))
    with pytest.raises(InputError, match="gives 32 tokens, not 64"):
        text_windows(short, "topics", 0, 5, 4, 16)


@pytest.mark.parametrize(
    ("family", "refused"), [("llama", None), ("bert", "does not attend as tiny does"), ("other", "not 2 of 3")]
)
def test_the_model_must_be_what_a_plan_counts_on(monkeypatch, family: str, refused: str | None) -> None:
    opened.cache_clear()
    monkeypatch.setattr(models, "load", lambda location: loaded("llama" if family == "other" else family))
    model = PretrainedModel("tiny", "package:tiny", LAYERS, 3, True, (0,), "") if family == "other" else MODEL
    if refused is None:
        assert opened(model) is opened(model)
    else:
        with pytest.raises(InputError, match=refused):
            opened(model)
    opened.cache_clear()


def test_cells_say_what_they_are() -> None:
    cell = RealModelCell(MODEL, "topics", 4, 16)
    part = cell.at(protocol="kernel", layer=1, head=2)
    assert part.columns == {
        "model": "tiny", "source": "topics", "direction": "causal", "protocol": "kernel", "layer": 1, "head": 2,
    }  # fmt: skip
    assert (
        len({cell.id, part.id, RealModelCell(MODEL, "sotu", 4, 16).id, RealModelCell(MODEL, "topics", 4, 32).id}) == 4
    )
    assert (cell.label, cell.task_name, cell.train_length) == ("tiny", "topics", 16)
