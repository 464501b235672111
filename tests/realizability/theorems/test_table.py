"""The table of claims: names, selection, sample sizes and the document."""

import ast
import importlib
import inspect
import json
import re
from pathlib import Path

import pytest

import poskernel
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
    assert (row.pop("function"), row.pop("page"), row.pop("group")) == ("", "docs/theory.md#a", "")
    assert row == {**dict.fromkeys(("measured", "claim"), "b"), "name": "a", "source": "c", "note": "", "n": 3} | {
        "measured": "1", "expected": "2", "holds": True, "unit": "", "data": False,
    }  # fmt: skip
    assert (document["effort"], document["seed"], document["samples"]) == ("default", 0, None)
    assert document["version"] == poskernel.__version__
    there = table.theory_document([], effort=Effort.LONG, seed=3, samples=50)
    assert (there["effort"], there["seed"], there["samples"]) == ("long", 3, 50)


def made_up(name, holds, data=False):
    return Check(name, "b", "c", "1", "2", 3, holds, data=data)


def test_a_search_is_not_counted_among_the_claims():
    found = [made_up("theorem-1", True), made_up("boundary-rate", True), made_up("open-case-search", None, data=True)]
    counted = table.counts(found)
    assert counted == {"claims": 2, "hold": 2, "departures": 1, "fail": 0, "unclear": 0, "data": 1}
    words = table.counts_in_words(counted)
    assert words.startswith("2 claims: all hold (1 by departing") and words.endswith("; 1 search, reported as data")
    assert table.counts_in_words(table.counts(found[2:])) == "1 search, reported as data"
    assert [table.verdict(each) for each in found] == ["yes", "yes: source's form fails, ours holds", "data"]


@pytest.mark.parametrize(
    ("holds", "words"),
    [
        ([True], "1 claim: it holds"),
        ([True, True], "2 claims: all hold"),
        ([True, False, None], "3 claims: 1 does not hold, 1 unclear for want of draws (more --samples), 1 holds"),
        ([False, False], "2 claims: 2 do not hold"),
        ([None], "1 claim: 1 unclear for want of draws (more --samples)"),
    ],
)
def test_counts_in_words(holds, words):
    assert table.counts_in_words(table.counts([made_up("theorem-1", each) for each in holds])) == words


def test_every_claim_has_a_group_and_says_what_it_counts():
    assert list(table.GROUPS) == ["realizability", "ours", "kernel", "departures"]
    assert {table.group_of(name) for name in table.claims()} == set(table.GROUPS)
    assert table.group_of("no-such-claim") == "" and not table.departs("theorem-1") and table.departs("boundary-rate")
    for function in table.CHECKS:
        assert re.search(r'\bunit="\w[\w ]+"', inspect.getsource(inspect.unwrap(function))), function.__name__


def test_what_is_a_zero_has_its_tolerance():
    """No claim expects a bare 0 of a figure that rounding leaves."""
    for name in ("rms-norm-sphere", "shaw-logits-stationary", "causal-boundary-linear", "dft-positive-definite"):
        (check,) = table.run_checks(name)
        zeros = [part.strip() for part in check.expected.split(";") if part.strip().startswith("0")]
        assert zeros and all("within" in part for part in zeros), check.expected


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
    with pytest.raises(InputError, match="did you mean 'theorem-2-density'"):
        table.chosen_claims("theorem-2-dens")


def test_commas_separate_names():
    assert list(table.chosen_claims("theorem-1, proposition-1")) == ["theorem-1", "proposition-1"]
    assert list(table.chosen_claims(["theorem-1,proposition-1", "theorem-1"])) == ["theorem-1", "proposition-1"]
    with pytest.raises(InputError, match="names nothing"):
        table.chosen_claims(",")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("theorem-3", "did you mean 'theorem-2' \\(7 claims\\)"),
        ("causal-boundry", "did you mean 'causal-boundary' \\(4 claims\\)"),
        ("sphere", "did you mean 'layer-norm-sphere' or 'rms-norm-sphere'"),
        ("qqq", "unknown claim 'qqq': see `poskernel theory --list`"),
    ],
)
def test_a_name_that_is_none_gets_the_nearest(name, words):
    with pytest.raises(InputError, match=words) as error:
        table.chosen_claims(name)
    assert "theory --list`." in str(error.value) and len(str(error.value)) < 200


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
    assert [row["claim"] for row in table.claim_rows("proposition-4")] == ["proposition-4"]
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
        if function.__name__ == "open_case_search":  # a search: it expects nothing that could be broken
            continue
        assert any(re.search(rf"\b{function.__name__}\b", text) for text in broken), function.__name__
