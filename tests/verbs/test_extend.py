"""extend from the command line: documented fields, files, and every bad input as one sentence with exit code 2."""

import json

import pytest

pytest.importorskip("transformers")
pytest.importorskip("matplotlib")

from poskernel import cli

SIZES = ["--measured-length", "24", "--sequences", "6", "--dropped", "2"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(" ".join(f"w{(7 * number * number) % 60}" for number in range(400)))
    return ["--text", str(path)]


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"rope_theta": 1e4, "head_dim": 16, "max_position_embeddings": 256}))
    return str(path)


def test_extend_gives_the_documented_fields_and_files(tiny_llama, text, tmp_path, capsys):
    out, page = tmp_path / "extend", tmp_path / "extend.html"
    given = [*SIZES, *text, "--setting", "yarn:4,original=16", "--setting", "linear:4", "--length", "100"]
    assert cli.main(["extend", str(tiny_llama), *given, "--json", "--out", str(out), "--report", str(page), "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "poskernel.extend/1" and found["measured_length"] == 24 and found["length"] == 100
    assert [row["setting"] for row in found["settings"]] == ["yarn:4,original=16", "linear:4"]
    assert len(found["settings"][0]["heads"]) == 8
    assert {path.name for path in out.iterdir()} >= {
        "settings.csv", "heads.csv", "kernels.parquet", "manifest.json", "survival.png", "survival.svg", "survival.csv",
        "peaks.png", "peaks.svg", "peaks.csv"}  # fmt: skip
    assert "Context extension" in page.read_text()
    assert cli.main(["extend", str(tiny_llama), *given, "-q"]) == 0
    assert "linear:4" in capsys.readouterr().out


def test_a_config_alone(config, tmp_path, capsys):
    arguments = ["extend", config, "--setting", "yarn:4", "--train-length", "24"]
    assert cli.main([*arguments, "--json", "--out", str(tmp_path / "rows")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tasks"][0] == "prev" and [row["setting"] for row in found["settings"]] == ["none", "yarn:4"]
    assert (tmp_path / "rows" / "settings.csv").is_file()
    assert cli.main(arguments) == 0
    assert "resolution" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--setting", "yarm:4"], "did you mean 'yarn'"),
        (["--setting", "linear:1"], "give more than 1"),
        (["--setting", "yarn:4", "--length", "24"], "not beyond the measured 24"),
        (["--setting", '{"rope_type": "linear", "factr": 4}'], "did you mean 'factor'"),
        (["--report", "."], "a folder"),
    ],
)
def test_bad_input_is_one_sentence(options, words, tiny_llama, text, capsys):
    assert cli.main(["extend", str(tiny_llama), *SIZES, *text, "-q", *options]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "no valid JSON"),
        ("[1]", "no JSON object"),
        ('{"n_positions": 9}', "no rotary layers"),
        (None, "cannot read"),
    ],
)
def test_bad_configs_are_one_sentence(content, words, tmp_path, capsys):
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content)
    assert cli.main(["extend", str(path), "--setting", "yarn:4"]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_a_report_needs_heads(config, tmp_path, capsys):
    assert cli.main(["extend", config, "--report", str(tmp_path / "page.html")]) == 2
    assert "a model with weights" in capsys.readouterr().err
