"""A kernel of absolute features, looked for on some rows and tried on all."""

from dataclasses import dataclass, replace

import torch

from own_cases import answer, case
from own_tasks import ByKey, is_odd
from poskernel.encodings import AbsoluteEncoding
from poskernel.realizability.theorems.searching import MOST_ENTRIES, searched, some_rows
from poskernel.realizability.theorems.verdicts import SEARCH, Verdict
from poskernel.tasks import POSITIONAL_TASKS


@dataclass(frozen=True)
class Powers(AbsoluteEncoding):
    """1, p, p^2: neither affine nor clamped."""

    name = "powers"

    def features(self, position, train_length):
        return position.double()[:, None] ** torch.arange(3)


def test_a_kernel_that_was_found_transfers_as_far_as_it_was_tried():
    for task in ("first", "pos2"):
        found = answer(Powers(), task, 1000)
        assert (found.verdict, found.theorem, found.exact, found.until) == (Verdict.TRANSFERS, SEARCH, False, 1000)
        assert found.margin > 0 and case(Powers(), task).alpha_of(found.weights, 300) == 1


def test_what_no_kernel_follows_is_left_open():
    """Keys 0 and 3 by turns: a programme finds nothing, and that excludes no kernel that misses a few rows."""
    found = answer(Powers(), ByKey(lambda query: torch.where(is_odd(query) & (query > 20), 3, 0)), 1000)
    assert found.verdict is Verdict.UNDECIDED and found.weights is None and "conjecture" not in found.reason


def test_rows_are_chosen_evenly_within_the_size_of_a_programme():
    rows = POSITIONAL_TASKS["prev"].new_targets(20, 2000)
    chosen = some_rows(case("sinusoidal", "prev"), rows)
    assert int(chosen.query.sum()) * 1024 < 1.2 * MOST_ENTRIES and chosen.query[0] == 20
    assert bool((chosen.key == chosen.query - 1).all())
    assert len(some_rows(case(Powers(), "prev"), rows.rows(20, 80)).query) == 60


def test_one_time_limit_holds_for_all_programmes_together():
    """What came before the search has taken from its time: none is left, so no programme starts."""
    spent = replace(case(Powers(), "first", 1000), seconds=1e-9)
    assert spent.left == 0 and case(Powers(), "first").left > 0
    found = searched(spent)
    assert found.verdict is Verdict.UNDECIDED and "the time limit of 1e-09 s was reached" in found.reason
