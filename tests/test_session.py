"""Texts of the command line become values, or one sentence."""

import tomllib

import pytest

from poskernel.errors import InputError
from poskernel.session import Session, layer_numbers, resolved, specifications, whole_numbers


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


def test_layers():
    assert layer_numbers("0-2,9") == [0, 1, 2, 9]
    with pytest.raises(InputError, match="'a-b'"):
        layer_numbers("a-b")


def test_resolved_is_toml_with_the_flags_names():
    def verb(model, /, *, train_length=1, text="", session=None) -> None:
        pass

    text = resolved(verb, {"model": "a b", "train_length": 20, "text": 'a "quoted" path', "session": Session(seed=3)})
    assert text.startswith("# poskernel verb 'a b'")
    read = tomllib.loads(text)
    assert read["train-length"] == 20 and read["text"] == 'a "quoted" path' and read["seed"] == 3
    assert "threads" not in read  # unset
