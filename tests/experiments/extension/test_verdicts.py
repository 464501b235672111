"""Verdicts of two texts: shares of made-up heads, known by counting; a tiny model is run, resumed and written."""

import pytest
import torch

from poskernel.attention.extension.results import HeadExtension
from poskernel.experiments.extension import verdicts
from poskernel.experiments.extension.verdicts import MEASURES, ExtensionVerdicts, agreement
from poskernel.study.units import Status


def heads(words, peaks=None):
    peaks = peaks or [1] * len(words)
    return [
        HeadExtension(place // 2, place % 2, peak, 1.0, word, 1.0, peak, None, {}, torch.zeros(1))
        for place, (word, peak) in enumerate(zip(words, peaks, strict=True))
    ]


def test_undecided_heads_count_nowhere():
    first = heads(["kept", "kept", "lost", "undecided", "moved", "kept"], [1, 2, 3, 4, 5, 6])
    second = heads(["kept", "lost", "lost", "kept", "undecided", "kept"], [1, 2, 9, 4, 5, 6])
    found = agreement(first, second)
    assert found["decided_in_both"] == 4 / 6 and found["same_verdict"] == 3 / 4 and found["same_peak"] == 3 / 4
    assert found["same_by_chance"] == pytest.approx((3 * 2 + 1 * 2) / 16)
    assert found["same_verdict_low"] <= 3 / 4 <= found["same_verdict_high"]


def test_the_same_screen_agrees_with_itself():
    every = heads(["kept", "lost", "moved", "kept"])
    assert agreement(every, every)["same_verdict"] == 1 == agreement(every, every)["same_verdict_low"]


def test_without_a_decided_head_there_is_no_share():
    assert agreement(heads(["undecided"]), heads(["kept"])) == {"decided_in_both": 0}


def test_units_are_held_out_texts_against_the_first(monkeypatch):
    asked = ExtensionVerdicts("tiny", ("a", "b", "c"), ("none", "linear:2"), 64, 32, 6)
    units = asked.units()
    assert [unit.cell.task_name for unit in units] == ["b against a", "c against a"]
    assert all(len(unit.measures) == 2 * len(MEASURES) for unit in units)
    screens = {"a": ["kept", "lost"], "b": ["kept", "kept"], "c": ["undecided", "undecided"]}

    def made_up(model, text, settings, length, measured, sequences):
        return {setting: tuple(heads(screens[text])) for setting in settings}

    monkeypatch.setattr(verdicts, "heads_of", made_up)
    (same, *_), none = units[0].run(), units[1].run()
    assert same.metric == "same_verdict" and same.value == 0.5 and same.status is Status.DONE
    assert {row.value for row in none} == {None, 0.0} and "on both texts" in none[0].reason


def test_a_tiny_model_from_end_to_end(monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    from families import tiny, tokens
    from poskernel.attention.extension.measurement import open_rotary

    model = open_rotary(tiny("llama"))
    monkeypatch.setattr(verdicts, "opened_model", lambda name: model)
    chosen = torch.rand(200, generator=torch.Generator().manual_seed(5)) < 0.9
    words = torch.where(chosen, 7, tokens(1, 200, seed=3)[0])
    monkeypatch.setattr(verdicts, "text_tokens", lambda name, text: words)
    verdicts.heads_of.cache_clear()
    (unit,) = ExtensionVerdicts("tiny", ("a", "b"), ("none", "linear:2"), 64, 32, 6).units()
    found = {(row.cell, row.metric): row.value for row in unit.run()}
    verdicts.heads_of.cache_clear()
    own = unit.under("none").id
    assert found[own, "decided_in_both"] > 0 and found[own, "same_verdict"] == 1, "both texts are the same here"


def test_one_text_has_nothing_to_be_compared_with(capsys):
    with pytest.raises(SystemExit) as stopped:
        verdicts.main(["--texts", "licences"])
    assert stopped.value.code == 2 and "two or more" in capsys.readouterr().err
