"""study: plan, run, status, export and import; grids that resume."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import App

from poskernel import console
from poskernel.errors import RunError
from poskernel.session import DEFAULTS, Session, whole_numbers

if TYPE_CHECKING:
    from poskernel.study import Store, Study

study = App(name="study", help="Train and compare: grids that resume, one row a measurement.")


def named_study(name: str, tiers: str | None = None) -> "Study":
    """A study by name, with some of its tiers alone where asked."""
    from poskernel.errors import lookup
    from poskernel.study import STUDIES

    found = lookup(STUDIES, name, "study")
    return found if tiers is None else found.only(whole_numbers(tiers, "--tiers"))


def open_store(session: Session, create: bool = False) -> "Store":
    """The results store of a session."""
    from poskernel.study import Store

    return Store(session.store, create=create)


def nothing_stored() -> "Store":
    """An empty store in memory: a look at what would run leaves no file behind."""
    from poskernel.study import Store

    return Store(Path(":memory:"), create=True)


@study.command(name="list")
def list_studies(*, session: Session = DEFAULTS) -> None:
    """Name every study and what it asks."""
    from poskernel.study import STUDIES, units_of

    rows = [{"study": each.name, "units": len(units_of(each)), "question": each.question} for each in STUDIES.values()]
    console.print_rows(rows, "poskernel.studies/1", session.json)


@study.command
def plan(name: str, /, *, tiers: str | None = None, session: Session = DEFAULTS) -> None:
    """Say what a run would do, each unit with its reason.

    Parameters
    ----------
    name
        A study: see `poskernel study list`.
    tiers
        Some of its tiers alone: 1,2.
    """
    from poskernel.study import plan as planned_units

    chosen = named_study(name, tiers)
    with open_store(session) if session.store.exists() else nothing_stored() as store:
        planned = planned_units(chosen, store)
    rows = [{"unit": each.unit.description, "reason": each.reason} for each in planned]
    console.print_rows(rows, "poskernel.plan/1", session.json, empty=f"study '{name}' is complete: nothing to run")


@study.command(name="run")
def run_study(
    name: str,
    /,
    *,
    workers: int | None = None,
    tiers: str | None = None,
    retry: Literal["never", "interrupted", "failed"] = "interrupted",
    weights: bool = False,
    dry_run: bool = False,
    session: Session = DEFAULTS,
) -> None:
    """Measure what is missing; kill it at any time and run it again.

    Parameters
    ----------
    name
        A study: see `poskernel study list`.
    workers
        Processes, one torch thread each (default: one a core).
    tiers
        Some of its tiers alone: 1,2.
    retry
        Which stored failures to try again: those from outside (killed, no memory, no time), all, or none.
    weights
        Keep the trained weights beside the store.
    dry_run
        Say what would run instead.
    """
    if dry_run:
        plan(name, tiers=tiers, session=session)
        return
    from dataclasses import asdict

    from poskernel.study import Retry, progress_for, run

    chosen = named_study(name, tiers)
    folder = session.store.parent / "weights" if weights else None
    with open_store(session, create=True) as store:
        summary = run(chosen, store, workers, progress_for(session.quiet), Retry(retry), folder)
        if session.out is not None:
            write_study(chosen, store, session)
    document = {"study": name, "store": str(session.store), **asdict(summary)}
    document.pop("seconds")
    console.print_rows([document], "poskernel.run/1", session.json)
    if summary.failed and not summary.done and not summary.skipped:
        raise RunError(
            f"all {summary.failed} units of study '{name}' failed: see the reasons in poskernel study export."
        )


def write_study(chosen: "Study", store: "Store", session: Session) -> None:
    """Rows and manifest of a study in the session's folder."""
    from poskernel.study import write_results

    assert session.out is not None
    write_results(chosen, store, session.out, ["poskernel", *sys.argv[1:]])


@study.command
def status(name: str = "quick", /, *, session: Session = DEFAULTS) -> None:
    """Count what is done, unlearned, failed and missing.

    Parameters
    ----------
    name
        A study: see `poskernel study list`.
    """
    from poskernel.study import status as counts

    with open_store(session) as store:
        table = counts(named_study(name), store).astype(object)
    rows = [
        {str(name): value for name, value in row.items()} for row in table.where(table.notna(), None).to_dict("records")
    ]
    console.print_rows(rows, "poskernel.status/1", session.json)


@study.command
def export(
    name: str = "quick",
    /,
    *,
    format: Literal["csv", "parquet", "json"] = "csv",  # the flag's name
    to: Path | None = None,
    session: Session = DEFAULTS,
) -> None:
    """Write a study's rows: sorted, without timings.

    Parameters
    ----------
    name
        A study: see `poskernel study list`.
    format
        csv, parquet or json.
    to
        File to write (default: standard output). `--out FOLDER` writes rows.parquet with its manifest.
    """
    from poskernel.study import export as write_rows

    chosen = named_study(name)
    with open_store(session) as store:
        if session.out is not None:
            write_study(chosen, store, session)
        else:
            write_rows(chosen, store, "json" if session.json else format, to)


@study.command(name="import")
def import_study(folder: Path, /, *, session: Session = DEFAULTS) -> None:
    """Seed the store from committed rows.

    Parameters
    ----------
    folder
        A folder with rows.parquet and manifest.json, such as results/paper.
    """
    from poskernel.study import import_results

    with open_store(session, create=True) as store:
        count = import_results(folder, store)
    console.print_rows([{"folder": str(folder), "rows": count}], "poskernel.import/1", session.json)
