"""Rows, documents and words of a measured head."""

import math
from dataclasses import replace

import pytest
import torch

from captures import DROPPED, LENGTH, estimate, random_capture
from poskernel.attention.estimators.decompose import TERMS, HeadSplit
from poskernel.attention.estimators.head_probes import HeadProbes
from poskernel.attention.estimators.probes import Agreement, HeadProbe, HeadRepetition
from poskernel.attention.head_report import HeadReport, listed, listed_offsets, without_nan
from poskernel.statistics import Estimate

KEPT = LENGTH - DROPPED


@pytest.fixture(scope="module")
def estimates():
    return estimate([random_capture(5, window=9)], null=False)


def test_undefined_numbers_are_null():
    assert without_nan({"a": [math.nan, 1.0, (math.inf, "b")], "c": None}) == {"a": [None, 1.0, [None, "b"]], "c": None}


def test_listed_offsets():
    assert listed_offsets(10) == tuple(range(10))
    offsets = listed_offsets(8192)
    assert offsets[:65] == tuple(range(65))
    assert offsets[-1] == 8191
    assert len(offsets) <= 65 + 192
    assert len(offsets) > 65 + 150


@pytest.mark.parametrize("horizon", [2, 10, 65, 66, 500])
def test_listed_offsets_of_encoders_are_the_same_in_both_directions(horizon):
    ahead, signed = listed_offsets(horizon), listed_offsets(horizon, causal=False)
    assert signed == tuple(sorted({*ahead, *(-offset for offset in ahead)}))
    assert listed_offsets(horizon) == ahead


def test_a_curve_is_undefined_where_its_window_ends():
    curve = torch.tensor([0.5, -1 / 3, 2.0])
    shown = listed(curve, -1, [-2, -1, 0, 1, 2])
    assert shown[1:4] == [0.5, -0.333333, 2.0]
    assert math.isnan(shown[0])
    assert math.isnan(shown[4])


def test_a_row_lists_g_within_its_band(estimates):
    report = HeadReport.of(estimates[1], KEPT)
    row = report.row([0, 1, 8, 9, 34])
    for index, offset in enumerate((0, 1, 8)):
        assert row["g"][index] == pytest.approx(float(estimates[1].g[offset]), abs=1e-6)
        assert row["g_low"][index] < row["g"][index] < row["g_high"][index]
    assert all(math.isnan(value) for name in ("g", "g_low", "g_high") for value in row[name][3:])


def test_the_untrained_head_stands_beside_it(estimates):
    alone, beside = (
        HeadReport.of(estimates[0], KEPT, measured).row([0]) for measured in ({}, {"untrained": estimates[1]})
    )
    for name in ("r2", "signal", "share"):
        assert f"{name}_untrained" not in alone
        assert beside[f"{name}_untrained"] == getattr(estimates[1], name).value
        assert beside[name] == alone[name]


def test_words_do_not_quote_an_r2_that_says_nothing(estimates):
    wide = replace(estimates[0], r2=Estimate(0.5, -0.1, 1.1, 5, ""))
    assert "R2 undetermined" in HeadReport.of(wide, KEPT).sentence
    none = replace(estimates[0], r2=Estimate(math.nan, math.nan, math.nan, 5, ""))
    assert "R2 undefined" in HeadReport.of(none, KEPT).sentence
    good = replace(estimates[0], r2=Estimate(0.5, 0.4, 0.6, 5, ""))
    assert "R2 0.50 (0.40 to 0.60)" in HeadReport.of(good, KEPT).sentence
    assert HeadReport.of(good, KEPT).sentence in repr(HeadReport.of(good, KEPT))
    assert "<p>Layer 0, head 0" in HeadReport.of(good, KEPT)._repr_html_()


def share(value):
    return Estimate(value, value - 0.1, value + 0.1, 5, "")


def split(**given):
    """A split with these shares; the rest of it does not matter here."""
    shares = {name: share(given.get(name, 0.1)) for name in TERMS}
    total = share(sum(each.value for each in shares.values()))
    return HeadSplit(0, 0, shares, total, shares, shares, 1.0, torch.eye(4))


def test_the_split_gives_all_kinds_and_its_shares_are_quoted(estimates):
    flat = replace(estimates[0], g=torch.zeros_like(estimates[0].g), share=share(0.1))
    assert HeadReport.of(flat, KEPT).kind == "uniform"
    report = HeadReport.of(flat, KEPT, {"split": split(key=0.6, position=0.18)})
    assert report.kind == "key-driven"
    assert "position 18%, key 60%, query 10%, interaction 10% of its logit variance" in report.sentence
    undefined = HeadSplit(0, 0, {name: share(math.nan) for name in TERMS}, share(math.nan), {}, {}, 1.0, torch.eye(4))
    said = HeadReport.of(flat, KEPT, {"split": undefined})
    assert said.kind == "uniform"
    assert "position 10% of its logit variance" in said.sentence


@pytest.mark.parametrize("with_split", [False, True])
def test_probes_alone_tell_induction_heads(estimates, with_split):
    flat = replace(estimates[0], g=torch.zeros_like(estimates[0].g))
    repetition = HeadRepetition(0, 0, share(0.7), share(0.1), 0.01, 0.01)
    probes = HeadProbes(0, 0, constant_probe(), Agreement(0.5, 1.0, False), repetition)
    measured = {"probes": probes} | ({"split": split(key=0.6)} if with_split else {})
    report = HeadReport.of(flat, KEPT, measured)
    assert report.kind == "induction"
    assert "70% of its attention after earlier occurrences of its token" in report.sentence
    weak = replace(repetition, induction=share(0.2))
    assert HeadReport.of(flat, KEPT, {"probes": replace(probes, repetition=weak)}).kind != "induction"


def constant_probe():
    return HeadProbe(0, 0, torch.arange(9), torch.arange(9.0), torch.arange(9, 0, -1.0), torch.ones(9), 0.0, 1.0)


def test_a_head_is_drawn_with_the_probe_where_there_is_one(estimates):
    pytest.importorskip("jinja2")
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axis = HeadReport.of(estimates[0], KEPT).plot(figure.subplots())
    assert axis.lines[0].get_ydata().tolist() == pytest.approx(estimates[0].g.tolist())
    assert len(axis.lines) == 1
    assert "layer 0, head 0" in axis.get_title()
    repetition = HeadRepetition(0, 0, share(0.1), share(0.1), 0.01, 0.01)
    probes = HeadProbes(0, 0, constant_probe(), Agreement(0.5, 1.0, False), repetition)
    assert len(HeadReport.of(estimates[0], KEPT, {"probes": probes}).plot(figure.subplots()).lines) == 2


def test_a_sink_head_says_what_even_attention_would_put_there(estimates):
    flat = replace(
        estimates[0], g=torch.zeros_like(estimates[0].g), share=share(0.1), r2=Estimate(0.5, 0.4, 0.6, 5, "")
    )
    early = replace(flat, first_mass=0.3, first_even=0.01, dropped_mass=0.7, dropped_even=0.2)
    report = HeadReport.of(early, KEPT, dropped=DROPPED)
    assert report.kind == "sink"
    assert report.sentence.endswith(
        "; 70% of its attention on the first 5 positions, where even attention puts 20%; 30% of its attention on the "
        "first token"
    )
    first = HeadReport.of(replace(early, first_mass=0.6), KEPT, dropped=DROPPED)
    assert first.sentence.endswith("; 60% of its attention on the first token, where even attention puts 1%")
    chance = HeadReport.of(replace(early, dropped_mass=0.55, dropped_even=0.5), KEPT, dropped=DROPPED)
    assert chance.kind == "uniform" and "even attention" not in chance.sentence


def test_a_flat_head_has_no_peak(estimates):
    flat = replace(estimates[0], g=torch.zeros_like(estimates[0].g), share=share(0.1))
    said = HeadReport.of(flat, KEPT).sentence
    assert said.startswith("uniform head: positional weight spread over 9 of 9 offsets, position 10%")
    assert "peaks" not in said
    keys = HeadReport.of(flat, KEPT, {"split": split(key=0.6)})
    assert keys.sentence.startswith("key-driven head: positional weight spread over 9 of 9 offsets")


def test_shares_just_below_nothing_are_about_nothing(estimates):
    flat = replace(estimates[0], g=torch.zeros_like(estimates[0].g), share=share(0.1))
    shares = {"interaction": -0.05, "query": 0.001}
    said = HeadReport.of(flat, KEPT, {"split": split(key=0.6, **shares)}).sentence
    assert "query 0%, interaction about 0%" in said
    below = split(key=0.6)
    below.shares["interaction"] = Estimate(-0.2, -0.25, -0.15, 5, "")
    below.shares["query"] = Estimate(-0.012, -0.014, -0.01, 5, "")
    assert "query about 0%, interaction -20%" in HeadReport.of(flat, KEPT, {"split": below}).sentence
