"""The table of all claims: which there are, running them, and the document of `poskernel theory`."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from inspect import signature
from typing import Any

from poskernel.errors import InputError, lookup
from poskernel.realizability.theorems.boundary import BOUNDARY_CHECKS
from poskernel.realizability.theorems.check import Check, CheckFunction, Effort
from poskernel.realizability.theorems.departures import DEPARTURE_CHECKS
from poskernel.realizability.theorems.kernels import KERNEL_CHECKS
from poskernel.realizability.theorems.realizability_checks import REALIZABILITY_CHECKS

CHECKS: tuple[CheckFunction, ...] = (*REALIZABILITY_CHECKS, *KERNEL_CHECKS, *BOUNDARY_CHECKS, *DEPARTURE_CHECKS)
THEORY_SCHEMA = "poskernel.theory/1"
FEWEST_SAMPLES, MOST_SAMPLES = 20, 10_000_000
"""Below, a sample need not hold both kinds of a case that a check looks for; beyond, memory ends first."""


def claims() -> dict[str, CheckFunction]:
    """Every claim's function by name, in the order of the sources."""
    return {claim_name(function): function for function in CHECKS}


def claim_name(function: CheckFunction) -> str:
    """The name a claim goes by: its function's, with dashes."""
    return function.__name__.replace("_", "-")


def draws_at_random(function: CheckFunction) -> bool:
    """Whether the number of a claim's draws can be chosen."""
    return "samples" in signature(function).parameters


def run_checks(
    only: Sequence[str] = (),
    effort: Effort = Effort.DEFAULT,
    seed: int = 0,
    samples: int | None = None,
    progress: Callable[[Check], None] | None = None,
) -> list[Check]:
    """Every claim, or those named; `samples` is the number of draws of each that draws at random.

    `progress` is called after each. InputError for an unknown name, for samples out of range, and for samples where no
    chosen claim draws.
    """
    known = claims()
    chosen = {name: lookup(known, name, "claim") for name in only or known}
    if samples is not None:
        if not FEWEST_SAMPLES <= samples <= MOST_SAMPLES:
            raise InputError(f"samples is {samples}: give {FEWEST_SAMPLES} to {MOST_SAMPLES}.")
        if not any(map(draws_at_random, chosen.values())):
            raise InputError(f"samples is {samples}, but no chosen claim draws at random: leave it out.")
    found = []
    for name, function in chosen.items():
        given = {"samples": samples} if samples is not None and draws_at_random(function) else {}
        found.append(replace(function(effort, seed, **given), name=name))  # what `only` takes is what a row shows
        if progress is not None:
            progress(found[-1])
    return found


def theory_document(checks: Sequence[Check]) -> dict[str, Any]:
    """The JSON document of `poskernel theory`."""
    return {"schema": THEORY_SCHEMA, "checks": [asdict(check) for check in checks]}
