"""The results store: one SQLite file (write-ahead log), one row a measurement, written a whole work unit at a time.

A measurement that ended (done, unlearned) is never overwritten; a failed one is replaced when it is run again. Whatever
kills the process, the file holds whole units only.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from poskernel.errors import InputError, RunError
from poskernel.study.grid import Cell
from poskernel.study.units import NO_SEED, Key, Measurement, Status, Unit

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_STORE = Path("out/results.sqlite")
SCHEMA_VERSION = 1
APPLICATION_ID = 0x706F736B
"""'posk' in the file's header: tells a store from any other SQLite file."""
WAIT_SECONDS = 30.0
"""How long to wait for another process that is writing."""

COLUMNS = (
    "cell", "encoding", "task", "tier", "train_length", "seed", "length", "metric", "value", "status", "reason", "rule",
    "versions",
)  # fmt: skip
"""Columns of the tidy table, in order. seed is missing for predictions, tier and rule where a cell has none."""
ORDER = ("encoding", "task", "tier", "train_length", "rule", "metric", "length", "seed", "cell")
"""What the table is sorted by."""

SCHEMA = f"""
CREATE TABLE cells (
    id TEXT PRIMARY KEY,
    encoding TEXT NOT NULL,
    task TEXT NOT NULL,
    tier INTEGER,
    train_length INTEGER NOT NULL,
    rule TEXT,
    config TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE measurements (
    cell TEXT NOT NULL REFERENCES cells (id),
    metric TEXT NOT NULL,
    length INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    value REAL,
    status TEXT NOT NULL CHECK (status IN ('done', 'unlearned', 'failed', 'timeout')),
    reason TEXT NOT NULL,
    transient INTEGER NOT NULL,
    versions TEXT NOT NULL,
    PRIMARY KEY (cell, metric, length, seed)
) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""
INSERT_CELL = "INSERT OR IGNORE INTO cells VALUES (?, ?, ?, ?, ?, ?, ?)"
INSERT_MEASUREMENT = """
INSERT INTO measurements VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = excluded.value, status = excluded.status, reason = excluded.reason,
    transient = excluded.transient, versions = excluded.versions
WHERE status IN ('failed', 'timeout')
"""


@dataclass(frozen=True)
class CellRow:
    """What the store keeps of a cell."""

    id: str
    encoding: str
    task: str
    tier: int | None
    train_length: int
    rule: str | None
    config: str

    @classmethod
    def of(cls, cell: Cell) -> "CellRow":
        """The row of a cell."""
        return cls(cell.id, cell.label, cell.task_name, cell.tier, cell.train_length, cell.selection_rule, cell.config)


@dataclass(frozen=True)
class Ending:
    """How a stored measurement ended."""

    status: Status
    reason: str
    transient: bool


@dataclass(frozen=True)
class Made:
    """A measurement and the versions it was made with."""

    measurement: Measurement
    versions: str


def software_versions() -> str:
    """Versions that numbers can depend on."""
    return ", ".join(f"{name} {version(name)}" for name in ("poskernel", "torch", "scipy", "numpy"))


class Store:
    """An open results store; use it as a context manager.

    Raises InputError for a path that is no store, cannot be opened, or comes from another version of the schema, and
    RunError where the disk is full or another process keeps it locked.
    """

    def __init__(self, path: Path = DEFAULT_STORE, create: bool = True) -> None:
        self.path = path
        if not create and not path.exists():
            raise InputError(
                f"there is no store at '{path}': run a study or an experiment first, or give its path with --store."
            )
        with self._explained():
            if create:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._connection.close()
                raise

    def _open(self) -> None:
        self._connection.execute("PRAGMA foreign_keys = ON")
        found = self._pragma("user_version")
        if found == 0 and not self._connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            self._connection.execute("PRAGMA journal_mode = WAL")
            with self._transaction():
                if self._pragma("user_version") == 0:  # another process may have come first
                    for statement in SCHEMA.split(";\n"):
                        self._connection.execute(statement)
        elif self._pragma("application_id") != APPLICATION_ID:
            raise InputError(f"'{self.path}' is an SQLite file but no store of this package: give another path.")
        elif found != SCHEMA_VERSION:
            raise InputError(
                f"the store '{self.path}' has schema version {found}, this version of poskernel reads "
                f"{SCHEMA_VERSION}: export it with the version that wrote it, or give another path with --store."
            )

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._explained():
            self._connection.close()

    def add(self, cells: Iterable[CellRow], measurements: Iterable[Measurement]) -> None:
        """Store measurements made here, with their cells, all or none; those that already ended stay as they are."""
        versions = software_versions()
        self.add_made(cells, (Made(measurement, versions) for measurement in measurements))

    def add_made(self, cells: Iterable[CellRow], measurements: Iterable[Made]) -> None:
        """Store measurements made anywhere, as `add` does."""
        rows = [(*astuple(made.measurement), made.versions) for made in measurements]
        with self._explained(), self._transaction():
            for cell in cells:
                self._connection.execute(INSERT_CELL, astuple(cell))
            self._connection.executemany(INSERT_MEASUREMENT, rows)

    def endings(self, units: Sequence[Unit] | None = None) -> dict[Key, Ending]:
        """How every stored measurement ended, or (at least) those of some units."""
        query = "SELECT cell, metric, length, seed, status, reason, transient FROM measurements"
        values: tuple[str, ...] = ()
        if units is not None:
            query += " WHERE cell IN (SELECT value FROM json_each(?))"
            values = (json.dumps([cell.id for unit in units for cell in unit.cells]),)
        return {
            (c, m, n, s): Ending(Status(status), reason, bool(t))
            for c, m, n, s, status, reason, t in self._select(query, values)
        }

    def made(self) -> dict[Key, Made]:
        """Every measurement by what it is known by."""
        query = "SELECT cell, metric, length, seed, value, status, reason, transient, versions FROM measurements"
        return {
            (c, m, n, s): Made(Measurement(c, m, n, s, value, Status(status), reason, bool(t)), versions)
            for c, m, n, s, value, status, reason, t, versions in self._select(query)
        }

    def cells(self) -> dict[str, CellRow]:
        """Every cell by its id."""
        query = "SELECT id, encoding, task, tier, train_length, rule, config FROM cells ORDER BY id"
        return {row[0]: CellRow(*row) for row in self._select(query)}

    def rows(self, units: Sequence[Unit] | None = None) -> list[dict[str, Any]]:
        """The tidy table, sorted: every measurement, or those of some units."""
        query = (
            "SELECT cell, encoding, task, tier, train_length, NULLIF(seed, ?), length, metric, value, status, reason, "
            "rule, versions FROM measurements JOIN cells ON cells.id = cell"
        )
        wanted = None if units is None else {key for unit in units for key in unit.keys}
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in self._select(query, (NO_SEED,))]
        if wanted is not None:
            rows = [row for row in rows if key_of(row) in wanted]
        return sorted(rows, key=lambda row: [sortable(row[column]) for column in ORDER])

    def to_frame(self, units: Sequence[Unit] | None = None) -> "pd.DataFrame":
        """The tidy table as a data frame: every measurement, or those of some units."""
        return frame(self.rows(units))

    def _select(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._explained():
            return self._connection.execute(query, values).fetchall()

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise explain(self.path, error) from error
        except OSError as error:
            raise InputError(
                f"the store '{self.path}' cannot be opened ({error.strerror}): give another path."
            ) from error


def explain(path: Path, error: sqlite3.Error) -> InputError | RunError:
    """A database error as one sentence with its remedy."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_FULL") or name == "SQLITE_IOERR_WRITE":
        return RunError(f"the disk of the store '{path}' is full: free space and run again, what is stored is kept.")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return RunError(
            f"the store '{path}' was locked by another process for {WAIT_SECONDS:.0f} s: end that one or wait for it."
        )
    if name.startswith("SQLITE_READONLY"):
        return InputError(f"the store '{path}' is read-only: make it writable or give another path with --store.")
    if name.startswith("SQLITE_CANTOPEN"):
        return InputError(f"the store '{path}' cannot be opened: give a path to a file in a folder you may write to.")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")) or "no such" in str(error):
        return InputError(f"'{path}' is no SQLite file, or a damaged one: give another path with --store.")
    return RunError(f"the store '{path}' failed ({error}): check its disk, or give another path with --store.")


def key_of(row: dict[str, Any]) -> Key:
    """What a row of the tidy table is known by."""
    return (row["cell"], row["metric"], row["length"], NO_SEED if row["seed"] is None else row["seed"])


def sortable(value: object) -> tuple[bool, Any]:
    """A sort key that puts missing values last."""
    return (value is None, 0 if value is None else value)


def frame(rows: Sequence[dict[str, Any]]) -> "pd.DataFrame":
    """Rows of the tidy table as a data frame, with one type a column whatever they hold."""
    import pandas as pd

    types = {"tier": "Int64", "seed": "Int64", "train_length": "int64", "length": "int64", "value": "float64"}
    columns = {
        name: pd.Series([row[name] for row in rows], dtype=types.get(name, "object"), name=name) for name in COLUMNS
    }
    return pd.DataFrame(columns)
