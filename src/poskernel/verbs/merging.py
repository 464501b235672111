"""Rows that come into the store from elsewhere, committed or of other stores, and what came of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from poskernel import console
from poskernel.errors import RunError
from poskernel.session import DEFAULTS, Session
from poskernel.verbs.running import open_store

if TYPE_CHECKING:
    from poskernel.study import Merged

FIRST_CONFLICTS = 20
"""Conflicts of a merge that a table shows; --json has all."""


def import_rows(folder: Path, /, *, session: Session = DEFAULTS) -> None:
    """Bring committed rows into the store; what ended there stays, and what differs from it is reported.

    Parameters
    ----------
    folder
        A folder with rows.parquet and manifest.json, such as results/paper or results/E5.
    """
    from poskernel.study import import_results
    from poskernel.study.transfer import read_results

    read_results(folder)  # what is wrong with it is said before a store is made
    with open_store(session, create=True) as store:
        merged = import_results(folder, store)
    rows = [{"folder": str(folder), "rows": merged.measurements, **merged.counts}]
    print_merged(rows, [merged], "poskernel.import/1", session)


def print_merged(rows: list[dict[str, Any]], reports: "list[Merged]", schema: str, session: Session) -> None:
    """What came of each source; then what differs, which is a failure (exit code 1): someone has to look at it."""
    conflicts = [[conflict.row for conflict in report.conflicts] for report in reports]
    if session.json:
        rows = [{**row, "conflicts": found} for row, found in zip(rows, conflicts, strict=True)]
    console.print_rows(rows, schema, session.json, caption="counts are measurements of the source")
    shown = [row for found in conflicts for row in found]
    if not shown:
        return
    if not session.json:
        console.print_rows(shown[:FIRST_CONFLICTS], schema, as_json=False)
    raise RunError(
        f"{len(shown)} measurements ended differently in the two; those of '{session.store}' stay: compare the "
        "versions and machines that made them (--json lists all)."
    )
