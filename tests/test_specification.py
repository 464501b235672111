from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel.errors import InputError
from poskernel.specification import describe, layer_numbers, parse_specification


@dataclass(frozen=True)
class Tool:
    size: int = 3
    weight: float = 0.5
    sharp: bool = False
    label: str = "x"
    teeth: tuple[float, ...] = ()


@dataclass(frozen=True)
class Plain:
    pass


class NoDataclass:
    pass


REGISTRY: dict[str, object] = {"tool": Tool(), "plain": Plain(), "object": NoDataclass()}


def parse(text: str) -> object:
    return parse_specification(REGISTRY, text, "tool")


def test_a_name_alone_is_the_registered_value() -> None:
    assert parse(" tool ") is REGISTRY["tool"]


def test_every_kind_of_field_is_overridden() -> None:
    text = "tool:size=1e2,weight=1e-3, sharp=yes ,label=edge,teeth=1/2.5"
    assert parse(text) == Tool(100, 1e-3, True, "edge", (1.0, 2.5))
    assert parse("tool:teeth=") == Tool()


def test_a_bare_value_stands_for_the_first_field() -> None:
    assert parse("tool:7") == Tool(size=7)
    assert parse("tool:7,sharp=true") == Tool(size=7, sharp=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("toool", "unknown tool 'toool': did you mean 'tool'"),
        ("tool:sized=3", "unknown parameter of tool 'tool' 'sized': did you mean 'size'"),
        ("tool:size=1.5", "'1.5': give a whole number"),
        ("tool:size=nan", "'nan': give a whole number"),
        ("tool:size=inf", "'inf': give a whole number"),
        ("tool:weight=heavy", "'heavy': give a number"),
        ("tool:sharp=maybe", "'maybe': give true or false"),
        ("tool:size=1,size=2", "'size' of tool 'tool' is given twice"),
        ("tool:teeth=1/", "'1/': give numbers between slashes, such as 1/1.5/2"),
        ("tool:", "'': give a whole number"),
        ("plain:size=1", "'plain' takes no parameters, got 'size=1'"),
        ("object:size=1", "'object' takes no parameters"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse(text)


FLOATS = st.floats(allow_nan=False)
TOOLS = st.builds(
    Tool, st.integers(-(10**9), 10**9), FLOATS, st.booleans(), st.just("word"), st.lists(FLOATS).map(tuple)
)


@given(TOOLS)
def test_the_canonical_text_reads_back(tool: Tool) -> None:
    assert parse(describe(tool, "tool")) == tool


def test_what_has_no_fields_is_its_name() -> None:
    assert describe(Plain(), "plain") == "plain"
    assert describe(NoDataclass(), "object") == "object"


def twice(value: float) -> float:
    return 2 * value


class Shape:
    pass


@dataclass(frozen=True)
class Bent:
    by: object
    others: tuple[object, ...] = ()


def test_a_function_is_shown_by_its_name_and_not_by_its_place_in_memory() -> None:
    assert describe(Bent(twice, (twice, 3)), "bent") == "bent:by=twice,others=twice/3"
    assert describe(Bent(lambda value: value), "bent") == (
        "bent:by=test_a_function_is_shown_by_its_name_and_not_by_its_place_in_memory.<locals>.<lambda>,others="
    )
    for held in (Shape(), partial(twice, 3.0), Tool().__str__):
        assert "0x" not in describe(Bent(held), "bent")
    assert describe(Bent("page at 0x1f"), "bent") == "bent:by=page at 0x1f,others="


def test_layers_are_numbers_and_rising_ranges() -> None:
    assert layer_numbers("0-2,9") == [0, 1, 2, 9]
    for wrong in ("a-b", "5-2", "0-20000000", "", "-1"):
        with pytest.raises(InputError, match=f"layers are '{wrong}': give numbers and rising ranges"):
            layer_numbers(wrong)
