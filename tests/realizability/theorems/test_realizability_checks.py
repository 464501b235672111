"""The tuple of the paper's claims."""

from inspect import signature

from poskernel.realizability.theorems.check import Effort
from poskernel.realizability.theorems.realizability_checks import REALIZABILITY_CHECKS

SMALL = {"samples": 20}


def test_every_claim_is_there_once_in_the_paper_s_order():
    names = [function.__name__ for function in REALIZABILITY_CHECKS]
    assert len(set(names)) == len(names) == 26
    numbered = [name for name in names if name.startswith("proposition")]
    assert numbered == sorted(numbered, key=lambda name: name.split("_")[1])


def test_claims_take_effort_and_seed_and_have_defaults_for_the_rest():
    for function in REALIZABILITY_CHECKS:
        first, second, *others = signature(function).parameters.values()
        assert (first.name, second.name) == ("effort", "seed")
        assert all(each.kind is each.KEYWORD_ONLY and each.default is not each.empty for each in others)


def test_rows_go_by_their_function_s_names():
    quick = [function for function in REALIZABILITY_CHECKS if "theorem_2" in function.__name__]
    for function in quick:
        given = SMALL if "samples" in signature(function).parameters else {}
        check = function(Effort.DEFAULT, 0, **given)
        assert check.name == function.__name__.replace("_", "-")
        assert check.claim.endswith(".") and "realizability paper" in check.source and check.n > 0
