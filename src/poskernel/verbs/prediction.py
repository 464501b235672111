"""predict and screen: the training-free side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from poskernel import console
from poskernel.session import DEFAULTS, Session, specifications, whole_numbers

if TYPE_CHECKING:
    from poskernel.realizability import Prediction


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
    session: Session = DEFAULTS,
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

    prediction = run(
        encoding, task, train_length, whole_numbers(lengths, "--lengths"), rule, existence, existence_seconds
    )
    document = prediction.document()
    if session.json:
        console.print_json(document)
    else:
        console.output().print(console.prediction_table(document))
    if session.out is not None:
        save_rows(session.out, "predict", [prediction])


def screen(
    *,
    encodings: str = "nope,learned,sinusoidal,rope,alibi",
    tasks: str = "prev,skip2,skip3,skip5,copy,reverse,first,pos2,pos5,induction",
    train_length: int = 20,
    lengths: str = "30,40,50,60,80",
    rule: str = "adam",
    existence: bool = True,
    existence_seconds: float = 60.0,
    session: Session = DEFAULTS,
) -> None:
    """The predictor for many encodings and tasks: a table of what will generalize and what will not.

    Parameters
    ----------
    encodings
        Names separated by commas, with parameters where wanted: `rope:base=1e6,frequencies=8,alibi`; or `all`.
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

    chosen = list(ENCODINGS) if encodings == "all" else specifications(encodings, "--encodings")
    names = specifications(tasks, "--tasks")
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


def save_rows(folder: Path, name: str, predictions: "Sequence[Prediction]") -> None:
    """The rows of predictions as csv in a folder."""
    import pandas as pd

    from poskernel.realizability import screen_document
    from poskernel.storage import write_whole

    write_whole(folder / f"{name}.csv", pd.DataFrame(screen_document(predictions)["rows"]).to_csv(index=False))
