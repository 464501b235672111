"""Heads of a layer in parallel, each with memory for tiles that stays from head to head."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import torch

from poskernel.attention.estimators.moments import Workspace


class HeadPool:
    """As many threads as torch uses, one torch thread each: tiles of a head are too small to be worth splitting."""

    def __init__(self) -> None:
        threads = torch.get_num_threads()
        self.pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        self.workspaces: SimpleQueue[Workspace] = SimpleQueue()
        for _ in range(threads):
            self.workspaces.put(Workspace())

    def each(self, heads: int, work: Callable[[int, Workspace], None]) -> None:
        """work(head, workspace) for heads 0 to heads - 1; the first error of one is raised."""

        def one(head: int) -> None:
            workspace = self.workspaces.get()
            try:
                with torch.inference_mode():
                    work(head, workspace)
            finally:
                self.workspaces.put(workspace)

        list(self.pool.map(one, range(heads)))

    def close(self) -> None:
        """End the threads."""
        self.pool.shutdown()
