"""The heads of a model in a terminal: sentences of a few, numbers in columns of many."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from poskernel.attention.determined import undetermined
from poskernel.console import number

SCREENFUL = 12
"""Heads whose sentences fit a screen; of more there are columns."""
TERMS = ("position", "key", "query", "interaction")
WIDE = "?: the interval of R2 is wider than 1, so it says nothing: take more sequences"
MORE = "more about each head: --measures split,probes (or all; --help says what)"
IN_WORDS = "each head in words: --sentences"


def heads_table(document: Mapping[str, Any], sentences: bool = False) -> Table:
    """One line a head: in words where asked for or where all fit a screen, else in columns."""
    heads = document["heads"]
    title = "{model}: {sequences} x {length} tokens, first {dropped} positions left out".format_map(document)
    words = sentences or len(heads) <= SCREENFUL
    notes = [
        WIDE if any(shown_r2(head) == "?" for head in heads) else "",
        "" if document["measures"] else MORE,
        "" if words else IN_WORDS,
    ]
    caption = "\n".join(note for note in notes if note) or None
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    fill_words(table, heads) if words else fill_columns(table, heads)
    return table


def fill_words(table: Table, heads: Sequence[Mapping[str, Any]]) -> None:
    """R2, signal and share beside the sentence."""
    for name in ("layer", "head", "R2", "signal", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what it does", overflow="fold", min_width=40)
    for head in heads:
        table.add_row(*main_numbers(head), number(head["share"]), escape(head["sentence"]))


def fill_columns(table: Table, heads: Sequence[Mapping[str, Any]]) -> None:
    """What the sentence says, a column each: with the split all four shares, else that of position."""
    split = "position_share" in heads[0]
    for name in ("layer", "head", "R2", "signal"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    for name in ("peak", *(TERMS if split else ("share",)), "first token"):
        table.add_column(name, justify="right", no_wrap=True)
    for head in heads:
        shares = [head[f"{term}_share"] for term in TERMS] if split else [head["share"]]
        numbers = [number(share) for share in (*shares, head["first_mass"])]
        table.add_row(*main_numbers(head), escape(head["kind"]), str(head["peak_offset"]), *numbers)


def main_numbers(head: Mapping[str, Any]) -> Iterator[str]:
    """Layer, head, R2 and signal."""
    yield from (str(head["layer"]), str(head["head"]), shown_r2(head), number(head["signal"]))


def shown_r2(head: Mapping[str, Any]) -> str:
    """R2, or ? where its interval says that it could be anything."""
    return "?" if undetermined(head["r2_low"], head["r2_high"]) else number(head["r2"])
