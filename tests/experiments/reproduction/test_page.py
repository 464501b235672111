"""The page of a study: every section, its files, under 5 MB, from whatever rows there are."""

import json
import re
from pathlib import Path

import pytest

from poskernel.errors import InputError
from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.page import (
    DOCUMENTED,
    THEMES,
    coverage_section,
    page_html,
    section_html,
    write_report,
)
from poskernel.report.page import Finding, Section


def test_the_papers_page_is_whole(evidence, tmp_path):
    page = write_report("paper", evidence, tmp_path)
    text = page.read_text()
    for title in (
        "Headlines",
        "Who generalizes",
        "The taxonomy",
        "What the rank statistics hide",
        "Depth",
        "Scale",
        "Induction",
        "Open question: low-frequency RoPE on skip3",
        "Open question: sinusoidal prev and skips",
        "What was measured",
    ):
        assert f"{title}</h2>" in text
    assert page.stat().st_size < 5_000_000 and "http://" not in text.replace("http://www.w3.org", "")
    figures = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert len(figures) >= 16
    assert all((tmp_path / "figures" / f"{name}.{kind}").exists() for name in figures for kind in ("png", "svg", "csv"))
    tables = {path.stem for path in (tmp_path / "tables").iterdir()}
    assert all((tmp_path / "tables" / f"{name}.{kind}").exists() for name in tables for kind in ("tex", "csv"))
    assert json.loads((tmp_path / "manifest.json").read_text())["config"]["report"] == "paper"


@pytest.mark.parametrize("name", ["quick", "content"])
def test_a_studys_own_page(name, tables, tmp_path):
    found = Evidence({key: tables[key] for key in {"paper", name} & set(tables)}, "some rows")
    text = write_report(name, found, tmp_path).read_text()
    assert "What was measured" in text and "Headlines</h2>" not in text and "empty until" not in text


@pytest.mark.parametrize("name", ["quick", *THEMES])
def test_without_rows_a_page_says_how_to_get_them(name, nothing, tmp_path):
    text = write_report(name, nothing, tmp_path).read_text()
    assert "empty until" in text and "everything" in text and f"poskernel study run {name}" in text


def test_an_unknown_study(evidence, tmp_path):
    with pytest.raises(InputError, match="did you mean 'paper'"):
        write_report("papr", evidence, tmp_path)
    assert not list(tmp_path.iterdir())


def test_clashing_files_are_said(tables, tmp_path):
    paper = tables["paper"]
    found = Evidence({"paper": paper, "quick": paper.assign(value=paper["value"] + 1e-6)}, "two machines")
    sentences = [finding.sentence for finding in coverage_section(["paper"], found, Output(tmp_path)).findings]
    assert any("different values" in sentence for sentence in sentences)


def test_a_page_of_the_documentation_from_the_committed_rows(tmp_path):
    committed = Evidence.from_results(Path(__file__).parents[3] / "results")
    page = page_html("paper", committed, tmp_path)
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert titles[0] == "What was measured" and "The taxonomy" in titles and set(titles) >= DOCUMENTED
    by_title = dict(zip(titles, page.split("<h2>")[1:], strict=True))
    with_tables = {title for title, text in by_title.items() if "<table" in text}
    assert {"What was measured", "Headlines", "Depth"} <= with_tables <= DOCUMENTED  # a study without rows has none
    assert page.count("<img") >= 8 and "</script" not in page


def test_words_of_a_documented_section_are_escaped():
    section = Section("A < B", "Is x < y?", [Finding("1 < 2:", "<3>", "a & b")], text="Not `x<y`.")
    page = section_html(section)
    assert "<3>" not in page and "&lt;3&gt;" in page and "a &amp; b" in page and "<code>x&lt;y</code>" in page
