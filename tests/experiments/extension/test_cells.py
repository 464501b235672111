"""Cells of the validation, and what units share: sizes, texts, losses, digests."""

import json

import pytest
import torch

pytest.importorskip("transformers")

from extension_world import ASKED, tiny_model
from families import tiny, tokens
from poskernel.attention.extension.measurement import open_rotary
from poskernel.errors import InputError
from poskernel.experiments.extension import cells
from poskernel.experiments.extension.cells import (
    SHAPES,
    first_windows,
    reach_of,
    screen_of,
    setting_of,
    shape_of,
    token_losses,
    write_about,
)


@pytest.fixture
def model(monkeypatch):
    yield tiny_model(monkeypatch)
    for cache in (cells.opened_model, cells.text_tokens, cells.unscaled_screen):
        cache.cache_clear()


def test_cells_are_told_apart_by_what_they_are_of():
    cell, head = ASKED.cell("linear:2", "a"), ASKED.heads("b")
    assert cell.id != ASKED.cell("linear:4", "a").id and cell.id != ASKED.cell("linear:2", "b").id
    assert head.at(1, 2).id != head.at(2, 1).id and head.at(0, 0).id == head.id
    assert head.unscaled == ASKED.cell("none", "b") and head.at(1, 2).label == "tiny layer 1 head 2"


def test_compared_offsets_are_held_by_half_of_the_kept_positions():
    assert reach_of(512, 16) == 248 and reach_of(33, 2) == 16


@pytest.mark.usefixtures("model")
def test_one_pass_of_the_unscaled_model_serves_every_setting():
    assert screen_of(ASKED.cell("linear:2", "a")) is screen_of(ASKED.cell("yarn:2", "a"))
    assert first_windows(ASKED.cell("none", "a")).shape == (6, 32)
    with pytest.raises(InputError, match=r"has 200 tokens, not 6000"):
        first_windows(cells.ExtensionCell("tiny", "none", "a", 1000, 6))


def test_the_shape_is_read_where_it_is_not_known(model):
    layers, heads = shape_of("tiny")
    screen = screen_of(ASKED.cell("none", "a"))
    assert (layers, heads) == (len(screen.layers), screen.layers[0].heads) == ASKED.shape
    assert SHAPES[cells.MODEL] == (30, 9)
    assert setting_of(model, ASKED.cell("linear:2", "a")).changed


@pytest.mark.usefixtures("model")
def test_digests_go_with_the_rows(tmp_path):
    write_about("tiny", ("a", "b"), tmp_path)
    about = json.loads((tmp_path / "about.json").read_text())
    assert about["texts"]["a"]["tokens"] == 200 and about["texts"]["a"]["sha256"] != about["texts"]["b"]["sha256"]
    assert about["dtype"] == "float32"


def test_losses_are_cross_entropies_of_the_next_token():
    model = open_rotary(tiny("llama"))
    hidden, given = torch.randn(9, 32), tokens(1, 9)[0]
    with pytest.raises(InputError, match="output layer of its own"):
        token_losses(model, hidden, given)
    model.source.module.config.tie_word_embeddings = True
    found = token_losses(model, hidden, given)
    scores = (hidden @ model.source.embedding().T).log_softmax(-1)
    torch.testing.assert_close(found, -scores[torch.arange(8), given[1:]])
