"""analyze, report and doctor from the command line, on a tiny random model."""

import io
import json

import pytest

pytest.importorskip("transformers")
pytest.importorskip("jinja2")

from poskernel import cli
from poskernel.encodings import ENCODINGS
from poskernel.models.training import Recipe
from poskernel.study import STUDIES, Axes, Study
from poskernel.tasks import TASKS

HEAD_FIELDS = {
    "layer", "head", "r2", "r2_low", "r2_high", "r2_raw", "r2_plugin", "signal", "share", "peak_offset", "half_width",
    "kind", "sentence", "g",
}  # fmt: skip
SETTING_FIELDS = {
    "schema", "model", "weights_digest", "quantization", "dtype", "text_digest", "sequences", "length", "dropped",
    "encoder_or_decoder", "heads",
}  # fmt: skip


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(" ".join(f"w{(7 * number * number) % 60}" for number in range(400)))
    return path


def test_analyze_gives_the_documented_fields_and_files(tiny_llama, text, tmp_path, capsys):
    out, page = tmp_path / "atlas", tmp_path / "atlas.html"
    arguments = ["--text", str(text), "--sequences", "6", "--length", "48", "--dropped", "4", "--layers", "0-1"]
    assert cli.main(["analyze", str(tiny_llama), *arguments, "--json", "--out", str(out), "--report", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) >= SETTING_FIELDS and len(found["heads"]) == 8
    assert all(set(head) >= HEAD_FIELDS for head in found["heads"])
    assert (out / "heads.csv").exists() and (out / "profiles.parquet").exists()
    assert "layer" in page.read_text()
    assert cli.main(["analyze", str(tiny_llama), *arguments, "-q"]) == 0
    assert "head" in capsys.readouterr().out


def test_text_from_standard_input(tiny_llama, text, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(text.read_text()))
    arguments = ["--text", "-", "--sequences", "4", "--length", "48", "--layers", "0"]
    assert cli.main(["analyze", str(tiny_llama), *arguments, "--json", "-q"]) == 0
    assert len(json.loads(capsys.readouterr().out)["heads"]) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--length", "4000"], "64"),
        (["--length", "60", "--sequences", "9"], "400 tokens"),
        (["--layers", "7", "--length", "48", "--sequences", "4"], "layer 7"),
    ],
)
def test_what_cannot_be_measured_is_said(options, words, tiny_llama, text, capsys):
    assert cli.main(["analyze", str(tiny_llama), "--text", str(text), "-q", *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there(device, tiny_llama, text, capsys):
    import torch

    if getattr(torch, device).is_available():
        pytest.skip(f"{device} is there")
    assert cli.main(["analyze", str(tiny_llama), "--text", str(text), "--device", device, "--length", "48"]) == 2
    assert device in capsys.readouterr().err


def test_the_report_end_to_end_in_small(tiny_llama, monkeypatch, tmp_path, capsys):
    """The whole main job on two cells and a tiny model: it resumes, and its page stands alone."""
    axes = Axes(
        (ENCODINGS["rope"], ENCODINGS["learned"]), (TASKS["prev"], TASKS["first"]), tiers=(1,), seeds=(0,),
        lengths=(30, 60), width=16, recipe=Recipe(steps=3), existence=False,
    )  # fmt: skip
    monkeypatch.setitem(STUDIES, "quick", Study("quick", "Does it run?", (axes,)))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert cli.main(["report", "--without-model", "--workers", "1", "-q"]) == 0
        assert capsys.readouterr().out.strip() == "out/report.html"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Who generalizes" in page and "How well it predicts" in page
    for name in ("alpha-and-lg", "scatter", "length-curves"):
        assert {path.suffix for path in (tmp_path / "out" / "figures").glob(f"{name}.*")} == {".png", ".svg", ".csv"}


def test_doctor_says_what_is_installed(tmp_path, capsys):
    assert cli.main(["doctor", "--json", "--store", str(tmp_path / "none.sqlite")]) == 0
    found = {row["what"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert found["torch"]["fine"]


def test_help_names_every_measure_and_the_table_points_at_them(tiny_llama, text, capsys):
    from poskernel.attention.measures import MEASURES

    assert cli.main(["analyze", "--help"]) == 0
    help_text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name in MEASURES:
        assert f"{name} (" in help_text or f"{name} and" in help_text, name
    arguments = ["analyze", str(tiny_llama), "--text", str(text), "--sequences", "6", "--length", "48", "--layers", "0"]
    assert cli.main([*arguments, "-q"]) == 0
    assert "--measures split,probes" in capsys.readouterr().out
    assert cli.main([*arguments, "-q", "--measures", "split, probes"]) == 0
    shown = capsys.readouterr().out
    assert "--measures" not in shown and "interaction" in shown
    assert cli.main([*arguments, "-q", "--measures", "splitt"]) == 2
    assert capsys.readouterr().err == "poskernel: unknown measure 'splitt': did you mean 'split'?\n"


def test_analyze_adds_variants_and_an_untrained_model_where_asked(tiny_llama, text, capsys):
    arguments = [
        "analyze",
        str(tiny_llama),
        "--text",
        str(text),
        "--sequences",
        "8",
        "--length",
        "48",
        "--dropped",
        "4",
    ]
    assert cli.main([*arguments, "--json", "-q", "--measures", "variants,untrained", "--layers", "1"]) == 0
    asked = json.loads(capsys.readouterr().out)["heads"][0]
    assert cli.main([*arguments, "--json", "-q", "--layers", "1"]) == 0
    plain = json.loads(capsys.readouterr().out)["heads"][0]
    assert asked["r2"] == plain["r2"]
    assert asked["signal_untrained"] is not None and "signal_untrained" not in plain
    assert "whole_centred_r2" in asked and "whole_centred_r2" not in plain
    assert cli.main([*arguments[:4], "--sequences", "6", "--length", "48", "--measures", "variants"]) == 2
    assert "take 8 or more" in capsys.readouterr().err


def test_analyze_says_where_files_are_and_what_it_waits_for(tiny_llama, text, tmp_path, capsys):
    out, page = tmp_path / "new" / "atlas", tmp_path / "atlas.html"
    line = ["analyze", str(tiny_llama), "--text", str(text), "--sequences", "4", "--length", "48", "--layers", "0"]
    assert cli.main([*line, "--out", str(out), "--report", str(page)]) == 0
    err = capsys.readouterr().err
    assert err.startswith("loading ...\n") and f"tables: {out}\n" in err and err.endswith(f"page: {page}\n")
    about = json.loads((out / "manifest.json").read_text())["result"]
    assert about["schema"] == "poskernel.analyze/1" and about["model"] == str(tiny_llama)
    assert all(about["versions"][name] for name in ("torch", "transformers", "tokenizers"))
    assert len(about["weights_digest"]) == len(about["text_digest"]) == 64
    assert cli.main([*line, "-q", "--length", "65", "--out", str(tmp_path / "refused")]) == 2
    assert not (tmp_path / "refused").exists()
    assert capsys.readouterr().err.count("\n") == 1


def test_help_says_how_many_sequences_each_measure_needs(capsys):
    from poskernel.attention.estimators.pairs import MINIMUM_SEQUENCES
    from poskernel.attention.measures import MEASURES

    assert cli.main(["analyze", "--help"]) == 0
    help_text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    more = [f"{entry.fewest} with {name}" for name, entry in MEASURES.items() if entry.fewest > MINIMUM_SEQUENCES]
    assert f"{MINIMUM_SEQUENCES} or more, {', '.join(more)}" in help_text
