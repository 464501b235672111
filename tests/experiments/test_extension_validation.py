"""The validation in small: units of a tiny model are planned, run, resumed and written; its parts against loops."""

import math
from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers")

from families import tiny, tokens
from poskernel.attention.extension.measurement import open_rotary
from poskernel.errors import InputError
from poskernel.experiments import extension_validation as validation
from poskernel.experiments.extension_validation import ExtensionValidation, KernelUnit, LimitUnit, token_losses
from poskernel.study import Store
from poskernel.study.inquiry import Inquiry
from poskernel.study.planning import plan
from poskernel.study.store import CellRow
from poskernel.study.units import Status

ASKED = ExtensionValidation(
    "tiny", ("words",), ("none", "linear:2"), ("none",), lengths=(32, 64), limit_lengths=(48, 90), measured_length=32,
    sequences=6,
)  # fmt: skip


@pytest.fixture
def _tiny(monkeypatch):
    model = open_rotary(tiny("llama"))
    model.source.module.config.tie_word_embeddings = True
    monkeypatch.setattr(validation, "opened_model", lambda name: model)
    chosen = torch.rand(200, generator=torch.Generator().manual_seed(5)) < 0.9
    words = torch.where(chosen, 7, tokens(1, 200, seed=3)[0])  # mostly one token, so that peaks are resolved
    monkeypatch.setattr(validation, "text_tokens", lambda model, text: words)
    monkeypatch.setattr(validation, "DROPPED", 2)
    monkeypatch.setattr(validation, "FRESH", 40)
    monkeypatch.setattr(validation, "WINDOW", 8)
    validation.screen_of.cache_clear()
    yield
    validation.screen_of.cache_clear()


def test_the_whole_validation_is_an_inquiry_of_settings_factors_and_texts():
    whole = ExtensionValidation()
    assert isinstance(whole, Inquiry) and len(whole.settings) == 19 and len(whole.texts) >= 5
    units = whole.units()
    assert len(units) == len(whole.texts) * (19 + 8) and len({unit.keys for unit in units}) == len(units)
    assert "dynamic:4,original=512" in whole.settings and "base:x8" in whole.settings
    assert sum(unit.control for unit in units if isinstance(unit, LimitUnit)) == len(whole.texts)


@pytest.mark.usefixtures("_tiny")
def test_a_kernel_unit_predicts_itself_where_nothing_changes():
    rows = {(row.metric, row.length): row for row in ASKED.units()[0].run()}
    assert all(row.status is Status.DONE for row in rows.values())
    assert rows["correlation", 32].value == pytest.approx(1, abs=1e-6)
    assert rows["rms", 32].value == pytest.approx(0, abs=1e-4)
    assert rows["loss", 32].value > 0 and 0 <= rows["decided", 32].value <= 1


@pytest.mark.usefixtures("_tiny")
def test_a_setting_is_predicted_better_than_by_nothing_in_the_first_third():
    rows = {(row.metric, row.length): row.value for row in ASKED.units()[1].run()}
    assert rows["correlation", 32] > rows["unchanged_correlation", 32]
    assert rows["correlation_early", 32] == pytest.approx(1, abs=1e-3)
    assert "measured_alpha" not in {metric for metric, _ in rows}


@pytest.mark.usefixtures("_tiny")
def test_a_limit_unit_puts_loss_beside_survivors():
    (unit,) = [unit for unit in ASKED.units() if isinstance(unit, LimitUnit)]
    rows = {(row.metric, row.length): row for row in unit.run()}
    assert {metric for metric, _ in rows} == {"surviving_share", "loss_before", "fresh_loss_before"}
    for length in (48, 90):
        share = rows["surviving_share", length].value
        assert (share is None) or 0 <= share <= 1
        assert math.isfinite(rows["loss_before", length].value)
    failed = replace(unit, lengths=(500,)).run()
    assert failed[0].status is Status.FAILED and "not 500" in failed[0].reason


@pytest.mark.usefixtures("_tiny")
def test_what_is_stored_is_not_run_again(tmp_path):
    with Store(tmp_path / "store.sqlite") as store:
        planned = plan(ASKED, store)
        assert [item.reason for item in planned] == ["new"] * 3
        first = planned[0].unit
        store.add([CellRow.of(cell) for cell in first.cells], first.run())
        assert len(plan(ASKED, store)) == 2


def test_losses_are_cross_entropies_of_the_next_token():
    model = open_rotary(tiny("llama"))
    hidden, given = torch.randn(9, 32), tokens(1, 9)[0]
    with pytest.raises(InputError, match="output layer of its own"):
        token_losses(model, hidden, given)
    model.source.module.config.tie_word_embeddings = True
    found = token_losses(model, hidden, given)
    scores = (hidden @ model.source.embedding().T).log_softmax(-1)
    torch.testing.assert_close(found, -scores[torch.arange(8), given[1:]])


def test_units_say_what_they_are():
    kernel, limit = KernelUnit(ASKED.cell("linear:2", "words")), LimitUnit(ASKED.cell("none", "words"))
    assert (kernel.kind, limit.kind) == ("kernels", "limits") and kernel.cost < limit.cost
    assert "linear:2" in kernel.description and "words" in limit.description
    assert kernel.cell.id != ASKED.cell("linear:4", "words").id
