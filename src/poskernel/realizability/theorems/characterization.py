"""Theorem 2 and propositions 1, 3 and 4 for one's own case: does some kernel of an encoding carry a task to any length?

The answer is about existence and about the limit of long sequences: "transfers" says that a kernel which solves the
training length has alpha tending to 1. Which kernel training selects is another matter, so the alpha of the selected
kernel stands beside the answer.
"""

from dataclasses import asdict, dataclass
from typing import Any

from poskernel.encodings import Encoding, RelativeEncoding, parse_encoding
from poskernel.encodings.encoding import require_positive
from poskernel.errors import InputError
from poskernel.realizability.existence import Exists
from poskernel.realizability.prediction import check_lengths, predict
from poskernel.realizability.selection import SelectionRule, parse_rule, rule_label
from poskernel.realizability.theorems.case import Case
from poskernel.realizability.theorems.statements import answer_of
from poskernel.realizability.theorems.table import claims
from poskernel.realizability.theorems.verdicts import CLAIMS, PAGES, Answer, Verdict
from poskernel.tasks import ContentTask, Task, parse_task

CHARACTERIZE_SCHEMA = "poskernel.characterize/1"
HORIZON = 100_000
"""Offsets and lengths looked at where no formula says more."""

LIMIT = "the verdict is about the limit, where rows may stay wrong as long as alpha tends to 1"
EXISTS_SCOPE = {
    Exists.YES: "some kernel of the family is right on every row of both lengths, which says nothing of longer ones",
    Exists.NO: f"no kernel of the family is right on every row of both lengths; {LIMIT}",
    Exists.CONFLICT: f"a row is asked for another key at each length, so no kernel is right on every row; {LIMIT}",
    Exists.UNDECIDED: "whether a kernel is right on every row of both lengths was not found in the time and to the "
    "precision there is; the verdict is about the limit alone",
}
"""What an answer of existence means beside a verdict, which is about the limit of long sequences."""


@dataclass(frozen=True)
class Characterization:
    """What the theorems say of one encoding and task, and what a selection rule does beside it."""

    encoding: str
    task: str
    train_length: int
    horizon: int
    """How far was counted, where the verdict is not proved."""
    verdict: Verdict
    theorem: str
    page: str
    """Where the documentation explains that statement."""
    reason: str
    exact: bool
    """Whether the verdict is proved, or counted as far as the horizon shows."""
    scope: str
    """What the verdict does not say."""
    demanded: int | None
    """The offset (or key, for clamped positions) that almost all scored rows ask for; None where none settles."""
    demanded_share: float | None
    """Share of the scored rows at the horizon that ask for it."""
    margin: float | None
    """Margin of a kernel that transfers, nats for weights of at most 1; None unless one was found."""
    length: int
    """Length of the three figures below: three times the training length."""
    kernel_alpha: float | None
    """Alpha of the kernel that was found; None where none is shown, or no row is scored there."""
    selected_alpha: float | None
    """Alpha of the kernel that the rule selects."""
    rule: str
    exists: str | None
    """Whether any kernel solves the training length and `length` together: a matter of these two lengths, whatever the
    verdict says of the limit; None where it was not asked."""
    exists_scope: str | None
    """What `exists` says, and what it leaves to the verdict; None where it was not asked."""
    claims: tuple[str, ...]
    """The checks behind the statement, as `poskernel theory` names them."""

    def __str__(self) -> str:
        """The verdict and its reason, with the figures beside it, a line each."""
        known = "proved" if self.exact else f"counted up to {self.horizon}"
        by = self.theorem if self.verdict is Verdict.UNDECIDED else f"{self.theorem}, {known}"
        return "\n".join(
            (
                f"{self.encoding} on {self.task}, trained at {self.train_length}: {self.verdict} ({by})",
                f"  why: {self.reason}",
                f"  scope: {self.scope}",
                f"  alpha at {self.length}: {shown(self.kernel_alpha)} of that kernel, {shown(self.selected_alpha)} of "
                f"the one {self.rule} selects",
                f"  exists for {self.train_length} and {self.length}: {self.exists or 'not asked'}"
                + (f", that is: {self.exists_scope}" if self.exists_scope else ""),
            )
        )

    def document(self) -> dict[str, Any]:
        """The JSON document of `poskernel characterize`."""
        return {"schema": CHARACTERIZE_SCHEMA, **asdict(self)}


def characterize(
    encoding: Encoding | str,
    task: Task | str,
    train_length: int = 20,
    horizon: int = HORIZON,
    rule: SelectionRule | str = "adam",
    existence_seconds: float = 60.0,
) -> Characterization:
    """Whether some kernel of the encoding that solves train_length carries the task to any length, and why.

    Exact certificates come first, then a linear programme up to `horizon` whose answer is verified by substitution.
    Raises InputError for unknown names, for what is no encoding or task, for lengths that are no whole numbers, for a
    horizon below 10 training lengths, and for a time limit that is not positive.
    """
    encoding = parse_encoding(encoding) if isinstance(encoding, str) else encoding
    task = parse_task(task) if isinstance(task, str) else task
    rule = parse_rule(rule) if isinstance(rule, str) else rule
    check_question(encoding, task, train_length, horizon, existence_seconds)
    check_lengths(encoding, train_length, [train_length + 1], None)
    if not 10 * train_length <= horizon <= RelativeEncoding.reach_horizon:
        raise InputError(
            f"horizon is {horizon} at training length {train_length}: give {10 * train_length} to "
            f"{RelativeEncoding.reach_horizon}."
        )
    case, length = Case(encoding, task, train_length, horizon, existence_seconds), 3 * train_length
    if not isinstance(task, ContentTask) and not len(case.trained.query):
        raise InputError(f"task '{task.name}' has no query row at training length {train_length}: give a longer one.")
    answer = answer_of(case)
    beside = selected_alpha(case, length, rule)
    unsure = answer.demand is not None and answer.verdict is not Verdict.TRANSFERS and case.linear
    demand, together = answer.demand, case.exists(length) if unsure else None
    alpha_there = case.alpha_of(answer.weights, length)
    if answer.verdict is Verdict.TRANSFERS and alpha_there == 1 and not task.depends_on_length:
        together = Exists.YES  # by that kernel
    return Characterization(
        encoding=encoding.effective,
        task=task.name,
        train_length=train_length,
        horizon=answer.until or horizon,
        verdict=answer.verdict,
        theorem=answer.theorem,
        page=f"docs/theory.md#{PAGES[answer.theorem]}",
        reason=answer.reason,
        exact=answer.exact,
        scope=scope_of(answer, encoding),
        demanded=demand.value if demand is not None and demand.settles else None,
        demanded_share=demand.share if demand is not None and demand.settles else None,
        margin=answer.margin,
        length=length,
        kernel_alpha=alpha_there,
        selected_alpha=beside,
        rule=rule_label(rule),
        exists=None if together is None else str(together),
        exists_scope=None if together is None else EXISTS_SCOPE.get(together),
        claims=tuple(name for name in claims() if name.startswith(CLAIMS.get(answer.theorem, "no claim"))),
    )


def shown(alpha: float | None) -> str:
    """An alpha, or that there is none."""
    return "none" if alpha is None else f"{alpha:.3f}"


def check_question(encoding: object, task: object, train_length: object, horizon: object, seconds: object) -> None:
    """InputError for what is of another kind than asked for: a class for its instance, a fraction for a length."""
    for what, given, wanted, like, of in (
        ("encoding", encoding, Encoding, "'rope' or Rope()", "RelativeEncoding or AbsoluteEncoding"),
        ("task", task, Task, "'prev' or Skip(1)", "Task"),
    ):
        if isinstance(given, type):
            raise InputError(f"the {what} is the class {given.__name__}: give an instance or a name, like {like}.")
        if not isinstance(given, wanted):
            raise InputError(
                f"the {what} is {given!r}: give an instance or a name, like {like}; one of your own subclasses "
                f"{of} (docs/theory.md#your-own-encoding-and-task)."
            )
        if not isinstance(getattr(given, "name", None), str):
            raise InputError(f"{type(given).__name__} has no name: give the class a line such as name = 'mine'.")
    for what, given in (("train_length", train_length), ("horizon", horizon)):
        if isinstance(given, bool) or not isinstance(given, int):
            raise InputError(f"{what} is {given!r}: give a whole number.")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InputError(f"existence_seconds is {seconds!r}: give a number of seconds.")
    require_positive(seconds, "the time limit of existence")


def selected_alpha(case: Case, length: int, rule: SelectionRule) -> float | None:
    """Alpha of the kernel that a rule selects; None where no kernel, no target or no row to score is defined."""
    if case.encoding.no_kernel or isinstance(case.task, ContentTask) or not case.scores(length):
        return None
    found = predict(case.encoding, case.task, case.train_length, [length], rule, existence=False, horizon=2 * length)
    return found.rows[0].alpha


def scope_of(answer: Answer, encoding: Encoding) -> str:
    """What a verdict leaves open, in one sentence."""
    if answer.verdict is Verdict.TRANSFERS:
        return "a kernel exists; whether training selects it is another question, see the selected kernel's alpha"
    if answer.verdict is Verdict.CANNOT and answer.theorem == "theorem 2":
        return (
            "of every kernel of the family, in the limit of long sequences: its alpha does not tend to 1; a single "
            "length, or some of them, may still be solved"
        )
    if answer.verdict is Verdict.CANNOT:
        return "of every kernel of the family"
    return f"nothing is claimed of '{encoding.name}' on this task; figures beside are of its kernels at one length"
