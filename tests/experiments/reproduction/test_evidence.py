"""Rows are found by cell whatever study they came with, and what is missing is said."""

import math

import pandas as pd
import pytest

from poskernel.errors import InputError, RunError
from poskernel.experiments.reproduction.evidence import Evidence, missing_in_words
from poskernel.study import STUDIES, Store
from poskernel.study.transfer import write_results
from study_table import CELLS, table


def test_numbers_are_those_of_their_cell(evidence):
    assert evidence.alpha("sinusoidal", "prev", 60).value == 0.2
    assert evidence.alpha("sinusoidal", "prev", 60, "optimum").value == 1.0
    found = evidence.accuracy("rope", "prev", 60)
    assert (found.value, found.n) == (pytest.approx(0.92), 5)
    assert evidence.accuracy("alibi", "prev", 60, tier=2).value == pytest.approx(0.92)
    assert evidence.accuracy("sinusoidal", "prev", 60, steps=8000).n == 3
    assert evidence.mean_alpha("rope", "prev", (30, 60)).value == 1.0


def test_what_is_not_there_is_undefined_with_a_reason(partial):
    found = partial.accuracy("rope", "prev", 60, tier=3)
    assert math.isnan(found.value) and "tier 3" in found.method
    assert math.isnan(partial.alpha("rope", "prev", 60, "max-margin").value)
    with pytest.raises(RunError, match="run the study first"):
        partial.comparison("paper", 2)


def test_one_studys_rows_serve_another(tables):
    found = Evidence({"paper": tables["paper"]}, "the paper's rows alone")
    assert found.has_models("quick") and found.has_models("rules") and not found.has_models("scale")
    assert len(found.study("quick").missing) == 0


def test_files_that_clash_are_counted_and_each_study_shows_its_own(tables):
    other = tables["paper"].assign(value=tables["paper"]["value"] + 0.001)
    rules = tables["rules"]
    found = Evidence({"paper": other, "rules": rules}, "two machines")
    assert found.clashes > 0 and Evidence({"rules": rules, "paper": tables["paper"]}, "").clashes == 0
    one = found.study("rules").joined(1, steps=2000)
    assert set(one["accuracy"].round(6)) <= {0.1, 0.9, *(round(v + 0.01 * s, 2) for v in (0.1, 0.9) for s in range(5))}


def test_coverage_says_what_is_missing(partial, evidence):
    lines = partial.coverage(["paper", "scale"]).set_index("study")
    words = lines.loc["paper", "missing"]
    assert "tier 1 at 2000 steps: 140 models (35 of seed 1" in words and "tier 3 at 2000 steps: 175 models" in words
    assert lines.loc["paper", "there"] == 350 + 35 * 6 and lines.loc["paper", "planned"] == 3500
    assert missing_in_words(evidence.study("paper")) == "nothing"
    assert list(evidence.coverage(["paper"])["unlearned"]) == [0]


def test_committed_rows_are_read_and_a_damaged_file_is_noticed(tmp_path):
    rows = table(CELLS)
    with Store(tmp_path / "store.sqlite") as store:
        fill(store, rows)
        write_results(STUDIES["quick"], store, tmp_path / "results" / "quick", ["test"])
        assert Evidence.from_store(store).accuracy("rope", "prev", 60).value == 0.9
    found = Evidence.from_results(tmp_path / "results")
    assert found.accuracy("rope", "prev", 60).value == 0.9 and list(found.tables) == ["quick"]
    with pytest.raises(InputError, match="holds no STUDY"):
        Evidence.from_results(tmp_path)
    file = tmp_path / "results" / "quick" / "rows.parquet"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="digest"):
        Evidence.from_results(tmp_path / "results")


def fill(store, rows):
    """Put rows of a tidy table into a store."""
    from poskernel.study.store import CellRow
    from poskernel.study.units import NO_SEED, Measurement, Status, units_of

    cells = {cell.id: CellRow.of(cell) for unit in units_of(STUDIES["quick"]) for cell in unit.cells}
    store.add(
        [cells[name] for name in rows["cell"].unique()],
        [
            Measurement(
                r["cell"],
                r["metric"],
                r["length"],
                NO_SEED if pd.isna(r["seed"]) else int(r["seed"]),
                r["value"],
                Status(r["status"]),
                r["reason"],
            )
            for r in rows.to_dict("records")
        ],
    )
