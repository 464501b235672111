"""The command line: parse, call, print. Everything heavy is imported where it is used, so that --help is quick."""

import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.config import Toml

from poskernel import console
from poskernel.errors import InputError, RunError

EVERYWHERE = Group("Everywhere", sort_key=9)
app = App(
    name="poskernel",
    help="Positional kernels of attention heads: predict length generalization before training, train and compare, measure "
    "pretrained heads.",
    version=lambda: __import__("poskernel").__version__,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)  # fmt: skip


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
        if self.threads is not None and self.threads < 1:
            raise InputError(f"--threads is {self.threads}: give at least 1.")
        if self.seed < 0:
            raise InputError(f"--seed is {self.seed}: give 0 or more.")


def whole_numbers(text: str, option: str) -> list[int]:
    """`30,40,60` as a list; InputError names what is no whole number."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} is '{text}': give whole numbers such as 30,40,60.") from None


def specifications(text: str) -> list[str]:
    """`rope,alibi` or `rope:base=1e6,frequencies=8;alibi`: commas separate bare names, semicolons anything."""
    parts = [part for piece in text.split(";") for part in ([piece] if ":" in piece else piece.split(","))]
    return [part.strip() for part in parts if part.strip()]


@app.command
def predict(
    encoding: str,
    task: str,
    /,
    *,
    train_length: int = 20,
    lengths: str = "30,40,50,60,80",
    rule: str = "adam",
    existence: bool = True,
    existence_seconds: float = 60.0,
    session: Session = Session(),
) -> None:
    """Will one encoding reach on one task, does anything in its family reach, and why not.

    Parameters
    ----------
    encoding
        `rope`, `rope:base=1e6,frequencies=32`, or inline JSON in the form of a Hugging Face config.
    task
        prev, skip2, skip3, skip5, copy, reverse, first, pos2, pos5, induction, `skip:offset=7`, `pos:position=4`.
    train_length
        Length the kernel is fitted at.
    lengths
        Longer lengths to evaluate it at.
    rule
        adam, optimum, adam0, max-margin, min-norm, or with parameters: `adam:steps=1500`.
    existence
        Also ask whether any kernel of the family solves both lengths.
    existence_seconds
        Time limit of one such answer.
    """
    from poskernel.realizability import predict as run

    prediction = run(encoding, task, train_length, whole_numbers(lengths, "--lengths"), rule, existence, existence_seconds)
    document = prediction.document()
    if session.json:
        console.print_json(document)
    else:
        console.output().print(console.prediction_table(document))
    if session.out is not None:
        save_rows(session.out, "predict", [prediction])


@app.command
def screen(
    *,
    encodings: str = "nope,learned,sinusoidal,rope,alibi",
    tasks: str = "prev,skip2,skip3,skip5,copy,reverse,first,pos2,pos5,induction",
    train_length: int = 20,
    lengths: str = "30,40,50,60,80",
    rule: str = "adam",
    existence: bool = True,
    existence_seconds: float = 60.0,
    session: Session = Session(),
) -> None:
    """The predictor for many encodings and tasks: a table of what will generalize and what will not.

    Parameters
    ----------
    encodings
        Names separated by commas (by semicolons where they have parameters), or `all`.
    tasks
        Names separated by commas.
    train_length
        Length the kernels are fitted at.
    lengths
        Longer lengths to evaluate them at.
    rule
        adam, optimum, adam0, max-margin, min-norm, or with parameters.
    existence
        Also ask whether any kernel of each family solves both lengths (about a minute the first time, then cached).
    existence_seconds
        Time limit of one such answer.
    """
    from poskernel.encodings import ENCODINGS, parse_encoding
    from poskernel.realizability import screen as run
    from poskernel.realizability import screen_document

    chosen = list(ENCODINGS) if encodings == "all" else specifications(encodings)
    names = specifications(tasks)
    progress = console.Progress(len(chosen) * len(names), "screen", quiet=session.quiet)
    predictions = run(
        chosen, names, train_length, whole_numbers(lengths, "--lengths"), rule, existence, existence_seconds,
        progress=lambda prediction: progress.step(f"{prediction.encoding} {prediction.task}"),
    )  # fmt: skip
    if session.json:
        console.print_json(screen_document(predictions))
    else:
        short = {parse_encoding(text).effective: text for text in chosen}
        documents = [prediction.document() for prediction in predictions]
        console.output().print(console.screen_table(documents, [short[each.encoding] for each in predictions]))
    if session.out is not None:
        save_rows(session.out, "screen", predictions)


def save_rows(folder: Path, name: str, predictions: Any) -> None:
    """The rows of predictions as csv in a folder."""
    import pandas as pd

    from poskernel.realizability import screen_document
    from poskernel.storage import write_whole

    write_whole(folder / f"{name}.csv", pd.DataFrame(screen_document(predictions)["rows"]).to_csv(index=False))


def resolved(command: Callable[..., Any], arguments: dict[str, Any]) -> str:
    """The configuration a command runs with, as TOML with the names of the flags."""
    import json

    values: dict[str, Any] = {}
    for name, value in arguments.items():
        values |= asdict(value) if is_dataclass(value) and not isinstance(value, type) else {name: value}
    lines = [f"# poskernel {command.__name__.replace('_', '-')}"]
    for name, value in values.items():
        if value is not None:
            shown = str(value) if isinstance(value, Path) else value
            lines.append(f"{name.replace('_', '-')} = {json.dumps(shown)}")
    return "\n".join(lines) + "\n"


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Path | None = None,
    show_config: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Run one verb.

    Parameters
    ----------
    config
        TOML file with the same names as the flags; flags win.
    show_config
        Show the resolved configuration instead of running.
    """
    if config is not None and not config.is_file():
        raise InputError(f"no configuration file {config}: give the path of a TOML file.")
    app.config = (Toml(config, use_commands_as_keys=False),) if config is not None else ()
    command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    bound.apply_defaults()
    session = next((value for value in bound.arguments.values() if isinstance(value, Session)), Session())
    console.set_up_logging(session.verbose, session.quiet)
    settings = resolved(command, bound.arguments)
    if show_config:
        sys.stdout.write(settings)
        return
    if session.out is not None:
        from poskernel.storage import write_whole

        write_whole(session.out / "config.toml", settings)
    use_threads(session.threads)
    command(*bound.args, **bound.kwargs)


def use_threads(threads: int | None) -> None:
    """Bound the threads of this process and of the libraries it will load."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


class Terminated(BaseException):
    """SIGTERM arrived; a BaseException, so that nothing on the way swallows it."""


def on_terminate(signum: int, frame: FrameType | None) -> None:
    """Turn SIGTERM into an exception, so that what is open is closed in order."""
    raise Terminated


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 failed while running, 2 bad input, 130 SIGINT, 143 SIGTERM."""
    tokens = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGTERM, on_terminate)
    try:
        app.meta(tokens, exit_on_error=False, print_error=False)
        return 0
    except (InputError, CycloptsError) as error:
        return failed(error, 2, tokens)
    except KeyboardInterrupt:
        console.fail("interrupted; finished results are kept, run the same line to go on.")
        return 130
    except Terminated:
        console.fail("terminated; finished results are kept, run the same line to go on.")
        return 143
    except BrokenPipeError:
        # The reader of stdout has gone; pointing it elsewhere keeps the interpreter's last flush quiet.
        sys.stdout = sys.__stderr__
        return 1
    except RunError as error:
        return failed(error, 1, tokens)
    except MemoryError as error:
        return failed(error, 1, tokens, "out of memory: give fewer sequences, a shorter length or fewer workers.")
    except Exception as error:  # the last door: whatever comes here is a fault of ours, and still one sentence
        return failed(error, 1, tokens, f"{type(error).__name__}: {error} (an unforeseen fault: -v shows where).")


def failed(error: BaseException, code: int, tokens: list[str], message: str = "") -> int:
    """Say one sentence, with -v a traceback before it, and return the exit code."""
    if "-v" in tokens or "--verbose" in tokens:
        import traceback

        traceback.print_exception(error)
    console.fail(message or str(error))
    return code


if __name__ == "__main__":
    sys.exit(main())
