"""Texts that are there wherever Python and the package are: for measurements that must not rest on one text.

`file:PATH` is any text file. The others are made from what is installed, so their digest goes with every result.
"""

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from poskernel.attention.sources.windows import default_text
from poskernel.errors import InputError, lookup

FILE = "file:"
CODE = (
    "argparse",
    "ast",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "email.message",
    "inspect",
    "pathlib",
    "tarfile",
)
SHORTEST_DOCSTRING = 200
"""Shorter ones are signatures rather than prose."""


def source_code() -> str:
    """Modules of the standard library."""
    return "\n\n".join(inspect.getsource(import_module(name)) for name in CODE)


def docstrings(package: str, parts: tuple[str, ...]) -> str:
    """Longer docstrings of a package's public functions and classes, in sorted order."""
    found: dict[str, str] = {}
    for part in parts:
        module = import_module(f"{package}.{part}" if part else package)
        for name in sorted(vars(module)):
            text = inspect.getdoc(getattr(module, name, None)) or ""
            if not name.startswith("_") and len(text) >= SHORTEST_DOCSTRING:
                found.setdefault(text, f"{name}\n\n{text}")
    return "\n\n".join(found.values())


def licences() -> str:
    """Notices of the installed distributions, without repeats: legal English."""
    from importlib.metadata import distributions

    found: dict[str, None] = {}
    for distribution in sorted(distributions(), key=lambda each: (each.name or "").lower()):
        for file in sorted(map(str, distribution.files or ())):
            if "licen" in file.lower() and file.endswith((".txt", "LICENSE", ".md", ".rst")):
                path = Path(str(distribution.locate_file(file)))
                if path.is_file():
                    found.setdefault(path.read_text(encoding="utf-8", errors="replace"), None)
    return "\n\n".join(found)


TEXTS: dict[str, Callable[[], str]] = {
    "python-topics": default_text,
    "python-source": source_code,
    "numpy-docs": lambda: docstrings("numpy", ("", "linalg", "fft", "random", "polynomial.polynomial")),
    "scipy-docs": lambda: docstrings("scipy", ("optimize", "stats", "signal", "linalg")),
    "torch-docs": lambda: docstrings("torch", ("nn", "optim", "distributions", "")),
    "licences": licences,
}
"""English about a language, program code, three libraries' documentation, and legal English."""


def text_named(name: str) -> str:
    """The text of that name; InputError for one that is not there."""
    if not name.startswith(FILE):
        return lookup(TEXTS, name, "text")()
    try:
        return Path(name.removeprefix(FILE)).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read the text '{name}' ({error.strerror}): give file:PATH.") from None
