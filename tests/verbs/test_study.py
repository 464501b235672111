"""study: plan, run, resume, status, export and import from the command line."""

import json

import pandas as pd
import pytest

from poskernel import cli
from poskernel.encodings import ENCODINGS
from poskernel.models.training import Recipe
from poskernel.study import STUDIES, Axes, Study
from poskernel.tasks import TASKS


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A study of two small models, and a store of its own."""
    axes = Axes(
        (ENCODINGS["rope"], ENCODINGS["nope"]), (TASKS["prev"],), tiers=(1,), seeds=(0,), lengths=(30,),
        width=16, recipe=Recipe(steps=3), existence=False,
    )  # fmt: skip
    monkeypatch.setitem(STUDIES, "tiny", Study("tiny", "Does it run?", (axes,)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(capsys, *arguments):
    assert cli.main([*arguments, "--json", "-q"]) == 0
    return json.loads(capsys.readouterr().out)["rows"]


def test_from_plan_to_export_and_back(tiny, capsys):
    assert len(rows(capsys, "study", "plan", "tiny")) == 4
    assert len(rows(capsys, "study", "run", "tiny", "--dry-run")) == 4
    assert not (tiny / "out").exists()
    first = rows(capsys, "study", "run", "tiny", "--workers", "1", "--out", "kept")
    assert first == [{"study": "tiny", "store": "out/results.sqlite", "done": 4, "skipped": 0, "failed": 0}]
    assert rows(capsys, "study", "run", "tiny")[0]["skipped"] == 4
    assert rows(capsys, "study", "plan", "tiny") == []
    counts = rows(capsys, "study", "status", "tiny")
    assert sum(row["missing"] for row in counts) == 0 and {row["kind"] for row in counts} == {"prediction", "training"}
    exported = rows(capsys, "study", "export", "tiny")
    assert {row["metric"] for row in exported} == {"alpha", "train_accuracy", "length_generalization"}
    assert cli.main(["study", "export", "tiny", "--format", "csv", "--to", "rows.csv"]) == 0
    assert len(pd.read_csv("rows.csv")) == len(exported)
    assert (tiny / "kept" / "manifest.json").exists() and (tiny / "kept" / "config.toml").exists()
    assert rows(capsys, "study", "import", "kept", "--store", "second.sqlite")[0]["rows"] == len(exported)
    assert rows(capsys, "study", "export", "tiny", "--store", "second.sqlite") == exported


def test_a_store_that_is_not_there(tiny, capsys):
    assert cli.main(["study", "status", "tiny", "--store", "absent.sqlite"]) == 2
    assert "absent.sqlite" in capsys.readouterr().err
    assert not (tiny / "absent.sqlite").exists()


def test_the_studies_are_listed(capsys):
    assert {"quick", "paper"} <= {row["study"] for row in rows(capsys, "study", "list")}
