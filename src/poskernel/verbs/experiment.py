"""experiment: list, plan, run, status, report, summary, export, import; the same units, store and runs as a study's."""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App

from poskernel import console
from poskernel.errors import InputError
from poskernel.session import DEFAULTS, Session
from poskernel.verbs.merging import import_rows
from poskernel.verbs.running import (
    ALL_UNITS,
    MODELS,
    Running,
    export_rows,
    open_store,
    print_plan,
    print_status,
    run_units,
)

if TYPE_CHECKING:
    from poskernel.experiments.experiment import Experiment

experiment = App(name="experiment", help="Questions with predictions written before the run, and their verdicts.")


def named_experiment(id: str, quick: bool = False) -> "Experiment":
    """An experiment by its id, at full size or in seconds."""
    from poskernel.errors import lookup
    from poskernel.experiments.catalogue import EXPERIMENTS

    found = lookup(EXPERIMENTS, id, "experiment")
    return found.quick if quick else found


def called(id: str, quick: bool) -> str:
    """What a message calls an experiment."""
    return f"{id} (quick version, which is no evidence)" if quick else id


@experiment.command(name="list")
def list_experiments(*, session: Session = DEFAULTS) -> None:
    """Name every experiment, what it asks, and how much a full run has to do."""
    from poskernel.experiments.catalogue import EXPERIMENTS

    rows: list[dict[str, Any]] = []
    for each in EXPERIMENTS.values():
        units = each.units()
        measurements = sum(len(unit.measures) for unit in units)
        predictions = len(each.predictions)
        rows.append({
            "experiment": each.id, "units": len(units), "measurements": measurements, "predictions": predictions,
            "question": each.question,
        })  # fmt: skip
    console.print_rows(rows, "poskernel.experiments/1", session.json, caption=MODELS)


@experiment.command(name="plan")
def plan_experiment(
    id: str, /, *, quick: bool = False, running: Running = ALL_UNITS, session: Session = DEFAULTS
) -> None:
    """Say what a run would do, each unit with its reason.

    Parameters
    ----------
    id
        An experiment: see `poskernel experiment list`.
    quick
        The quick version, whose rows are kept apart from the full run's.
    """
    print_plan(named_experiment(id, quick), f"experiment {called(id, quick)}", running, None, session)


@experiment.command(name="run")
def run_experiment(
    id: str,
    /,
    *,
    quick: bool = False,
    dry_run: bool = False,
    running: Running = ALL_UNITS,
    session: Session = DEFAULTS,
) -> None:
    """Measure what is missing; kill it at any time and run it again. `experiment report` gives the verdict.

    Rows go to the store, and with `--out FOLDER` to rows.parquet and a manifest too. Experiments that ask about the
    same small models train them once with `--weights`.

    Parameters
    ----------
    id
        An experiment: see `poskernel experiment list`.
    quick
        The quick version: seconds, to show that it works. It is no evidence; its rows are kept apart from the full
        run's.
    dry_run
        Say what would run, and run nothing.
    """
    chosen = named_experiment(id, quick)
    if dry_run:
        print_plan(chosen, f"experiment {called(id, quick)}", running, None, session)
        return
    run_units(chosen, "experiment", running, None, session)


@experiment.command(name="status")
def experiment_status(id: str, /, *, quick: bool = False, session: Session = DEFAULTS) -> None:
    """Count the measurements that are done, failed and missing.

    Parameters
    ----------
    id
        An experiment: see `poskernel experiment list`.
    quick
        The quick version, whose rows are kept apart from the full run's.
    """
    print_status(named_experiment(id, quick), session)


@experiment.command(name="export")
def export_experiment(
    id: str,
    /,
    *,
    quick: bool = False,
    format: Literal["csv", "parquet", "json"] = "csv",  # the flag's name
    to: Path | None = None,
    session: Session = DEFAULTS,
) -> None:
    """Write an experiment's rows: sorted, without timings.

    Parameters
    ----------
    id
        An experiment: see `poskernel experiment list`.
    quick
        The quick version, whose rows are kept apart from the full run's.
    format
        csv, parquet or json.
    to
        File to write (default: standard output). `--out FOLDER` writes rows.parquet with its manifest.
    """
    export_rows(named_experiment(id, quick), format, to, session)


experiment.command(import_rows, name="import")


@experiment.command(name="report")
def report_experiment(
    id: str, /, *, quick: bool = False, results: Path | None = None, session: Session = DEFAULTS
) -> None:
    """Say the verdict, and write a page with every figure and table.

    The page, report.html, and its files go to `--out FOLDER` (default: out/reports/ID).

    Parameters
    ----------
    id
        An experiment: see `poskernel experiment list`.
    quick
        The quick version, whose rows are kept apart from the full run's.
    results
        Folder of committed rows to read instead of the store, such as results: its ID/rows.parquet is used.
    """
    from poskernel.experiments.results_page import write_report
    from poskernel.study.transfer import read_results

    chosen = named_experiment(id, quick)
    if results is not None:
        table = read_results(results / id)[1]
    else:
        with open_store(session) as store:
            table = store.to_frame(chosen.units())
    rows = chosen.rows(table)
    path, verdict = write_report(chosen, rows, session.out or Path("out", "reports", id)), chosen.verdict(rows)
    if not session.json:
        missing = chosen.missing(rows)
        said = [f"{called(id, quick)}: {verdict.sentence}"]
        said += [f"{missing} of {missing + len(rows)} measurements are not there yet"] if missing else []
        sys.stdout.write("\n".join([*said, str(path)]) + "\n")
        return
    judged = [
        {
            "prediction": name, "outcome": str(each.outcome), "value": number(each.estimate.value),
            "low": number(each.estimate.low), "high": number(each.estimate.high), "n": each.estimate.n,
            "p": number(each.p), "adjusted_p": each.adjusted, "reason": each.reason,
        }
        for name, each in verdict.judgements.items()
    ]  # fmt: skip
    console.print_json({
        "schema": "poskernel.experiment-report/1", "experiment": id, "scale": str(chosen.scale),
        "outcome": str(verdict.outcome), "sentence": verdict.sentence, "missing": chosen.missing(rows),
        "predictions": judged, "report": str(path),
    })  # fmt: skip


@experiment.command(name="summary")
def summarise_experiments(*, results: Path = Path("results"), session: Session = DEFAULTS) -> None:
    """Say the verdict of every experiment by its committed rows, and write a page with every prediction.

    The page, report.html, and its tables go to `--out FOLDER` (default: out/reports/summary). An experiment without
    rows counts as not run yet.

    Parameters
    ----------
    results
        Folder of committed rows: the ID/rows.parquet in it are read.
    """
    from poskernel.experiments.catalogue import EXPERIMENTS
    from poskernel.experiments.summary import claims_table, experiments_table, summarise, write_summary

    if not results.is_dir():
        raise InputError(f"'{results}' is no folder: give the one that holds committed rows, such as results.")
    found = summarise(EXPERIMENTS.values(), results)
    path = write_summary(found, session.out or Path("out", "reports", "summary"))
    if session.json:
        experiments, claims = (table(found).to_dict("records") for table in (experiments_table, claims_table))
        for line in claims:
            line["p, corrected"] = number(line["p, corrected"])
        console.print_json({
            "schema": "poskernel.experiment-summary/1", "experiments": experiments, "claims": claims,
            "report": str(path),
        })  # fmt: skip
        return
    for line in experiments_table(found).to_dict("records"):
        counts = ", ".join(f"{line[name]} {name}" for name in ("held", "failed", "inconclusive") if line[name])
        sys.stdout.write(f"{line['experiment']}: {line['verdict']}{f' ({counts})' if counts else ''}\n")
    sys.stdout.write(f"{path}\n")


def number(value: float) -> float | None:
    """A number as JSON has them: none in place of nan."""
    return None if math.isnan(value) else value
