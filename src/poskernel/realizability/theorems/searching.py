"""Absolute features that no statement covers: a kernel looked for by a programme on some rows, and tried on all."""

import torch

from poskernel.realizability.alignment import row_margins
from poskernel.realizability.theorems.case import Case
from poskernel.realizability.theorems.demand import lengths_to, share_text, vanishing
from poskernel.realizability.theorems.verdicts import SEARCH, Answer, Verdict, undecided
from poskernel.tasks import Targets

LONGEST = 4096
"""Rows that a kernel is tried on: all pairs of them are looked at."""
MOST_ENTRIES = 10_000_000
"""Numbers in one programme."""
REACHES = (4, 16, 64)
"""Training lengths that the rows of the programmes come from, one after the other."""


def searched(case: Case) -> Answer:
    """A kernel that solves the training length and is right on deep rows as far as they were tried; or undecided."""
    until, demand = min(case.horizon, LONGEST), case.demand()
    lengths, last = lengths_to(until, case.train_length), ""
    whole = case.task.new_targets(case.train_length, until)
    for reach in REACHES:
        rows = some_rows(case, whole.rows(case.train_length, reach * case.train_length))
        if not len(rows.query) or int(rows.query[-1]) >= until:
            break
        found = case.peaked(rows)
        if found.weights is None:
            last = last or found.why
            break
        right = row_margins(case.kernel(found.weights), whole).right
        shares = [float((~right[whole.query < length]).double().mean()) for length in lengths]
        if vanishing(lengths, shares, case.train_length)[0]:
            reason = (
                f"a kernel found by a linear programme on {len(rows.query)} new rows solves length "
                f"{case.train_length} and is right on {share_text(1 - shares[-1])} of the rows up to {until}"
            )
            return Answer(Verdict.TRANSFERS, SEARCH, reason, False, demand, found.weights, found.margin, until)
        last = f"the one found is right on {share_text(1 - shares[-1])} of them"
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
