"""The table of claims: names, selection, sample sizes and the document."""

import json

import pytest

from poskernel.errors import InputError
from poskernel.realizability.theorems import table
from poskernel.realizability.theorems.check import Check, Effort


def test_claims_go_by_the_names_of_their_functions():
    known = table.claims()
    assert len(known) == len(table.CHECKS)  # no two share a name
    assert {"layer-norm-sphere", "causal-boundary-bounded", "normalised-sinusoids"} <= set(known)
    assert all(table.claim_name(function) == name for name, function in known.items())


def test_every_function_says_what_it_claims():
    assert all((function.__doc__ or "").strip() for function in table.claims().values())


def test_chosen_claims_run_in_the_order_given():
    names, seen = ["rms-norm-sphere", "alibi-not-positive-definite"], []
    found = table.run_checks(names, progress=seen.append)
    assert [check.name for check in found] == names == [check.name for check in seen]


def test_seed_and_effort_reach_the_claims():
    (here,), (there,) = (table.run_checks(["causal-boundary-bounded"], seed=seed) for seed in (0, 1))
    assert here.measured != there.measured
    (longer,) = table.run_checks(["alibi-not-positive-definite"], effort=Effort.LONG)
    assert longer.n > table.run_checks(["alibi-not-positive-definite"])[0].n


def test_samples_reach_those_that_draw():
    found = table.run_checks(["rms-norm-sphere", "alibi-not-positive-definite"], samples=31)
    assert found[0].n == 31 and found[1].n != 31


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"only": ["rms-norm-spere"]}, "did you mean 'rms-norm-sphere'"),
        ({"samples": 1}, "samples is 1"),
        ({"only": ["alibi-not-positive-definite"], "samples": 100}, "no chosen claim draws"),
    ],
)
def test_what_cannot_be_asked(arguments, words):
    with pytest.raises(InputError, match=words):
        table.run_checks(**arguments)


def test_the_document_is_plain_json():
    document = json.loads(json.dumps(table.theory_document([Check("a", "b", "c", "1", "2", 3, True)])))
    assert document["schema"] == "poskernel.theory/1"
    (row,) = document["checks"]
    assert row == {**dict.fromkeys(("measured", "claim"), "b"), "name": "a", "source": "c", "note": "", "n": 3} | {
        "measured": "1", "expected": "2", "holds": True,
    }  # fmt: skip
