"""The table of all claims: which there are, running them, and the document of `poskernel theory`."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from inspect import signature, unwrap
from typing import Any

from poskernel.errors import InputError, RunError, lookup
from poskernel.realizability.theorems.boundary import BOUNDARY_CHECKS
from poskernel.realizability.theorems.check import Check, CheckFunction, Effort
from poskernel.realizability.theorems.departures import DEPARTURE_CHECKS
from poskernel.realizability.theorems.kernels import KERNEL_CHECKS
from poskernel.realizability.theorems.realizability_checks import REALIZABILITY_CHECKS

CHECKS: tuple[CheckFunction, ...] = (*REALIZABILITY_CHECKS, *KERNEL_CHECKS, *BOUNDARY_CHECKS, *DEPARTURE_CHECKS)
THEORY_SCHEMA = "poskernel.theory/1"
FEWEST_SAMPLES, MOST_SAMPLES = 20, 1_000_000
"""Below, a sample need not hold both kinds of a case that a check looks for; the most take 4 GB."""


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
    only: Sequence[str] | str = (),
    effort: Effort | str = Effort.DEFAULT,
    seed: int = 0,
    samples: int | None = None,
    progress: Callable[[Check], None] | None = None,
) -> list[Check]:
    """Every claim, or those named (a name or a beginning may stand alone); `samples` is how many draws each takes.

    `progress` is called after each. InputError for an unknown name or effort, for samples that are no whole number or
    out of range, and for samples where no chosen claim draws.
    """
    effort = lookup({each.value: each for each in Effort}, effort, "effort")
    chosen = chosen_claims(only)
    if samples is not None:
        check_samples(samples)
        if not any(map(draws_at_random, chosen.values())):
            raise InputError(f"{samples} samples are asked for, but no chosen claim draws at random: leave them out.")
    found = []
    for name, function in chosen.items():
        given = {"samples": samples} if samples is not None and draws_at_random(function) else {}
        found.append(replace(measured(name, function, effort, seed, given), name=name))  # a row shows what `only` takes
        if progress is not None:
            progress(found[-1])
    return found


def measured(name: str, function: CheckFunction, effort: Effort, seed: int, given: dict[str, int]) -> Check:
    """One claim's check; RunError where its draws do not fit into memory."""
    try:
        return function(effort, seed, **given)
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or "allocate memory" in str(error)):  # torch says it in words alone
            raise
        raise RunError(
            f"claim '{name}' runs out of memory: give fewer draws with --samples, or leave --long out."
        ) from None


def chosen_claims(only: Sequence[str] | str = ()) -> dict[str, CheckFunction]:
    """The claims of these names, or whose names go on after a dash where a name is no claim's; all without a name."""
    known = claims()
    chosen: dict[str, CheckFunction] = {}
    for name in [only] if isinstance(only, str) else only:
        family = {each: function for each, function in known.items() if each.startswith(f"{name}-")}
        chosen |= family if family and name not in known else {name: lookup(known, name, "claim")}
    return chosen or known


def claim_rows() -> list[dict[str, str]]:
    """Every claim's name and the first sentence of what its function says of it."""
    return [{"claim": name, "about": first_sentence(function)} for name, function in claims().items()]


def first_sentence(function: CheckFunction) -> str:
    """The first paragraph of a function's documentation in one line."""
    return " ".join((unwrap(function).__doc__ or "").split("\n\n")[0].split())


def check_samples(samples: object) -> None:
    """InputError unless a number of draws is a whole number in range."""
    if isinstance(samples, bool) or not isinstance(samples, int) or not FEWEST_SAMPLES <= samples <= MOST_SAMPLES:
        raise InputError(
            f"the number of samples is {samples!r}: give a whole number of {FEWEST_SAMPLES} to {MOST_SAMPLES}."
        )


def where(name: str) -> dict[str, str]:
    """A claim's function (module:function) and the section of the documentation that explains it."""
    function = claims().get(name)
    known = "" if function is None else f"{unwrap(function).__module__}:{function.__name__}"
    return {"function": known, "page": f"docs/theory.md#{name}"}


def theory_document(checks: Sequence[Check]) -> dict[str, Any]:
    """The JSON document of `poskernel theory`; `holds` is null where the draws are too few to tell."""
    return {"schema": THEORY_SCHEMA, "checks": [asdict(check) | where(check.name) for check in checks]}
