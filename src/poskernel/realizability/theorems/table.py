"""The table of all claims: which there are, running them, and the document of `poskernel theory`."""

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from inspect import signature, unwrap
from typing import Any

from poskernel.errors import InputError, RunError, lookup
from poskernel.realizability.theorems.boundary import BOUNDARY_CHECKS
from poskernel.realizability.theorems.check import Check, CheckFunction, Effort, shown
from poskernel.realizability.theorems.departures import DEPARTURE_CHECKS
from poskernel.realizability.theorems.kernels import KERNEL_CHECKS
from poskernel.realizability.theorems.realizability_checks import REALIZABILITY_CHECKS
from poskernel.realizability.theorems.two_lengths import no_kernel_for_every_length


@dataclass(frozen=True)
class ClaimGroup:
    """Claims of one source."""

    title: str
    checks: tuple[CheckFunction, ...]
    departs: bool = False
    """A yes says that the source's form fails and ours holds."""


GROUPS: Mapping[str, ClaimGroup] = {
    "realizability": ClaimGroup("The realizability paper", REALIZABILITY_CHECKS),
    "ours": ClaimGroup("Ours, beside the realizability paper", (no_kernel_for_every_length,)),
    "kernel": ClaimGroup("The kernel note", (*KERNEL_CHECKS, *BOUNDARY_CHECKS)),
    "departures": ClaimGroup("Departures: the kernel note's form fails, ours holds", DEPARTURE_CHECKS, departs=True),
}
"""The claims by source, in the order of the page that explains them."""
CHECKS: tuple[CheckFunction, ...] = tuple(function for group in GROUPS.values() for function in group.checks)
THEORY_SCHEMA = "poskernel.theory/1"
FEWEST_SAMPLES, MOST_SAMPLES = 20, 1_000_000
"""Below, a sample need not hold both kinds of a case that a check looks for; the most take 4 GB."""


def claims() -> dict[str, CheckFunction]:
    """Every claim's function by name, in the order of the sources."""
    return {claim_name(function): function for function in CHECKS}


def claim_name(function: CheckFunction) -> str:
    """The name a claim goes by: its function's, with dashes."""
    return function.__name__.replace("_", "-")


def group_of(name: str) -> str:
    """The key in GROUPS of a claim; empty for a name that is none's."""
    return next((key for key, group in GROUPS.items() if name in map(claim_name, group.checks)), "")


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
    """Every claim, or those named (see `chosen_claims`); `samples` is how many draws each takes.

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
    """The claims of these names, or whose names go on after a dash where a name is no claim's; all without a name.

    Names may be separated by commas. InputError for one that is none, with those nearest to it.
    """
    known = claims()
    chosen: dict[str, CheckFunction] = {}
    for text in [only] if isinstance(only, str) else only:
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names:
            raise InputError(f"the claims are '{text}', which names nothing: give names separated by commas.")
        for name in names:
            family = {each: function for each, function in known.items() if each.startswith(f"{name}-")}
            if name not in known and not family:
                raise InputError(unknown_claim(name, list(known)))
            chosen |= {name: known[name]} if name in known else family
    return chosen or known


def unknown_claim(name: str, known: Sequence[str]) -> str:
    """What is said of a name that is no claim's: the nearest names, and beginnings that stand for several."""
    parts = (each.split("-") for each in known)
    begun = Counter("-".join(words[:count]) for words in parts for count in range(1, len(words)))
    several = {beginning: count for beginning, count in begun.items() if count > 1 and beginning not in known}
    inside = [each for each in known if name and name in each]
    near = inside[:3] or difflib.get_close_matches(name.lower(), [*known, *several], n=2, cutoff=0.6)
    told = [f"'{each}'" + (f" ({several[each]} claims)" if each in several else "") for each in near]
    hint = f"did you mean {' or '.join(told)}? See" if told else "see"
    return f"unknown claim '{name}': {hint} `poskernel theory --list`."


def claim_rows(only: Sequence[str] | str = ()) -> list[dict[str, str]]:
    """Every claim's name, or of those chosen, and the first sentence of what its function says of it."""
    return [{"claim": name, "about": first_sentence(function)} for name, function in chosen_claims(only).items()]


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
    """A claim's function (module:function), the section of the documentation that explains it, and its group."""
    function = claims().get(name)
    known = "" if function is None else f"{unwrap(function).__module__}:{function.__name__}"
    return {"function": known, "page": f"docs/theory.md#{name}", "group": group_of(name)}


def counts(checks: Sequence[Check]) -> dict[str, int]:
    """How many claims hold, fail and are unclear, how many of those that hold are departures, how many are searches."""
    judged = [check for check in checks if not check.data]
    holding = [check for check in judged if check.holds is True]
    return {
        "claims": len(judged),
        "hold": len(holding),
        "departures": sum(departs(check.name) for check in holding),
        "fail": sum(check.holds is False for check in judged),
        "unclear": sum(check.holds is None for check in judged),
        "data": len(checks) - len(judged),
    }


def departs(name: str) -> bool:
    """Whether a claim that holds says that its source's form fails."""
    group = GROUPS.get(group_of(name))
    return group is not None and group.departs


def verdict(check: Check) -> str:
    """Whether it holds, in the words of the tables."""
    return shown(check.holds, check.data, departs(check.name))


def counts_in_words(counted: Mapping[str, int]) -> str:
    """How many claims hold, fail and are unclear, and what is no claim."""
    many, said = counted["claims"], []
    if many and counted["hold"] == many:
        said.append("1 claim: it holds" if many == 1 else f"{many} claims: all hold")
    elif many:
        parts = [f"{counted['fail']} do{'es' if counted['fail'] == 1 else ''} not hold"] if counted["fail"] else []
        parts += [f"{counted['unclear']} unclear for want of draws (more --samples)"] if counted["unclear"] else []
        parts += [f"{counted['hold']} hold{'s' if counted['hold'] == 1 else ''}"] if counted["hold"] else []
        said.append(f"{many} claim{'s' if many > 1 else ''}: {', '.join(parts)}")
    if counted["departures"]:
        said[-1] += f" ({counted['departures']} by departing: the source's form fails, ours holds)"
    if counted["data"]:
        said.append(f"{counted['data']} search{'es' if counted['data'] > 1 else ''}, reported as data")
    return "; ".join(said)


def theory_document(
    checks: Sequence[Check], effort: Effort | str = Effort.DEFAULT, seed: int = 0, samples: int | None = None
) -> dict[str, Any]:
    """The JSON document of `poskernel theory`, with what `run_checks` was given.

    `holds` is null where the draws are too few to tell, and of a search, whose `data` is true. `samples` is null where
    the effort says how many.
    """
    return {
        "schema": THEORY_SCHEMA,
        "version": version("poskernel"),
        "effort": str(effort),
        "seed": seed,
        "samples": samples,
        "counts": counts(checks),
        "checks": [asdict(check) | where(check.name) for check in checks],
    }
