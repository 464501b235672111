"""Options that every verb takes, and how texts of the command line become values."""

import inspect
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args

from cyclopts import Group, Parameter, Token, convert

from poskernel.errors import InputError

MOST_THREADS = 256
LARGEST_SEED = 1 << 32
EVERYWHERE = Group("Everywhere", sort_key=9)


@Parameter(name="*", group=EVERYWHERE)
@dataclass(frozen=True)
class Session:
    """Options that every verb takes."""

    json: Annotated[bool, Parameter(negative="")] = False
    """Print one JSON document on stdout, everything else on stderr."""
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="")] = False
    """Log more, and show tracebacks."""
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False
    """Show errors alone."""
    seed: int = 0
    """Seed of everything random."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where models run."""
    threads: int | None = None
    """Threads a process may use (default: all cores)."""
    store: Path = Path("out/results.sqlite")
    """The results store."""
    out: Path | None = None
    """Folder for rows, figures and the manifest."""

    def __post_init__(self) -> None:
        if self.threads is not None and not 1 <= self.threads <= MOST_THREADS:
            raise InputError(f"--threads is {self.threads}: give 1 to {MOST_THREADS}.")
        if not 0 <= self.seed < LARGEST_SEED:
            raise InputError(f"--seed is {self.seed}: give 0 to {LARGEST_SEED - 1}.")


@Parameter(name="*", group=EVERYWHERE)
@dataclass(frozen=True)
class PlainSession(Session):
    """Options of a verb that runs no model and stores no row: it takes the others too, and its help leaves them out."""

    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], Parameter(show=False)] = "auto"
    """Where models run."""
    store: Annotated[Path, Parameter(show=False)] = Path("out/results.sqlite")
    """The results store."""


DEFAULTS = Session()
PLAIN_DEFAULTS = PlainSession()
WHOLE = re.compile(r"([+-]?[0-9]+)(?:[eE]\+?([0-9]{1,2}))?")


def typed(kind: Any, tokens: Sequence[Token]) -> Any:
    """The value of an option by its text, as every verb converts it; InputError names the option and a remedy.

    A whole number is written as one (30, 1e5): nothing is rounded. A path is not empty.
    """
    plain = (
        next((each for each in get_args(kind) if each is not NoneType), kind) if NoneType in get_args(kind) else kind
    )
    if len(tokens) != 1 or plain not in (int, float, Path):
        return convert(kind, tokens)
    option, text = tokens[0].keyword or "the value", tokens[0].value
    if plain is Path and not text.strip():
        raise InputError(f"{option} is empty: give a path, or leave it out.")
    if plain is int:
        written = WHOLE.fullmatch(text.strip())
        if written is None:
            raise InputError(f"{option} is '{text}': give a whole number such as 30 or 1e5.")
        return int(written[1]) * 10 ** int(written[2] or 0)
    if plain is float:
        try:
            return float(text)
        except ValueError:
            raise InputError(f"{option} is '{text}': give a number such as 30 or 0.5.") from None
    return convert(kind, tokens)


def whole_numbers(text: str, option: str) -> list[int]:
    """`30,40,60` as a list; InputError names what is no whole number."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} is '{text}': give whole numbers such as 30,40,60.") from None


def specifications(text: str, option: str) -> list[str]:
    """`rope,alibi` or `rope:base=1e6,frequencies=8,alibi`: commas or semicolons separate, `name=value` goes on."""
    named: list[str] = []
    for part in text.replace(";", ",").split(","):
        if named and "=" in part and ":" not in part:
            named[-1] += "," + part.strip()
        elif part.strip():
            named.append(part.strip())
    if not named:
        raise InputError(f"{option} is '{text}', which names nothing: give names separated by commas.")
    return named


def resolved(command: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """The configuration a command runs with, as TOML with the names of the flags."""
    parameters = inspect.signature(command).parameters
    values: dict[str, Any] = {}
    given: list[str] = []
    for name, value in arguments.items():
        if is_dataclass(value) and not isinstance(value, type):
            values |= asdict(value)
        elif parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
            given.append(shlex.quote(str(value)))
        elif parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            given += [shlex.quote(str(each)) for each in value]
        else:
            values[name] = value
    lines = [" ".join(["# poskernel", command.__name__.replace("_", "-"), *given, "--config THIS_FILE"])]
    for name, value in values.items():
        if value is not None:
            shown = str(value) if isinstance(value, Path) else value
            lines.append(f"{name.replace('_', '-')} = {json.dumps(shown)}")
    return "\n".join(lines) + "\n"
