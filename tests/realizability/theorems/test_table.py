"""The table of claims: names, selection, sample sizes and the document."""

import ast
import importlib
import json
import re
from pathlib import Path

import pytest

from poskernel.errors import InputError, RunError
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
        ({"samples": 1}, "number of samples is 1"),
        ({"only": ["alibi-not-positive-definite"], "samples": 100}, "no chosen claim draws"),
        ({"effort": "lon"}, "did you mean 'long'"),
    ],
)
def test_what_cannot_be_asked(arguments, words):
    with pytest.raises(InputError, match=words):
        table.run_checks(**arguments)


def test_the_document_is_plain_json():
    document = json.loads(json.dumps(table.theory_document([Check("a", "b", "c", "1", "2", 3, True)])))
    assert document["schema"] == "poskernel.theory/1"
    (row,) = document["checks"]
    assert (row.pop("function"), row.pop("page")) == ("", "docs/theory.md#a")
    assert row == {**dict.fromkeys(("measured", "claim"), "b"), "name": "a", "source": "c", "note": "", "n": 3} | {
        "measured": "1", "expected": "2", "holds": True,
    }  # fmt: skip


@pytest.mark.parametrize("samples", [50.0, "50", True, 19, 10**8])
def test_a_number_of_draws_is_a_whole_number_in_range(samples):
    with pytest.raises(InputError, match="number of samples is"):
        table.check_samples(samples)


def test_one_name_and_a_word_for_the_effort_will_do():
    (check,) = table.run_checks("alibi-not-positive-definite", effort="long")
    assert check == table.run_checks(["alibi-not-positive-definite"], effort=Effort.LONG)[0]


def test_from_a_row_to_its_function_and_its_page():
    headings = {
        line.removeprefix("### ")
        for line in (Path(__file__).parents[3] / "docs" / "theory.md").read_text().splitlines()
        if line.startswith("### ")
    }
    for name in table.claims():
        there = table.where(name)
        module, function = there["function"].split(":")
        assert table.claim_name(getattr(importlib.import_module(module), function)) == name
        assert there["page"] == f"docs/theory.md#{name}" and name in headings


def test_a_beginning_stands_for_all_that_go_on_from_it():
    names = list(table.chosen_claims("theorem-2"))
    assert len(names) == 7 and all(name.startswith("theorem-2-") for name in names)
    assert list(table.chosen_claims("proposition-1")) == ["proposition-1"]
    assert list(table.chosen_claims()) == list(table.claims())
    with pytest.raises(InputError, match="did you mean"):
        table.chosen_claims("theorem-2-dens")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_too_many_draws_for_the_memory_name_the_option(monkeypatch, error):
    def fail(effort, seed, *, samples=None):
        raise error

    monkeypatch.setattr(table, "claims", lambda: {"large": fail})
    with pytest.raises(RunError, match="claim 'large' runs out of memory: give fewer draws with --samples"):
        table.run_checks(samples=1000)


def test_other_faults_stay_what_they_are(monkeypatch):
    def fail(effort, seed):
        raise RuntimeError("another fault")

    monkeypatch.setattr(table, "claims", lambda: {"broken": fail})
    with pytest.raises(RuntimeError, match="another fault"):
        table.run_checks()


def test_every_claim_says_what_it_is_about():
    rows = table.claim_rows()
    assert [row["claim"] for row in rows] == list(table.claims()) and all(len(row["about"]) > 20 for row in rows)


def test_beside_every_claim_a_test_breaks_it():
    """Some test names the claim's function and asserts that what it measured does not hold."""
    broken = [
        ast.unparse(node)
        for path in Path(__file__).parent.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    broken = [text for text in broken if re.search(r"assert .*\bnot [^\n]*\.holds|\.holds is False", text)]
    for function in table.CHECKS:
        assert any(re.search(rf"\b{function.__name__}\b", text) for text in broken), function.__name__
