"""The linear programme behind existence and max-margin: the largest margin a bounded kernel of a family can have."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.encodings import BilinearFamily, KernelFamily, LinearFamily, RelativeFamily
from poskernel.errors import InputError
from poskernel.tasks import Targets

POSITIVE = 1e-6
"""A margin counts only if substituting the weights gives more than this share of the largest entry, with |w| <= 1.

The solver's tolerance is 1e-7. A share, so that features of another size hold the same kernels.
"""

TOLERANCE = 1e-9
"""How far, in largest entries, a row may fall below the programme's margin before it is added: rounding."""
FIRST_CONSTRAINTS, ADDED_CONSTRAINTS = 256, 128

Pairs = Int[Tensor, " constraint"]


@dataclass(frozen=True, eq=False)
class BestMargin:
    """Solution of max gamma over |w| <= 1 with every constraint row at gamma or more."""

    margin: float
    """Least constraint at the weights found, by substitution; nan where the solver found none."""
    upper_bound: float
    """No |w| <= 1 has a larger margin: from the dual weights, valid whatever the solver's state."""
    weights: Float[np.ndarray, " weight"] | None
    dual: Float[np.ndarray, " constraint"] | None = None
    """Weights of the constraints, at least 0 with sum 1, that give the upper bound; None where the solver gave none."""
    unit: float = 1.0
    """Largest |entry| of the constraints: what a margin is measured against."""

    @property
    def positive(self) -> bool:
        """Whether a positive margin was verified."""
        return self.margin > POSITIVE * self.unit


def margin_constraints(family: LinearFamily, targets: Targets) -> Float[np.ndarray, "constraint weight"]:
    """For every query row and wrong causal key: the row w must make positive (target's logit less the wrong key's).

    InputError where the features are so large that a difference overflows.
    """
    query, target, key = compared(family, targets)
    rows = (family.design(query, target) - family.design(query, key)).numpy()
    require_room(rows, family)
    return rows


def compared(family: LinearFamily, targets: Targets) -> tuple[Pairs, Pairs, Pairs]:
    """(query, target, wrong key) of every constraint."""
    query = targets.query.repeat_interleave(targets.query + 1)
    start = (targets.query + 1).cumsum(0) - (targets.query + 1)
    key = torch.arange(len(query)) - start.repeat_interleave(targets.query + 1)
    target = targets.key.repeat_interleave(targets.query + 1)
    wrong = key != target
    query, key, target = query[wrong], key[wrong], target[wrong]
    if isinstance(family, RelativeFamily):
        # A kernel of the offset sees only the two offsets: most pairs repeat.
        pairs = torch.stack([query - target, query - key], dim=1).unique(dim=0)
        query, target, key = pairs.sum(1), pairs[:, 1], pairs[:, 0]
    return query, target, key


def require_room(entries: Float[np.ndarray, "*shape weight"], family: KernelFamily) -> None:
    """InputError unless sums of these entries, each times a weight of at most 1, stay within float64."""
    most = float(np.finfo(np.float64).max) / 4 / max(1, entries.shape[-1])
    if not np.abs(entries).max(initial=0.0) <= most:  # also where one is no number
        of = f"encoding '{family.name}'" if isinstance(family, RelativeFamily | BilinearFamily) else "the encoding"
        raise InputError(f"the features of {of} are so large that their differences overflow: scale them down.")


def distinct_rows(rows: Float[np.ndarray, "constraint weight"]) -> Float[np.ndarray, "distinct weight"]:
    """Each row once, in the order of first appearance.

    By content, since sorting wide rows would cost more than the rest.
    """
    first = {row.tobytes(): index for index, row in reversed(list(enumerate(rows + 0.0)))}  # + 0.0 makes -0 a 0
    return rows[sorted(first.values())]


def best_margin(
    rows: Float[np.ndarray, "constraint weight"], upper: Float[np.ndarray, " weight"], seconds: float | None = None
) -> BestMargin:
    """Maximise gamma with rows w >= gamma, |w| <= 1 and w <= upper, by HiGHS' dual simplex; gamma is free.

    The solver's tolerances are absolute, so the largest entry is brought to 1. Few of the constraints bind: it starts
    from some and adds the most violated until none is. The answer is verified both ways by substitution into all rows:
    weights give a lower bound, dual weights an upper one. After `seconds` the best so far is returned, which then
    leaves a gap between the two.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    unit = float(np.abs(rows).max(initial=0.0)) or 1.0
    sized = rows if unit == 1.0 else rows / unit
    working = np.zeros(len(rows), dtype=bool)
    working[np.linspace(0, len(rows) - 1, min(len(rows), FIRST_CONSTRAINTS)).astype(int)] = True
    best = BestMargin(float("nan"), float("inf"), None, None, unit)
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return best
        solved = solve(sized[working], upper, left)
        if solved.weights is None:
            return best
        values = sized @ solved.weights
        dual = None if solved.dual is None else np.zeros(len(rows))
        if dual is not None:
            dual[working] = solved.dual
        margin = float((rows @ solved.weights).min())
        best = better(best, BestMargin(margin, solved.upper_bound * unit, solved.weights, dual, unit))
        violated = np.flatnonzero((values < solved.margin - TOLERANCE) & ~working)
        if not len(violated):
            return best
        working[violated[np.argsort(values[violated], kind="stable")[:ADDED_CONSTRAINTS]]] = True


def better(first: BestMargin, second: BestMargin) -> BestMargin:
    """The larger verified margin with its weights, and the smaller upper bound with its own: both stay valid."""
    chosen = first if first.margin >= second.margin else second  # nan compares false
    bounding = first if first.upper_bound < second.upper_bound else second
    return BestMargin(chosen.margin, bounding.upper_bound, chosen.weights, bounding.dual, second.unit)


def solve(
    rows: Float[np.ndarray, "constraint weight"], upper: Float[np.ndarray, " weight"], seconds: float | None
) -> BestMargin:
    """One linear programme over these rows."""
    from scipy.optimize import linprog

    count, width = rows.shape
    ceiling = np.minimum(upper, 1.0)
    solution = linprog(
        np.r_[np.zeros(width), -1.0],
        A_ub=np.hstack([-rows, np.ones((count, 1))]),
        b_ub=np.zeros(count),
        bounds=[*zip(np.full(width, -1.0), ceiling, strict=True), (None, None)],
        method="highs-ds",
        options={} if seconds is None else {"time_limit": seconds},
    )
    if solution.x is None:
        return BestMargin(float("nan"), float("inf"), None)
    weights = np.clip(solution.x[:width], -1.0, ceiling)
    dual = np.maximum(-np.asarray(solution.ineqlin.marginals), 0.0)
    if not dual.sum() > 0:
        return BestMargin(float((rows @ weights).min()), float("inf"), weights)
    dual /= dual.sum()
    pull = rows.T @ dual
    bound = float(np.maximum(pull * ceiling, -pull).sum())
    return BestMargin(float((rows @ weights).min()), bound, weights, dual)
