"""The summary: every prediction of every experiment, nothing hidden, what is not run says so."""

import json

import pytest

from made_up_experiment import EXPERIMENT, table
from poskernel import cli
from poskernel.experiments.catalogue import EXPERIMENTS
from poskernel.experiments.summary import (
    NOT_RUN,
    claims_table,
    experiments_table,
    summarise,
    summary_html,
    write_summary,
)


@pytest.fixture
def results(tmp_path):
    """Committed rows of one experiment, of which two measurements are missing."""
    (tmp_path / "results" / "made-up").mkdir(parents=True)
    table().to_parquet(tmp_path / "results" / "made-up" / "rows.parquet")
    return tmp_path / "results"


def test_what_was_run_has_its_verdict_and_what_was_not_says_so(results) -> None:
    found = summarise([EXPERIMENT, EXPERIMENTS["E5"]], results)
    lines = experiments_table(found).set_index("experiment")
    assert lines.loc["made-up", "verdict"] == "held" and lines.loc["E5", "verdict"] == NOT_RUN
    assert lines.loc["made-up", ["held", "failed", "as expected", "predictions"]].tolist() == [2, 0, 2, 2]
    assert lines.loc["E5", ["held", "failed", "as expected"]].tolist() == [0, 0, 0]
    claims = claims_table(found)
    assert len(claims) == 2 + len(EXPERIMENTS["E5"].predictions)
    first = claims.iloc[0]
    assert (first["claim"], first["outcome"], first["line"]) == ("higher", "held", "above 0.1")
    assert first["measured"].startswith("0.8") and "[" in first["measured"] and first["n"] == 2
    assert set(claims["outcome"][2:]) == {NOT_RUN} and set(claims["measured"][2:]) == {""}


def test_verdicts_come_from_the_rows(results) -> None:
    table(right=0.1, wrong=0.9).to_parquet(results / "made-up" / "rows.parquet")
    (found,) = summarise([EXPERIMENT], results)
    assert experiments_table([found])["verdict"][0] == "failed" and experiments_table([found])["as expected"][0] == 0
    table().iloc[:-2].to_parquet(results / "made-up" / "rows.parquet")
    (found,) = summarise([EXPERIMENT], results)
    assert found.missing == 2 and experiments_table([found])["missing rows"][0] == 2


def test_the_page_of_the_documentation_has_every_experiment(results, monkeypatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(EXPERIMENTS, "made-up", EXPERIMENT)
    page = summary_html(results)
    assert all(f'<th scope="row">{name}</th>' in page for name in EXPERIMENTS)
    assert page.count(NOT_RUN) >= sum(1 + len(each.predictions) for each in EXPERIMENTS.values()) - 3


def test_the_report_and_the_command(results, tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip("matplotlib")
    page = write_summary(summarise([EXPERIMENT], results), tmp_path / "page")
    assert "Right beats wrong by 0.1." in page.read_text()
    assert {file.name for file in (tmp_path / "page" / "tables").glob("*.csv")} == {"claims.csv", "experiments.csv"}
    monkeypatch.setitem(EXPERIMENTS, "made-up", EXPERIMENT)
    line = ["experiment", "summary", "--results", str(results), "--out", str(tmp_path / "out")]
    assert cli.main(line) == 0
    shown = capsys.readouterr().out
    assert "made-up: held (2 held)" in shown and f"E5: {NOT_RUN}" in shown
    assert cli.main([*line, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    verdicts = {each["experiment"]: each["verdict"] for each in document["experiments"]}
    assert verdicts["made-up"] == "held" and verdicts["E7"] == NOT_RUN
    assert document["schema"] == "poskernel.experiment-summary/1"
