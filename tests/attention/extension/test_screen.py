"""The screen end to end on tiny models: agreement with brute force, with the live model, and its own consistency."""

import json

import pytest
import torch

pytest.importorskip("transformers")

from families import tiny, tokens
from poskernel.attention.extension.live import applied
from poskernel.attention.extension.measurement import measure_forms, open_rotary
from poskernel.attention.extension.screen import extend
from poskernel.attention.extension.settings import parse_setting
from poskernel.errors import InputError
from poskernel.experiments.extension.agreement import LagMeans

TEXT = torch.where(torch.rand(1, 400, generator=torch.Generator().manual_seed(5)) < 0.9, 7, tokens(1, 400, seed=3))
"""Mostly one token, so that peaks are resolved by few sequences."""
SIZES = {"measured_length": 32, "sequences": 8, "dropped": 2, "text": TEXT, "resamples": 40, "device": "cpu"}


@pytest.fixture(scope="module")
def llama():
    return open_rotary(tiny("llama"))


@pytest.fixture(scope="module")
def found(llama):
    return extend(llama, ["none", "linear:2", "dynamic:2,original=32", "yarn:4,original=16"], length=300, **SIZES)


def brute_kernels(model, text, length):
    """Every head's kernel by its own class, one by one."""
    forms = measure_forms(model, TEXT[0, :256].view(8, 32), 2, {})
    turnings = parse_setting(text, model.kinds, 128).turnings(length)
    return {
        (each.layer, head): each.kernel(head).with_turning(turnings[each.layer]).profile(length)
        for each in forms
        for head in range(each.heads)
    }


@pytest.mark.parametrize("text", ["none", "linear:2", "yarn:4,original=16", "dynamic:2,original=32"])
def test_every_number_is_that_of_a_loop_over_rows(llama, found, text):
    report, own, kernels = found.setting(text), brute_kernels(llama, "none", 32), brute_kernels(llama, text, 300)
    assert len(report.heads) == 8
    for head in report.heads:
        g = kernels[head.layer, head.head]
        peak = int(own[head.layer, head.head].argmax())
        assert head.peak_offset == peak and head.new_peak_offset == int(g[:32].argmax())
        right = [int(g[: row + 1].argmax()) == peak for row in range(300)]
        assert head.numbers["alpha"] == pytest.approx(sum(right[32:]) / 268)
        weight = g.softmax(0)
        assert head.numbers["entropy"] == pytest.approx(float(torch.special.entr(weight).sum()), abs=1e-8)
        moved = 0.5 * (g[:32].softmax(0) - own[head.layer, head.head].softmax(0)).abs().sum()
        assert head.numbers["total_variation"] == pytest.approx(float(moved), abs=1e-8)
        assert 0 < head.numbers["mass"] <= 1 and 0 < head.numbers["sink_share"] < 1
        if text.startswith("dynamic"):
            continue  # each length is a kernel of its own
        lost = next((row + 1 for row in range(31, 300) if not right[row]), None)
        assert head.lost_at == lost
        if head.verdict != "undecided":
            later = [int(g[: row + 1].argmax()) == head.new_peak_offset for row in range(31, 300)]
            assert head.verdict == ("kept" if lost is None else "moved" if all(later) else "lost")


def test_the_model_as_it_is_keeps_every_peak_at_the_measured_length(found):
    report = found.setting("none")
    assert report.undecided < 8  # otherwise nothing below says anything
    assert report.damage == 0 and report.mean("total_variation") == 0
    assert report.curve[0] == (32, 1.0) and report.curve[-1][0] == 300
    assert report.curve[-1][1] == pytest.approx(report.kept)
    shares = [share for _, share in report.curve]
    assert shares == sorted(shares, reverse=True)
    assert report.kept + report.moved + report.lost == pytest.approx(1)


def test_listed_kernels_are_the_kernels(llama, found):
    kernels = brute_kernels(llama, "yarn:4,original=16", 300)
    for head in found.setting("yarn:4,original=16").heads:
        expected = kernels[head.layer, head.head][list(found.measured_on.offsets)]
        torch.testing.assert_close(head.g, expected)


def test_in_the_first_layer_the_prediction_is_what_the_live_model_does(llama):
    """Its content knows no position, so nothing but the turning changes: exact, for every setting and type."""
    sequences = TEXT[0, :256].view(8, 32)
    forms = measure_forms(llama, sequences, 2, {})[0]
    for text in ("linear:3", "yarn:4,original=16", "dynamic:2,original=16", "llama3:4,original=64", "base:x4"):
        setting, lags = parse_setting(text, llama.kinds, 128), LagMeans(32, 2)
        with applied(llama.source, setting):
            llama.source.forward(sequences, lags.consume)
        turning = setting.turnings(32)[0]
        predicted = torch.stack([forms.kernel(head).with_turning(turning).profile(15) for head in range(4)])
        torch.testing.assert_close(predicted, lags.profile([0]), rtol=1e-4, atol=1e-4)


def test_settings_are_judged_alone_and_the_same_each_time(llama, found):
    again = extend(llama, ["yarn:4,original=16"], length=300, **SIZES)
    assert again.settings[0].document() == found.setting("yarn:4,original=16").document()


def test_windows_bound_what_a_head_can_lose():
    report = extend(open_rotary(tiny("mistral")), ["none"], length=300, **SIZES).settings[0]
    assert report.kept == 1 or report.undecided == len(report.heads)
    assert all(head.peak_offset < 9 and head.lost_at is None for head in report.heads)
    assert all(bool(head.g[9:].isnan().all()) for head in report.heads)


def test_auto_ranks_what_it_made(llama):
    ranked = extend(llama, length=200, **SIZES)
    assert [report.setting for report in ranked.settings] == [
        "none", "linear:2", "ntk:2", "dynamic:2", "yarn:2", "longrope:2", "llama3:2", "base:x2"]  # fmt: skip
    document = ranked.document()
    assert [row["setting"] for row in document["settings"]] == document["ranking"]
    assert document["ranking"][0] in document["advice"]
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"length": 32}, "length 32 is not beyond the measured 32"),
        ({"length": 20}, "take a greater length"),
        ({"settings": ["auto", "yarn:2"]}, "auto stands alone"),
        ({"settings": ["linear:1"]}, "give more than 1"),
        ({"sequences": 2}, "2 sequences"),
        ({"measured_length": 200}, "128 positions"),
    ],
)
def test_what_makes_no_sense_is_said_before_the_model_runs(llama, options, words, monkeypatch):
    monkeypatch.setattr(llama.source, "forward", None)
    with pytest.raises(InputError, match=words):
        extend(llama, **{"settings": ["yarn:2"], "length": 300, **SIZES, **options})
