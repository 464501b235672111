"""What a person sees in a terminal: one-sentence errors, tables in words, progress.

Results go to stdout, the rest to stderr.
"""

import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from poskernel.errors import InputError

SHORT = {True: "yes", False: "no", None: "-"}


def output() -> Console:
    """The console for results."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 160, soft_wrap=not sys.stdout.isatty())


def messages() -> Console:
    """The console for everything that is no result."""
    return Console(stderr=True, highlight=False)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on stdout; a NaN in it is a bug and raises ValueError."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def fail(message: str) -> None:
    """One sentence on stderr."""
    sys.stderr.write(f"poskernel: {' '.join(message.split())}\n")


def say(message: str, quiet: bool) -> None:
    """A line on stderr, such as where a file is, unless quiet."""
    if not quiet:
        sys.stderr.write(f"{message}\n")


def set_up_logging(verbose: bool, quiet: bool) -> None:
    """Warnings to stderr; everything with -v, errors alone with -q."""
    level = logging.DEBUG if verbose else logging.ERROR if quiet else logging.WARNING
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", force=True
    )
    logging.getLogger("poskernel").setLevel(level)


def number(value: float | None, digits: int = 2) -> str:
    """A number for a table, '-' for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def prediction_table(prediction: dict[str, Any]) -> Table:
    """The rows of one prediction document, with what each means in words."""
    title = "{encoding} on {task}, trained at {train_length}, rule {rule}".format_map(prediction)
    table = Table(title=title, caption=summary(prediction), title_justify="left", caption_justify="left")
    for name, justify in (("length", "right"), ("rows", "right"), ("alpha", "right"), ("margin", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # rich wants a literal
    for name in ("certified", "exists"):
        table.add_column(name)
    table.add_column("what it means", overflow="fold", min_width=30)
    for row in prediction["rows"]:
        table.add_row(
            str(row["length"]), str(row["scored"]), number(row["alpha"], 3), number(row["margin"]),
            SHORT[row["certified"]], row["exists"] or "not asked", row["reason"],
        )  # fmt: skip
    return table


def summary(prediction: dict[str, Any]) -> str:
    """Training margin and reach of one prediction, in words."""
    if prediction["realized"] is None:
        return "no kernel was selected"
    solved = "solves" if prediction["realized"] else "does not solve"
    reach, horizon = prediction["reach"], prediction["horizon"]
    reached = f"reach {reach}" if reach is not None else f"nothing wrong below {horizon}"
    reached = reached if horizon else "no reach: every draw is another kernel"
    return f"the kernel {solved} the training length (margin {prediction['train_margin']:.2f} nats); {reached}"


def screen_table(predictions: Sequence[dict[str, Any]], names: Sequence[str]) -> Table:
    """One line per encoding and task: alpha by length, existence, reach and what that means."""
    lengths = [row["length"] for row in predictions[0]["rows"]]
    first = predictions[0]
    title = f"alpha by length: trained at {first['train_length']}, rule {first['rule']}"
    table = Table(title=title, title_justify="left")
    table.add_column("encoding", no_wrap=True)
    table.add_column("task", no_wrap=True)
    for length in lengths:
        table.add_column(str(length), justify="right", no_wrap=True)
    table.add_column("reach", justify="right", no_wrap=True)
    table.add_column("exists")
    table.add_column(f"what it means at {lengths[-1]}", overflow="fold", min_width=30)
    before = names[0]
    for name, prediction in zip(names, predictions, strict=True):
        if name != before:
            table.add_section()
        before, last = name, prediction["rows"][-1]
        reach, horizon = prediction["reach"], prediction["horizon"]
        table.add_row(
            name, prediction["task"], *(number(row["alpha"]) for row in prediction["rows"]),
            str(reach) if reach is not None else f"> {horizon}" if horizon else "-",
            last["exists"] or "not asked", last["reason"],
        )  # fmt: skip
    return table


class Progress:
    """Steps done of a total with an ETA, once more than `settle` are done: the first may be unlike the rest.

    One line that rewrites itself on a terminal, plain lines elsewhere, none when quiet.
    """

    def __init__(self, total: int, what: str, quiet: bool = False, every: float = 10.0, settle: int = 0) -> None:
        self.total, self.what, self.quiet, self.every, self.settle = total, what, quiet, every, settle
        self.done, self.start, self.last = 0, time.monotonic(), 0.0

    def step(self, label: str = "") -> None:
        """Count one more."""
        self.done += 1
        elapsed, live = time.monotonic() - self.start, sys.stderr.isatty()
        if self.quiet or not (live or self.done == self.total or elapsed - self.last >= self.every):
            return
        self.last = elapsed
        left = elapsed / self.done * (self.total - self.done)
        told = f", {duration(left)} left" if self.done > self.settle or self.done == self.total else ""
        text = f"{self.what}: {self.done} of {self.total}, {duration(elapsed)} gone{told}  {label}"
        sys.stderr.write(f"\r\x1b[2K{text}" + ("\n" if self.done == self.total else "") if live else f"{text}\n")
        sys.stderr.flush()


def duration(seconds: float) -> str:
    """1:05 for 65 seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


class Steps:
    """Progress of a job with named parts, as progress(what, done, total): a line for each part and now and then."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet, self.what, self.progress = quiet, "", Progress(1, "")

    def show(self, what: str, done: int, total: int) -> None:
        """A part has come so far; the very first is announced when it begins, so that a wait has a reason."""
        if what != self.what:
            if not self.what and not done:
                say(f"{what} ...", self.quiet)
            self.what, self.progress = what, Progress(total, what, self.quiet)
        self.progress.total = total
        while self.progress.done < done:
            self.progress.step()


def read_text(source: str | None) -> str | None:
    """A file's text, standard input for '-', None for None; InputError where there is none."""
    if source is None:
        return None
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot read the text '{source}' ({error.strerror}): give a file, or - for standard input."
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"the text '{source}' is not UTF-8: convert it, e.g. with iconv.") from None


def print_rows(
    rows: Sequence[dict[str, Any]], schema: str, as_json: bool, empty: str = "nothing", caption: str | None = None
) -> None:
    """Rows as a JSON document, or as a table with a line below it; `empty` is said where there are none."""
    if as_json:
        print_json({"schema": schema, "rows": list(rows)})
        return
    if not rows:
        output().print(empty)
        return
    table = Table(caption=caption, caption_justify="left")
    for name in rows[0]:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*("-" if value is None else escape(str(value)) for value in row.values()))
    output().print(table)


def theory_tables(document: dict[str, Any]) -> list[Table]:
    """A table a source; a block a claim: whether it holds, name, sample size, sentence, the measured and expected."""
    from poskernel.realizability.theorems.check import sample_size, shown
    from poskernel.realizability.theorems.table import GROUPS, departs

    tables = []
    titles = {key: group.title for key, group in GROUPS.items()} | {"": ""}
    for key, title in titles.items():
        checks = [check for check in document["checks"] if check["group"] == key]
        table = Table(title=title, title_justify="left", show_lines=True)
        table.add_column("holds", max_width=14)
        table.add_column("claim, what was measured, what was expected", overflow="fold")
        for check in checks:
            # The note says what a claim supposes, which is what a reader of one that fails wants to know.
            words = ("claim", "measured", "expected", *(() if check["holds"] else ("note",)))
            size = sample_size(check["n"], check["unit"])
            lines = [f"[bold]{escape(check['name'])}[/bold]  {escape(check['source'])}; {size}"]
            lines += [("" if word == "claim" else f"{word}: ") + escape(check[word]) for word in words]
            lines += [f"[dim]{escape(check['function'])}, {escape(check['page'])}[/dim]"]
            told = shown(check["holds"], check["data"], departs(check["name"]))
            table.add_row(told if check["holds"] else f"[bold]{told}[/bold]", "\n".join(lines))
        tables += [table] if checks else []
    return tables


def characterization_table(found: dict[str, Any]) -> Table:
    """One characterization document in words."""
    from poskernel.realizability.theorems.characterization import in_words

    title, lines = in_words(found)
    table = Table(title=escape(title), title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines.items():
        table.add_row(name, escape(value))
    return table
