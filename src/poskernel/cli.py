"""The command line: parse, call, print. Everything heavy is imported where it is used, so that --help is quick."""

import os
import signal
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from cyclopts import App, ArgumentCollection, CycloptsError, Parameter, UnusedCliTokensError
from cyclopts.config import Dict

import poskernel
from poskernel import console
from poskernel.errors import InputError, RunError, Terminated
from poskernel.session import Session, resolved, typed
from poskernel.verbs.experiment import experiment
from poskernel.verbs.extend import extend
from poskernel.verbs.model import analyze, doctor, report
from poskernel.verbs.prediction import predict, screen
from poskernel.verbs.study import plan, run_study, study
from poskernel.verbs.theory import characterize, theory

app = App(
    name="poskernel",
    help="Positional kernels of attention heads: predict length generalization before training, train and compare, "
    "measure pretrained heads.",
    version=lambda: poskernel.__version__,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(converter=typed),
)  # fmt: skip


app.meta.suppress_keyboard_interrupt = False
for verb in (predict, screen, theory, characterize, analyze, extend, report, doctor):
    app.command(verb)
app.command(study)
app.command(experiment)
ON_ACCELERATORS = (analyze, extend, plan, run_study)
"""Commands that heed --device."""
STORING = ("study", "experiment")
"""Verbs whose results are stored one by one; of the others nothing is left when they are ended early."""


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
    values = {} if config is None else configuration(config)
    app.config = (flags_of(values, str(config)),) if values else ()
    try:
        command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    finally:
        app.config = ()  # the next line parsed in this process has no configuration of this one's
    bound.apply_defaults()
    session = next((value for value in bound.arguments.values() if isinstance(value, Session)), None)
    if session is None:  # help or the version: nothing to set up
        command(*bound.args, **bound.kwargs)
        return
    console.set_up_logging(session.verbose, session.quiet)
    settings = resolved(command, bound.arguments)
    if show_config:
        sys.stdout.write(settings)
        return
    if session.device not in ("auto", "cpu") and command not in ON_ACCELERATORS:
        raise InputError(
            f"--device is '{session.device}', and only analyze, extend and study run use an accelerator: leave it out."
        )
    if session.quiet or not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # the bars of libraries that convert weights
    use_threads(session.threads)
    if session.out is None:
        command(*bound.args, **bound.kwargs)
        return
    from poskernel.verbs.saving import saved_with_manifest

    line = ["poskernel", *tokens, *([] if config is None else ["--config", str(config)])]
    with saved_with_manifest(session.out, settings, line):
        command(*bound.args, **bound.kwargs)


def configuration(path: Path) -> dict[str, Any]:
    """The flags that a TOML file gives; lists become the comma-separated texts that the flags take.

    InputError for a file that is not there, is no TOML, or has tables.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the configuration {path} ({error.strerror}): give a TOML file.") from None
    except ValueError as error:  # also what is no UTF-8
        raise InputError(f"the configuration {path} is no valid TOML ({error}): mend it.") from None
    table = next((name for name, value in values.items() if isinstance(value, dict)), None)
    if table is not None:
        raise InputError(f"the configuration {path} has a table [{table}]: put the flags' names at the top level.")
    return {name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in values.items()}


def flags_of(values: dict[str, Any], source: str) -> Callable[[App, tuple[str, ...], ArgumentCollection], None]:
    """What gives a command the flags of a configuration file.

    cyclopts takes a top-level key that is a command's name for that command's table, and `report` names an option and
    a verb. So the flags are handed over as the table of the command that runs.
    """

    def give(command: App, path: tuple[str, ...], arguments: ArgumentCollection) -> None:
        table: dict[str, Any] = values
        for name in reversed(path):
            table = {name: table}
        Dict(table, source=source)(command, path, arguments)

    return give


def use_threads(threads: int | None) -> None:
    """Bound the threads of this process and of the libraries it will load."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def on_terminate(signum: int, frame: FrameType | None) -> None:
    """Turn SIGTERM into an exception, so that what is open is closed in order."""
    raise Terminated


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done, 1 failed while running, 2 bad input, 130 SIGINT, 143 SIGTERM.
    """
    tokens = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGTERM, on_terminate)
    try:
        app.meta(tokens, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of stdout has gone; pointing it elsewhere keeps the interpreter's last flush quiet.
        sys.stdout = sys.__stderr__
        return 1
    except (Exception, KeyboardInterrupt) as error:  # the last door: also a fault of ours is one sentence
        code, message = verdict(error, any(token in STORING for token in tokens))
        if "-v" in tokens or "--verbose" in tokens:
            import traceback

            traceback.print_exception(error)
        console.fail(message)
        return code
    return 0


def verdict(error: BaseException, stores: bool = False) -> tuple[int, str]:
    """Exit code and sentence of what ended a run; `stores` says that results are kept as they come."""
    kept = "finished results are kept, run the same line to go on." if stores else "no result is kept, run it again."
    match error:
        case CycloptsError() if isinstance(error.__cause__, InputError):  # ours, about one option's text
            return 2, str(error.__cause__)
        case CycloptsError():
            return 2, refused(error)
        case InputError():
            return 2, str(error)
        case Terminated():
            return 143, f"terminated; {kept}"
        case KeyboardInterrupt():
            return 130, f"interrupted; {kept}"
        case RunError():
            return 1, str(error)
        case _ if isinstance(error, MemoryError) or "allocate memory" in str(error):  # torch says it in words alone
            return 1, "out of memory: give fewer sequences, shorter lengths, fewer frequencies or fewer workers."
        case OSError():
            return 1, f"{error.strerror or error}: '{error.filename}'; free space or choose another place."
        case _:
            return 1, f"{type(error).__name__}: {error} (an unforeseen fault: -v shows where)."


def refused(error: CycloptsError) -> str:
    """What the parser refuses, in one sentence with its remedy: the one it names itself, else the command's --help."""
    said, command = str(error), " ".join(("poskernel", *(error.command_chain or ())))
    if "Did you mean" in said or "Available commands" in said:
        return said
    if isinstance(error, UnusedCliTokensError):
        said = f"'{' '.join(error.unused_tokens or ())}' is more than '{command}' takes"
    return f"{said.rstrip('.')}: '{command} --help' says what it takes."


if __name__ == "__main__":
    sys.exit(main())
