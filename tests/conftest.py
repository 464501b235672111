"""Shape annotations are checked wherever the suite calls the package; nothing it caches outlives it."""

import os

import pytest
from jaxtyping import install_import_hook

install_import_hook("poskernel", "beartype.beartype")


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["POSKERNEL_CACHE"] = str(tmp_path_factory.mktemp("cache"))
