"""The predictor: one encoding, one task, one training length, and what a selected kernel does at longer lengths."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from poskernel.encodings import STUDY_ENCODINGS, AbsoluteEncoding, Encoding, RelativeEncoding, parse_encoding
from poskernel.encodings.encoding import require_positive
from poskernel.errors import InputError
from poskernel.kernel import PositionalKernel
from poskernel.realizability.alignment import RowMargins, reach, row_margins, rows_change, targets_conflict
from poskernel.realizability.existence import Exists, existence
from poskernel.realizability.selection import Selection, SelectionRule, parse_rule, rule_label
from poskernel.tasks import TASKS, ContentTask, OffsetRegime, Task, parse_task

PREDICT_SCHEMA = "poskernel.predict/1"
SCREEN_SCHEMA = "poskernel.screen/1"
LENGTH_BY_LENGTH_HORIZON = 4096
"""How far `reach` is searched where targets or family change with the length: its cost grows with the square."""
LONGEST_TRAINING, LONGEST_ABSOLUTE, LONGEST_RELATIVE = 4096, 1 << 18, 10_000_000
"""Bounds of what is evaluated: a grid in memory, a day's pass over every pair, and vectors of one entry a position."""
SCREEN_LENGTHS = (30, 40, 50, 60, 80)
ABSOLUTE_EXISTENCE_LIMIT = 128
"""Longest length at which existence is asked of an absolute family by default: its programme grows with the square."""


@dataclass(frozen=True)
class PredictedRow:
    """What the selected kernel does at one longer length."""

    length: int
    scored: int
    """Query rows in [train_length, length)."""
    alpha: float | None
    """Share of them whose strict argmax is the target; None where undefined."""
    margin: float | None
    """Least margin over them, nats."""
    certified: bool
    """Theorem 1 holds with every hypothesis: the kernel provably solves the whole length."""
    exists: str | None
    """Whether any kernel of the family solves train_length and this length together; None if not asked."""
    reason: str


@dataclass(frozen=True)
class Prediction:
    """A selected kernel's fate beyond its training length."""

    encoding: str
    task: str
    train_length: int
    rule: str
    train_margin: float | None
    """Least margin over the query rows at train_length, nats; None where no kernel was selected."""
    realized: bool | None
    """Whether the selected kernel solves train_length."""
    reach: int | None
    """First wrong row, or first failing length where targets depend on the length; None if none up to `horizon`."""
    horizon: int | None
    rows: tuple[PredictedRow, ...]

    def document(self) -> dict[str, Any]:
        """The JSON document of `poskernel predict`."""
        return {"schema": PREDICT_SCHEMA, **asdict(self), "rows": [asdict(row) for row in self.rows]}


@dataclass(frozen=True)
class Asked:
    """Whether existence is asked, and how long one answer may take."""

    existence: bool = True
    seconds: float = 60.0

    def __post_init__(self) -> None:
        require_positive(self.seconds, "the time limit of existence")


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
    positional = [cell for cell in cells if not isinstance(cell.task, ContentTask)]
    family = encoding.family(train_length, train_length)
    wanted = [cell.task.targets(train_length) for cell in positional]
    chosen = iter(rule.select(family, wanted, train_length) if positional else [])
    ask = asked or Asked()
    for cell in cells:
        yield (
            cell.undefined(lengths)
            if isinstance(cell.task, ContentTask)
            else cell.prediction(next(chosen), lengths, ask)
        )


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
    longest = LONGEST_ABSOLUTE if isinstance(encoding, AbsoluteEncoding) else LONGEST_RELATIVE
    if max(lengths) > longest:
        raise InputError(
            f"length {max(lengths)} is beyond what '{encoding.name}' is evaluated to: give at most {longest}."
        )


def check_transfer(encoding: Encoding, tested: Encoding, train_length: int) -> None:
    """InputError where weights fitted under one encoding mean nothing under another."""
    if tested == encoding:
        return
    own, other = (each.family(train_length, train_length) for each in (encoding, tested))
    if type(own) is not type(other) or own.shape != other.shape:
        raise InputError(
            f"'{tested.effective}' has weights of shape {other.shape} and '{encoding.effective}' of {own.shape}: "
            "evaluate under an encoding with the same weights."
        )


def default_horizon(encoding: Encoding, task: Task, train_length: int) -> int:
    """How far `reach` is searched: less far where every length has to be looked at on its own."""
    one_pass = not (task.depends_on_length or encoding.depends_on_length)
    return max(encoding.reach_horizon if one_pass else LENGTH_BY_LENGTH_HORIZON, 2 * train_length)


@dataclass(frozen=True)
class Cell:
    """One encoding and task at one training length."""

    encoding: Encoding
    tested: Encoding
    """Encoding that the fitted weights are evaluated under: the same, unless a change without training is asked for."""
    task: Task
    train_length: int
    rule: str
    horizon: int

    def check(self, lengths: Sequence[int]) -> None:
        """InputError where a length leaves nothing to score."""
        if isinstance(self.task, ContentTask):
            short = [length for length in lengths if length <= self.train_length]
            if short:
                raise InputError(
                    f"length {short[0]} is not beyond the training length {self.train_length}: give a longer one."
                )
            return
        if not len(self.task.targets(self.train_length).query):
            raise InputError(
                f"task '{self.task.name}' has no query row at training length {self.train_length}: give a longer one."
            )
        for length in lengths:
            self.task.new_targets(self.train_length, length)
        if not self.task.depends_on_length:
            whole = self.task.targets(max(lengths))
            for length in (self.train_length, *lengths):
                own, cut = self.task.targets(length), whole.rows(0, length)
                if not (torch.equal(own.query, cut.query) and torch.equal(own.key, cut.key)):
                    raise InputError(
                        f"task '{self.task.name}' has other targets at length {length} than at {max(lengths)}: "
                        "set depends_on_length = True on it."
                    )

    @property
    def relative(self) -> bool:
        """Whether the kernels are functions of the offset alone."""
        return isinstance(self.tested, RelativeEncoding)

    @property
    def effective(self) -> str:
        """Encoding with every parameter, and the one it is evaluated under where that is another."""
        own = self.encoding.effective
        return own if self.tested == self.encoding else f"{own} at {self.tested.effective}"

    @property
    def one_kernel(self) -> bool:
        """Whether the selected weights are the same kernel at every length, the training length included."""
        return self.tested == self.encoding and not self.encoding.depends_on_length

    def trained_kernel(self, selection: Selection) -> PositionalKernel:
        """The selected kernel as it was fitted."""
        assert selection.weights is not None
        return self.encoding.family(self.train_length, self.train_length).kernel(selection.weights)

    def kernel_at(self, selection: Selection, length: int) -> PositionalKernel:
        """The selected weights on the tested family of a length: the transfer operator."""
        assert selection.weights is not None
        return self.tested.family(self.train_length, length).kernel(selection.weights)

    def prediction(self, selection: Selection, lengths: Sequence[int], ask: Asked) -> Prediction:
        """Alpha, margins, certificate, reach and existence of a selected kernel."""
        found = self.exists(lengths, ask)
        if selection.weights is None:
            rows = [
                PredictedRow(
                    length, self.scored(length), None, None, False, found[length], f"undefined: {selection.note}"
                )
                for length in lengths
            ]
            return self._assembled(None, None, None, rows)
        trained = row_margins(self.trained_kernel(selection), self.task.targets(self.train_length))
        realized = trained.first_wrong is None
        margins = self._margins(selection, lengths)
        rows = []
        for length in lengths:
            new, exists = margins[length], found[length]
            conflict = self.task.depends_on_length and targets_conflict(self.task, self.train_length, length)
            aligned = new.first_wrong is None
            # Theorem 1 speaks of one kernel, and of rows below the training length that ask the same of it.
            covered = self.one_kernel and not rows_change(self.task, self.train_length, length)
            rows.append(
                PredictedRow(
                    length,
                    len(new.query),
                    new.share,
                    new.least,
                    realized and aligned and covered,
                    exists,
                    explain(self.task, self.relative, realized, new, conflict, exists),
                )
            )
        first_wrong = self.reach(selection)
        return self._assembled(trained.least, realized, first_wrong, rows)

    def _margins(self, selection: Selection, lengths: Sequence[int]) -> dict[int, RowMargins]:
        # Where neither targets nor family change with the length, one evaluation of the longest grid serves all.
        if not (self.task.depends_on_length or self.tested.depends_on_length):
            longest = max(lengths)
            whole = row_margins(self.kernel_at(selection, longest), self.task.new_targets(self.train_length, longest))
            return {length: whole.until(length) for length in lengths}
        return {
            length: row_margins(self.kernel_at(selection, length), self.task.new_targets(self.train_length, length))
            for length in lengths
        }

    def reach(self, selection: Selection) -> int | None:
        """First wrong row; where family or targets change with the length, the first length with a wrong new row."""
        if not self.tested.depends_on_length:
            return reach(self.kernel_at(selection, self.horizon), self.task, self.train_length, self.horizon)
        for length in range(self.train_length + 1, self.horizon + 1):
            scored = self.task.targets(length).rows(self.train_length, length)
            if len(scored.query) and row_margins(self.kernel_at(selection, length), scored).first_wrong is not None:
                return length
        return None

    def scored(self, length: int) -> int:
        """Number of query rows in [train_length, length)."""
        return len(self.task.new_targets(self.train_length, length).query)

    def exists(self, lengths: Sequence[int], ask: Asked) -> dict[int, str | None]:
        """Existence at train_length and each length together; None where it is not asked."""
        limit = ABSOLUTE_EXISTENCE_LIMIT if isinstance(self.encoding, AbsoluteEncoding) else max(lengths)
        asked = [length for length in lengths if ask.existence and length <= limit]
        answers: dict[int, str | None] = dict.fromkeys(lengths)

        def answer(length: int) -> Exists:
            return existence(
                self.encoding, self.task, self.train_length, length, ask.seconds, test_encoding=self.tested
            ).answer

        # Where nothing changes with the length, a kernel that solves the longest solves every shorter one.
        unchanging = not (self.task.depends_on_length or self.tested.depends_on_length)
        if unchanging and len(asked) > 1 and answer(max(asked)) is Exists.YES:
            return answers | dict.fromkeys(asked, str(Exists.YES))
        return answers | {length: str(answer(length)) for length in asked}

    def undefined(self, lengths: Sequence[int]) -> Prediction:
        """A content task: no positional kernel is asked to solve it."""
        reason = "undefined: the targets depend on the tokens, so no positional kernel is at stake"
        rows = [PredictedRow(length, 0, None, None, False, str(Exists.NOT_APPLICABLE), reason) for length in lengths]
        return Prediction(
            self.effective, self.task.name, self.train_length, self.rule, None, None, None, None, tuple(rows)
        )

    def _assembled(
        self, margin: float | None, realized: bool | None, found: int | None, rows: Sequence[PredictedRow]
    ) -> Prediction:
        effective, name = self.effective, self.task.name
        horizon = None if realized is None else self.horizon  # nothing was searched where nothing was selected
        return Prediction(
            effective, name, self.train_length, self.rule, margin, realized, found, horizon, tuple(rows)
        )  # fmt: skip


def explain(task: Task, relative: bool, realized: bool, new: RowMargins, conflict: bool, exists: str | None) -> str:
    """One sentence for a cell: what will happen and why."""
    wrong = new.first_wrong
    if wrong is None:
        if conflict:
            return "right on every new row, but rows below the training length change their targets: no kernel has both"
        if not realized:
            return "right on every new row, yet the training length itself is not solved"
        return f"generalizes: right on every row, margin {new.least:.2g} nats"
    verdict = "will not generalize" if new.share < 0.5 else "generalizes in part"
    tied = abs(float(new.margin[new.query == wrong][0])) == 0.0
    symptom = f"the first wrong new row is {wrong}" + (", a tie" if tied else "")
    if exists == Exists.NO:
        cause = "no kernel of the family solves both lengths"
    elif conflict or exists == Exists.CONFLICT:
        cause = "rows below the training length change their targets"
    elif task.regime is OffsetRegime.GROWING:
        cause = "the target's offset grows"
    elif relative and task.regime is OffsetRegime.FIXED_ABSOLUTE:
        cause = "the target's offset grows with the row, and the selected kernel peaks at one offset"
    elif not realized:
        cause = "the training length itself is not solved"
    else:
        cause = "the selected kernel peaks elsewhere"
    unselected = "; a kernel for this length exists, the rule picks another" if exists == Exists.YES else ""
    return f"{verdict}: {cause}{unselected}; {symptom}"


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
) -> list[Prediction]:
    """Predictions for every encoding and task, in order; `progress` is called after each."""
    tasks, asked = list(tasks), Asked(existence, existence_seconds)
    predictions: list[Prediction] = []
    for encoding in encodings:
        for prediction in predict_all(encoding, tasks, train_length, lengths, rule, asked, horizon):
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
