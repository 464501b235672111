"""What the verbs that run units share: a run's options; plan, run, status and export of a study or experiment."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from poskernel import console
from poskernel.errors import RunError
from poskernel.session import Session

if TYPE_CHECKING:
    from poskernel.study import Batching, Shard, Store, Study
    from poskernel.study.inquiry import Inquiry

UNITS = (
    "a unit is one model trained (a batch of them with --batch), or one kernel fitted, with all its measurements; a "
    "measurement is a row of the store"
)
"""What the tables of studies count."""
MODELS = (
    "a unit is one model, trained or read, with what is measured of it together; a measurement is a row of the store"
)
"""What the tables of experiments count."""


@Parameter(name="*")
@dataclass(frozen=True)
class Running:
    """How units are worked on."""

    workers: int | None = None
    """Units worked on at once, one torch thread each (default: one a core, or one with --device cuda; with dask all
    there are, with slurm 32)."""
    retry: Literal["never", "interrupted", "failed"] = "interrupted"
    """Which stored failures to try again: those from outside (killed, no memory, no time), all, or none."""
    weights: bool = False
    """Keep the trained weights beside the store, and make again those that are missing."""
    shard: str | None = None
    """One part alone, such as 1/4: as many machines do a part each, `study merge` joins their stores."""
    executor: str = "processes"
    """Where units are worked on: processes, dask:ADDRESS, slurm, or slurm:partition=NAME,minutes=60,memory=4."""
    attempts: int = 3
    """How often a unit is tried whose worker dies or runs out of memory, before it is stored as failed."""
    unit_seconds: float | None = None
    """Longest time a unit may work; then it is ended and stored as timeout (default: no limit)."""


ALL_UNITS = Running()


def counted(asked: "Study | Inquiry") -> str:
    """What a table that counts units or measurements says below it."""
    from poskernel.study import Study

    return UNITS if isinstance(asked, Study) else MODELS


def open_store(session: Session, create: bool = False) -> "Store":
    """The results store of a session."""
    from poskernel.study import Store

    return Store(session.store, create=create)


def nothing_stored() -> "Store":
    """An empty store in memory: a look at what would run leaves no file behind."""
    from poskernel.study import Store

    return Store(Path(":memory:"), create=True)


def named_shard(text: str | None) -> "Shard":
    """A part of the units; all of them where none is asked for."""
    from poskernel.study import Shard

    return Shard() if text is None else Shard.parse(text)


def weights_folder(session: Session, wanted: bool) -> Path | None:
    """Where trained weights are kept, if they are: beside the store."""
    return session.store.parent / "weights" if wanted else None


def print_plan(
    asked: "Study | Inquiry", what: str, running: Running, batching: "Batching | None", session: Session
) -> None:
    """Each unit that a run would work on, with its reason; `what` names the whole: study 'paper'."""
    from poskernel.study import Batching, Retry
    from poskernel.study import plan as planned_units

    part, folder = named_shard(running.shard), weights_folder(session, running.weights)
    with open_store(session) if session.store.exists() else nothing_stored() as store:
        planned = planned_units(asked, store, Retry(running.retry), folder, part, batching or Batching())
    rows = [{"unit": each.unit.description, "reason": each.reason} for each in planned]
    whole = what if running.shard is None else f"shard {running.shard} of {what}"
    empty = f"{whole} is complete: nothing to run"
    caption = f"{len(rows)} units: {counted(asked)}"
    console.print_rows(rows, "poskernel.plan/1", session.json, empty=empty, caption=caption)


def run_units(
    asked: "Study | Inquiry", kind: str, running: Running, batching: "Batching | None", session: Session
) -> None:
    """Measure what is missing and say what was done; RunError where all of it failed. `kind`: study, experiment."""
    from poskernel.study import Batching, Retry, progress_for, run
    from poskernel.study.executors import opened

    part, folder = named_shard(running.shard), weights_folder(session, running.weights)
    batching, workers = batching or Batching(), running.workers
    if running.executor == "processes" and batching.device != "cpu":
        batching.check_device()
        workers = 1 if workers is None else workers
    with (
        opened(running.executor, workers, session.store.parent) as used,
        open_store(session, create=True) as store,
    ):
        summary = run(
            asked, store, workers, progress_for(session.quiet), Retry(running.retry), folder, running.attempts,
            running.unit_seconds, used, part, batching,
        )  # fmt: skip
        if session.out is not None:
            write_kept(asked, store, session.out)
    document: dict[str, Any] = {kind: asked.name, "store": str(session.store), **asdict(summary)}
    document.pop("seconds")
    console.print_rows([document], "poskernel.run/1", session.json, caption=f"counts are units: {counted(asked)}")
    if summary.failed and not summary.done and not summary.skipped:
        raise RunError(
            f"all {summary.failed} units of {kind} '{asked.name}' failed: the column reason of what poskernel "
            f"{kind} export writes says why."
        )


def write_kept(asked: "Study | Inquiry", store: "Store", folder: Path) -> None:
    """Rows and manifest in a folder."""
    from poskernel.study import write_results

    write_results(asked, store, folder, ["poskernel", *sys.argv[1:]])


def print_status(asked: "Study | Inquiry", session: Session) -> None:
    """Counts of what is done, unlearned, failed and missing."""
    from poskernel.study import status as counts

    with open_store(session) as store:
        table = counts(asked, store).astype(object)
    rows = [
        {str(name): value for name, value in row.items()} for row in table.where(table.notna(), None).to_dict("records")
    ]
    console.print_rows(rows, "poskernel.status/1", session.json, caption=f"counts are measurements: {counted(asked)}")


def export_rows(asked: "Study | Inquiry", form: str, to: Path | None, session: Session) -> None:
    """Rows to a file or standard output, or rows and manifest to the session's folder."""
    from poskernel.study import export as write_rows

    with open_store(session) as store:
        if session.out is not None:
            write_kept(asked, store, session.out)
        else:
            write_rows(asked, store, "json" if session.json else form, to)
