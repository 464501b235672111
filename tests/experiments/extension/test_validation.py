"""The validation as a whole: planned, run on a tiny model, resumed, and written with all that its page reads."""

from types import SimpleNamespace

import pytest

pytest.importorskip("transformers")

from extension_world import RUN, VERDICT_RUN, tiny_model
from poskernel.errors import InputError
from poskernel.experiments.extension import cells, validation
from poskernel.experiments.extension.kernels import HeadUnit
from poskernel.experiments.extension.limits import LimitUnit
from poskernel.experiments.extension.results import extension_sections
from poskernel.experiments.extension.rows import ExtensionRows, Run
from poskernel.experiments.extension.validation import MEANINGS, ExtensionValidation
from poskernel.experiments.reproduction.output import Output
from poskernel.study.inquiry import Inquiry
from poskernel.study.planning import plan
from poskernel.study.store import CellRow
from poskernel.study.units import Status


def test_the_whole_validation_is_an_inquiry_of_settings_factors_and_texts():
    whole = ExtensionValidation()
    assert isinstance(whole, Inquiry) and len(whole.settings) == 19 and len(whole.texts) >= 5
    units = whole.units()
    assert len(units) == len(whole.texts) * (1 + 19 + 8)
    keys = [key for unit in units for key in unit.keys]
    assert len(set(keys)) == len(keys), "nothing is measured twice"
    assert "dynamic:4,original=512" in whole.settings and "base:x8" in whole.settings and "yarn:2" in whole.settings
    assert sum(unit.control for unit in units if isinstance(unit, LimitUnit)) == len(whole.texts)
    assert [unit.cell.text for unit in units if isinstance(unit, HeadUnit)] == list(whole.texts)
    assert {key[1] for key in keys} == set(MEANINGS)


def run_here(asked, store, workers, progress):
    """What `run` does, in this process, whose models are made up; how many failed."""
    failed = 0
    for item in plan(asked, store):
        found = item.unit.run()
        failed += any(row.status is Status.FAILED for row in found)
        store.add([CellRow.of(cell) for cell in item.unit.cells], found)
    return SimpleNamespace(failed=failed)


def test_a_length_is_measured_once():
    with pytest.raises(InputError, match="length 2048"):
        ExtensionValidation(limit_lengths=(2048, 16384))


def test_the_command_leaves_rows_that_the_page_reads_and_resumes(monkeypatch, tmp_path):
    tiny_model(monkeypatch)
    asked = ExtensionValidation(
        "tiny", ("a", "b"), ("none", "yarn:2"), ("none", "linear:2"), (32, 80), (90, 150), 32, 6, 2, 40, 8, (2, 4)
    )
    monkeypatch.setattr(validation, "ExtensionValidation", lambda **given: asked)
    monkeypatch.setattr(validation, "run", run_here)
    monkeypatch.chdir(tmp_path)
    line = ["--store", "store.sqlite", "--out", "results/extension", "--progress", "log"]
    assert validation.main(line) == 0
    run = Run(asked, "extension", "again")
    rows = ExtensionRows.read(run, tmp_path / "results")
    assert rows.missing == 0 and rows.lost.empty and rows.about["texts"]["b"]["tokens"] == 200
    other = Run(RUN.asked, "none", "nothing")
    sections = extension_sections(tmp_path / "results", Output(tmp_path / "page"), (run, VERDICT_RUN, other))
    titles = [section.title for section in sections]
    assert "Predicted against measured kernels" in titles and "Predicted limit against measured" in titles
    assert "The covariance part, by head" in titles and "What may stand in for moments" in titles
    monkeypatch.setattr(cells, "open_rotary", None)
    before = (tmp_path / "results" / "extension" / "rows.parquet").read_bytes()
    assert validation.main(line) == 0, "nothing is left to run"
    assert (tmp_path / "results" / "extension" / "rows.parquet").read_bytes() == before
    for cache in (cells.opened_model, cells.text_tokens, cells.unscaled_screen):
        cache.cache_clear()
