"""Heads as rows: the numbers of the estimators themselves, at the encoding's frequencies."""

import math

import pytest
import torch

from poskernel.attention.atlas import analyze
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.encodings import Alibi, ModelShape, Rope, Sinusoidal
from poskernel.experiments.kernel_measures import (
    KERNEL,
    SPECTRUM,
    VARIANTS,
    held_out_tokens,
    line_frequencies,
    measured_heads,
    number,
    source_subject,
)
from poskernel.models.language import Text
from poskernel.models.training import initial_model
from poskernel.models.transformer import Architecture

SHAPE = Architecture(16, 2, 2, vocabulary=300, train_length=40)
TOPICS = Text("topics", "byte-pair:300")


def test_frequencies_are_the_encodings_own_and_ropes_elsewhere() -> None:
    rope = [10000 ** (-k / 4) for k in range(4)]
    assert line_frequencies(Rope(), SHAPE.shape).tolist() == pytest.approx(rope)
    assert line_frequencies(Rope(base=100.0), SHAPE.shape).tolist() == pytest.approx(
        [100 ** (-k / 4) for k in range(4)]
    )
    assert line_frequencies(Alibi(), SHAPE.shape).tolist() == pytest.approx(rope)
    table = line_frequencies(Sinusoidal(), ModelShape(16, 2, 40)).tolist()
    assert table == pytest.approx([10000 ** (-k / 8) for k in range(8)])


def test_windows_are_the_same_every_time_and_of_test_documents() -> None:
    tokens = held_out_tokens(TOPICS, 8, 40)
    assert tokens.shape == (8, 40) and torch.equal(tokens, held_out_tokens(TOPICS, 8, 40))


def test_rows_are_what_an_atlas_of_the_same_tokens_says() -> None:
    model = initial_model(SHAPE, Rope(), 0).eval()
    tokens = held_out_tokens(TOPICS, 8, 40)
    frequencies = dict.fromkeys(range(2), line_frequencies(Rope(), SHAPE.shape))
    found = measured_heads(source_subject(TransformerSource(model), tokens, 4), frequencies, variants=True)
    atlas = analyze(model, tokens, sequences=8, length=40, dropped=4, measures="variants,spectrum")
    table = atlas.to_frame().set_index(["layer", "head"])
    assert set(found.values) == set(table.index)
    for name, values in found.values.items():
        assert set(values) == {each.name for each in (*KERNEL, *VARIANTS, *SPECTRUM)}
        row = table.loc[name]
        pairs = {"r2": "r2", "r2_null": "r2_null", "signal": "signal", "share": "share", "r2_mean": "mean_r2",
                 "signal_centred": "centred_signal", "r2_whitened": "whitened_r2", "lines_explained": "lines_explained",
                 "lines_random": "lines_random", "lines_p": "lines_p", "alignment": "alignment"}  # fmt: skip
        for mine, theirs in pairs.items():
            if isinstance(values[mine], str):
                assert math.isnan(row[theirs]), mine
            else:
                assert values[mine] == pytest.approx(row[theirs], rel=1e-5), mine
    layer, head = table["signal"].idxmax()
    g = torch.tensor(atlas.head(int(layer), int(head)).estimate.g.tolist())
    pairs_at = 36 - torch.arange(36).double()
    assert found.strongest.tolist() == pytest.approx((g - (g * pairs_at).sum() / pairs_at.sum()).tolist(), abs=1e-5)


def test_numbers_that_do_not_exist_say_why() -> None:
    assert number(1.5, "why") == 1.5 and number(math.nan, "why") == "why" and number(math.inf, "why") == "why"
