"""experiment: list, plan, run, status, report, export and import from the command line."""

import json
from pathlib import Path

import pytest

from made_up_experiment import EXPERIMENT
from poskernel import cli
from poskernel.experiments import catalogue


@pytest.fixture(autouse=True)
def _made_up(monkeypatch, tmp_path):
    monkeypatch.setitem(catalogue.EXPERIMENTS, "made-up", EXPERIMENT)
    monkeypatch.chdir(tmp_path)


def rows(capsys, *arguments):
    assert cli.main(["experiment", *arguments, "--json", "-q"]) == 0
    return json.loads(capsys.readouterr().out)["rows"]


def test_from_plan_to_report_and_back(capsys, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    assert len(rows(capsys, "plan", "made-up")) == len(rows(capsys, "run", "made-up", "--dry-run")) == 4
    assert not (tmp_path / "out").exists()
    assert rows(capsys, "run", "made-up", "--workers", "1", "--out", "results/made-up")[0]["done"] == 4
    assert rows(capsys, "plan", "made-up") == [] and len(rows(capsys, "plan", "made-up", "--quick")) == 4
    exported = rows(capsys, "export", "made-up")
    assert rows(capsys, "import", "results/made-up", "--store", "second.sqlite")[0]["rows"] == len(exported) == 8
    assert rows(capsys, "export", "made-up", "--store", "second.sqlite") == exported
    assert rows(capsys, "status", "made-up")[0]["missing"] == 0
    assert cli.main(["experiment", "report", "made-up", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["outcome"], first["missing"], first["scale"]) == ("held", 0, "full")
    assert [each["outcome"] for each in first["predictions"]] == ["held", "held"]
    line = ["experiment", "report", "made-up", "--results", "results", "--store", "absent.sqlite", "--json"]
    assert cli.main(line) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert cli.main(["experiment", "report", "made-up"]) == 0
    assert capsys.readouterr().out.startswith("made-up: held, because higher: held (0.8")


def test_what_cannot_be_is_said_in_a_sentence(capsys) -> None:
    assert cli.main(["experiment", "run", "E55"]) == 2
    assert "unknown experiment 'E55': choose from E1" in capsys.readouterr().err
    assert cli.main(["experiment", "report", "made-up"]) == 2
    assert "there is no store" in capsys.readouterr().err
    assert cli.main(["experiment", "report", "made-up", "--results", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert cli.main(["experiment", "import", "nowhere", "--store", "new.sqlite"]) == 2
    assert not Path("new.sqlite").exists()
    assert cli.main(["experiment", "summary", "--results", "nowhere"]) == 2
    assert "'nowhere' is no folder: give the one that holds committed rows" in capsys.readouterr().err


def test_a_plan_names_every_unit_and_says_what_a_unit_is(capsys) -> None:
    assert cli.main(["experiment", "plan", "made-up", "--quick"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{condition}, seed {seed}" in shown for condition in ("right", "wrong") for seed in (0, 1))
    assert "4 units: a unit is one model, trained or read" in shown
    assert cli.main(["experiment", "run", "made-up", "--quick", "--workers", "1", "-q"]) == 0
    capsys.readouterr()
    assert cli.main(["experiment", "plan", "made-up", "--quick"]) == 0
    said = "experiment made-up (quick version, which is no evidence) is complete: nothing to run\n"
    assert capsys.readouterr().out == said


def test_experiments_are_listed_with_what_they_ask(capsys) -> None:
    found = {row["experiment"]: row for row in rows(capsys, "list")}
    assert found["E5"]["predictions"] == 9 and found["made-up"]["question"] == "Is right better than wrong?"
