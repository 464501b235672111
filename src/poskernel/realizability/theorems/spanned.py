"""Kernels of a simple form that products of somebody's own absolute features hold: a square about a line of keys, and
functions of the offset.

The largest margin on a few rows often belongs to a kernel that fails further out; these are tried before it. Nothing
rests on how they are found: each is substituted into all rows up to where it is said to be right.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings.family import RelativeFamily
from poskernel.random_streams import random_stream
from poskernel.realizability.margin_programme import best_margin, margin_constraints
from poskernel.realizability.theorems.case import Case
from poskernel.realizability.theorems.demand import share_text
from poskernel.realizability.theorems.searching import LONGEST, tried
from poskernel.realizability.theorems.verdicts import SEARCH, Answer, Verdict
from poskernel.tasks import Targets
from poskernel.threads import one_thread

RESIDUAL = 1e-11
"""How far off powers of the position may be, of their largest, to count as combinations of features."""
RESOLVED = 1e-10
"""Singular values below this share of the largest are rounding."""
INVARIANT = 1e-9
"""The same for how much a kernel changes along its diagonals: what is left is for substitution to judge."""
MOST_WEIGHTS = 1024
"""Unknowns of the equations for functions of the offset: their singular values take the cube of it."""
MOST_OFF = 0.49
"""Keys that a line may lie beside the demanded ones: below one half the nearest key is the demanded one."""

Weights = Float[Tensor, "feature feature"]


def spanned(case: Case) -> Answer | None:
    """A kernel of one of the forms that solves the training length and is right on deep rows; None where none is."""
    until, demand = min(case.horizon, LONGEST), case.demand()
    for form, weights in forms(case, until):
        found = weights / weights.abs().max()
        everywhere = tried(case, found, until)
        if everywhere.vanishes:
            reason = (
                f"{form}, is in the span of products of the features, solves length {case.train_length} and is right "
                f"on {share_text(1 - everywhere.share)} of the rows up to {until}"
            )
            return Answer(Verdict.TRANSFERS, SEARCH, reason, False, demand, found, everywhere.margin, until)
    return None


def forms(case: Case, until: int) -> Iterator[tuple[str, Weights]]:
    """The kernels to try, in words and as weights."""
    demand = case.demand()
    offset = demand.value if demand.settles else None
    line = (1.0, -float(offset)) if offset is not None else line_of(case, until)
    square = None if line is None else square_about(case, *line)
    if line is not None and square is not None:
        yield f"{square_text(*line)}, but for what is the same for all keys j of a row i", square
    if offset is not None:
        peaked = offset_kernel(case, offset, until)
        if peaked is not None:
            yield f"a kernel of the offset alone, whose strict peak up to {until} is offset {offset}", peaked


def square_text(slope: float, intercept: float) -> str:
    """-(slope i + intercept - j)^2 without what is 0 or 1."""
    parts = [] if slope == 0 else ["i" if slope == 1 else f"{slope:.6g} i"]
    if intercept or not parts:
        parts.append(f"{abs(intercept):.6g}" if parts or intercept >= 0 else f"{intercept:.6g}")
    return f"-({(' - ' if intercept < 0 else ' + ').join(parts)} - j)^2"


def line_of(case: Case, until: int) -> tuple[float, float] | None:
    """Slope and intercept of a line of which every demanded key up to a length is the nearest one; None without."""
    from scipy.optimize import linprog

    new, old = case.task.new_targets(case.train_length, until), case.trained
    query, key = (torch.cat(pair).double().numpy() for pair in ((old.query, new.query), (old.key, new.key)))
    ones = np.ones_like(query)
    above, below = np.stack([query, ones, -ones], 1), np.stack([-query, -ones, -ones], 1)
    found = linprog(
        [0.0, 0.0, 1.0], np.vstack([above, below]), np.r_[key, -key], bounds=[(None, None)] * 3, method="highs-ds"
    )
    if found.x is None or not found.x[2] < MOST_OFF:
        return None
    return float(found.x[0]), float(found.x[1])


def square_about(case: Case, slope: float, intercept: float) -> Weights | None:
    """Weights of 2 (slope i + intercept) j - j^2, a positive multiple; None where features do not span 1, j and j^2.

    It peaks where -(slope i + intercept - j)^2 does, from which only the query's own square is missing.
    """
    table = case.feature_table(case.horizon + 1)
    size = column_sizes(table)
    powers = torch.linspace(0, 1, len(table), dtype=torch.float64)[:, None] ** torch.arange(3)
    power = torch.linalg.lstsq(table / size, powers, driver="gelsd").solution
    if not bool(((table / size) @ power - powers).abs().max() <= RESIDUAL):
        return None
    form = torch.zeros(3, 3, dtype=torch.float64)
    form[1, 1], form[0, 1], form[0, 2] = 2 * slope, 2 * intercept / case.horizon, -1.0
    power = power / size[:, None]
    return power @ form @ power.T


def column_sizes(table: Float[Tensor, "position feature"]) -> Float[Tensor, " feature"]:
    """Largest entry of each column, 1 for a column of zeros."""
    size = table.abs().amax(0)
    return torch.where(size > 0, size, 1.0)


@one_thread()
def offset_kernel(case: Case, offset: int, until: int) -> Weights | None:
    """Weights of a kernel of the offset with its largest margin, row by row, at this one; None where there is none."""
    table = case.feature_table(until + 1)
    white = whitening(table)
    if white.shape[1] ** 2 > MOST_WEIGHTS:
        return None
    values = table @ white
    forms = unchanging(values)
    profiles = torch.einsum("pa,kab,b->pk", values, forms, values[0])
    if not len(forms) or not bool(profiles.any()):
        return None
    mixed = whitening(profiles)
    basis = profiles @ mixed
    family = RelativeFamily(lambda asked: basis[asked], case.encoding.name)
    deep = Targets(torch.tensor([until]), torch.tensor([until - offset]))
    rows = np.vstack([margin_constraints(family, each) for each in (case.trained, deep)])
    length = np.linalg.norm(rows, axis=1)
    if not length.all():
        return None  # two offsets with one value
    found = best_margin(rows / length[:, None], family.upper_bounds().numpy(), case.left)
    if found.weights is None or not found.margin > 0:
        return None
    form = torch.einsum("k,kab->ab", mixed @ torch.from_numpy(found.weights), forms)
    return white @ form @ white.T


def whitening(table: Float[Tensor, "row column"]) -> Float[Tensor, "column direction"]:
    """What makes the columns orthogonal and of mean square 1, without directions that are rounding."""
    size = column_sizes(table)
    _, singular, right = torch.linalg.svd(table / size, full_matrices=False)
    kept = singular > RESOLVED * singular[0]
    return right[kept].T / singular[kept] * math.sqrt(len(table)) / size[:, None]


def unchanging(values: Float[Tensor, "position feature"]) -> Float[Tensor, "form feature feature"]:
    """Bilinear forms of features that stay the same along causal diagonals, as far as drawn pairs of positions tell."""
    width, last = values.shape[1], len(values) - 1
    count = 2 * width**2 + 64
    stream = random_stream(0, "diagonals")
    draws = torch.rand(2, count, generator=stream, dtype=torch.float64)
    draws[:, ::2] = (last + 1.0) ** (draws[:, ::2] - 1)  # every other pair near the start, whatever the length
    distance = (draws[0] * last).long()
    shift = (draws[1] * (last - distance + 1)).long()

    def products(query: Tensor, key: Tensor) -> Tensor:
        return (values[query][:, :, None] * values[key][:, None, :]).flatten(1)

    changes = products(distance + shift, shift) - products(distance, torch.zeros_like(shift))
    _, singular, right = torch.linalg.svd(changes, full_matrices=False)
    return right[singular <= INVARIANT * singular[0]].unflatten(1, (width, width))
