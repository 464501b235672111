"""The page of the validation: every section from rows, missing ones said with their command, findings alone."""

import re

import pytest

pytest.importorskip("matplotlib")
from extension_world import RUN, SECOND_RUN, VERDICT_RUN, made_up, nothing_special, write
from poskernel.experiments.extension.results import (
    COVERAGE,
    extension_sections,
    findings_html,
    meanings_html,
    page_html,
)
from poskernel.experiments.extension.rows import GEMMA_VALIDATION, VALIDATION, VERDICTS
from poskernel.experiments.extension.validation import MEANINGS
from poskernel.experiments.reproduction.output import Output
from poskernel.report.page import write_page

RUNS = (RUN, VERDICT_RUN, SECOND_RUN)
ABOUT = {"model": "tiny", "dtype": "float32", "quantization": "Q4_1", "weights_digest": "f" * 64,
         "texts": {"a": {"sha256": "e" * 64, "tokens": 200}}}  # fmt: skip


def test_without_rows_the_page_says_which_commands_make_them(tmp_path):
    page = page_html(tmp_path, tmp_path / "out")
    assert page.count("0 of ") == 4
    for run in (VALIDATION, VERDICTS, GEMMA_VALIDATION):
        assert f"<code>{run.command}</code>" in page
    assert re.findall(r"<h2>(.*?)</h2>", page) == [COVERAGE]
    assert VALIDATION.command in findings_html(tmp_path, tmp_path / "out")


def test_the_command_of_a_run_is_what_its_parser_takes():
    from poskernel.experiments.extension import validation, verdicts

    for run, module in ((VALIDATION, validation), (GEMMA_VALIDATION, validation),
                        (VERDICTS, verdicts)):  # fmt: skip
        assert module.__name__ in run.command and f"--out results/{run.folder}" in run.command


def test_every_question_has_its_section_of_each_model(tmp_path):
    for run in RUNS:
        write(run, made_up(run, nothing_special), tmp_path / "results", ABOUT if run is RUN else None)
    sections = extension_sections(tmp_path / "results", Output(tmp_path / "page"), RUNS)
    titles = [section.title for section in sections]
    assert len(titles) == 1 + 6 + 1 + 6 and titles[-1] == "Predicted limit against measured: second"
    assert "Held-out texts" in titles and "python -m" not in sections[0].text
    assert "Q4_1" in sections[0].text and "eeeeeeeeeeee" in sections[0].text
    path = write_page(tmp_path / "page.html", "Validation", "lead", sections)
    assert "Loss beside surviving heads" in path.read_text()


def test_a_part_of_the_rows_gives_its_sections_and_says_what_is_missing(tmp_path):
    table = made_up(RUN, nothing_special)
    write(RUN, table[table["metric"].isin(["limit", "loss_before", "fresh_loss_before"])], tmp_path)
    coverage, *others = extension_sections(tmp_path, Output(tmp_path / "page"), RUNS)
    assert "python -m make.the.rows" in coverage.text
    assert [section.title for section in others] == ["Loss beside surviving heads", "Predicted limit against measured"]


def test_every_metric_is_explained_on_the_page():
    page = meanings_html()
    assert all(f"<code>{name}</code>" in page for name in (*MEANINGS, "same_verdict"))
