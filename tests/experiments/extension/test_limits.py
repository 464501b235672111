"""Limit units on a tiny model: survivors and limit as the screen has them, loss beside them, the control."""

import math
from dataclasses import replace

import pytest

pytest.importorskip("transformers")

from extension_world import ASKED, tiny_model
from poskernel.attention.extension.screen import extend
from poskernel.experiments.extension import cells
from poskernel.experiments.extension.kernels import surviving_share
from poskernel.experiments.extension.limits import LIMIT, LIMIT_MEANINGS, LimitUnit, survivors
from poskernel.study.units import Status

UNIT = LimitUnit(ASKED.cell("none", "a"), (48, 90), True, 40, 8)


@pytest.fixture
def model(monkeypatch):
    yield tiny_model(monkeypatch)
    for cache in (cells.opened_model, cells.text_tokens, cells.unscaled_screen):
        cache.cache_clear()


@pytest.mark.usefixtures("model")
def test_a_limit_unit_puts_loss_beside_survivors():
    rows = {(row.metric, row.length): row for row in UNIT.run()}
    assert {metric for metric, _ in rows} == set(LIMIT_MEANINGS)
    for length in (48, 90):
        share, low, high = (rows[f"surviving_share{end}", length].value for end in ("", "_low", "_high"))
        assert 0 <= low <= high <= 1 and 0 <= share <= 1
        assert math.isfinite(rows["loss_before", length].value)
    for name in LIMIT:
        row = rows[name, 90]
        assert (row.value is None and row.reason == "beyond 90") or 32 <= row.value <= 90
    failed = replace(UNIT, lengths=(500,)).run()
    assert failed[0].status is Status.FAILED and "not 500" in failed[0].reason


@pytest.mark.usefixtures("model")
def test_without_more_context_than_the_control_has_both_losses_are_one():
    rows = {(row.metric, row.length): row.value for row in replace(UNIT, lengths=(30, 90)).run()}
    assert rows["fresh_loss_before", 30] == pytest.approx(rows["loss_before", 30], abs=1e-5)
    assert rows["fresh_loss_before", 90] != pytest.approx(rows["loss_before", 90], abs=1e-5)
    without = replace(UNIT, control=False)
    assert "fresh_loss_before" not in {metric for _, metric, _ in without.measures}


@pytest.mark.parametrize("setting", ["none", "linear:2"])
def test_survivors_are_those_of_the_screen(model, setting):
    cell = ASKED.cell(setting, "a")
    found = survivors(cell, cells.setting_of(model, cell), (48, 90))
    text = cells.text_tokens("tiny", "a")
    report = extend(model, [setting], 90, 32, 6, dropped=2, text=text).settings[0]
    assert found["surviving_share", 90] == pytest.approx(report.kept)
    assert found["surviving_share_low", 90] == pytest.approx(report.kept_low)
    assert [found[name, 90] for name in LIMIT] == [report.limit, report.limit_low, report.limit_high]
    again = surviving_share(cells.screen_of(cell), cells.setting_of(model, cell), 90)
    assert again == pytest.approx(report.kept), "kernel units count the same heads"


def test_units_say_what_they_are():
    assert UNIT.kind == "limits" and UNIT.cost > 1 and "none on a" in UNIT.description
