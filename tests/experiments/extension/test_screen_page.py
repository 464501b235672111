"""The extension page: what stands in the files and the page is what was found."""

import json
from dataclasses import replace

import pandas as pd
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from families import tiny, tokens
from poskernel.attention.extension.config_only import extend_config
from poskernel.attention.extension.screen import extend
from poskernel.experiments.extension.screen_page import (
    save_config_rows,
    settings_frame,
    survival_title,
    write_extension,
)

TEXT = torch.where(torch.rand(1, 300, generator=torch.Generator().manual_seed(5)) < 0.9, 7, tokens(1, 300, seed=3))


@pytest.fixture(scope="module")
def found():
    return extend(tiny("llama"), ["none", "linear:2"], length=200, measured_length=32, sequences=6, dropped=2,
                  text=TEXT, resamples=20)  # fmt: skip


def test_files_hold_what_was_found(found, tmp_path):
    write_extension(found, tmp_path / "rows", tmp_path / "page.html")
    heads = pd.read_csv(tmp_path / "rows" / "heads.csv")
    assert len(heads) == 16 and set(heads["setting"]) == {"none", "linear:2"}
    kernels = pd.read_parquet(tmp_path / "rows" / "kernels.parquet")
    first = found.setting("linear:2").heads[0]
    assert kernels["linear:2 layer 0 head 0"].tolist() == first.g.tolist()
    manifest = json.loads((tmp_path / "rows" / "manifest.json").read_text())
    assert manifest["effective"]["linear:2"]["rotary"]["encoding"].startswith("linear:factor=2.0")
    page = (tmp_path / "page.html").read_text()
    assert "Context extension" in page and "linear:factor=2.0" in page


def test_without_a_decided_head_there_is_no_picture_of_peaks(found, tmp_path):
    heads = [replace(head, verdict="undecided") for head in found.settings[0].heads]
    nothing = replace(found, settings=(replace(found.settings[0], heads=tuple(heads), undecided=len(heads)),))
    write_extension(nothing, tmp_path / "rows", tmp_path / "page.html")
    assert (
        not (tmp_path / "rows" / "peaks.png").exists() and "no head has a peak" in (tmp_path / "page.html").read_text()
    )


def test_settings_and_titles(found):
    assert settings_frame(found)["setting"].tolist() == ["none", "linear:2"]
    title = survival_title(found)
    assert ("no setting is predicted to end" in title) == all(report.limit is None for report in found.settings)


def test_rows_of_a_config(tmp_path):
    save_config_rows(extend_config({"rope_theta": 1e4, "head_dim": 8}, "c", ["none"], 16, 40), tmp_path)
    assert pd.read_csv(tmp_path / "settings.csv")["setting"].tolist() == ["none"]
