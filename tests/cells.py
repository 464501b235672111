"""Fitted cells that many tests look at, each fitted once a session."""

from functools import cache

from poskernel.encodings import ENCODINGS, STUDY_ENCODINGS, parse_encoding
from poskernel.kernel import PositionalKernel
from poskernel.realizability.alignment import alpha as alpha_of
from poskernel.realizability.selection import SELECTION_RULES, Selection, parse_rule
from poskernel.tasks import POSITIONAL_TASKS, TASKS, parse_task
from poskernel.threads import one_thread

LENGTHS = (30, 40, 50, 60, 80)


@cache
def selections(encoding: str, rule: str = "adam", train_length: int = 20) -> dict[str, Selection]:
    """What a rule picks for every positional task, fitted in one batch."""
    family = parse_encoding(encoding).family(train_length, train_length)
    targets = [task.targets(train_length) for task in POSITIONAL_TASKS.values()]
    with one_thread():
        return dict(zip(POSITIONAL_TASKS, parse_rule(rule).select(family, targets, train_length), strict=True))


@cache
def kernel(encoding: str, task: str, rule: str = "adam", train_length: int = 20) -> PositionalKernel:
    """The kernel a rule picks for one task (fitted alone, so that slow rules fit no more than is asked).

    For encodings whose family is the same at every length.
    """
    family = parse_encoding(encoding).family(train_length, train_length)
    with one_thread():
        (chosen,) = parse_rule(rule).select(family, [parse_task(task).targets(train_length)], train_length)
    assert chosen.weights is not None, chosen.note
    return family.kernel(chosen.weights)


def alphas(
    encoding: str, task: str, lengths: tuple[int, ...] = LENGTHS, rule: str = "adam", train_length: int = 20
) -> list[float]:
    """Alpha at each length."""
    picked = kernel(encoding, task, rule, train_length)
    return [alpha_of(picked, parse_task(task), train_length, length) for length in lengths]


ENCODING_NAMES, RULE_NAMES = tuple(ENCODINGS), tuple(SELECTION_RULES)
STUDY_NAMES = tuple(encoding.name for encoding in STUDY_ENCODINGS)
"""The five encodings of the realizability paper."""
KERNEL_NAMES = tuple(name for name, encoding in ENCODINGS.items() if not encoding.no_kernel)
"""Encodings that have kernels before training."""
TRAINED_NAMES = tuple(name for name, encoding in ENCODINGS.items() if encoding.trains)
"""Encodings with a model side."""
POSITIONAL_NAMES, TASK_NAMES = tuple(POSITIONAL_TASKS), tuple(TASKS)
