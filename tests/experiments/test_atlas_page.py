"""An atlas as files and as a page."""

import pandas as pd
import pytest

pytest.importorskip("altair")
pytest.importorskip("transformers")

from poskernel.attention.atlas import analyze
from poskernel.experiments.atlas_page import atlas_section, write_atlas


@pytest.fixture(scope="module")
def atlas(tiny_llama):
    text = " ".join(f"w{(7 * number * number) % 60}" for number in range(400))
    return analyze(str(tiny_llama), text, sequences=6, length=48, dropped=4)


def test_files_hold_every_head_and_every_offset(atlas, tmp_path):
    write_atlas(atlas, tmp_path, None)
    assert len(pd.read_csv(tmp_path / "heads.csv")) == 8
    profiles = pd.read_parquet(tmp_path / "profiles.parquet")
    assert profiles.shape == (44, 8)
    assert profiles["layer 1 head 2"].to_numpy() == pytest.approx(atlas.head(1, 2).kernel.g(44).numpy())


def test_the_page_stands_alone_and_names_its_setting(atlas, tmp_path):
    write_atlas(atlas, None, tmp_path / "atlas.html")
    page = (tmp_path / "atlas.html").read_text()
    assert "6 x 48 tokens" in page and page.count("vegaEmbed") >= 1
    assert not (tmp_path / "heads.csv").exists()


def test_medians_have_intervals_over_layers(atlas):
    findings = atlas_section(atlas).findings
    assert len(findings) == 4 and all("2 clusters" in finding.method for finding in findings)
