"""Shape annotations are checked wherever the suite calls the package; nothing it caches outlives it.

One torch thread a process: the suite's arrays are small, and two processes share two cores.
"""

import os

import pytest
import torch
from jaxtyping import install_import_hook

install_import_hook("poskernel", "beartype.beartype")
torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["POSKERNEL_CACHE"] = str(tmp_path_factory.mktemp("cache"))
