"""Absolute features that no statement covers: a kernel looked for by a programme on some rows, and tried on all."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.realizability.alignment import row_margins
from poskernel.realizability.theorems.case import Case
from poskernel.realizability.theorems.demand import lengths_to, share_text, vanishing
from poskernel.realizability.theorems.verdicts import SEARCH, Answer, Verdict, undecided
from poskernel.tasks import Targets

LONGEST = 10_000
"""Rows that a kernel is tried on: all pairs of them are looked at."""
MOST_ENTRIES = 10_000_000
"""Numbers in one programme."""
REACHES = (4, 16, 64)
"""Training lengths that the rows of the programmes come from, one after the other."""


@dataclass(frozen=True)
class Tried:
    """How a kernel does on all rows up to a length."""

    share: float
    """Share of the new rows that it gets wrong."""
    vanishes: bool
    """Whether that share vanishes as the length grows, and the training length is solved."""
    margin: float
    """Least margin of the rows that it gets right, nats; nan without one."""


def tried(case: Case, weights: Float[Tensor, "..."], until: int) -> Tried:
    """Substitutes a kernel into the rows of the training length and all new ones up to `until`."""
    whole, lengths = case.task.new_targets(case.train_length, until), lengths_to(until, case.train_length)
    kernel = case.kernel(weights)
    trained, new = row_margins(kernel, case.trained), row_margins(kernel, whole)
    shares = [float((~new.right[whole.query < length]).double().mean()) for length in lengths]
    vanishes = trained.first_wrong is None and vanishing(lengths, shares, case.train_length)[0] is True
    margins = torch.cat([each.margin[each.right] for each in (trained, new)])
    return Tried(shares[-1], vanishes, float(margins.min()) if len(margins) else float("nan"))


def searched(case: Case) -> Answer:
    """A kernel that solves the training length and is right on deep rows as far as they were tried; or undecided."""
    until, demand, last = min(case.horizon, LONGEST), case.demand(), ""
    whole = case.task.new_targets(case.train_length, until)
    for reach in REACHES:
        rows = some_rows(case, whole.rows(case.train_length, reach * case.train_length))
        if not len(rows.query) or int(rows.query[-1]) >= until:
            break
        if not case.left:
            last = last or f"the time limit of {case.seconds:g} s was reached"
            break
        found = case.peaked(rows)
        if found.weights is None:
            last = last or found.why
            break
        everywhere = tried(case, found.weights, until)
        if everywhere.vanishes:
            reason = (
                f"a kernel found by a linear programme on {len(rows.query)} new rows solves length "
                f"{case.train_length} and is right on {share_text(1 - everywhere.share)} of the rows up to {until}"
            )
            return Answer(Verdict.TRANSFERS, SEARCH, reason, False, demand, found.weights, everywhere.margin, until)
        last = f"the one found is right on {share_text(1 - everywhere.share)} of them"
    return undecided(
        f"no statement covers absolute features that go on changing where {demand.reason}; a linear programme on some "
        f"rows gave no kernel that is right on nearly all up to {until}{': ' + last if last else ''}, which excludes "
        "none",
        demand,
    )


def some_rows(case: Case, rows: Targets) -> Targets:
    """As many of these rows, evenly chosen, as one programme holds."""
    most = MOST_ENTRIES // case.family.size
    count = len(rows.query)
    if count and int(rows.query.sum()) > most:
        count = max(1, int(count * most / int(rows.query.sum())))
    chosen = torch.linspace(0, len(rows.query) - 1, count).long() if count else torch.arange(0)
    return Targets(rows.query[chosen], rows.key[chosen])
