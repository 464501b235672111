"""The errors a user can cause or meet, each one sentence that names the value and the remedy."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

Item = TypeVar("Item")
MOST_NAMED = 30
"""A refusal lists at most so many names."""


class InputError(ValueError):
    """Something the user gave cannot be used; the message says what, which value and what to do (exit code 2)."""


class RunError(RuntimeError):
    """Something failed while running that no change of the input's form would mend (exit code 1)."""


class MissingExtraError(InputError):
    """An optional dependency is not installed; the message names the pip line that brings it."""

    def __init__(self, feature: str, extra: str, further: str = "") -> None:
        line = f"pip install 'poskernel[{extra}]'{f' and {further}' if further else ''}"
        super().__init__(f"{feature} needs the extra '{extra}': install it with {line}.")


class Terminated(KeyboardInterrupt):
    """SIGTERM came: what had ended is stored (exit code 143)."""


def lookup(registry: Mapping[str, Item], name: str, kind: str) -> Item:
    """The item of that name; otherwise an InputError that names the nearest match, or some of many."""
    if name in registry:
        return registry[name]
    near = difflib.get_close_matches(name.lower(), registry, n=1, cutoff=0.5)
    some = ", ".join(list(registry)[:MOST_NAMED])
    more = f" and {len(registry) - MOST_NAMED} more" if len(registry) > MOST_NAMED else ""
    hint = f"did you mean '{near[0]}'?" if near else f"choose from {some}{more}."
    raise InputError(f"unknown {kind} '{name}': {hint}")


def first_line(error: Exception) -> str:
    """What an exception says, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
