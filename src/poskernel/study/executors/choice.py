"""The text of `--executor`: `processes`, `dask:ADDRESS`, `slurm`, `slurm:partition=cpu,minutes=60`, `slurm:local`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from poskernel.errors import InputError, lookup
from poskernel.study.workers import Workers, cores

KINDS = {"processes": "", "dask": "the address of a scheduler: dask:HOST:8786", "slurm": ""}


@contextmanager
def opened(text: str, workers: int | None, folder: Path) -> Iterator[Workers | None]:
    """The executor of that text, closed at the end; None for the processes that a run starts itself.

    `workers` bounds what is worked on at once; `folder` is where Slurm's jobs leave their files. InputError for a text
    that names none, or a cluster that cannot be used; MissingExtraError where its library is not installed.
    """
    kind, _, details = text.partition(":")
    if lookup(KINDS, kind, "executor") and not details:
        raise InputError(f"--executor is '{text}': add {KINDS[kind]}.")
    if kind == "processes":
        if details:
            raise InputError(f"--executor is '{text}': processes take no address, their number is --workers.")
        yield None
        return
    executor = dask_workers(details, workers) if kind == "dask" else slurm_jobs(details, workers, folder)
    try:
        yield executor
    finally:
        executor.shutdown()


def dask_workers(address: str, workers: int | None) -> Workers:
    """Workers of a Dask cluster."""
    from poskernel.study.executors.dask_cluster import DaskWorkers

    return DaskWorkers(address, workers)


def slurm_jobs(details: str, workers: int | None, folder: Path) -> Workers:
    """Jobs of Slurm, or of submitit's stand-in for it on this machine."""
    from poskernel.study.executors.slurm import JOBS, SETTINGS, SlurmJobs

    given = [part.strip() for part in details.split(",") if part.strip()]
    local = "local" in given
    settings: dict[str, int | float | str] = {}
    for part in given:
        name, _, value = part.partition("=")
        if part != "local":
            settings[name] = setting(name, value, lookup(SETTINGS, name, "setting of slurm"))
    jobs = workers or (cores() if local else JOBS)
    return SlurmJobs(folder / "jobs", jobs, local, settings)


def setting(name: str, value: str, kind: type) -> int | float | str:
    """A setting's value; InputError for one that is missing or no positive number where a number is needed."""
    try:
        number = kind(value)
        if not value or (kind is not str and not 0 < number < float("inf")):
            raise ValueError
    except ValueError:
        wanted = "a name" if kind is str else "a positive number"
        raise InputError(
            f"{name} of slurm is '{value}': give {wanted}, such as slurm:partition=cpu,minutes=60."
        ) from None
    return number
