"""Reports in words: what a sentence says of numbers, and the order of a ranking."""

import math

import pytest
import torch

from poskernel.attention.extension.results import Extension, HeadExtension, MeasuredOn, SettingReport
from poskernel.errors import InputError

ON = MeasuredOn("model", None, None, "float32", "digest", 4, 2, 0, 10, 32, 15, 128, 256, (), False, (0, 1, 2))
NUMBERS = {"alpha": 0.5, "mass": 0.25, "entropy": 1.0, "sink_share": 0.125, "total_variation": 0.0625}


def head(place, verdict="kept"):
    return HeadExtension(0, place, 1, 1.0, verdict, 1.0, 1, None, NUMBERS, torch.tensor([0.0, 1.23456, math.nan]))


def report(text="yarn:4", kept=0.75, damage=0.0, limit=None, low=None, high=None, verdicts=("kept", "undecided")):
    heads = tuple(head(place, verdict) for place, verdict in enumerate(verdicts))
    undecided = verdicts.count("undecided")
    return SettingReport(text, {}, kept, kept - 0.1, kept + 0.1, 0.0, 1 - kept, undecided, damage, limit, low, high,
                         ((32, 1.0), (256, kept)), heads, 256, 32)  # fmt: skip


def test_sentences_say_limits_damage_and_what_is_not_known():
    assert "no limit is predicted up to 256." in report().sentence
    assert "perhaps from 200" in report(low=200).sentence
    said = report(limit=100, low=90, high=None, damage=0.2).sentence
    assert "end at 100 [90, beyond 256]" in said and "20% do not have it even at 32" in said
    assert "75% [65%, 85%] of 1 heads" in said and "25% lose it" in said
    assert "no head has a peak" in report(verdicts=("undecided",)).sentence


def test_numbers_are_means_over_decided_heads():
    assert report().alpha == 0.5 and math.isnan(report(verdicts=("undecided",)).alpha)


def test_a_ranking_puts_late_limits_survivors_and_little_change_first():
    found = Extension(
        ON, (report("a", limit=90), report("b", kept=0.9), report("c", kept=0.95, damage=0.3), report("d"))
    )
    assert [each.setting for each in found.ranking()] == ["b", "d", "a", "c"]
    assert found.advice().startswith("best of 4: b")


def test_documents_hold_no_nan_and_the_documented_fields():
    document = Extension(ON, (report(),)).document()
    assert document["schema"] == "poskernel.extend/1" and document["measured_length"] == 32
    (setting,) = document["settings"]
    shares = {"kept", "moved", "lost", "undecided", "damage", "alpha"}
    assert set(setting) >= shares | {"setting", "effective", "limit", "limit_low", "limit_high", "sentence", "heads"}
    assert setting["heads"][0]["g"] == [0.0, 1.2346, None] and setting["curve"][-1] == {"length": 256, "share": 0.75}


def test_tables_and_lookups():
    found = Extension(ON, (report(),))
    assert len(found.to_frame()) == 2 and found.curves()["share"].tolist() == [1.0, 0.75]
    assert found.setting("yarn:4") is found.settings[0]
    with pytest.raises(InputError, match="it was yarn:4"):
        found.setting("linear:4")
    assert "yarn:4" in repr(found) and "<br>" in found._repr_html_()
