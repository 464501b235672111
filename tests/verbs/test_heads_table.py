"""Heads in a terminal: in words while they fit, else in columns; no R2 that says nothing."""

import io

import pytest
from rich.console import Console

from poskernel.verbs.heads_table import SCREENFUL, heads_table

SENTENCE = "previous-token head: positional kernel peaks at offset 1"


def document(count, measures=(), **changes):
    head = {
        "r2": 0.9, "r2_low": 0.8, "r2_high": 1.0, "signal": 1.25, "share": 0.5, "kind": "previous-token",
        "peak_offset": 1, "first_mass": 0.12, "sentence": SENTENCE,
    }  # fmt: skip
    if "split" in measures:
        head |= {"position_share": 0.41, "key_share": 0.32, "query_share": -0.03, "interaction_share": 0.23}
    heads = [head | {"layer": number // 4, "head": number % 4} for number in range(count)]
    heads[-1] |= changes
    return {"model": "m", "sequences": 4, "length": 32, "dropped": 2, "measures": list(measures), "heads": heads}


def shown(*arguments, **settings):
    stream = io.StringIO()
    Console(file=stream, width=160).print(heads_table(*arguments, **settings))
    return stream.getvalue()


def test_a_screenful_is_told_in_words_and_more_in_columns():
    few, many = shown(document(SCREENFUL)), shown(document(SCREENFUL + 1))
    assert few.count(SENTENCE) == SCREENFUL and "--sentences" not in few
    assert SENTENCE not in many and "--sentences" in many
    assert next(line for line in many.splitlines() if "previous-token" in line).replace("│", " ").split() == [
        "0", "0", "0.90", "1.25", "previous-token", "1", "0.50", "0.12",
    ]  # fmt: skip
    assert shown(document(SCREENFUL + 1), sentences=True).count(SENTENCE) == SCREENFUL + 1


def test_the_split_gives_a_column_a_term():
    many = shown(document(SCREENFUL + 1, ("split",)))
    row = next(line for line in many.splitlines() if "previous-token" in line)
    assert row.replace("│", " ").split()[-5:] == ["0.41", "0.32", "-0.03", "0.23", "0.12"]
    assert "--measures" not in many and "--measures split,probes" in shown(document(2))


@pytest.mark.parametrize("count", [2, SCREENFUL + 1])
def test_an_r2_that_says_nothing_is_a_question_mark_and_an_undefined_one_a_dash(count):
    wide = shown(document(count, r2=1.79, r2_low=-0.2, r2_high=3.8))
    assert "1.79" not in wide and "? " in wide and "wider than 1" in wide
    undefined = shown(document(count, r2=None, r2_low=None, r2_high=None))
    assert "wider than 1" not in undefined and " - " in undefined
