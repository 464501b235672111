"""RoPE by its base alone: the same value as written out, everywhere an encoding is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel.encodings import Rope, parse_encoding
from poskernel.encodings.base_setting import base_of, rope_with_base
from poskernel.errors import InputError
from poskernel.study.grid import PredictionCell
from poskernel.tasks import TASKS


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("base:1e6", "rope:base=1e6"),
        (" base:1000000 ", "rope:base=1e6"),
        ("base:base=1e6", "rope:base=1e6"),
        ("base:x4", "rope:base=4e4"),
        ("base:x2.5,frequencies=8", "rope:base=25000,frequencies=8"),
        ("base:1e6,scale=0.5", "rope:base=1e6,scale=0.5"),
    ],
)
def test_it_is_rope_with_that_base(text, same):
    found = parse_encoding(text)
    assert found == parse_encoding(same) and parse_encoding(found.effective) == found
    assert PredictionCell(found, TASKS["prev"]).id == PredictionCell(parse_encoding(same), TASKS["prev"]).id


@given(st.floats(1.5, 1e12))
def test_every_base_arrives_as_it_was_written(base):
    assert rope_with_base(f"base:{base!r}") == Rope(base=base)
    assert base_of("", f"x{base!r}", lambda: 3.0) == 3 * base


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base", "write base:1e6"),
        ("base:", "write base:1e6"),
        ("base:big", "give a number, or x4"),
        ("base:x0.5", "give more than 1"),
        ("base:xnan", "give more than 1"),
        ("base:-3", "base of RoPE is -3"),
        ("base:1e6,frequences=3", "did you mean 'frequencies'"),
        ("base:1e6,base=1e5", "given twice"),
        ("base:nan", "base of RoPE is nan"),
    ],
)
def test_what_is_no_base_is_said(text, words):
    with pytest.raises(InputError, match=words):
        parse_encoding(text)
