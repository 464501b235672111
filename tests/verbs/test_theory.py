"""theory and characterize as a user sees them."""

import json
import re
import sys
from pathlib import Path

import pytest

from poskernel import cli
from poskernel.errors import RunError
from poskernel.realizability.theorems import table
from poskernel.realizability.theorems.check import Check, Effort
from poskernel.verbs.theory import again

QUICK = "rms-norm-sphere,alibi-not-positive-definite"
CHECK_FIELDS = {"name", "claim", "source", "measured", "expected", "n", "holds", "note", "unit", "data"}
CHECK_FIELDS |= {"function", "page", "group"}


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
    assert (document["seed"], document["effort"], document["samples"]) == (0, "default", None)
    assert document["counts"]["hold"] == document["counts"]["claims"] == 2
    assert [check["name"] for check in document["checks"]] == QUICK.split(",")
    assert all(set(check) == CHECK_FIELDS and check["holds"] for check in document["checks"])


def test_the_table_says_it_in_words(capsys):
    assert cli.main(["theory", "--only", QUICK, "-q"]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert out.endswith("2 claims: all hold")
    assert "rms-norm-sphere kernel note, proposition 2; 2,000 vectors" in out
    assert "measured: " in out and "expected: " in out


def test_claims_stand_under_their_source_and_departures_say_both(capsys):
    assert cli.main(["theory", "window-is-not-a-circle,rms-norm-sphere", "no-kernel-for-every-length", "-q"]) == 0
    out = capsys.readouterr().out
    titles = ["Ours, beside the realizability paper", "The kernel note", "Departures: "]
    places = [out.index(title) for title in titles]
    assert places == sorted(places)
    assert "yes: source's" in out and "3 claims: all hold (1 by departing" in out


def a_search(effort: Effort, seed: int) -> Check:
    """A search."""
    return Check("a-search", "Is there one?", "nowhere", "none found", "nothing", 3, None, unit="cells", data=True)


def test_a_search_is_data_and_no_claim_that_holds(capsys, monkeypatch):
    monkeypatch.setattr(table, "claims", lambda: {"a-search": a_search})
    assert cli.main(["theory", "-q"]) == 0
    out = capsys.readouterr().out
    assert "data" in out and "unclear" not in out and out.rstrip().endswith("1 search, reported as data")
    assert cli.main(["theory", "-q", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["checks"]
    assert row["holds"] is None and row["data"] is True


def test_names_may_be_separated_by_commas_or_given_again(capsys):
    for line in (
        ["rms-norm-sphere,alibi-not-positive-definite"],
        ["rms-norm-sphere", "alibi-not-positive-definite"],
        ["--only", "rms-norm-sphere", "--only", "alibi-not-positive-definite"],
        ["rms-norm-sphere", "--only", "alibi-not-positive-definite"],
    ):
        assert cli.main(["theory", *line, "--json", "-q"]) == 0
        assert [check["name"] for check in json.loads(capsys.readouterr().out)["checks"]] == QUICK.split(",")


def test_a_list_takes_names(capsys):
    assert cli.main(["theory", "--list", "causal-boundary", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 4
    assert cli.main(["theory", "--list", "nonsense"]) == 2
    assert "unknown claim 'nonsense'" in capsys.readouterr().err


def test_help_leaves_out_what_does_nothing_there(capsys):
    for verb in ("theory", "characterize"):
        assert cli.main([verb, "--help"]) == 0
        out = capsys.readouterr().out
        assert "--seed" in out and not any(name in out for name in ("--device", "--store", "--empty"))
    assert cli.main(["theory", "rms-norm-sphere", "--store", "x", "--device", "cpu", "-q"]) == 0


def test_a_page_says_that_its_pictures_are_drawn_and_where_it_is(capsys, tmp_path):
    path = tmp_path / "missing" / "folder" / "page.html"
    assert cli.main(["theory", "proposition-4", "--report", str(path), "--out", str(tmp_path / "out")]) == 0
    err = capsys.readouterr().err
    assert path.is_file() and f"the page is {path}" in err
    assert "pictures: 1 of 1" in err and "pictures of the page: 1 of 1" in err


def test_progress_goes_to_stderr(capsys):
    assert cli.main(["theory", "--only", QUICK, "--json"]) == 0
    assert "2 of 2" in capsys.readouterr().err


@pytest.mark.usefixtures("with_a_false_claim")
def test_a_claim_that_does_not_hold_is_exit_code_1_with_its_row(capsys):
    assert cli.main(["theory", "--only", "always-false,rms-norm-sphere", "--json", "-q"]) == 1
    out, err = capsys.readouterr()
    assert [check["holds"] for check in json.loads(out)["checks"]] == [False, True]
    assert err.count("\n") == 1 and "1 of 2 claims does not hold: always-false" in err
    assert cli.main(["theory", "--only", "always-false", "-q"]) == 1
    shown = capsys.readouterr().out
    assert "NO" in shown and "Two is [odd]." in shown and "a note for it" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "rms-norm-spere"], "did you mean 'rms-norm-sphere'"),
        (["--only", ","], "names nothing"),
        (["--samples", "3"], "number of samples is 3"),
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
    files = set(json.loads((tmp_path / "manifest.json").read_text())["sha256"])
    assert files == {"theory.csv", *(f"figures/wrapped-cauchy.{kind}" for kind in ("csv", "png", "svg"))}


def test_pictures_of_the_claims_are_in_the_folder_and_its_manifest(capsys, tmp_path):
    assert cli.main(["theory", "proposition-4", "--out", str(tmp_path), "-q"]) == 0
    files = json.loads((tmp_path / "manifest.json").read_text())["sha256"]
    assert set(files) == {"theory.csv", "figures/duality.csv", "figures/duality.png", "figures/duality.svg"}


def test_a_missing_extra_is_said_before_the_work(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "poskernel.report.figures", raising=False)
    monkeypatch.setattr(table, "claims", lambda: {"never": always_false})
    for option in (["--out", str(tmp_path / "folder")], ["--report", str(tmp_path / "page.html")]):
        assert cli.main(["theory", *option]) == 2
        assert "poskernel[report]" in capsys.readouterr().err


def test_claims_are_named_on_the_line_by_beginnings_and_listed(capsys):
    assert cli.main(["theory", "causal-boundary", "--only", "rms-norm-sphere", "--json", "-q"]) == 0
    names = [check["name"] for check in json.loads(capsys.readouterr().out)["checks"]]
    assert names == [
        *(f"causal-boundary-{kind}" for kind in ("identity", "linear", "logarithmic", "bounded")),
        "rms-norm-sphere",
    ]
    assert cli.main(["theory", "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["claim"] for row in rows] == list(table.claims()) and all(
        row["about"].endswith((".", ":")) for row in rows
    )
    assert cli.main(["theory", "causal-boundry"]) == 2
    assert "did you mean 'causal-boundary' (4 claims)" in capsys.readouterr().err


def test_characterize_in_words_and_as_json(capsys):
    line = ["characterize", "rope", "copy", "--horizon", "1000"]
    assert cli.main(line) == 0
    shown = capsys.readouterr().out
    assert "cannot" in shown and "grows with it" in shown and "exists for 20 and 60" in shown
    assert "exists for 20 and 60" in shown and "says nothing of longer ones" in " ".join(shown.split())
    assert "theorem 2, proved; see docs/theory.md#theorem-2" in " ".join(shown.replace("│", " ").split())
    assert cli.main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["verdict"], found["exists"]) == ("poskernel.characterize/1", "cannot", "yes")


def test_characterize_keeps_its_document_and_refuses_what_it_does_not_know(capsys, tmp_path):
    assert cli.main(["characterize", "nope", "prev", "--horizon", "1000", "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "characterize.json").read_text())["verdict"] == "cannot"
    assert cli.main(["characterize", "rope", "perv"]) == 2
    assert "did you mean 'prev'" in capsys.readouterr().err


def unclear(effort: Effort, seed: int) -> Check:
    """A claim whose draws are too few."""
    return Check("unclear", "Three is odd.", "nowhere", "perhaps", "odd", 1, None, "draw more")


def test_what_is_unclear_is_exit_code_0_and_null(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(table, "claims", lambda: {"unclear": unclear})
    assert cli.main(["theory", "--json", "-q", "--out", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["checks"][0]["holds"] is None
    assert "test_theory:unclear" in (tmp_path / "theory.csv").read_text()
    assert cli.main(["theory", "-q", "--report", str(tmp_path / "page.html")]) == 0
    shown = capsys.readouterr().out
    assert "1 claim: 1 unclear" in shown and "draw more" in shown and "NO" not in shown
    assert "Unclear, the draws are too few" in (tmp_path / "page.html").read_text()


def test_a_row_names_its_function_and_page(capsys):
    assert cli.main(["theory", "--only", "rms-norm-sphere", "-q"]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "theorems.kernels:rms_norm_sphere, docs/theory.md#rms-norm-sphere" in out


def test_a_page_that_cannot_be_written_is_said_before_the_work(capsys, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(table, "claims", lambda: {"never": always_false})
    for path in (tmp_path / "file" / "page.html", "/proc/page.html"):
        assert cli.main(["theory", "--report", str(path)]) == 2
        assert "--report is" in capsys.readouterr().err


def test_a_page_that_fails_after_all_leaves_the_table(capsys, monkeypatch, tmp_path):
    from poskernel.experiments import theory_page

    def full(*arguments):
        raise RunError("the disk is full.")

    monkeypatch.setattr(theory_page, "write_theory", full)
    assert cli.main(["theory", "--only", "rms-norm-sphere", "-q", "--report", str(tmp_path / "page.html")]) == 1
    out, err = capsys.readouterr()
    assert "1 claim: it holds" in out and "disk is full" in err


def test_the_line_that_runs_it_again():
    assert again([], False, None, 0) == "poskernel theory --seed 0"
    page = Path("my page.html")
    assert again(["a"], False, None, 0, page) == "poskernel theory --only a --seed 0 --report 'my page.html'"
    assert again(["a", "b"], True, 50, 3) == "poskernel theory --only a,b --long --samples 50 --seed 3"


@pytest.mark.parametrize("seconds", ["-1", "nan", "0"])
def test_a_time_limit_is_positive(capsys, seconds):
    assert cli.main(["characterize", "rope", "prev", "--existence-seconds", seconds]) == 2
    assert "time limit of existence" in capsys.readouterr().err


def test_help_names_every_encoding_and_task(capsys):
    from poskernel.encodings import ENCODINGS
    from poskernel.tasks import TASKS

    assert cli.main(["characterize", "--help"]) == 0
    words = set(re.findall(r"[a-z0-9-]+", capsys.readouterr().out))
    assert set(ENCODINGS) | set(TASKS) <= words
