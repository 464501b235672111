"""Measurements out of a store and into one: exports, committed results, and the manifest that says how they came about.

Exports are sorted and hold no timings: the same measurements give the same bytes.
"""

import hashlib
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poskernel.errors import InputError
from poskernel.storage import write_whole
from poskernel.study.grid import Study
from poskernel.study.inquiry import Inquiry, asked_config, asked_units
from poskernel.study.merging import Merged, merge_rows
from poskernel.study.store import CellRow, Made, Store, frame
from poskernel.study.units import NO_SEED, Key, Measurement, Status

if TYPE_CHECKING:
    import pandas as pd

ROWS_SCHEMA = "poskernel.rows/1"
MANIFEST_SCHEMA = "poskernel.manifest/1"
FORMATS = ("csv", "parquet", "json")
ROWS_FILE, MANIFEST_FILE = "rows.parquet", "manifest.json"
LIBRARIES = ("poskernel", "torch", "numpy", "scipy", "pandas", "pyarrow")


def encode(rows: Sequence[dict[str, Any]], form: str) -> bytes:
    """Rows of the tidy table as csv, parquet or json; InputError for another format."""
    if form not in FORMATS:
        raise InputError(f"format '{form}' is unknown: choose from {', '.join(FORMATS)}.")
    if form == "json":
        return (json.dumps({"schema": ROWS_SCHEMA, "rows": rows}, indent=1, allow_nan=False) + "\n").encode()
    table = frame(rows)
    if form == "csv":
        return table.to_csv(index=False, lineterminator="\n").encode()
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False, engine="pyarrow", compression="zstd")
    return buffer.getvalue()


def export(study: Study | Inquiry, store: Store, form: str, path: Path | None = None) -> None:
    """Write a study's measurements to a file, whole or not at all, or to standard output."""
    data = encode(store.rows(asked_units(study)), form)
    if path is not None:
        write_whole(path, data)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def write_results(study: Study | Inquiry, store: Store, folder: Path, command: Sequence[str]) -> None:
    """A study's rows and their manifest, to be committed: `rows.parquet` and `manifest.json`."""
    rows = store.rows(asked_units(study))
    if not rows:
        raise InputError(f"'{study.name}' has no measurement in '{store.path}': run it first.")
    data, used = encode(rows, "parquet"), {row["cell"] for row in rows}
    cells = [asdict(cell) for cell in store.cells().values() if cell.id in used]
    about = manifest(asked_config(study), command, {ROWS_FILE: data})
    write_whole(folder / ROWS_FILE, data)
    write_whole(folder / MANIFEST_FILE, json.dumps({**about, "rows": len(rows), "cells": cells}, indent=1) + "\n")


def manifest(config: object, command: Sequence[str], files: dict[str, bytes]) -> dict[str, Any]:
    """What is needed to judge and to repeat a result: versions, code, machine, configuration, command, digests."""
    commit, dirty = code_state()
    return {
        "schema": MANIFEST_SCHEMA,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
        "commit": commit,
        "dirty": dirty,
        "machine": {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count()},
        "command": list(command),
        "config": config,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }


def code_state() -> tuple[str | None, bool | None]:
    """Commit of the checkout this package runs from and whether it has changes; None, None outside of one."""
    folder = Path(__file__).parent
    answers = []
    for question in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", str(folder)]):
        try:
            answer = subprocess.run(["git", "-C", str(folder), *question], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None, None
        answers.append(answer.stdout.strip())
    return answers[0], bool(answers[1])


def import_results(folder: Path, store: Store) -> Merged:
    """Bring committed results into a store, as `merge` does with another store.

    Raises InputError where files are missing, damaged or of another version.
    """
    import pandas as pd

    about, table = read_results(folder)
    cells = {entry["id"]: CellRow(**entry) for entry in about["cells"]}
    rows: dict[Key, Made] = {}
    for row in table.to_dict("records"):
        measurement = Measurement(
            cell=row["cell"],
            metric=row["metric"],
            length=int(row["length"]),
            seed=NO_SEED if pd.isna(row["seed"]) else int(row["seed"]),
            value=None if pd.isna(row["value"]) else float(row["value"]),
            status=Status(row["status"]),
            reason=row["reason"],
            transient=row["status"] == Status.TIMEOUT,
        )
        rows[measurement.key] = Made(measurement, row["versions"])
    return merge_rows(cells, rows, store)


def read_results(folder: Path) -> "tuple[dict[str, Any], pd.DataFrame]":
    """Manifest and tidy rows of committed results; InputError where the rows are not those the manifest speaks of."""
    import pandas as pd

    about, data = read_manifest(folder), read_bytes(folder / ROWS_FILE)
    digest = about.get("sha256", {}).get(ROWS_FILE)
    if hashlib.sha256(data).hexdigest() != digest:
        raise InputError(
            f"'{folder / ROWS_FILE}' does not have the digest its manifest states: fetch both files again."
        )
    return about, pd.read_parquet(io.BytesIO(data))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a results folder; InputError for one of another version."""
    data = read_bytes(folder / MANIFEST_FILE)
    try:
        about: dict[str, Any] = json.loads(data)
    except ValueError:
        raise InputError(f"'{folder / MANIFEST_FILE}' is no JSON document: fetch it again.") from None
    if about.get("schema") != MANIFEST_SCHEMA:
        raise InputError(
            f"'{folder / MANIFEST_FILE}' has schema '{about.get('schema')}', this version reads '{MANIFEST_SCHEMA}': "
            "import it with the version that wrote it."
        )
    return about


def read_bytes(path: Path) -> bytes:
    """A file's content; InputError names one that cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"'{path}' cannot be read ({error.strerror}): give a folder with rows and manifest, such as run or export "
            "make with --out FOLDER."
        ) from None
