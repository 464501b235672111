"""One grammar for everything a user names: `rope`, `rope:base=1e6,frequencies=32`, `skip:offset=7`.

A registry maps names to frozen dataclass instances; the text after the colon overrides fields of the named one. A bare
value stands for the first field; a list is written as numbers between slashes.
"""

import dataclasses
import re
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from poskernel.errors import InputError, lookup

Item = TypeVar("Item")

LARGEST = 10**9
"""Whole numbers beyond this count nothing here; arrays of that size would fail in less clear ways."""
MOST_LAYERS = 10_000
NUMBERS = tuple[float, ...]
WANTED: dict[Any, str] = {
    int: f"a whole number up to {LARGEST:.0e}",
    float: "a number",
    bool: "true or false",
    str: "a text",
    NUMBERS: "numbers between slashes, such as 1/1.5/2",
}
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse_specification(registry: Mapping[str, Item], text: str, kind: str) -> Item:
    """The registered value a text names, with its fields overridden; InputError names what it does not know."""
    name, colon, assignments = text.strip().partition(":")
    item = lookup(registry, name, kind)
    if not colon:
        return item
    fields = {field.name: field for field in fields_of(item) if field.init}
    if not fields:
        raise InputError(f"{kind} '{name}' takes no parameters, got '{assignments}': write '{name}' alone.")
    changes: dict[str, object] = {}
    for assignment in assignments.split(","):
        key, equals, value = assignment.partition("=")
        if not equals:
            key, value = next(iter(fields)), key
        key = key.strip()
        lookup(fields, key, f"parameter of {kind} '{name}'")
        if key in changes:
            raise InputError(f"parameter '{key}' of {kind} '{name}' is given twice: give it once.")
        changes[key] = convert(value.strip(), typing.get_type_hints(type(item))[key], f"{kind} parameter '{key}'")
    return dataclasses.replace(item, **changes)  # type: ignore[type-var]  # the registry holds dataclasses only


def convert(text: str, wanted: Any, what: str) -> object:
    """A text as int, float, bool, str or numbers; InputError names the text that is none. 16.0 is a valid int."""
    try:
        if wanted == NUMBERS:
            return tuple(float(number) for number in text.split("/")) if text else ()
        if wanted is bool:
            return TRUTH[text.lower()]
        if wanted is int:
            number = float(text)
            if number != int(number) or abs(number) > LARGEST:
                raise ValueError
            return int(number)
        return wanted(text)
    except (ValueError, KeyError, OverflowError):
        raise InputError(f"{what} is '{text}': give {WANTED[wanted]}.") from None


def fields_of(item: object) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a dataclass instance; none for an object of a plain class."""
    return dataclasses.fields(item) if dataclasses.is_dataclass(item) else ()


def describe(item: object, name: str) -> str:
    """The canonical text of a value: its name and every field, so that effective parameters are echoed."""
    fields = [(field.name, written(getattr(item, field.name))) for field in fields_of(item)]
    return name if not fields else f"{name}:" + ",".join(f"{key}={value}" for key, value in fields)


def written(value: object) -> str:
    """One parameter as the grammar reads it; of a function its name, never where it lies in memory."""
    if isinstance(value, tuple):
        return "/".join(map(written, value))
    if hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    return value if isinstance(value, str) else re.sub(r" at 0x[0-9a-fA-F]+", "", str(value))


def layer_numbers(text: str) -> list[int]:
    """`0-5,9` as a list of layers; InputError names what is none."""
    layers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            low, high = int(first), int(last if dash else first)
            if not 0 <= low <= high < MOST_LAYERS:
                raise ValueError
        except ValueError:
            raise InputError(f"layers are '{text}': give numbers and rising ranges such as 0-5,9.") from None
        layers += range(low, high + 1)
    return layers
