"""One cell of the predictor: what the kernel selected for one encoding and task does at longer lengths."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

import torch

from poskernel.encodings import AbsoluteEncoding, Encoding
from poskernel.encodings.encoding import require_positive
from poskernel.errors import InputError
from poskernel.kernel import PositionalKernel
from poskernel.realizability.alignment import RowMargins, reach, row_margins, rows_change, targets_conflict
from poskernel.realizability.existence import Exists, existence
from poskernel.realizability.selection import Selection
from poskernel.tasks import ContentTask, OffsetRegime, Task

PREDICT_SCHEMA = "poskernel.predict/1"
ABSOLUTE_EXISTENCE_LIMIT = 128
"""Longest length at which existence is asked of an absolute family by default: its programme grows with the square."""


@dataclass(frozen=True)
class PredictedRow:
    """What the selected kernel does at one longer length."""

    length: int
    scored: int
    """Query rows in [train_length, length)."""
    alpha: float | None
    """Share of them whose strict argmax is the target, the mean over draws where the encoding draws at random; None
    where undefined."""
    margin: float | None
    """Least margin over them and over all draws, nats."""
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
    """First wrong row, or the first length with a wrong new row where targets or family depend on the length; None if
    there is none up to `horizon`."""
    horizon: int | None
    """How far it was searched; None where nothing was: no kernel was selected, or one is drawn anew each time."""
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
    def asks_a_kernel(self) -> bool:
        """Whether a positional kernel is at stake and there is one."""
        return not (isinstance(self.task, ContentTask) or self.encoding.no_kernel)

    @property
    def effective(self) -> str:
        """Encoding with every parameter, and the one it is evaluated under where that is another."""
        own = self.encoding.effective
        return own if self.tested == self.encoding else f"{own} at {self.tested.effective}"

    @property
    def one_kernel(self) -> bool:
        """Whether the selected weights are the same kernel at every length, the training length included."""
        return self.tested == self.encoding and not (self.encoding.depends_on_length or self.encoding.drawn)

    def trained_margins(self, selection: Selection) -> list[RowMargins]:
        """Margins of the kernel as it was fitted, one entry a training draw."""
        assert selection.weights is not None
        kernels = self.encoding.family(self.train_length, self.train_length).kernels(selection.weights)
        return [row_margins(kernel, self.task.targets(self.train_length)) for kernel in kernels]

    def kernels_at(self, selection: Selection, length: int) -> list[PositionalKernel]:
        """The selected weights on the tested family of a length, one kernel a test draw: the transfer operator."""
        assert selection.weights is not None
        draws = range(self.tested.test_draws if self.tested.drawn else 1)
        families = [self.tested.drawn_family(self.train_length, length, draw) for draw in draws]
        return [family.kernel(selection.weights) for family in families]

    def prediction(self, selection: Selection, lengths: Sequence[int], ask: Asked) -> Prediction:
        """Alpha, margins, certificate, reach and existence of a selected kernel."""
        found = self.exists(lengths, ask)
        if selection.weights is None:
            reason = f"undefined: {selection.note}"
            return self.unselected([self.unscored(length, found[length], reason) for length in lengths])
        trained = self.trained_margins(selection)
        realized = all(each.first_wrong is None for each in trained)
        margins = self.margins(selection, lengths)
        rows = tuple(self.row(length, margins[length], realized, found[length]) for length in lengths)
        return Prediction(
            encoding=self.effective,
            task=self.task.name,
            train_length=self.train_length,
            rule=self.rule,
            train_margin=min(each.least for each in trained),
            realized=realized,
            reach=None if self.tested.drawn else self.reach(selection),
            horizon=None if self.tested.drawn else self.horizon,
            rows=rows,
        )

    def row(self, length: int, draws: Sequence[RowMargins], realized: bool, exists: str | None) -> PredictedRow:
        """One longer length, from the margins of every draw."""
        aligned = all(each.first_wrong is None for each in draws)
        # Theorem 1 speaks of one kernel, and of rows below the training length that ask the same of it.
        certified = realized and aligned and self.one_kernel
        certified = certified and not rows_change(self.task, self.train_length, length)
        reason = self.explain(draws[0], length, realized, exists)
        if self.tested.drawn:
            reason = explain_draws(draws, realized)
        return PredictedRow(
            length=length,
            scored=len(draws[0].query),
            alpha=fmean(each.share for each in draws),
            margin=min(each.least for each in draws),
            certified=certified,
            exists=exists,
            reason=reason,
        )

    def margins(self, selection: Selection, lengths: Sequence[int]) -> dict[int, list[RowMargins]]:
        """Margins of the new rows at each length, one entry a draw."""

        def at(length: int) -> list[RowMargins]:
            targets = self.task.new_targets(self.train_length, length)
            return [row_margins(kernel, targets) for kernel in self.kernels_at(selection, length)]

        if self.task.depends_on_length or self.tested.depends_on_length:
            return {length: at(length) for length in lengths}
        # Where neither targets nor family change with the length, one evaluation of the longest grid serves all.
        longest = at(max(lengths))
        return {length: [whole.until(length) for whole in longest] for length in lengths}

    def reach(self, selection: Selection) -> int | None:
        """First wrong row; where family or targets change with the length, the first length with a wrong new row."""
        if not self.tested.depends_on_length:
            (kernel,) = self.kernels_at(selection, self.horizon)
            return reach(kernel, self.task, self.train_length, self.horizon)
        for length in range(self.train_length + 1, self.horizon + 1):
            scored = self.task.targets(length).rows(self.train_length, length)
            if len(scored.query):
                (kernel,) = self.kernels_at(selection, length)
                if row_margins(kernel, scored).first_wrong is not None:
                    return length
        return None

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
        """A content task or a content encoding: no positional kernel is asked, or there is none."""
        reason = self.encoding.no_kernel or "the targets depend on the tokens, so no positional kernel is at stake"
        answer = str(Exists.NOT_APPLICABLE)
        return self.unselected([self.unscored(length, answer, f"undefined: {reason}") for length in lengths])

    def unscored(self, length: int, exists: str | None, reason: str) -> PredictedRow:
        """A length without alpha."""
        content = isinstance(self.task, ContentTask)
        scored = 0 if content else len(self.task.new_targets(self.train_length, length).query)
        return PredictedRow(length, scored, None, None, False, exists, reason)

    def unselected(self, rows: Sequence[PredictedRow]) -> Prediction:
        """A prediction without a kernel."""
        about = (self.effective, self.task.name, self.train_length, self.rule)
        return Prediction(*about, None, None, None, None, tuple(rows))

    def explain(self, new: RowMargins, length: int, realized: bool, exists: str | None) -> str:
        """One sentence for a length: what will happen and why."""
        conflict = self.one_kernel and self.task.depends_on_length
        conflict = conflict and targets_conflict(self.task, self.train_length, length)
        if new.first_wrong is None:
            return self.explain_success(new, realized, conflict)
        verdict = "will not generalize" if new.share < 0.5 else "generalizes in part"
        tied = abs(float(new.margin[new.query == new.first_wrong][0])) == 0.0
        symptom = f"the first wrong new row is {new.first_wrong}" + (", a tie" if tied else "")
        unselected = "; a kernel for this length exists, the rule picks another" if exists == Exists.YES else ""
        return f"{verdict}: {self.cause(realized, conflict, exists)}{unselected}; {symptom}"

    def explain_success(self, new: RowMargins, realized: bool, conflict: bool) -> str:
        """The sentence where every new row is right."""
        if conflict:
            return "right on every new row, but rows below the training length change their targets: no kernel has both"
        if not realized:
            return "right on every new row, yet the training length itself is not solved"
        if not self.one_kernel:
            return (
                f"generalizes: right on every new row, margin {new.least:.2g} nats; not certified, since the kernel is "
                "not the one that was fitted"
            )
        return f"generalizes: right on every row, margin {new.least:.2g} nats"

    def cause(self, realized: bool, conflict: bool, exists: str | None) -> str:
        """Why some new row is wrong."""
        if exists == Exists.NO:
            return "no kernel of the family solves both lengths"
        if conflict or exists == Exists.CONFLICT:
            return "rows below the training length change their targets"
        if self.task.regime is OffsetRegime.GROWING:
            return "the target's offset grows"
        if self.tested.relative and self.task.regime is OffsetRegime.FIXED_ABSOLUTE:
            return "the target's offset grows with the row, and the selected kernel peaks at one offset"
        if not realized:
            return "the training length itself is not solved"
        return "the selected kernel peaks elsewhere"


def explain_draws(draws: Sequence[RowMargins], realized: bool) -> str:
    """One sentence for a length at which something is drawn at random: alpha is a mean, and how far it may be off."""
    shares = [each.share for each in draws]
    mean, whole = fmean(shares), sum(each.first_wrong is None for each in draws)
    drawn = "alpha is that of one draw"
    if len(shares) > 1:
        error = stdev(shares) / len(shares) ** 0.5
        drawn = f"alpha is the mean of {len(shares)} draws, standard error {error:.2g}, {whole} of them all right"
    unsolved = "" if realized else "; the training length is not solved in every draw"
    verdict = "generalizes" if whole == len(shares) else "generalizes in part" if mean >= 0.5 else "will not generalize"
    return f"{verdict}: {drawn}{unsolved}"
