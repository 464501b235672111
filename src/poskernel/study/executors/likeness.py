"""Whether workers elsewhere give the rows of this machine, bit for bit on the same type of machine."""

import os
from collections.abc import Mapping

from poskernel.errors import InputError
from poskernel.study.store import software_versions
from poskernel.study.workers import THREAD_VARIABLES


def worker_facts(wanted: bool = False) -> str:
    """What rows depend on beside the machine: versions, and the libraries' threads as they are or have to be."""
    threads = (f"{name}={1 if wanted else os.environ.get(name)}" for name in THREAD_VARIABLES)
    return ", ".join([software_versions(), *threads])


def check_alike(cluster: str, threads: Mapping[str, int], facts: Mapping[str, object]) -> None:
    """InputError for a worker with another number of threads than one, or other facts than are wanted here.

    `facts` are the answers to `worker_facts`, or the exceptions of workers that could not give one.
    """
    wanted = worker_facts(wanted=True)
    for name, number in threads.items():
        if number != 1 or facts.get(name) != wanted:
            count = "1 thread" if number == 1 else f"{number} threads"
            raise InputError(
                f"a worker of {cluster} would not give the rows of this machine ({count}; {facts.get(name)}): start it "
                f"with one thread (dask worker --nthreads 1) and {wanted}."
            )
