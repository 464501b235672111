"""Units worked on by the workers of a Dask cluster.

Bit for bit the rows of the process pool need workers like those of the pool: one thread each, in torch and in the
libraries below it, and the same versions. Workers that differ are refused. Dask cannot stop a thread: work that has to
end is ended by restarting its worker. Dask also tries a unit whose worker died again by itself (its setting
distributed.scheduler.allowed-failures), before a run hears of it.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from uuid import uuid4

from poskernel.errors import InputError, MissingExtraError, RunError
from poskernel.study.executors.likeness import check_alike, worker_facts
from poskernel.study.workers import Workers

CONNECT_SECONDS, RESTART_SECONDS = 10, 20


class DaskWorkers(Workers):
    """At most `workers` workers of the cluster at an address; InputError where none are there, or unlike the pool's."""

    def __init__(self, address: str, workers: int | None = None) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise MissingExtraError("the Dask executor", "dask") from None
        try:
            self._client: Any = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(
                f"no Dask scheduler answers at '{address}' ({error}): start one, or name another."
            ) from None
        self._address, self._workers, self._topic = address, workers, f"poskernel-{uuid4().hex}"
        self._executor = self._client.get_executor(pure=False)
        self._keys: dict[Future[Any], str] = {}
        self._places: dict[str, str] = {}
        self._known: set[str] = set()
        self._client.subscribe_topic(self._topic, lambda event: self._places.update([event[1]]))
        if not self.capacity:
            raise InputError(f"the Dask scheduler at '{address}' has no workers: start some with --nthreads 1.")

    @property
    def capacity(self) -> int:
        """Workers there now, each with one unit; those that are new are looked at first."""
        threads: dict[str, int] = self._client.nthreads()
        if new := set(threads) - self._known:
            facts = self._client.run(worker_facts, workers=list(new), on_error="return")
            check_alike(f"the Dask cluster at '{self._address}'", {name: threads[name] for name in new}, facts)
            self._known |= new
        return min(len(threads), self._workers or len(threads))

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Have a worker call the function."""
        if self._client.status != "running":
            raise RunError(f"the Dask scheduler at '{self._address}' has gone: what ended is stored, run again.")
        key = f"poskernel-{uuid4().hex}"
        future: Future[Any] = self._executor.submit(announced, self._topic, key, function, *args, **kwargs, key=key)
        self._keys[future] = key
        future.add_done_callback(lambda ended: self._keys.pop(ended, None))
        return future

    def running(self, future: "Future[Any]") -> bool:
        """Whether a worker has said that it began."""
        return self._keys.get(future) in self._places

    def kill(self, future: "Future[Any]") -> None:
        """Take work back; where it has begun, restart its worker (one without a nanny leaves the cluster)."""
        self._end([future], [])

    def stop(self) -> None:
        """End all work of this run; other work of the cluster goes on.

        A worker may have begun without its word having arrived yet: the scheduler knows who was given what.
        """
        own = set(self._keys.values())
        given = [place for place, keys in self._client.processing().items() if own & set(keys)]
        self._end(list(self._keys), given)

    def _end(self, futures: "list[Future[Any]]", given: list[str]) -> None:
        begun = [self._places[key] for future in futures if (key := self._keys.get(future)) in self._places]
        places = sorted({*begun, *given})
        for future in futures:
            future.cancel()
        if places:
            self._client.restart_workers(places, timeout=RESTART_SECONDS, raise_for_error=False)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster as it is, and close the connection."""
        self._client.close()


def announced(topic: str, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """On a worker: say where the work begins, then do it."""
    from distributed import get_worker

    get_worker().log_event(topic, [key, get_worker().address])
    return function(*args, **kwargs)
