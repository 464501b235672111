"""Loss beside survivors and limits, in made-up worlds where they go together, against each other, or not at all."""

import math

import pytest

pytest.importorskip("matplotlib")
from extension_world import RUN, made_up, nothing_special
from poskernel.experiments.extension import limit_sections as sections
from poskernel.experiments.extension.limit_sections import (
    LEAVES,
    Ending,
    ending,
    limit_sections,
    limits_table,
    long_table,
    outcome,
    ranged,
    related,
)
from poskernel.experiments.extension.rows import ExtensionRows
from poskernel.experiments.reproduction.output import Output

BEYOND = (None, "beyond 150")


def world(limits=(140.0, 130.0, 145.0), excess=(0.0, 0.1, 0.6), shares=(1.0, 0.97, 0.5)):
    """Both settings end alike."""

    def answer(spoken, metric, length):
        place = {90: 0, 120: 1, 150: 2}.get(length)
        if metric in ("limit", "limit_low", "limit_high"):
            limit = limits[("limit", "limit_low", "limit_high").index(metric)]
            return BEYOND if limit is None else limit
        if place is None or metric not in ("loss_before", "fresh_loss_before", "surviving_share"):
            return None
        shift = 0.01 * "abc".index(spoken["text"])  # texts are not equally hard, and the control takes that out
        return {"fresh_loss_before": 2.0 + shift, "surviving_share": shares[place]}.get(
            metric, 2.0 + shift + excess[place]
        )

    return ExtensionRows.of(RUN, made_up(RUN, answer))


def said(rows, folder):
    return " ".join(
        f"{each.sentence} {each.number} {each.method}"
        for section in limit_sections(rows, Output(folder), "") for each in section.findings
    )  # fmt: skip


def test_the_end_is_where_the_excess_has_grown():
    assert ending([1, 2, 3], [0.5, 0.5 + LEAVES / 2, 0.5 + 2 * LEAVES]) == Ending(2, 3)
    assert ending([1, 2, 3], [3.0, 3.0, 3.1]) == Ending(None, None), "loss at every length is no end"


@pytest.mark.parametrize(
    ("limits", "left", "words"),
    [
        ((140, 130, 145), Ending(120, 150), "meet"),
        ((140, 110, 145), Ending(90, 120), "meet"),
        ((100, 95, 110), Ending(120, 150), "predicted earlier"),
        ((200, 180, math.inf), Ending(120, 150), "predicted later"),
        ((math.inf, math.inf, math.inf), Ending(120, 150), "measured alone"),
        ((math.inf, 140, math.inf), Ending(120, 150), "meet"),
        ((140, 130, 145), Ending(None, None), "predicted alone"),
        ((math.inf, 130, math.inf), Ending(None, None), "no end in either"),
    ],
)
def test_predicted_and_measured_ends(limits, left, words):
    assert outcome(*map(float, limits), left) == words


def test_the_excess_is_over_the_same_text(tmp_path):
    table = long_table(world())
    last = table[table["length"] == 150].groupby("setting")["excess"].mean()
    assert last["none"] == pytest.approx(0.6) and last["linear:2"] == pytest.approx(0.6)
    assert set(limits_table(world(), table)["outcome"]) == {"meet"}


def test_loss_that_rises_as_heads_are_lost_is_said_and_so_is_the_opposite(tmp_path, monkeypatch):
    right, wrong, none = world(), world(shares=(0.5, 0.97, 1.0)), ExtensionRows.of(RUN, made_up(RUN, nothing_special))
    assert related(long_table(right)).value < -0.9 and "fewer survivors, more loss" in said(right, tmp_path)
    assert (tmp_path / "figures" / "extension-survivors.svg").is_file()
    monkeypatch.setattr(sections, "pictures", lambda *_: [])
    assert related(long_table(wrong)).value > 0.9 and "against the prediction" in said(wrong, tmp_path)
    assert "fewer survivors, more loss" not in said(none, tmp_path)


def test_limits_that_meet_and_those_that_do_not_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(sections, "pictures", lambda *_: [])
    assert "or neither has one: 6 of 6" in said(world(), tmp_path)
    missed = said(world(limits=(None, None, None)), tmp_path)
    assert "or neither has one: 0 of 6" in missed and "Measured alone: none in 3 texts, linear:2 in 3 texts." in missed
    assert "their ratio is not defined" in missed
    early = said(world(limits=(60.0, 55.0, 70.0)), tmp_path)
    assert "Predicted earlier: none in 3 texts" in early and "log2, where both have one (6 lines): -1.1" in early


def test_ranges_say_how_many_lie_beyond():
    import pandas as pd

    assert ranged(pd.Series([100.0, 120.0, math.nan])) == "100-120, 1 beyond" and ranged(pd.Series([5.0, 5.0])) == "5"
    assert ranged(pd.Series([math.nan])) == "1 beyond"


def test_without_rows_there_is_no_section(tmp_path):
    assert limit_sections(ExtensionRows.of(RUN, made_up(RUN, nothing_special).iloc[:0]), Output(tmp_path), "") == []
