"""How a fixed kernel does on a longer grid: strict argmax, alpha, margins, reach, the certificate of theorem 1.

A row is right where the logit of its target key beats every other causal key by more than STRICTNESS times the row's
largest |logit|: a tie is wrong. Source: eq. 3 and theorem 1 of the realizability paper.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from poskernel.errors import InputError
from poskernel.kernel import PositionalKernel
from poskernel.tasks import Targets, Task
from poskernel.threads import one_thread

STRICTNESS = 1e-9
"""Relative margin below which float64 cannot tell a strict maximum from a tie; 8e-9 already misjudges a true case."""


@dataclass(frozen=True, eq=False)
class RowMargins:
    """Margins of some query rows, and which of them are right."""

    query: Int[Tensor, " row"]
    margin: Float[Tensor, " row"]
    """Logit of the target less the best other causal key, nats; inf at row 0, which has no other."""
    right: Bool[Tensor, " row"]

    @property
    def share(self) -> float:
        """Share of the rows that are right."""
        return float(self.right.double().mean())

    @property
    def least(self) -> float:
        """Smallest margin, nats."""
        return float(self.margin.min())

    @property
    def first_wrong(self) -> int | None:
        """First row that is not right, None if all are."""
        return None if bool(self.right.all()) else int(self.query[~self.right].min())

    def until(self, length: int) -> "RowMargins":
        """The rows below a length."""
        chosen = self.query < length
        return RowMargins(self.query[chosen], self.margin[chosen], self.right[chosen])


def alignment_margin(logits: Float[Tensor, "query key"], target: Int[Tensor, " query"]) -> Float[Tensor, " query"]:
    """Logit of the target key less the best other causal key, in nats; positive where the strict argmax is right.

    `logits` hold -inf where a key lies after its query. Raises InputError if a target is such a key. Source: eq. 3 of
    the realizability paper.
    """
    wanted = logits.gather(1, target[:, None])[:, 0]
    if bool((wanted == float("-inf")).any()):
        row = int((wanted == float("-inf")).nonzero()[0, 0])
        raise InputError(
            f"target key {int(target[row])} of row {row} lies after its query: causal attention cannot see it."
        )
    others = logits.scatter(1, target[:, None], float("-inf"))
    return wanted - others.amax(1)


@one_thread()
def row_margins(kernel: PositionalKernel, targets: Targets) -> RowMargins:
    """Margins of query rows under a kernel: O(length) for a stationary one, in blocks of rows otherwise."""
    if not len(targets.query):
        raise InputError("no query row to score: give targets with at least one row.")
    unseen = (targets.key > targets.query) | (targets.key < 0)
    if bool(unseen.any()):
        query, key = int(targets.query[unseen][0]), int(targets.key[unseen][0])
        raise InputError(f"target key {key} of query row {query} is none of its causal keys: give one of 0 to {query}.")
    length = int(targets.query.max()) + 1
    profile = kernel.profile(length)
    if profile is not None:
        return profile_margins(profile, targets)
    target = torch.zeros(length, dtype=torch.long)
    target[targets.query] = targets.key
    first = int(targets.query.min())
    margin, scale = torch.empty(length, dtype=torch.float64), torch.empty(length, dtype=torch.float64)
    for rows, logits in kernel.row_blocks(length, first):
        block, wanted = logits.double(), target[rows][:, None]
        scale[rows] = largest_logit(block, int(rows[0]) + 1)
        # The block is this loop's own, and this is its last use: no copy is made to leave the target out.
        margin[rows] = block.gather(1, wanted)[:, 0] - block.scatter_(1, wanted, float("-inf")).amax(1)
    return judge(targets.query, margin[targets.query], scale[targets.query])


def largest_logit(block: Float[Tensor, "row key"], past: int) -> Float[Tensor, " row"]:
    """Largest |logit| of each row over its causal keys; only keys from `past` on can lie in a row's future (-inf)."""
    seen, rest = block[:, :past], block[:, past:]
    largest = torch.maximum(seen.amax(1), -seen.amin(1))
    if rest.shape[1]:
        largest = torch.maximum(largest, rest.masked_fill(rest == float("-inf"), 0.0).abs().amax(1))
    return largest


def profile_margins(profile: Float[Tensor, " offset"], targets: Targets) -> RowMargins:
    """Margins of query rows under a stationary kernel, from its running maximum and runner-up: linear in the length."""
    best = profile.cummax(0).values
    # The runner-up of a prefix is the best of all values that ever lost to the running maximum.
    loser = torch.cat([profile.new_full((1,), float("-inf")), torch.minimum(profile[1:], best[:-1])])
    second = loser.cummax(0).values
    wanted, query = profile[targets.offset], targets.query
    rival = torch.where(wanted >= best[query], second[query], best[query])
    return judge(query, wanted - rival, profile.abs().cummax(0).values[query])


def judge(query: Int[Tensor, " row"], margin: Float[Tensor, " row"], scale: Float[Tensor, " row"]) -> RowMargins:
    """Margins with their verdict, by the strictness relative to each row's largest |logit|.

    InputError where a margin is not a number.
    """
    if bool(margin.isnan().any()):
        row = int(query[margin.isnan()][0])
        raise InputError(f"the kernel's logits at query row {row} are not all finite numbers: mend the kernel.")
    return RowMargins(query, margin.double(), margin > STRICTNESS * scale)


def alpha(kernel: PositionalKernel, task: Task, train_length: int, length: int) -> float:
    """Alignment: share of the task's query rows in [train_length, length) whose strict argmax is the target.

    Raises InputError where length <= train_length or no row is scored. Source: eq. 3 of the realizability paper.
    """
    return row_margins(kernel, task.new_targets(train_length, length)).share


def reach(kernel: PositionalKernel, task: Task, train_length: int, horizon: int) -> int | None:
    """First wrong row, None if there is none below the horizon; below train_length the training length is not solved.

    For a task whose targets depend on the length: the first length beyond train_length at which a scored row is wrong.
    """
    if task.depends_on_length:
        for length in range(train_length + 1, horizon + 1):
            scored = task.targets(length).rows(train_length, length)
            if len(scored.query) and row_margins(kernel, scored).first_wrong is not None:
                return length
        return None
    span = min(256, horizon)
    while True:
        scored = task.targets(span)
        wrong = row_margins(kernel, scored).first_wrong if len(scored.query) else None
        if wrong is not None or span >= horizon:
            return wrong
        span = min(8 * span, horizon)


def targets_conflict(task: Task, train_length: int, length: int) -> bool:
    """Whether some row below train_length has one target at train_length and another at length.

    Then nothing solves both.
    """
    short, long = task.targets(train_length), task.targets(length).rows(0, train_length)
    wanted = dict(zip(short.query.tolist(), short.key.tolist(), strict=True))
    return any(wanted.get(row, key) != key for row, key in zip(long.query.tolist(), long.key.tolist(), strict=True))


def rows_change(task: Task, train_length: int, length: int) -> bool:
    """Whether some query row below train_length at `length` is none, or has another target, at train_length.

    Then solving train_length says nothing of that row: the hypothesis of theorem 1 that the paper leaves out.
    """
    short, long = task.targets(train_length), task.targets(length).rows(0, train_length)
    wanted = dict(zip(short.query.tolist(), short.key.tolist(), strict=True))
    return any(wanted.get(row) != key for row, key in zip(long.query.tolist(), long.key.tolist(), strict=True))


@dataclass(frozen=True)
class Certificate:
    """Theorem 1 for one kernel: does it provably solve the longer length, and by what margin."""

    train_margin: float
    """Least margin over every query row at train_length, nats."""
    new_margin: float
    """Least margin over the scored rows in [train_length, length), nats."""
    realized: bool
    """Every query row right at train_length."""
    aligned: bool
    """Every scored row right: alpha is 1."""
    conflict: bool
    """Some row below train_length has another target at the length: no kernel solves both."""
    covered: bool
    """Every query row below train_length is one there too, with the same target.

    The hypothesis the paper leaves out.
    """

    @property
    def holds(self) -> bool:
        """All hypotheses hold: the kernel solves the length with margin `margin`."""
        return self.realized and self.aligned and self.covered

    @property
    def margin(self) -> float:
        """min of the two margins, nats."""
        return min(self.train_margin, self.new_margin)


def certificate(kernel: PositionalKernel, task: Task, train_length: int, length: int) -> Certificate:
    """Checks every hypothesis of theorem 1 for a kernel, a task and two lengths."""
    trained = row_margins(kernel, task.targets(train_length))
    new = row_margins(kernel, task.new_targets(train_length, length))
    return Certificate(
        train_margin=trained.least,
        new_margin=new.least,
        realized=trained.first_wrong is None,
        aligned=new.first_wrong is None,
        conflict=targets_conflict(task, train_length, length),
        covered=not rows_change(task, train_length, length),
    )
