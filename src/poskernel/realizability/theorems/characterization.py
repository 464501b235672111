"""Theorem 2 and propositions 1, 3 and 4 for one's own case: does some kernel of an encoding carry a task to any length?

The answer is about existence and about the limit of long sequences: "transfers" says that a kernel which solves the
training length has alpha tending to 1. Which kernel training selects is another matter, so the alpha of the selected
kernel stands beside the answer.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from poskernel.encodings import Encoding, RelativeEncoding, parse_encoding
from poskernel.encodings.encoding import require_positive
from poskernel.errors import InputError
from poskernel.realizability.existence import Exists
from poskernel.realizability.margin_programme import POSITIVE
from poskernel.realizability.prediction import check_lengths, predict
from poskernel.realizability.selection import SelectionRule, parse_rule, rule_label
from poskernel.realizability.theorems.case import Case
from poskernel.realizability.theorems.statements import answer_of
from poskernel.realizability.theorems.table import claims
from poskernel.realizability.theorems.verdicts import CLAIMS, PAGES, SOLVABLE, Answer, Verdict
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
    exists_scope: str
    """What `exists` says, and what it leaves to the verdict; why it was not asked where it was not."""
    claims: tuple[str, ...]
    """The checks behind the statement, as `poskernel theory` names them."""

    def __str__(self) -> str:
        """The verdict and its reason, with the figures beside it, a line each: those of the command line."""
        title, lines = in_words(self.document())
        return "\n".join((title, *(f"  {name}: {value}" for name, value in lines.items())))

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
    horizon below 10 training lengths, for a time limit that is not positive, and for features that are others at every
    call. `existence_seconds` bounds all linear programmes together.
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
        raise InputError(
            f"task '{task.name}' has no query row at training length {train_length}: give a longer one (train_length, "
            "--train-length on the command line)."
        )
    require_repeatable(case, length)
    answer = answer_of(case)
    beside, alpha_there = selected_alpha(case, length, rule), case.alpha_of(answer.weights, length)
    together, meaning = exists_beside(case, answer, alpha_there, length)
    demand = answer.demand
    return Characterization(
        encoding=encoding.effective,
        task=task.name,
        train_length=train_length,
        horizon=answer.until or horizon,
        verdict=answer.verdict,
        theorem=answer.theorem,
        page=f"docs/theory.md#{PAGES[answer.theorem]}",
        reason=answer.reason + tiny_text(case, answer),
        exact=answer.exact,
        scope=scope_of(answer, encoding, beside is not None),
        demanded=demand.value if demand is not None and demand.settles else None,
        demanded_share=demand.share if demand is not None and demand.settles else None,
        margin=answer.margin,
        length=length,
        kernel_alpha=alpha_there,
        selected_alpha=beside,
        rule=rule_label(rule),
        exists=None if together is None else str(together),
        exists_scope=meaning,
        claims=tuple(name for name in claims() if name.startswith(CLAIMS.get(answer.theorem, "no claim"))),
    )


def in_words(document: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """A characterization document as a title and lines by what they say: printed and on the command line alike."""
    known = "proved" if document["exact"] else f"counted up to {document['horizon']}"
    undecided = document["verdict"] == Verdict.UNDECIDED
    by = document["theorem"] if undecided else f"{document['theorem']}, {known}"
    length, margin, kernel = document["length"], document["margin"], document["kernel_alpha"]
    selected, claimed = document["selected_alpha"], document["claims"]
    lines = {
        "why": document["reason"],
        "by": f"{by}; see {document['page']}",
        "scope": document["scope"],
        "margin of a kernel": "no such kernel" if margin is None else f"{margin:.2g} nats, weights at most 1",
        f"its alpha at {length}": f"{kernel:.3f}" if kernel is not None else NO_FIGURE[margin is not None],
        f"alpha {document['rule']} selects at {length}": "no kernel, target or row to score"
        if selected is None
        else f"{selected:.3f}",
        f"exists for {document['train_length']} and {length}": ": ".join(
            filter(None, (document["exists"] or "not asked", document["exists_scope"]))
        ),
        "its checks": f"poskernel theory {' '.join(claimed)}" if claimed else "none, no claim stands behind it",
    }
    title = f"{document['encoding']} on {document['task']}, trained at {document['train_length']}"
    return f"{title}: {document['verdict']} ({by})", lines


NO_FIGURE = ("no such kernel", "not shown: no row to score, or float64 cannot tell its margin")
"""Instead of the alpha of a kernel: where none was found, and where one was."""


def require_repeatable(case: Case, length: int) -> None:
    """InputError where features are others at a second call: then no statement about one kernel means anything."""
    if case.encoding.drawn or case.encoding.no_kernel or not case.linear:
        return
    if not torch.equal(case.feature_table(length), case.feature_table(length)):
        what = "basis" if case.encoding.relative else "features"
        raise InputError(
            f"{what} of encoding '{case.encoding.name}' differ from one call to the next: compute them from the "
            "positions alone, and draw random numbers from a generator that is seeded in the call."
        )


def tiny_text(case: Case, answer: Answer) -> str:
    """That a margin is tiny beside the logits of its kernel; empty where it is not, or where nothing shows it."""
    if answer.weights is None or answer.margin is None:
        return ""
    length = 3 * case.train_length
    logits = case.kernel(answer.weights).transfer(length)
    largest = float(logits.masked_fill(logits == float("-inf"), 0.0).abs().max())
    if answer.margin >= POSITIVE * largest:
        return ""
    return (
        f"; its margin, {answer.margin:.1g} nats, is tiny beside its logits, up to {largest:.1g} at length {length}: "
        "training would need weights that much larger"
    )


def exists_beside(case: Case, answer: Answer, kernel_alpha: float | None, length: int) -> tuple[Exists | None, str]:
    """Whether some kernel solves the training length and a longer one together; what that means, or why not asked."""
    if isinstance(case.task, ContentTask):
        return None, "the targets depend on the tokens"
    if case.encoding.no_kernel:
        return None, case.encoding.no_kernel
    if answer.theorem == SOLVABLE and answer.verdict is Verdict.CANNOT:
        return Exists.NO, f"none solves {case.train_length} alone"
    if not case.linear:
        return None, "there is no one family that is linear in its weights, which a programme needs"
    if answer.verdict is Verdict.TRANSFERS and kernel_alpha == 1 and not case.task.depends_on_length:
        return Exists.YES, EXISTS_SCOPE[Exists.YES]  # by that kernel
    if answer.verdict is Verdict.TRANSFERS:
        return None, "the verdict rests on another length's rows, and a kernel that is right on all of these may differ"
    together = case.exists(length)
    if together is None:
        return None, f"no row is a query row at length {length}"
    return together, EXISTS_SCOPE.get(together, "")


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


def scope_of(answer: Answer, encoding: Encoding, figures: bool) -> str:
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
    nothing = f"nothing is claimed of '{encoding.name}' on this task"
    return f"{nothing}; the figure beside is of one kernel at one length" if figures else nothing
