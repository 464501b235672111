"""The command line as a whole: exit codes, one sentence a failure, one document on stdout, configuration files."""

import json
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from poskernel import cli
from poskernel.errors import RunError

CELL = ["predict", "rope", "prev", "--lengths", "30", "--no-existence"]


def test_json_is_all_that_stdout_holds(capsys):
    assert cli.main([*CELL, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["task"] == "prev"
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predcit"], "Did you mean"),
        (["predict", "rope", "prev", "--lenghts", "30"], "--lengths"),
        (["predict", "rop", "prev"], "did you mean 'rope'"),
        (["predict", "rope", "perv"], "did you mean 'prev'"),
        (["predict", "rope:bse=3", "prev"], "did you mean 'base'"),
        (["doctor", "extra"], "'extra' is more than 'poskernel doctor' takes: 'poskernel doctor --help' says what"),
        (
            ["study", "export", "quick", "more", "yet"],
            "than 'poskernel study export' takes: 'poskernel study export --help'",
        ),
        (["predict", "rope"], "'poskernel predict --help' says what it takes"),
        (["predict", "rope", "prev", "--lengths"], "'poskernel predict --help' says what it takes"),
        (["predict", "rope:base=-1", "prev"], "-1.0"),
        (["predict", "rope", "prev", "--rule", "adm"], "did you mean 'adam'"),
        (["predict", "rope", "prev", "--lengths", "30,x"], "'30,x'"),
        (["predict", "rope", "prev", "--lengths", "20"], "not beyond the training length 20"),
        (["predict", "rope", "prev", "--train-length", "many"], "many"),
        (["predict", "rope", "prev", "--threads", "0"], "--threads is 0"),
        (["predict", "rope", "prev", "--seed", "1.5"], "--seed is '1.5': give a whole number such as"),
        (["predict", "rope", "prev", "--threads", "2.5"], "--threads is '2.5': give a whole number such as"),
        (["study", "run", "quick", "--workers", "1.5"], "--workers is '1.5': give a whole number such as"),
        (["analyze", "x", "--sequences", "2.0"], "--sequences is '2.0': give a whole number such as"),
        (["theory", "--samples", "1e3.0"], "--samples is '1e3.0': give a whole number such as"),
        (["predict", "rope", "prev", "--existence-seconds", "long"], "is 'long': give a number such as"),
        (["predict", "rope", "prev", "--out", ""], "--out is empty"),
        (["analyze", "x", "--report", ""], "--report is empty"),
        (["screen", "--store", " "], "--store is empty"),
        (["predict", "rope", "prev", "--out", "/proc/nope"], "--out is '/proc/nope', and nothing can be written in"),
        (["predict", "rope", "prev", "--seed", "-3"], "-3"),
        (["predict", "rope", "prev", "--config", "absent.toml"], "absent.toml"),
        (["predict", "rope", "prev", "--lengths", "99999999999999999999999"], "give at most 10000000"),
        (["predict", "learned", "prev", "--lengths", "1000000000"], "give at most 262144"),
        (["predict", "rope", "prev", "--train-length", "99999999"], "give at most 4096"),
        (["predict", "rope:frequencies=1e9", "prev"], "1 to 4096"),
        (["predict", "rope", "pos:position=1e30"], "'1e30'"),
        (["predict", "rope", "prev", "--existence-seconds", "nan"], "nan"),
        (["predict", "rope", "prev", "--existence-seconds", "0"], "0.0"),
        (["predict", "rope", "prev", "--threads", "100000"], "1 to 256"),
        (["predict", "rope", "prev", "--seed", "99999999999999999999"], "give 0 to"),
        (["screen", "--encodings", ","], "names nothing"),
        (["screen", "--tasks", ""], "names nothing"),
        (["study", "run", "qick"], "did you mean 'quick'"),
        (["study", "export", "quick", "--format", "xlsx"], "xlsx"),
        (["study", "run", "quick", "--tiers", "7"], "no tier 7"),
        (["analyze", "package:no-such-package"], "no-such-package"),
        (["analyze", "x", "--layers", "one"], "'one'"),
        (["analyze", "x", "--layers", "5-2"], "'5-2'"),
        (["analyze", "x", "--layers", "0-20000000"], "'0-20000000'"),
        (["analyze", "x", "--sequences", "0"], "take 4 or more"),
        (["analyze", "x", "--sequences", "-3"], "-3 sequences"),
        (["analyze", "x", "--length", "0"], "take 8 or more"),
        (["analyze", "x", "--dropped", "600"], "drop 0 to 510"),
        (["analyze", "x", "--report", "."], "a folder"),
        (["analyze", "x", "--text", "absent.txt"], "absent.txt"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err and err.startswith("poskernel: ") and err.count("\n") == 1 and "Traceback" not in err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (RunError("layer 3 gave NaN: use float32."), 1, "layer 3 gave NaN"),
        (MemoryError(), 1, "out of memory"),
        (OSError(28, "No space left on device", "rows.csv"), 1, "No space left on device: 'rows.csv'"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("division by zero"), 1, "ZeroDivisionError: division by zero"),
    ],
)
def test_each_ending_has_its_code(error, code, words, capsys, monkeypatch):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr("poskernel.realizability.predict", fail)
    assert cli.main(CELL) == code
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err
    assert cli.main([*CELL, "-v"]) == code
    assert "Traceback" in capsys.readouterr().err


def test_sigterm_ends_with_143():
    script = textwrap.dedent("""
        import sys, time
        import poskernel.realizability
        from poskernel import cli
        def hang(*arguments, **options):
            print("ready", flush=True)
            time.sleep(60)
        poskernel.realizability.predict = hang
        sys.exit(cli.main(["predict", "rope", "prev"]))
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 143
    assert err == "poskernel: terminated; no result is kept, run it again.\n"


@pytest.mark.parametrize(("verb", "words"), [("study", "finished results are kept"), ("theory", "no result is kept")])
def test_only_what_is_stored_is_called_kept(verb, words, capsys, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", SimpleNamespace(meta=stop))
    assert cli.main([verb, "run"]) == 130
    assert words in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_fault():
    line = f"{sys.executable} -m poskernel.cli study list --json | head -c 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout == "{" and "Traceback" not in done.stderr


def test_configuration_file_and_flags(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "settings.toml"
    settings.write_text('train-length = 10\nlengths = "25"\nexistence = false\n')
    assert cli.main(["predict", "rope", "prev", "--config", str(settings), "--lengths", "15", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["train_length"] == 10
    assert [row["length"] for row in document["rows"]] == [15]
    assert document["rows"][0]["exists"] is None
    settings.write_text("lengths = [25, 30]\nexistence = false\n")
    assert cli.main(["predict", "rope", "prev", "--config", str(settings), "--json"]) == 0
    assert [row["length"] for row in json.loads(capsys.readouterr().out)["rows"]] == [25, 30]
    settings.write_text("[predict]\ntrain-length = 10\n")
    assert cli.main(["predict", "rope", "prev", "--config", str(settings)]) == 2
    assert "[predict]" in capsys.readouterr().err
    (tmp_path / "taken").write_text("")
    assert cli.main([*CELL, "--out", "taken"]) == 2
    assert "'taken', a file" in capsys.readouterr().err
    settings.write_text("trian-length = 10\n")
    assert cli.main(["predict", "rope", "prev", "--config", str(settings)]) == 2
    assert "trian-length" in capsys.readouterr().err


def test_a_flag_that_is_also_a_verb_is_taken_from_the_configuration(tmp_path, capsys):
    """`report` names an option of several verbs and a verb."""
    page = tmp_path / "page.html"
    line = ["theory", "rms-norm-sphere", "-q"]
    assert cli.main([*line, "--report", str(page), "--out", str(tmp_path / "saved")]) == 0
    first = page.read_text()
    page.unlink()
    capsys.readouterr()
    saved = tmp_path / "saved" / "config.toml"
    assert cli.main([*line, "--config", str(saved)]) == 0
    assert page.read_text() == first
    settings = tmp_path / "settings.toml"
    settings.write_text('report = "."\n')
    assert cli.main([*line, "--config", str(settings)]) == 2
    assert "--report is" in capsys.readouterr().err
    for verb in (["analyze", "absent"], ["extend", "absent"]):
        assert cli.main([*verb, "--config", str(settings)]) == 2
        assert "--report is" in capsys.readouterr().err
    assert cli.main([*CELL, "--config", str(settings)]) == 2  # no option of this verb: not dropped without a word
    assert "report" in capsys.readouterr().err
    settings.write_text("wokers = 1\n")
    assert cli.main(["study", "run", "quick", "--config", str(settings)]) == 2
    assert "wokers" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"lengths =", b"\xff\xfe", b"lengths = 30 40"])
def test_a_configuration_file_that_is_no_toml(content, tmp_path, capsys):
    settings = tmp_path / "settings.toml"
    settings.write_bytes(content)
    assert cli.main([*CELL, "--config", str(settings)]) == 2
    err = capsys.readouterr().err
    assert "settings.toml is no valid TOML" in err and err.rstrip().endswith("mend it.")


@pytest.mark.parametrize("verb", [[], ["study"]])
def test_a_name_alone_explains_itself(verb, capsys):
    assert cli.main(verb) == 0
    assert "Usage:" in capsys.readouterr().out


def test_torch_without_memory_is_said_in_one_sentence(capsys, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000000 bytes.")

    monkeypatch.setattr("poskernel.realizability.predict", fail)
    assert cli.main(CELL) == 1
    assert capsys.readouterr().err.startswith("poskernel: out of memory")


def test_the_resolved_configuration_is_shown_and_saved_and_can_be_used_again(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*CELL, "--show-config"]) == 0
    shown = capsys.readouterr().out
    assert 'lengths = "30"' in shown and "existence = false" in shown and "alpha" not in shown
    assert cli.main([*CELL, "--out", "saved", "--json"]) == 0
    first = capsys.readouterr().out
    saved = tmp_path / "saved" / "config.toml"
    assert saved.read_text().startswith("# poskernel predict rope prev --config")
    assert (tmp_path / "saved" / "predict.csv").read_text().startswith("encoding,task")
    about = json.loads((tmp_path / "saved" / "manifest.json").read_text())
    assert about["schema"] == "poskernel.manifest/1" and about["config"]["lengths"] == "30"
    assert about["command"] == ["poskernel", *CELL, "--out", "saved", "--json"]
    assert list(about["sha256"]) == ["predict.csv"]
    assert cli.main(["predict", "rope", "prev", "--config", str(saved), "--json"]) == 0
    assert capsys.readouterr().out == first
    assert cli.app.config == (), "the next line parsed in this process would take this configuration"


@pytest.mark.parametrize(
    "verb", [[], ["predict"], ["screen"], ["study"], ["study", "run"], ["analyze"], ["report"], ["doctor"]]
)
def test_every_verb_explains_itself(verb, capsys):
    assert cli.main([*verb, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Usage:" in out and len(out.splitlines()) > 8


def test_the_version(capsys):
    from poskernel import __version__

    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__
