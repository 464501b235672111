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
    test_encoding: str | None = None,
    existence: bool = True,
    existence_seconds: float = 60.0,
    session: Session = DEFAULTS,
) -> None:
    """Will one encoding reach on one task, does anything in its family reach, and why not.

    Parameters
    ----------
    encoding
        `rope`, `rope:base=1e6,frequencies=32`, `t5`, `randomized:inner=alibi`, or inline JSON in the form of a Hugging
        Face config. The page on encodings lists all.
    task
        prev, skip2, skip3, skip5, copy, reverse, first, pos2, pos5, induction, `skip:offset=7`, `pos:position=4`.
    train_length
        Length the kernel is fitted at.
    lengths
        Longer lengths to evaluate it at.
    rule
        adam, optimum, adam0, max-margin, min-norm, or with parameters: `adam:steps=1500`.
    test_encoding
        Evaluate the fitted weights under this encoding, as context extension without training does:
        `yarn:factor=4,original=20` after `rope`.
    existence
        Also ask whether any kernel of the family solves both lengths.
    existence_seconds
        Time limit of one such answer.
    """
    from poskernel.realizability import predict as run

    prediction = run(
        encoding, task, train_length, whole_numbers(lengths, "--lengths"), rule, existence, existence_seconds,
        test_encoding=test_encoding,
    )  # fmt: skip
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
    test_encoding: str | None = None,
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
    test_encoding
        Evaluate the fitted weights of every encoding under this one, as context extension without training does.
    existence
        Also ask whether any kernel of each family solves both lengths (about a minute the first time, then cached).
    existence_seconds
        Time limit of one such answer.
    """
    from poskernel.encodings import ENCODINGS
    from poskernel.realizability import screen as run
    from poskernel.realizability import screen_document

    chosen = list(ENCODINGS) if encodings == "all" else specifications(encodings, "--encodings")
    names = specifications(tasks, "--tasks")
    at = "" if test_encoding is None else f" at {test_encoding}"
    progress = console.Progress(len(chosen) * len(names), "screen", quiet=session.quiet)
    predictions = run(
        chosen, names, train_length, whole_numbers(lengths, "--lengths"), rule, existence, existence_seconds,
        progress=lambda prediction: progress.step(f"{prediction.encoding} {prediction.task}"),
        test_encoding=test_encoding,
    )  # fmt: skip
    if session.json:
        console.print_json(screen_document(predictions))
    else:
        labels = [text + at for text in chosen for _ in names]
        documents = [prediction.document() for prediction in predictions]
        console.output().print(console.screen_table(documents, labels))
    if session.out is not None:
        save_rows(session.out, "screen", predictions)


def save_rows(folder: Path, name: str, predictions: "Sequence[Prediction]") -> None:
    """The rows of predictions as csv in a folder."""
    import pandas as pd

    from poskernel.realizability import screen_document
    from poskernel.storage import write_whole

    write_whole(folder / f"{name}.csv", pd.DataFrame(screen_document(predictions)["rows"]).to_csv(index=False))
