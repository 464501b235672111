"""theory and characterize as a user sees them."""

import json

import pytest

from poskernel import cli
from poskernel.realizability.theorems import table
from poskernel.realizability.theorems.check import Check, Effort

QUICK = "rms-norm-sphere,alibi-not-positive-definite"
CHECK_FIELDS = {"name", "claim", "source", "measured", "expected", "n", "holds", "note"}


def always_false(effort: Effort, seed: int) -> Check:
    """A claim that does not hold."""
    return Check("always-false", "Two is [odd].", "nowhere", "even", "odd", 1, False, "a note for it")


@pytest.fixture
def with_a_false_claim(monkeypatch):
    known = {**table.claims(), "always-false": always_false}
    monkeypatch.setattr(table, "claims", lambda: known)


def test_the_document_has_the_agreed_fields(capsys):
    assert cli.main(["theory", "--only", QUICK, "--json", "-q"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["schema"] == "poskernel.theory/1" and err == ""
    assert [check["name"] for check in document["checks"]] == QUICK.split(",")
    assert all(set(check) == CHECK_FIELDS and check["holds"] for check in document["checks"])


def test_the_table_says_it_in_words(capsys):
    assert cli.main(["theory", "--only", QUICK, "-q"]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "2 claims: all hold" in out
    assert "rms-norm-sphere kernel note, proposition 2, n = 2000" in out
    assert "measured: " in out and "expected: " in out


def test_progress_goes_to_stderr(capsys):
    assert cli.main(["theory", "--only", QUICK, "--json"]) == 0
    assert "2 of 2" in capsys.readouterr().err


@pytest.mark.usefixtures("with_a_false_claim")
def test_a_claim_that_does_not_hold_is_exit_code_1_with_its_row(capsys):
    assert cli.main(["theory", "--only", "always-false,rms-norm-sphere", "--json", "-q"]) == 1
    out, err = capsys.readouterr()
    assert [check["holds"] for check in json.loads(out)["checks"]] == [False, True]
    assert err.count("\n") == 1 and "1 of 2 claims do not hold: always-false" in err
    assert cli.main(["theory", "--only", "always-false", "-q"]) == 1
    shown = capsys.readouterr().out
    assert "NO" in shown and "Two is [odd]." in shown and "a note for it" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "rms-norm-spere"], "did you mean 'rms-norm-sphere'"),
        (["--only", ","], "names nothing"),
        (["--samples", "3"], "samples is 3"),
        (["--only", "alibi-not-positive-definite", "--samples", "50"], "no chosen claim draws"),
        (["--report", "."], "a folder"),
    ],
)
def test_bad_input_is_exit_code_2(capsys, arguments, words):
    assert cli.main(["theory", *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1


def test_samples_seed_and_out(capsys, tmp_path):
    line = ["theory", "--only", QUICK, "--samples", "64", "--seed", "3", "--out", str(tmp_path), "--json", "-q"]
    assert cli.main(line) == 0
    assert json.loads(capsys.readouterr().out)["checks"][0]["n"] == 64
    assert (tmp_path / "theory.csv").read_text().startswith("name,claim,source")
    assert "samples = 64" in (tmp_path / "config.toml").read_text()


def test_characterize_in_words_and_as_json(capsys):
    line = ["characterize", "rope", "copy", "--horizon", "1000"]
    assert cli.main(line) == 0
    shown = capsys.readouterr().out
    assert "cannot" in shown and "grows with it" in shown and "exists for 20 and 60" in shown
    assert cli.main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["verdict"], found["exists"]) == ("poskernel.characterize/1", "cannot", "yes")


def test_characterize_keeps_its_document_and_refuses_what_it_does_not_know(capsys, tmp_path):
    assert cli.main(["characterize", "nope", "prev", "--horizon", "1000", "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "characterize.json").read_text())["verdict"] == "cannot"
    assert cli.main(["characterize", "rope", "perv"]) == 2
    assert "did you mean 'prev'" in capsys.readouterr().err
