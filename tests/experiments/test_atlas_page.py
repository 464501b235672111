"""An atlas as files and as a page."""

import json

import pandas as pd
import pytest

pytest.importorskip("jinja2")
pytest.importorskip("transformers")

from made_up_heads import unpacked
from poskernel.attention.atlas import analyze
from poskernel.attention.determined import is_share
from poskernel.attention.head_columns import HEAD_COLUMNS
from poskernel.attention.head_meanings import LABELS, of_column
from poskernel.attention.kinds import KINDS
from poskernel.attention.measures import MEASURES
from poskernel.attention.split_kinds import SPLIT_KINDS
from poskernel.experiments.atlas_page import (
    MEDIANS,
    Shown,
    atlas_section,
    installed,
    kind_meanings,
    layer_runs,
    listed,
    shown_first,
    statistics,
    write_atlas,
    write_heads_page,
)
from poskernel.specification import layer_numbers

TEXT = " ".join(f"w{(7 * number * number) % 60}" for number in range(800))


@pytest.fixture(scope="module")
def atlas(tiny_llama):
    return analyze(str(tiny_llama), TEXT, sequences=6, length=48, dropped=4)


@pytest.fixture(scope="module")
def whole(tiny_llama):
    """Everything measured."""
    fewest = max(entry.fewest for entry in MEASURES.values())
    return analyze(str(tiny_llama), TEXT, sequences=fewest, length=40, dropped=4, measures="all")


def test_files_hold_every_head_and_every_offset(atlas, tmp_path):
    write_atlas(atlas, tmp_path, None)
    assert len(pd.read_csv(tmp_path / "heads.csv")) == 8
    profiles = pd.read_parquet(tmp_path / "profiles.parquet")
    assert profiles.shape == (44, 8)
    assert profiles["layer 1 head 2"].to_numpy() == pytest.approx(atlas.head(1, 2).kernel.g(44).numpy())


def test_the_page_stands_alone_and_names_its_setting(atlas, tmp_path):
    write_atlas(atlas, None, tmp_path / "atlas.html")
    page = (tmp_path / "atlas.html").read_text()
    assert "6 x 48 tokens" in page and len(unpacked(page)["heads"]) == 8
    assert unpacked(page)["words"] == [] and "tokens" not in unpacked(page)["heads"][0]
    assert not (tmp_path / "heads.csv").exists()


def test_medians_have_intervals_for_other_texts_and_count_what_they_leave_out(atlas):
    findings = atlas_section(Shown.of(atlas)).findings
    assert len(findings) == 4 and all("for other texts of this kind" in finding.method for finding in findings)
    frame = atlas.to_frame()
    for finding, (column, _) in zip(findings, MEDIANS, strict=True):
        kept = frame[frame[f"{column}_high"] - frame[f"{column}_low"] <= 1] if is_share(column) else frame
        middle, low, high = (kept[f"{column}{end}"].median() for end in ("", "_low", "_high"))
        assert finding.number == f"{middle:z.2f} [{low:z.2f}, {high:z.2f}]"
        assert f"median of {len(kept)} heads" in finding.method


def test_the_table_of_the_page_leaves_out_what_says_nothing(atlas):
    frame = atlas.to_frame()
    frame.loc[2, ["r2", "r2_low", "r2_high"]] = 1.79, -0.5, 4.0
    assert pd.isna(listed(frame)["r2"][2]) and frame["r2"][2] == 1.79


def test_the_folder_says_what_it_is_of(atlas, tmp_path):
    write_atlas(atlas, tmp_path, None)
    about = json.loads((tmp_path / "manifest.json").read_text())
    assert about["weights_digest"] == atlas.setting.weights_digest and about["text_digest"] == atlas.setting.text_digest
    assert about["versions"]["transformers"] and about["versions"]["tokenizers"]
    assert installed("no-such-package") is None


def test_every_number_of_the_table_is_in_the_menu_once_and_explained(whole):
    frame, found = whole.to_frame(), statistics(whole)
    names = [statistic.name for statistic in found]
    numbers = {
        name
        for name in frame.columns
        if frame[name].map(lambda value: isinstance(value, int | float)).all() and name not in ("layer", "head")
    }
    intervals = {f"{name}_{end}" for name in names for end in ("low", "high")}
    assert len(names) == len(set(names)) and set(names) == numbers - intervals
    assert intervals & numbers and all(of_column(name, LABELS) for name in names)
    assert {statistic.group for statistic in found} == {"kernel", *HEAD_COLUMNS} - {"tokens"}
    assert all(statistic.meaning and "_" not in statistic.label for statistic in found)


def test_the_page_holds_every_part_that_was_measured(whole, tmp_path):
    write_atlas(whole, tmp_path, tmp_path / "atlas.html")
    data = unpacked((tmp_path / "atlas.html").read_text())
    for record, report in zip(data["heads"], whole.heads.values(), strict=True):
        assert {"lines", "fourier", "distance", "tokens"} <= set(record)
        assert record["lines"]["amplitudes"] == pytest.approx(report.spectrum.lines.amplitude.tolist(), rel=1e-3)
        assert record["distance"]["mass"] == pytest.approx([each.value for each in report.distance.mass], rel=1e-3)
        assert record["tokens"]["keys"] == [list(row.keys) for row in report.tokens.rows]
        assert max(record["fourier"]["power"]) == pytest.approx(
            float(report.spectrum.fourier.power[1:].max()), rel=1e-3
        )
        assert data["kinds"][record["kind"]]["name"] == report.kind.split(" ")[0]
    assert data["words"] == [f" {word}" for word in TEXT.split()[:40]] == list(whole.words)


def test_the_command_names_what_was_measured(whole):
    command = atlas_section(Shown.of(whole)).command
    assert f"poskernel analyze {whole.setting.model} --layers 0-1 --sequences" in command
    assert f"--measures {','.join(MEASURES)} " in command
    assert layer_runs([9, 3, 1, 0, 2]) == "0-3,9" and list(layer_numbers("0-3,9")) == [0, 1, 2, 3, 9]


def test_legend_and_first_head(atlas):
    assert set(kind_meanings()) == {"induction", *KINDS, *SPLIT_KINDS} and list(kind_meanings())[-1] == "mixed"
    heads = atlas.to_frame()
    best = heads.loc[heads["share"].idxmax()]
    assert shown_first(heads) == (best["layer"], best["head"])
    assert shown_first(heads.assign(share=float("nan"))) == (0, 0)


def test_the_page_is_made_again_from_the_files_alone(whole, tmp_path):
    write_atlas(whole, tmp_path, tmp_path / "page.html")
    about = whole.about()
    (tmp_path / "manifest.json").write_text(json.dumps({"result": about}))  # where the command line puts it
    write_heads_page(Shown.read(tmp_path), tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == (tmp_path / "page.html").read_text()
