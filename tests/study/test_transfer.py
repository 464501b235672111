"""Exports are the same bytes for the same measurements; committed results come back as they went."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from poskernel.encodings import ENCODINGS
from poskernel.errors import InputError, RunError
from poskernel.models.training import Recipe
from poskernel.study.grid import Axes, Study
from poskernel.study.store import COLUMNS, CellRow, Store
from poskernel.study.transfer import FORMATS, encode, export, import_results, write_results
from poskernel.study.units import Measurement, Status, units_of
from poskernel.tasks import TASKS

AXES = Axes(
    (ENCODINGS["rope"],),
    (TASKS["prev"], TASKS["copy"]),
    tiers=(1,),
    seeds=(0, 1),
    lengths=(30, 40),
    recipe=Recipe(steps=2),
)
STUDY = Study("small", "?", (AXES,))
OTHER = Study("other", "?", (Axes((ENCODINGS["alibi"],), (TASKS["prev"],), tiers=(1,), seeds=(0,), lengths=(30,)),))


def fill(store: Store, *studies: Study, backwards: bool = False) -> None:
    """Every status, awkward texts and numbers; units in either order."""
    units = [unit for study in studies for unit in units_of(study)]
    for unit in reversed(units) if backwards else units:
        measurements = [
            Measurement(
                *key, value=1 / (3 + len(key[1]) + key[2]), status=Status.DONE, reason='a "quoted", reason\nof lines é'
            )
            for key in unit.keys
        ]
        if unit.cell.task.name == "copy" and unit.run_seed == 1:
            measurements = unit.failures("the loss is nan", transient=False)
        store.add([CellRow.of(cell) for cell in unit.cells], measurements)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.sqlite") as opened:
        fill(opened, STUDY)
        yield opened


@pytest.mark.parametrize("form", FORMATS)
def test_exports_do_not_depend_on_the_order_of_work_or_on_other_studies(
    store: Store, tmp_path: Path, form: str
) -> None:
    with Store(tmp_path / "t.sqlite") as other:
        fill(other, OTHER, STUDY, backwards=True)
        export(STUDY, store, form, tmp_path / "a")
        export(STUDY, other, form, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_every_format_holds_every_row(store: Store) -> None:
    rows = store.rows()
    parquet = pd.read_parquet(io.BytesIO(encode(rows, "parquet"))).astype(object)
    assert parquet.where(parquet.notna(), None).to_dict("records") == rows
    csv = pd.read_csv(
        io.BytesIO(encode(rows, "csv")), keep_default_na=False, na_values={"value": "", "tier": "", "seed": ""}
    )
    assert list(csv.columns) == list(COLUMNS)
    assert [None if pd.isna(value) else value for value in csv["value"]] == [row["value"] for row in rows]
    assert csv["reason"].tolist() == [row["reason"] for row in rows]
    document = json.loads(encode(rows, "json"))
    assert document == {"schema": "poskernel.rows/1", "rows": rows}


def test_exports_go_to_standard_output_by_default(store: Store, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    export(STUDY, store, "csv")
    assert capsysbinary.readouterr().out == encode(store.rows(), "csv")


def test_unknown_formats_and_unwritable_files_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="format 'xlsx' is unknown: choose from csv, parquet, json"):
        export(STUDY, store, "xlsx", tmp_path / "a.xlsx")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        export(STUDY, store, "csv", tmp_path / "file" / "a.csv")
    assert not (tmp_path / "a.xlsx").exists()


def test_committed_results_seed_a_store_that_exports_the_same(store: Store, tmp_path: Path) -> None:
    write_results(STUDY, store, tmp_path / "results", ["poskernel", "study", "run", "small"])
    with Store(tmp_path / "fresh.sqlite") as fresh:
        assert import_results(tmp_path / "results", fresh).new == len(store.rows())
        assert fresh.rows() == store.rows()
        assert fresh.cells() == store.cells()
        assert import_results(tmp_path / "results", fresh).same == len(store.rows())
        assert fresh.rows() == store.rows()


def test_importing_does_not_touch_what_is_there(store: Store, tmp_path: Path) -> None:
    write_results(STUDY, store, tmp_path / "results", [])
    unit = units_of(STUDY)[-2]
    with Store(tmp_path / "own.sqlite") as own:
        mine = [Measurement(*key, value=0.25, status=Status.DONE) for key in unit.keys]
        own.add([CellRow.of(unit.cell)], mine)
        report = import_results(tmp_path / "results", own)
        assert {conflict.other.measurement.key for conflict in report.conflicts} == set(unit.keys)
        assert {row["value"] for row in own.rows([unit])} == {0.25}
        assert len(own.rows()) == len(store.rows())


def test_the_manifest_tells_how_the_rows_came_about(store: Store, tmp_path: Path) -> None:
    write_results(STUDY, store, tmp_path, ["poskernel", "study", "run", "small"])
    about = json.loads((tmp_path / "manifest.json").read_text())
    assert about["schema"] == "poskernel.manifest/1"
    assert about["command"] == ["poskernel", "study", "run", "small"]
    assert about["rows"] == len(store.rows())
    assert {"python", "torch", "poskernel"} <= set(about["versions"])
    assert {cell["id"] for cell in about["cells"]} == set(store.cells())
    assert about["config"]["axes"][0]["recipe"]["steps"] == 2.0
    assert set(about) >= {"commit", "dirty", "machine", "sha256"}


def test_damaged_results_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"manifest.json' cannot be read"):
        import_results(tmp_path, store)
    write_results(STUDY, store, tmp_path, [])
    rows, manifest = tmp_path / "rows.parquet", tmp_path / "manifest.json"
    whole, about = rows.read_bytes(), json.loads(manifest.read_text())
    rows.write_bytes(whole[:-1])
    with pytest.raises(InputError, match="does not have the digest its manifest states"):
        import_results(tmp_path, store)
    rows.write_bytes(whole)
    manifest.write_text(json.dumps({**about, "schema": "poskernel.manifest/9"}))
    with pytest.raises(
        InputError, match=r"has schema 'poskernel.manifest/9', this version reads 'poskernel.manifest/1'"
    ):
        import_results(tmp_path, store)
    manifest.write_text("{")
    with pytest.raises(InputError, match="is no JSON document"):
        import_results(tmp_path, store)


def test_a_study_without_rows_has_no_results_to_write(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'other' has no measurement in"):
        write_results(OTHER, store, tmp_path / "results", [])
    assert not (tmp_path / "results").exists()
