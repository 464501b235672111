"""The head map sends little, and what it sends unfolds to the curves."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from made_up_heads import KINDS, STATISTICS, many_heads
from poskernel.errors import InputError
from poskernel.report.head_map import colour_limits, curve_steps, head_map, statistic_column

OFFSETS = [0, 1, 2, 4, 8, 16, 31]


def made(heads, statistics=STATISTICS, offsets=OFFSETS, **settings):
    return head_map(heads, statistics, offsets, kinds=KINDS, **settings)


def unfold(record):
    steps = {name: np.array(record.get(name, record["below"])) for name in ("g", "below", "above")}
    g = record["base"] + record["step"] * steps["g"]
    return g, g - record["step"] * steps["below"], g + record["step"] * steps["above"]


def test_curves_unfold_to_a_thousandth_of_their_range(heads):
    for (_, head), record in zip(heads.iterrows(), made(heads)["heads"], strict=True):
        assert (record["layer"], record["head"]) == (head["layer"], head["head"])
        tolerance = 1.6 * np.ptp(head["g"]) / 1000
        for sent, meant in zip(unfold(record), (head["g"], head["g_low"], head["g_high"]), strict=True):
            assert np.abs(sent - meant).max() < tolerance
        assert "above" not in record  # the band is symmetric


def test_a_lopsided_band_is_sent_on_both_sides(heads):
    heads["g_high"] = [g + 0.5 for g in heads["g"]]
    assert np.abs(unfold(made(heads)["heads"][0])[2] - heads["g_high"][0]).max() < 0.002


def test_without_a_band_and_with_a_flat_curve(heads):
    flat = heads.drop(columns=["g_low", "g_high"]).assign(g=[np.full(7, 2.5)] * 12)
    g, low, high = unfold(made(flat)["heads"][3])
    assert g.tolist() == low.tolist() == high.tolist() == [2.5] * 7


def test_statistics_stand_in_the_order_of_heads_with_intervals_and_null_where_undefined(heads):
    r2, signal = made(heads.assign(r2_low=heads["r2"] - 0.1, r2_high=heads["r2"] + 0.1))["statistics"]
    assert r2["values"][:2] == [None, 0] and r2["low"][:2] == [None, -0.1] and r2["high"][11] == 1.1
    assert signal["values"] == list(range(12)) and "low" not in signal
    assert (r2["label"], r2["group"], r2["ends"]) == ("R²", "kernel", list(colour_limits(heads["r2"])))
    json.dumps(made(heads), allow_nan=False)


def test_kinds_are_places_in_the_legend_whatever_follows_their_name(heads):
    kinds = ["local", "fixed-offset 3", "fixed-offset -7", "mixed"] * 3
    sent = made(heads.assign(kind=kinds))
    assert [record["kind"] for record in sent["heads"][:4]] == [0, 1, 1, 2]
    assert sent["kinds"][1] == {"name": "fixed-offset", "meaning": "at one offset"}


def test_the_head_shown_at_first(heads):
    assert made(heads)["first"] == 0
    assert made(heads, first=(1, 2))["first"] == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"g": [np.zeros(6)] * 12}, "g of layer 0 head 0 is not 7 finite numbers or nan"),
        ({"g": [np.full(7, np.inf)] * 12}, "g of .* is not 7 finite numbers or nan"),
        ({"g": [np.full(7, np.nan)] * 12}, "g of .* is nan where g is not, or everywhere"),
        ({"g_low": [np.full(7, np.nan)] * 12}, "g_low of"),
        ({"layer": 0}, "give one row a head"),
        ({"signal": "local"}, "signal is 'local'"),
        ({"kind": "strange"}, "the kind 'strange' is not in the legend"),
    ],
)
def test_bad_heads_are_one_sentence(heads, change, words):
    with pytest.raises(InputError, match=words):
        made(heads.assign(**change))


def test_bad_columns_and_offsets(heads):
    with pytest.raises(InputError, match="no column 'r2'"):
        made(heads.drop(columns="r2"))
    with pytest.raises(InputError, match="no column 'kind'"):
        made(heads.drop(columns="kind"))
    with pytest.raises(InputError, match="do not rise"):
        made(heads, offsets=OFFSETS[::-1])


def test_one_head_far_off_does_not_take_all_colours():
    low, high = colour_limits(pd.Series([0.9 + number / 1000 for number in range(99)] + [186.18, float("nan")]))
    assert 0.9 <= low < 0.91 and 0.98 < high < 1.2
    assert colour_limits(pd.Series([float("nan")])) == (0.0, 1.0)


def test_offsets_that_a_head_does_not_have_are_null(heads):
    for name in ("g", "g_low", "g_high"):
        heads[name] = [np.where(np.arange(7) < 5, g, np.nan) for g in heads[name]]
    record = curve_steps(heads.to_dict("records")[0], 7)
    assert record["g"][5:] == record["below"][5:] == [None, None]
    whole = {name: record[name][:5] for name in ("g", "below")} | {name: record[name] for name in ("base", "step")}
    assert np.abs(unfold(whole)[0] - heads["g"][0][:5]).max() < 1.6 * np.ptp(heads["g"][0][:5]) / 1000


def test_details_come_with_their_heads():
    heads, statistics = many_heads(1, 2, OFFSETS, statistics=1)
    sent = made(heads, statistics, words=["w"] * 40)["heads"][1]
    assert {"lines", "fourier", "distance", "tokens"} <= set(sent)
    assert sent["tokens"]["keys"] == [[0, 38]]


def column(values, statistic=STATISTICS[1], **ends):
    table = pd.DataFrame({"signal": values} | {f"signal_{end}": given for end, given in ends.items()})
    return statistic_column(table, statistic)


def test_columns_say_what_their_values_are():
    counted = column([1, 3, 12345, 7])
    assert (counted["form"], counted["values"]) == ("whole", [1, 3, 12345, 7])
    assert all(isinstance(end, int) for end in counted["ends"]) and counted["clipped"]
    assert column([1.0, np.nan, 40.0])["form"] == "whole" and column([1.0, np.nan, 40.0])["ends"] == [1, 40]
    truth = column([True, False, True])
    assert (truth["form"], truth["ends"], truth["clipped"], truth["values"]) == ("truth", [0, 1], False, [1, 0, 1])
    assert column([0.5, 1.5])["form"] == "number"
    # An estimate that happens to be whole is a number.
    assert column([1.0, 2.0], low=[0.5, 1.5], high=[1.5, 2.5])["form"] == "number"
    assert column([np.nan, np.nan])["form"] == "number"


def test_values_that_say_nothing_take_no_colours():
    values, half = [0.2, 1.79, 0.4, 0.3], np.array([0.1, 2.0, 0.1, np.nan])
    bounded = replace(STATISTICS[1], widest=1.0)
    found = column(values, bounded, low=values - half, high=values + half)
    assert found["wide"] == [1] and found["ends"][1] < 0.41
    assert column(values, low=values - half, high=values + half)["wide"] == []
    assert column(values, low=values - half, high=values + half)["ends"][1] > 1.6
    assert column([1.79], bounded, low=[-1.0], high=[5.0])["ends"] == [0, 1]
