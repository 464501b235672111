"""The predictor: one encoding, one task, one training length, and what a selected kernel does at longer lengths."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from poskernel.encodings import STUDY_ENCODINGS, Encoding, parse_encoding
from poskernel.errors import InputError
from poskernel.kernel import PositionalKernel
from poskernel.realizability.cell import PREDICT_SCHEMA, Asked, Cell, PredictedRow, Prediction
from poskernel.realizability.existence import Exists
from poskernel.realizability.selection import SelectionRule, parse_rule, rule_label
from poskernel.tasks import TASKS, Task, parse_task

__all__ = [
    "PREDICT_SCHEMA",
    "SCREEN_SCHEMA",
    "Asked",
    "PredictedRow",
    "Prediction",
    "predict",
    "predict_all",
    "screen",
    "screen_document",
    "select_kernel",
]

SCREEN_SCHEMA = "poskernel.screen/1"
LENGTH_BY_LENGTH_HORIZON, FAMILY_BY_LENGTH_HORIZON = 4096, 1024
"""How far `reach` is searched where targets, or the family, change with the length: the cost grows with the square."""
LONGEST_TRAINING = 4096
"""A fit holds the whole grid of that side."""
SCREEN_LENGTHS = (30, 40, 50, 60, 80)


def predict(
    encoding: Encoding | str,
    task: Task | str,
    train_length: int = 20,
    lengths: Sequence[int] = SCREEN_LENGTHS,
    rule: SelectionRule | str = "adam",
    existence: bool = True,
    existence_seconds: float = 60.0,
    horizon: int | None = None,
    test_encoding: Encoding | str | None = None,
) -> Prediction:
    """Fit one positional head at train_length by a selection rule and evaluate the same weights at longer lengths.

    `existence` also asks at each length whether any kernel of the family solves both lengths (None in the row where not
    asked: absolute families beyond 128). `horizon` bounds the search for `reach` (default: the encoding's own).
    `test_encoding` evaluates the same weights under another encoding, as a context extension without training does;
    existence then asks for weights that solve train_length as fitted and the length as evaluated. Raises InputError for
    unknown names, impossible lengths, and a test encoding whose weights mean something else.
    """
    asked = Asked(existence, existence_seconds)
    return next(iter(predict_all(encoding, [task], train_length, lengths, rule, asked, horizon, test_encoding)))


def predict_all(
    encoding: Encoding | str,
    tasks: Iterable[Task | str],
    train_length: int = 20,
    lengths: Sequence[int] = SCREEN_LENGTHS,
    rule: SelectionRule | str = "adam",
    asked: Asked | None = None,
    horizon: int | None = None,
    test_encoding: Encoding | str | None = None,
) -> Iterator[Prediction]:
    """Predictions for many tasks of one encoding: the kernels are selected in one batch."""
    encoding = parse_encoding(encoding) if isinstance(encoding, str) else encoding
    rule = parse_rule(rule) if isinstance(rule, str) else rule
    parsed = [parse_task(task) if isinstance(task, str) else task for task in tasks]
    tested = encoding if test_encoding is None else test_encoding
    tested = parse_encoding(tested) if isinstance(tested, str) else tested
    for each in (encoding, tested):
        check_lengths(each, train_length, lengths, horizon)
    check_transfer(encoding, tested, train_length)
    cells = [
        Cell(
            encoding,
            tested,
            task,
            train_length,
            rule_label(rule),
            horizon or default_horizon(tested, task, train_length),
        )
        for task in parsed
    ]
    for cell in cells:
        cell.check(lengths)
    wanted = [cell.task.targets(train_length) for cell in cells if cell.asks_a_kernel]
    family = encoding.family(train_length, train_length) if wanted else None
    chosen = iter([] if family is None else rule.select(family, wanted, train_length))
    ask = asked or Asked()
    for cell in cells:
        yield cell.prediction(next(chosen), lengths, ask) if cell.asks_a_kernel else cell.undefined(lengths)


def existence_answers(
    encoding: Encoding,
    task: Task,
    train_length: int,
    lengths: Sequence[int],
    seconds: float = 60.0,
    test_encoding: Encoding | None = None,
) -> dict[int, str | None]:
    """What `predict` gives as `exists` at each length, on its own: no rule selects anything.

    Raises InputError as `predict` does.
    """
    tested = encoding if test_encoding is None else test_encoding
    check_lengths(encoding, train_length, lengths, None)
    check_transfer(encoding, tested, train_length)
    cell = Cell(encoding, tested, task, train_length, rule="", horizon=max(lengths))
    cell.check(lengths)
    if not cell.asks_a_kernel:
        return dict.fromkeys(lengths, str(Exists.NOT_APPLICABLE))
    return cell.exists(lengths, Asked(seconds=seconds))


def select_kernel(
    encoding: Encoding | str, task: Task | str, train_length: int = 20, rule: SelectionRule | str = "adam"
) -> PositionalKernel:
    """The kernel that a selection rule picks at train_length, to be evaluated anywhere: what `predict` scores.

    Raises InputError where the rule finds none. Where the family changes with the length, it is that of train_length.
    """
    encoding = parse_encoding(encoding) if isinstance(encoding, str) else encoding
    rule = parse_rule(rule) if isinstance(rule, str) else rule
    task = parse_task(task) if isinstance(task, str) else task
    check_lengths(encoding, train_length, [train_length + 1], None)
    family = encoding.family(train_length, train_length)
    selection = rule.select(family, [task.targets(train_length)], train_length)[0]
    if selection.weights is None:
        raise InputError(f"rule {rule_label(rule)} finds none for {encoding.name} and {task.name}: {selection.note}.")
    return family.kernel(selection.weights)


def check_lengths(encoding: Encoding, train_length: int, lengths: Sequence[int], horizon: int | None) -> None:
    """InputError for lengths that nothing can be fitted at or evaluated to."""
    if train_length < 2:
        raise InputError(
            f"train_length is {train_length}: give at least 2, a single position has nothing to choose between."
        )
    if train_length > LONGEST_TRAINING:
        raise InputError(
            f"train_length is {train_length}: give at most {LONGEST_TRAINING}, a fit holds the whole grid of that side."
        )
    if not lengths:
        raise InputError("no length to predict: give at least one beyond train_length.")
    if horizon is not None and horizon <= train_length:
        raise InputError(f"horizon {horizon} is not beyond the training length {train_length}: give a longer one.")
    if max(lengths) > encoding.longest:
        raise InputError(
            f"length {max(lengths)} is beyond what '{encoding.name}' is evaluated to: give at most {encoding.longest}."
        )


def check_transfer(encoding: Encoding, tested: Encoding, train_length: int) -> None:
    """InputError where weights fitted under one encoding mean nothing under another."""
    if tested == encoding:
        return
    if tested.weight_meaning != encoding.weight_meaning:
        raise InputError(
            f"'{tested.name}' means {tested.weight_meaning} by its weights and '{encoding.name}' "
            f"{encoding.weight_meaning}: evaluate under an encoding whose weights mean the same."
        )
    own, other = (each.family(train_length, train_length) for each in (encoding, tested))
    if own.shape != other.shape:
        raise InputError(
            f"'{tested.effective}' has weights of shape {other.shape} and '{encoding.effective}' of {own.shape}: "
            "evaluate under an encoding with as many."
        )


def default_horizon(encoding: Encoding, task: Task, train_length: int) -> int:
    """How far `reach` is searched: less far where every length has to be looked at on its own."""
    horizon = encoding.reach_horizon
    if task.depends_on_length:
        horizon = min(horizon, LENGTH_BY_LENGTH_HORIZON)
    if encoding.depends_on_length:
        horizon = min(horizon, FAMILY_BY_LENGTH_HORIZON)
    return max(horizon, 2 * train_length)


def screen(
    encodings: Iterable[Encoding | str] = STUDY_ENCODINGS,
    tasks: Iterable[Task | str] = tuple(TASKS),
    train_length: int = 20,
    lengths: Sequence[int] = SCREEN_LENGTHS,
    rule: SelectionRule | str = "adam",
    existence: bool = True,
    existence_seconds: float = 60.0,
    horizon: int | None = None,
    progress: Callable[[Prediction], None] | None = None,
    test_encoding: Encoding | str | None = None,
) -> list[Prediction]:
    """Predictions for every encoding and task, in order; `progress` is called after each.

    With a `test_encoding` every encoding's weights are evaluated under that one.
    """
    tasks, asked = list(tasks), Asked(existence, existence_seconds)
    predictions: list[Prediction] = []
    for encoding in encodings:
        for prediction in predict_all(encoding, tasks, train_length, lengths, rule, asked, horizon, test_encoding):
            predictions.append(prediction)
            if progress is not None:
                progress(prediction)
    return predictions


def screen_document(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """The JSON document of `poskernel screen`: one row per encoding, task and length."""
    rows = []
    for prediction in predictions:
        cell = asdict(prediction)
        cell.pop("rows")
        rows += [{**cell, **asdict(row)} for row in prediction.rows]
    return {"schema": SCREEN_SCHEMA, "rows": rows}
