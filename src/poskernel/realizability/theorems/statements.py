"""The statements of the realizability paper, applied to one encoding and task: the first that decides gives the answer.

Theorem 2 for stationary kernels, proposition 1 for affine features, proposition 4 for clamped positions, proposition
3(A) for sinusoidal ones. What a formula proves of every kernel comes before whatever is computed.
"""

from poskernel.encodings import LearnedGaussian
from poskernel.realizability.theorems.absolute import affine, clamped, clamped_from, is_affine, sinusoidal
from poskernel.realizability.theorems.case import Case
from poskernel.realizability.theorems.cosines import cosine_peak
from poskernel.realizability.theorems.searching import searched
from poskernel.realizability.theorems.spanned import spanned
from poskernel.realizability.theorems.stationary import falling, stationary
from poskernel.realizability.theorems.tails import tail_of
from poskernel.realizability.theorems.two_lengths import clash
from poskernel.realizability.theorems.verdicts import Answer, Verdict, undecided
from poskernel.tasks import ContentTask


def answer_of(case: Case) -> Answer:
    """The verdict by the first statement that applies; what the targets alone exclude where none decides."""
    open_because = not_one_kernel(case)
    if open_because is not None:
        return open_because
    found = by_statements(case)
    left_open = found.verdict is Verdict.UNDECIDED and case.task.depends_on_length
    return (clash(case) or found) if left_open else found


def by_statements(case: Case) -> Answer:
    """The verdict by the paper's statements, or a kernel that was found where none covers the features."""
    tail = tail_of(case.encoding)
    if tail is not None and tail.falls:
        return falling(case, tail)
    if not case.linear:
        if case.relative:
            return stationary(case)
        return undecided(
            "no statement covers a family that is neither stationary nor bilinear in features of positions"
        )
    by_formula = cosine_peak(case)
    if by_formula is not None:
        return by_formula
    if is_affine(case):
        return affine(case)
    first = None if case.relative else clamped_from(case)
    # Targets that change with the length are not looked for row by row: what they exclude is the next question.
    searches = not (case.relative or case.phase_rate or case.task.depends_on_length) and first is None
    found = spanned(case) if searches else None
    if found is not None:
        return found
    unsolved = case.unsolved()
    if unsolved is not None:
        return unsolved
    if case.relative:
        return stationary(case)
    if first is not None:
        return clamped(case, first)
    return searched(case) if searches else sinusoidal(case)


def not_one_kernel(case: Case) -> Answer | None:
    """Why the theorems do not speak of a case: there is no one kernel of positions at every length."""
    if isinstance(case.task, ContentTask):
        return undecided("the targets depend on the tokens, so no kernel of positions is asked for")
    if case.encoding.no_kernel:
        return undecided(case.encoding.no_kernel)
    if type(case.encoding) is LearnedGaussian:
        return undecided(
            "the rows beyond the training length are drawn at random, so there is no one kernel at every length: "
            "a new key as target wins at the rate of chance",
            theorem="proposition 2",
        )
    if case.encoding.drawn:
        return undecided("its positions are drawn at random, so there is no one kernel at every length")
    if case.encoding.depends_on_length:
        return undecided("the theorems speak of one family at every length, and this one changes with it")
    return None
