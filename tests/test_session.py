"""Texts of the command line become values, or one sentence."""

import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import pytest
from cyclopts import Token

from poskernel.errors import InputError
from poskernel.session import PlainSession, Session, resolved, specifications, typed, whole_numbers


def test_texts_of_the_command_line_become_values_without_rounding():
    def value(kind, text):
        return typed(kind, [Token(keyword="--n", value=text)])

    assert [value(int, text) for text in ("30", "-3", "1e5", "2E+3")] == [30, -3, 100_000, 2000]
    assert value(int | None, "7") == 7 and value(float, "1e-3") == 0.001 and value(Path, "a") == Path("a")
    assert value(Literal["a", "b"], "b") == "b" and value(bool, "true") is True
    for kind, text in ((int, "1.5"), (int | None, "2.0"), (int, "1e-3"), (int, ""), (float, "x"), (Path | None, " ")):
        with pytest.raises(InputError, match=r"--n is .*: give a"):
            value(kind, text)


def test_whole_numbers():
    assert whole_numbers("30, 40,60", "--lengths") == [30, 40, 60]
    with pytest.raises(InputError, match=r"--lengths is '3\.5'"):
        whole_numbers("3.5", "--lengths")


def test_specifications_keep_parameters_together():
    assert specifications("rope,alibi", "--encodings") == ["rope", "alibi"]
    assert specifications("rope:base=1e6,frequencies=8;alibi,nope", "--encodings") == [
        "rope:base=1e6,frequencies=8",
        "alibi",
        "nope",
    ]


def test_a_verb_without_models_takes_the_same_options():
    assert asdict(PlainSession(seed=3)) == asdict(Session(seed=3))
    with pytest.raises(InputError, match="--threads is 0"):
        PlainSession(threads=0)


def test_resolved_is_toml_with_the_flags_names():
    def verb(model, /, *, train_length=1, text="", session=None) -> None:
        pass

    text = resolved(verb, {"model": "a b", "train_length": 20, "text": 'a "quoted" path', "session": Session(seed=3)})
    assert text.startswith("# poskernel verb 'a b'")
    read = tomllib.loads(text)
    assert read["train-length"] == 20 and read["text"] == 'a "quoted" path' and read["seed"] == 3
    assert "threads" not in read  # unset
