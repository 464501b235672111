"""The page of an experiment: the answer first, everything from the rows, and nothing hidden."""

import dataclasses
from pathlib import Path

import pytest

from made_up_experiment import EXPERIMENT, table

pytest.importorskip("matplotlib")
from poskernel.experiments.results_page import (
    answer,
    page_html,
    predictions_table,
    sections,
    surprises,
    write_report,
)

ROWS = EXPERIMENT.rows(table())


def test_the_answer_says_the_verdict_with_its_numbers_and_what_is_missing() -> None:
    text = answer(EXPERIMENT, ROWS, EXPERIMENT.verdict(ROWS))
    assert text.startswith("Right is better. Held, because higher: held (0.8") and "Beside it: low: held" in text
    assert "not there yet" not in text and "quick version" not in text
    fewer = EXPERIMENT.rows(table().iloc[:-2])
    assert "2 of 8 measurements are not there yet" in answer(EXPERIMENT, fewer, EXPERIMENT.verdict(fewer))
    failed = ROWS.assign(status="failed")
    assert "8 measurements failed" in answer(EXPERIMENT, failed, EXPERIMENT.verdict(ROWS))


def test_the_quick_version_calls_itself_no_evidence() -> None:
    quick = dataclasses.replace(EXPERIMENT.quick, build=EXPERIMENT.build)
    assert "is no evidence" in answer(quick, ROWS, quick.verdict(ROWS))


def test_what_was_not_expected_is_said() -> None:
    assert surprises(EXPERIMENT, EXPERIMENT.verdict(ROWS)) == []
    turned = EXPERIMENT.verdict(EXPERIMENT.rows(table(right=0.9, wrong=0.4)))
    assert surprises(EXPERIMENT, turned) == ["low: expected held, became failed"]


def test_every_prediction_has_its_line() -> None:
    found = predictions_table(EXPERIMENT, EXPERIMENT.verdict(ROWS))
    assert found["line"].tolist() == ["above 0.1", "below 0.3"]
    assert found["expected"].tolist() == ["held, informed", "held"] and found["decides"].tolist() == ["yes", "no"]
    assert found["measured"][0].value == pytest.approx(0.8, abs=0.01)


def test_a_report_has_its_parts_and_files(tmp_path: Path) -> None:
    made = sections(EXPERIMENT, ROWS, tmp_path)
    assert [section.title for section in made] == ["Answer", "Method", "Threats to validity"]
    path = write_report(EXPERIMENT, ROWS, tmp_path)
    page = path.read_text()
    assert "Right is better" in page and "It was made up." in page and "poskernel experiment run made-up" in page
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {"scores.png", "scores.svg", "scores.csv"}
    assert (tmp_path / "tables" / "made-up-predictions.csv").is_file()


def test_a_page_of_the_documentation_comes_from_committed_rows(tmp_path: Path) -> None:
    empty = page_html(EXPERIMENT, tmp_path)
    assert "not there yet" in empty and "poskernel experiment run made-up --out results/made-up" in empty
    (tmp_path / "made-up").mkdir()
    table().to_parquet(tmp_path / "made-up" / "rows.parquet")
    page = page_html(EXPERIMENT, tmp_path)
    assert page.index("Right is better") < page.index("<svg") < page.index("Right beats wrong by 0.1")
    table(right=0.1, wrong=0.9).to_parquet(tmp_path / "made-up" / "rows.parquet")
    assert "Failed, because higher" in page_html(EXPERIMENT, tmp_path)
