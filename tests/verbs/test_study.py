"""study: plan, run, resume, status, export and import from the command line."""

import json

import pandas as pd
import pytest

from poskernel import cli
from poskernel.encodings import ENCODINGS
from poskernel.models.training import Recipe
from poskernel.study import STUDIES, Axes, Status, Store, Study, units_of
from poskernel.study.store import CellRow
from poskernel.study.units import Measurement
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


def test_models_are_trained_in_batches_where_asked(tiny, capsys, monkeypatch):
    whole = rows(capsys, "study", "plan", "tiny", "--batch", "2")
    assert [row["unit"].startswith("train") for row in whole] == [False, False, True]
    assert rows(capsys, "study", "run", "tiny", "--batch", "2", "--dry-run") == whole
    rows(capsys, "study", "run", "tiny", "--workers", "1")
    expected = rows(capsys, "study", "export", "tiny")
    done = rows(capsys, "study", "run", "tiny", "--workers", "1", "--batch", "2", "--store", "batched.sqlite")
    assert (done[0]["done"], done[0]["failed"]) == (3, 0)
    found = rows(capsys, "study", "export", "tiny", "--store", "batched.sqlite")
    for one, other in zip(found, expected, strict=True):
        assert one["value"] == pytest.approx(other["value"], abs=0.01)
        assert {**one, "value": None} == {**other, "value": None}
    assert rows(capsys, "study", "plan", "tiny", "--store", "batched.sqlite") == []
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert cli.main(["study", "run", "tiny", "--batch", "2", "--device", "cuda", "--store", "new.sqlite"]) == 2
    assert "no CUDA device" in capsys.readouterr().err
    assert not (tiny / "new.sqlite").exists()


def test_shards_merge_into_what_one_run_gives(tiny, capsys):
    rows(capsys, "study", "run", "tiny", "--workers", "1")
    whole = rows(capsys, "study", "export", "tiny")
    for shard in ("1/2", "2/2"):
        store = f"{shard[0]}.sqlite"
        assert len(rows(capsys, "study", "plan", "tiny", "--shard", shard, "--store", store)) == 2
        done = rows(capsys, "study", "run", "tiny", "--workers", "1", "--shard", shard, "--store", store)
        assert (done[0]["done"], done[0]["skipped"]) == (2, 0)
    merged = rows(capsys, "study", "merge", "1.sqlite", "2.sqlite", "--store", "all.sqlite")
    assert [(row["merged"], row["new"], row["conflicts"]) for row in merged] == [
        ("1.sqlite", len(whole) // 2, []), ("2.sqlite", len(whole) // 2, [])
    ]  # fmt: skip
    assert rows(capsys, "study", "export", "tiny", "--store", "all.sqlite") == whole
    again = rows(capsys, "study", "merge", "all.sqlite")
    assert (again[0]["new"], again[0]["same"]) == (0, len(whole))
    assert rows(capsys, "study", "export", "tiny") == whole


def test_conflicts_of_a_merge_are_shown_and_end_with_1(tiny, capsys):
    for store, value in (("mine.sqlite", 0.25), ("theirs.sqlite", 0.75)):
        with Store(tiny / store) as opened:
            for unit in units_of(STUDIES["tiny"]):
                opened.add([CellRow.of(unit.cell)], [Measurement(*key, value, Status.DONE) for key in unit.keys])
    line = ["study", "merge", "theirs.sqlite", "--store", "mine.sqlite"]
    assert cli.main([*line, "--json"]) == 1
    out, err = capsys.readouterr()
    conflicts = json.loads(out)["rows"][0]["conflicts"]
    assert {(row["value"], row["other_value"]) for row in conflicts} == {(0.25, 0.75)}
    assert f"{len(conflicts)} measurements ended differently" in err and err.count("\n") == 1
    assert cli.main(line) == 1
    assert "0.75" in capsys.readouterr().out
    assert {row["value"] for row in rows(capsys, "study", "export", "tiny", "--store", "mine.sqlite")} == {0.25}
    assert cli.main(["study", "merge", "mine.sqlite", "--store", "mine.sqlite"]) == 2
    assert cli.main(["study", "merge", "absent.sqlite"]) == 2
    assert cli.main(["study", "merge"]) == 2
    assert not (tiny / "absent.sqlite").exists() and not (tiny / "out").exists()


def test_missing_weights_are_made_again_and_rows_stay(tiny, capsys):
    rows(capsys, "study", "run", "tiny", "--workers", "1")
    before, weights = rows(capsys, "study", "export", "tiny"), tiny / "out" / "weights"
    assert {row["reason"] for row in rows(capsys, "study", "plan", "tiny", "--weights")} == {"its weights are not kept"}
    line = ["study", "run", "tiny", "--tiers", "1", "--weights", "--workers", "1"]
    assert rows(capsys, *line)[0]["done"] == 2
    files = {file: file.read_bytes() for file in weights.iterdir()}
    assert len(files) == 2
    min(files).unlink()
    done = rows(capsys, *line)[0]
    assert (done["done"], done["skipped"], done["failed"]) == (1, 3, 0)
    assert {file: file.read_bytes() for file in weights.iterdir()} == files
    assert rows(capsys, "study", "export", "tiny") == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--executor", "dusk:x"], "did you mean 'dask'"),
        (["--executor", "dask"], "address"),
        (["--executor", "slurm:minutes=soon"], "'soon'"),
        (["--shard", "5/4"], "5/4"),
        (["--shard", "half"], "'half'"),
        (["--attempts", "0"], "0 attempts"),
        (["--unit-seconds", "-1"], "-1 s"),
    ],
)
def test_what_a_run_cannot_do_is_said_before_it_begins(tiny, capsys, arguments, words):
    assert cli.main(["study", "run", "tiny", *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1


def test_tables_say_what_they_count(tiny, capsys):
    with Store(tiny / "out" / "results.sqlite"):
        pass
    for line in (["list"], ["plan", "tiny"], ["status", "tiny"]):
        assert cli.main(["study", *line]) == 0
        assert "a measurement is a row of the store" in " ".join(capsys.readouterr().out.split())


def test_a_store_that_is_not_there(tiny, capsys):
    assert cli.main(["study", "status", "tiny", "--store", "absent.sqlite"]) == 2
    assert "absent.sqlite" in capsys.readouterr().err
    assert not (tiny / "absent.sqlite").exists()


def test_the_studies_are_listed(capsys):
    assert {"quick", "paper"} <= {row["study"] for row in rows(capsys, "study", "list")}


def test_a_report_from_the_store_and_from_committed_rows(tiny, capsys):
    pytest.importorskip("matplotlib")
    assert cli.main(["study", "run", "tiny", "--workers", "1", "--out", "kept/tiny", "-q"]) == 0
    capsys.readouterr()
    assert cli.main(["study", "report", "tiny", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "schema": "poskernel.study-report/1", "study": "tiny", "report": "out/reports/tiny/report.html",
    }  # fmt: skip
    assert cli.main(["study", "report", "tiny", "--results", "kept", "--out", "page", "--store", "absent.sqlite"]) == 0
    cells = (tiny / "out" / "reports" / "tiny" / "tables" / "tiny-cells-tier-1.csv").read_bytes()
    assert (tiny / "page" / "tables" / "tiny-cells-tier-1.csv").read_bytes() == cells and b"rope" in cells


def test_a_report_of_nothing(tiny, capsys):
    assert cli.main(["study", "report", "papr", "--results", "kept"]) == 2
    assert "did you mean 'paper'" in capsys.readouterr().err
    assert cli.main(["study", "report", "paper", "--results", "kept"]) == 2
    assert "'kept' holds no STUDY/rows.parquet" in capsys.readouterr().err


def test_kernels_of_trained_heads(tiny, capsys, monkeypatch):
    from poskernel.experiments.trained_kernels import TrainedKernels

    small, real = TrainedKernels(STUDIES["tiny"]), TrainedKernels.units
    monkeypatch.setattr(TrainedKernels, "units", lambda self: real(small))
    assert cli.main(["study", "kernels", "nowhere"]) == 2 and "is no folder" in capsys.readouterr().err
    (tiny / "empty").mkdir()
    assert cli.main(["study", "kernels", "empty", "--workers", "1", "--store", "other.sqlite", "-q"]) == 1
    assert "all 2 heads failed" in capsys.readouterr().err and not list((tiny / "empty").iterdir())
