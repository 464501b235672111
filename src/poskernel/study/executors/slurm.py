"""Units worked on as jobs of Slurm, through submitit; `local` runs the same jobs as processes of this machine.

One unit a job. The folder of the jobs' files has to be shared with the nodes. A time limit given to Slurm ends a job
like a dead worker; jobs outlive a run that is killed with SIGKILL (`scancel --name poskernel` ends them).
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from poskernel.errors import InputError, MissingExtraError, RunError
from poskernel.study.workers import THREAD_VARIABLES, Workers, single_thread_environment

JOBS, MINUTES, MEMORY = 32, 60, 4.0
"""Jobs at once, and time limit and memory (GB) of each, where nobody says."""
LOST_SECONDS, STOP_SECONDS = 15.0, 5.0
"""How long the result of a job that ended may take to appear, and how long the end of cancelled jobs is waited for."""
SETTINGS = {"partition": str, "account": str, "qos": str, "constraint": str, "minutes": int, "memory": float}


class SlurmJobs(Workers):
    """At most `jobs` jobs at once. InputError where there is no Slurm, RunError where it takes no job."""

    def __init__(self, folder: Path, jobs: int, local: bool, settings: Mapping[str, Any]) -> None:
        try:
            from submitit import AutoExecutor
        except ImportError:
            raise MissingExtraError("the Slurm executor", "slurm") from None
        given = {"minutes": MINUTES, "memory": MEMORY, **settings}
        try:
            self._executor = AutoExecutor(folder=folder.absolute(), cluster="local" if local else "slurm")
        except RuntimeError as error:
            raise InputError(f"there is no Slurm here ({error}): run where srun is, or use slurm:local.") from None
        self._executor.update_parameters(
            name="poskernel", timeout_min=given.pop("minutes"), mem_gb=given.pop("memory"), cpus_per_task=1,
            slurm_setup=[f"export {name}=1" for name in THREAD_VARIABLES],
            **{f"slurm_{name}": value for name, value in given.items()},
        )  # fmt: skip
        self._capacity, self._jobs = jobs, dict[Future[Any], Any]()
        self._lost = dict[Future[Any], float]()

    @property
    def capacity(self) -> int:
        """Jobs in Slurm's queue at once."""
        return self._capacity

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Have a job call the function."""
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        future: Future[Any] = Future()
        try:
            with single_thread_environment():
                self._jobs[future] = self._executor.submit(function, *args, **kwargs)
        except (FailedJobError, FailedSubmissionError) as error:
            raise RunError(f"Slurm takes no job ({' '.join(str(error).split())}): mend it and run again.") from error
        future.set_running_or_notify_cancel()
        return future

    def running(self, future: "Future[Any]") -> bool:
        """Whether the job runs; Slurm is asked once a minute at most."""
        return future in self._jobs and str(self._jobs[future].state).upper() == "RUNNING"

    def refresh(self) -> None:
        """Settle futures whose jobs have ended."""
        for future, job in list(self._jobs.items()):
            if job.paths.result_pickle.exists():
                self._give(future, job)
            elif job.done() and time.monotonic() - self._lost.setdefault(future, time.monotonic()) > LOST_SECONDS:
                del self._jobs[future]
                reason = f"job {job.job_id} gave no result, state {job.state}"
                future.set_exception(RunError(f"{reason}: see {job.paths.stderr}"))

    def kill(self, future: "Future[Any]") -> None:
        """Cancel the job; its future fails once it has ended."""
        if future in self._jobs:
            self._jobs[future].cancel(check=False)
            self._lost[future] = float("-inf")

    def stop(self) -> None:
        """Cancel all jobs, and wait a moment for their end."""
        for future in list(self._jobs):
            self.kill(future)
        deadline = time.monotonic() + STOP_SECONDS
        while self._jobs and time.monotonic() < deadline:
            time.sleep(0.1)
            self.refresh()

    def _give(self, future: "Future[Any]", job: Any) -> None:
        """Settle with what a job gave; its files are removed unless that is an error."""
        del self._jobs[future]
        if (error := job.exception()) is not None:
            return future.set_exception(error)
        future.set_result(job.result())
        for path in (job.paths.submitted_pickle, job.paths.result_pickle, job.paths.stdout, job.paths.stderr):
            path.unlink(missing_ok=True)
