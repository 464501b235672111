"""study: plan, run, status, export, import and merge; grids that resume."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import App

from poskernel import console
from poskernel.errors import InputError, RunError
from poskernel.session import DEFAULTS, Session, whole_numbers
from poskernel.verbs.merging import import_rows, print_merged
from poskernel.verbs.running import (
    ALL_UNITS,
    UNITS,
    Running,
    export_rows,
    open_store,
    print_plan,
    print_status,
    run_units,
)

if TYPE_CHECKING:
    from poskernel.study import Batching, Study

study = App(name="study", help="Train and compare: grids that resume, one row a measurement.")


def named_study(name: str, tiers: str | None = None) -> "Study":
    """A study by name, with some of its tiers alone where asked."""
    from poskernel.errors import lookup
    from poskernel.study import STUDIES

    found = lookup(STUDIES, name, "study")
    return found if tiers is None else found.only(whole_numbers(tiers, "--tiers"))


def chosen_batching(session: Session, batch: int) -> "Batching":
    """How many models train at a time and where; `auto` is the CPU: numbers of other devices differ in rounding."""
    from poskernel.study import Batching

    return Batching(batch, "cpu" if session.device == "auto" else session.device)


@study.command(name="list")
def list_studies(*, session: Session = DEFAULTS) -> None:
    """Name every study and what it asks."""
    from poskernel.study import STUDIES, units_of

    rows = []
    for each in STUDIES.values():
        units = units_of(each)
        measurements = sum(len(unit.measures) for unit in units)
        rows.append({"study": each.name, "units": len(units), "measurements": measurements, "question": each.question})
    console.print_rows(rows, "poskernel.studies/1", session.json, caption=UNITS)


@study.command
def plan(
    name: str,
    /,
    *,
    tiers: str | None = None,
    shard: str | None = None,
    retry: Literal["never", "interrupted", "failed"] = "interrupted",
    weights: bool = False,
    batch: int = 1,
    session: Session = DEFAULTS,
) -> None:
    """Say what a run would do, each unit with its reason.

    Parameters
    ----------
    name
        A study: see `poskernel study list`.
    tiers
        Some of its tiers alone: 1,2.
    shard
        One part of the study alone: 1/4.
    retry
        Which stored failures to try again: those from outside (killed, no memory, no time), all, or none.
    weights
        Count trained weights that are not kept as missing.
    batch
        Models trained at a time.
    """
    running = Running(retry=retry, weights=weights, shard=shard)
    print_plan(named_study(name, tiers), f"study '{name}'", running, chosen_batching(session, batch), session)


@study.command(name="run")
def run_study(
    name: str,
    /,
    *,
    tiers: str | None = None,
    batch: int = 1,
    dry_run: bool = False,
    running: Running = ALL_UNITS,
    session: Session = DEFAULTS,
) -> None:
    """Measure what is missing; kill it at any time and run it again.

    Parameters
    ----------
    name
        A study: see `poskernel study list`.
    tiers
        Some of its tiers alone: 1,2.
    batch
        Models trained at a time in one process; a resume makes a batch again as a whole. Numbers differ in rounding
        from those of single models, the default. `--device cuda` trains on a GPU (auto is the CPU): give it a large
        batch.
    dry_run
        Say what would run instead.
    """
    chosen, batching = named_study(name, tiers), chosen_batching(session, batch)
    if dry_run:
        print_plan(chosen, f"study '{name}'", running, batching, session)
        return
    run_units(chosen, "study", running, batching, session)


@study.command
def status(name: str = "quick", /, *, session: Session = DEFAULTS) -> None:
    """Count what is done, unlearned, failed and missing.

    Parameters
    ----------
    name
        A study: see `poskernel study list`.
    """
    print_status(named_study(name), session)


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
    export_rows(named_study(name), format, to, session)


@study.command(name="report")
def report_study(name: str = "paper", /, *, results: Path | None = None, session: Session = DEFAULTS) -> None:
    """Every table and figure of a study on one page, with its files; `paper` has those of all the paper's studies.

    Files go to `--out FOLDER` (default: out/reports/NAME).

    Parameters
    ----------
    name
        A study: see `poskernel study list`.
    results
        Folder of committed results to read instead of the store: each STUDY/rows.parquet in it is used.
    """
    from poskernel.experiments.reproduction.evidence import Evidence
    from poskernel.experiments.reproduction.page import write_report

    named_study(name)
    if results is not None:
        evidence = Evidence.from_results(results, session.seed)
    else:
        with open_store(session) as store:
            evidence = Evidence.from_store(store, session.seed)
    path = write_report(name, evidence, session.out or Path("out", "reports", name))
    if session.json:
        console.print_json({"schema": "poskernel.study-report/1", "study": name, "report": str(path)})
    else:
        sys.stdout.write(f"{path}\n")


@study.command
def kernels(weights: Path, /, *, workers: int | None = None, session: Session = DEFAULTS) -> None:
    """Measure the kernels that trained heads ended up with: the paper study's one-layer models, whose weights are kept.

    Nothing is trained. `study report paper` shows the rows beside the fitted kernels.

    Parameters
    ----------
    weights
        Folder of the trained weights, which `study run paper --tiers 1 --weights` keeps beside the store. It is read
        only.
    workers
        Heads measured at once (default: one a core).
    """
    from poskernel.experiments.trained_kernels import TrainedKernels
    from poskernel.study import progress_for
    from poskernel.study import run as run_missing
    from poskernel.verbs.running import write_kept

    if not weights.is_dir():
        raise InputError(f"'{weights}' is no folder: give the one that study run paper --tiers 1 --weights made.")
    asked = TrainedKernels()
    with open_store(session, create=True) as store:
        summary = run_missing(asked, store, workers, progress_for(session.quiet), weights=weights)
        if session.out is not None:
            write_kept(asked, store, session.out)
    if summary.failed and not summary.done and not summary.skipped:
        raise RunError(f"all {summary.failed} heads failed: see the reasons in '{session.store}'.")
    row = {"study": asked.name, "done": summary.done, "skipped": summary.skipped, "failed": summary.failed}
    console.print_rows([row], "poskernel.kernels/1", session.json, caption="counts are trained heads")


study.command(import_rows, name="import")


@study.command(name="merge")
def merge_stores(*stores: Path, session: Session = DEFAULTS) -> None:
    """Bring other stores into the store, without doubles; what ended stays, and what differs from it is reported.

    Parameters
    ----------
    stores
        SQLite files of other runs, such as those of the other shards.
    """
    from poskernel.study import Store, merge

    if not stores:
        raise InputError("no store to merge was named: give the SQLite files of other runs.")
    with ExitStack() as open_files:
        sources = [open_files.enter_context(Store(path, create=False)) for path in stores]
        target = open_files.enter_context(open_store(session, create=True))
        reports = [merge(source, target) for source in sources]
    rows = [{"merged": str(path), **report.counts} for path, report in zip(stores, reports, strict=True)]
    print_merged(rows, reports, "poskernel.merge/1", session)
