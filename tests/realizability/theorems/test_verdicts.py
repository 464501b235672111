"""Answers in words, and where each is explained."""

import re
from pathlib import Path

from poskernel.realizability.theorems.demand import Demand, Quantity
from poskernel.realizability.theorems.verdicts import PAGES, Verdict, undecided, unsettled_text


def test_every_statement_has_its_page():
    headings = {
        re.sub(r"[^a-z0-9]+", "-", line.lstrip("# ").lower()).strip("-")
        for line in (Path(__file__).parents[3] / "docs" / "theory.md").read_text().splitlines()
        if line.startswith("#")
    }
    assert set(PAGES.values()) <= headings


def test_undecided_claims_nothing():
    found = undecided("why")
    assert (found.verdict, found.exact, found.theorem, found.weights) == (Verdict.UNDECIDED, False, "none", None)


def test_open_is_not_the_same_as_no():
    for settles, words in ((False, "no offset settles: because"), (None, "whether an offset settles is open: because")):
        assert unsettled_text(Demand(Quantity.OFFSET, 1, settles, 0.5, False, "because")) == words


def test_an_offset_that_hardly_any_row_asks_for_is_not_named():
    for exact, words in ((True, "because"), (False, "none is asked of more than 0.01% of the scored rows")):
        text = unsettled_text(Demand(Quantity.OFFSET, 20, False, 0.0001, exact, "because"))
        assert text == f"no offset settles: {words}"
