"""Beyond position: tasks whose target one rule of token matching names, at every length.

The positional alpha is undefined for them, or low where a head needs no position at all. `alpha_plus` of the
realizability paper (its appendix H) takes the larger of the positional alpha and a 0/1 content alpha. The graded one
weights the content alpha by what the matching circuit asks of the encoding: a head that attends to the previous token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from poskernel.encodings import Encoding
from poskernel.random_streams import random_stream
from poskernel.realizability.prediction import predict
from poskernel.realizability.selection import SelectionRule
from poskernel.tasks import POSITIONAL_TASKS, ContentTask, Task, latest_match

SEQUENCES = 64
"""Sequences a rule is tried on, at every length."""


@dataclass(frozen=True)
class ContentRow:
    """The three numbers at one length; `alpha` is None where the task has no positional target."""

    length: int
    alpha: float | None
    content: float
    """1 where one rule of token matching names every target, else 0."""
    plus: float
    """max(alpha, content), an undefined alpha counting as 0: the paper's."""
    graded: float
    """max(alpha, content x support), support being the encoding's alpha on `prev` at this length."""


def matching_shift(
    task: Task, lengths: Sequence[int], vocabulary: int = 12, sequences: int = SEQUENCES, seed: int = 0
) -> int | None:
    """The shift s for which 'match the token, then go on by s' names every target; None if no single s does.

    Tried on uniform token sequences of every length given: a rule that holds at one length alone is none.
    """
    found: set[int] = set()
    for length in lengths:
        stream = random_stream(seed, f"evaluation/{length}")
        tokens = torch.randint(vocabulary, (sequences, length), generator=stream)
        targets, match = task.sequence_targets(tokens), latest_match(tokens)
        scored = targets >= 0
        if bool((scored & (match < 0)).any()):
            return None
        found |= set((targets - match)[scored].unique().tolist())
        if len(found) > 1:
            return None
    return found.pop() if found else None


def content_alphas(
    encoding: Encoding,
    task: Task,
    train_length: int,
    lengths: Sequence[int],
    rule: SelectionRule | str = "adam",
    vocabulary: int = 12,
    seed: int = 0,
) -> list[ContentRow]:
    """Alpha, content alpha, alpha+ and graded alpha+ of a cell at every length.

    Raises InputError as `predict` does.
    """
    support = predict(encoding, POSITIONAL_TASKS["prev"], train_length, lengths, rule, existence=False).rows
    own: list[float | None] = [None] * len(lengths)
    if not isinstance(task, ContentTask):
        own = [row.alpha for row in predict(encoding, task, train_length, lengths, rule, existence=False).rows]
    shift = matching_shift(task, [train_length, *lengths], vocabulary, seed=seed)
    content = 0.0 if shift is None else 1.0
    return [
        ContentRow(
            length,
            alpha,
            content,
            max(alpha or 0.0, content),
            max(alpha or 0.0, content * (previous.alpha or 0.0)),
        )
        for length, alpha, previous in zip(lengths, own, support, strict=True)
    ]
