"""The head map sends little, and what it sends unfolds to the curves."""

import json

import numpy as np
import pandas as pd
import pytest
from vl_convert import vegalite_to_svg

from poskernel.errors import InputError
from poskernel.report.head_map import compact, head_map

OFFSETS = [0, 1, 2, 4, 8, 16, 31]
STATISTICS = {"r2": "R²", "signal": "signal, nats"}


def unfold(record):
    steps = {name: np.array(record.get(name, record["below"])) for name in ("g", "below", "above")}
    g = record["base"] + record["step"] * steps["g"]
    return g, g - record["step"] * steps["below"], g + record["step"] * steps["above"]


def test_curves_unfold_to_a_thousandth_of_their_range(heads):
    for (_, head), record in zip(heads.iterrows(), compact(heads, list(STATISTICS), len(OFFSETS)), strict=True):
        assert (record["layer"], record["head"]) == (head["layer"], head["head"])
        tolerance = 1.6 * np.ptp(head["g"]) / 1000
        for sent, meant in zip(unfold(record), (head["g"], head["g_low"], head["g_high"]), strict=True):
            assert np.abs(sent - meant).max() < tolerance
        assert "above" not in record  # the band is symmetric


def test_a_lopsided_band_is_sent_on_both_sides(heads):
    heads["g_high"] = [g + 0.5 for g in heads["g"]]
    record = compact(heads, [], len(OFFSETS))[0]
    assert np.abs(unfold(record)[2] - heads["g_high"][0]).max() < 0.002


def test_without_a_band_and_with_a_flat_curve(heads):
    flat = heads.drop(columns=["g_low", "g_high"]).assign(g=[np.full(7, 2.5)] * 12)
    g, low, high = unfold(compact(flat, [], 7)[3])
    assert g.tolist() == low.tolist() == high.tolist() == [2.5] * 7


def test_undefined_statistics_are_null_not_a_number(heads):
    records = compact(heads, list(STATISTICS), 7)
    assert records[0]["r2"] is None and records[1]["r2"] == 0
    json.dumps(head_map(heads, STATISTICS, OFFSETS), allow_nan=False)


def test_270_heads_stay_well_under_a_megabyte():
    rng = np.random.default_rng(0)
    rows = [
        {"layer": layer, "head": head, "sentence": "x" * 120, "r2": rng.random(), "g": (g := rng.normal(size=257)),
         "g_low": g - 0.05, "g_high": g + 0.05}
        for layer in range(30) for head in range(9)
    ]  # fmt: skip
    offsets = [*range(65), *np.unique(np.geomspace(65, 2000, 192).astype(int)).tolist()]
    table = pd.DataFrame(rows)
    for name in ("g", "g_low", "g_high"):
        table[name] = [g[: len(offsets)] for g in table[name]]
    assert len(json.dumps(head_map(table, {"r2": "R²"}, offsets), separators=(",", ":"))) < 750_000


def test_the_specification_draws(heads):
    picture = vegalite_to_svg(head_map(heads, STATISTICS, OFFSETS))
    assert "Layer 0 head 0 looks 0 back." in picture and "layer 0, head 0: undefined" in picture
    assert "layer 2, head 3: 1" in picture
    assert "#c8ccd1" in picture  # the undefined cell is grey


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"g": [np.zeros(6)] * 12}, "g of .* is not 7 finite numbers or nan"),
        ({"g": [np.full(7, np.inf)] * 12}, "g of .* is not 7 finite numbers or nan"),
        ({"g": [np.full(7, np.nan)] * 12}, "g of .* is nan where g is not, or everywhere"),
        ({"g_low": [np.full(7, np.nan)] * 12}, "g_low of"),
        ({"layer": 0}, "give one row a head"),
        ({"signal": "local"}, "signal is 'local'"),
    ],
)
def test_bad_heads_are_one_sentence(heads, change, words):
    with pytest.raises(InputError, match=words):
        head_map(heads.assign(**change), STATISTICS, OFFSETS)


def test_bad_columns_and_offsets(heads):
    with pytest.raises(InputError, match="no column 'r3'"):
        head_map(heads, {"r3": ""}, OFFSETS)
    with pytest.raises(InputError, match="do not rise"):
        head_map(heads, STATISTICS, OFFSETS[::-1])


def test_offsets_of_encoders_have_a_sign(heads):
    signed = [-16, -4, -1, 0, 1, 4, 16]
    specification = head_map(heads, STATISTICS, signed)
    drawn = json.dumps(specification)
    assert '"domain": [-16, 16]' in drawn
    assert '"values": [-16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16]' in drawn
    assert "<svg" in vegalite_to_svg(specification)


def test_one_head_far_off_does_not_take_all_colours():
    from poskernel.report.head_map import colour_limits

    low, high = colour_limits(pd.Series([0.9 + number / 1000 for number in range(99)] + [186.18, float("nan")]))
    assert 0.9 <= low < 0.91 and 0.98 < high < 1.2
    assert colour_limits(pd.Series([float("nan")])) == (0.0, 1.0)


def test_offsets_that_a_head_does_not_have_are_null_and_not_drawn(heads):
    for name in ("g", "g_low", "g_high"):
        heads[name] = [np.where(np.arange(7) < 5, g, np.nan) for g in heads[name]]
    record = compact(heads, [], 7)[0]
    assert record["g"][5:] == record["below"][5:] == [None, None]
    whole = {name: record[name][:5] for name in ("g", "below")} | {name: record[name] for name in ("base", "step")}
    assert np.abs(unfold(whole)[0] - heads["g"][0][:5]).max() < 1.6 * np.ptp(heads["g"][0][:5]) / 1000
    chart = head_map(heads, STATISTICS, OFFSETS)
    assert vegalite_to_svg(chart) and "isValid(datum.g)" in json.dumps(chart, allow_nan=False)
