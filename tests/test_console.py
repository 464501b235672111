"""Progress lines, text input, tables."""

import io
import sys

import pytest

from poskernel import console
from poskernel.errors import InputError


def test_progress_says_how_much_is_left(monkeypatch, capsys):
    clock = iter([0.0, 20.0, 40.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    progress = console.Progress(3, "screen")
    progress.step("rope prev")
    assert "1 of 3, 0:20 gone, 0:40 left" in capsys.readouterr().err
    progress.step()
    assert "2 of 3, 0:40 gone, 0:20 left" in capsys.readouterr().err


def test_a_time_left_is_said_once_the_first_steps_are_done(monkeypatch, capsys):
    clock = iter([0.0, 20.0, 40.0, 60.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    progress = console.Progress(4, "theory", settle=2)
    for _ in range(3):
        progress.step()
    first, second, third = capsys.readouterr().err.splitlines()
    assert "left" not in first + second and "3 of 4, 1:00 gone, 0:20 left" in third


def test_quiet_is_quiet(capsys):
    progress = console.Progress(1, "screen", quiet=True)
    progress.step()
    steps = console.Steps(quiet=True)
    steps.show("layers", 3, 3)
    assert capsys.readouterr() == ("", "")


def test_steps_follow_their_parts(capsys):
    steps = console.Steps()
    steps.show("layers", 1, 2)
    steps.show("layers", 2, 2)
    steps.show("digest", 1, 1)
    lines = capsys.readouterr().err.splitlines()
    assert "layers: 2 of 2" in lines[-2] and "digest: 1 of 1" in lines[-1]


def test_text_from_a_file_and_from_standard_input(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("grün", encoding="utf-8")
    assert console.read_text(str(path)) == "grün"
    monkeypatch.setattr(sys, "stdin", io.StringIO("typed"))
    assert console.read_text("-") == "typed"
    assert console.read_text(None) is None
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InputError, match="not UTF-8"):
        console.read_text(str(path))
    with pytest.raises(InputError, match="Is a directory"):
        console.read_text(str(tmp_path))


def test_markup_in_data_is_text(capsys):
    console.print_rows([{"name": "[red]x[/red]", "value": None}], "poskernel.test/1", as_json=False)
    out = capsys.readouterr().out
    assert "[red]x[/red]" in out and "-" in out


def test_nan_never_becomes_json():
    with pytest.raises(ValueError, match="JSON"):
        console.print_json({"value": float("nan")})


def test_the_first_part_is_announced_before_anything_is_done(capsys):
    steps = console.Steps()
    steps.show("loading", 0, 1)
    assert capsys.readouterr().err == "loading ...\n"
    steps.show("self-test", 0, 1)
    steps.show("layers", 1, 1)
    assert "loading" not in capsys.readouterr().err
    quiet = console.Steps(quiet=True)
    quiet.show("loading", 0, 1)
    assert capsys.readouterr().err == ""
