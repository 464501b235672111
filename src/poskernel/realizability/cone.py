"""Is the cone of weights that make every constraint positive empty: a kernel as witness, a proof, or neither.

Features of another size hold the same kernels, so no threshold here is absolute. Rows are tried as they are, since
weights of at most 1 then mean what the margin is quoted for; where that decides nothing, columns and rows are brought
to one size. A kernel counts if every row stays positive whatever the rounding errors, and "none" needs a proof: however
small a bound on the margin is, it excludes no kernel with a smaller one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from poskernel.encodings import BilinearFamily, Encoding, LinearFamily, RelativeFamily, Sinusoidal
from poskernel.encodings.rotary import RotaryEncoding
from poskernel.realizability.exactness import BLOCK, exact_columns
from poskernel.realizability.margin_programme import (
    BestMargin,
    best_margin,
    compared,
    distinct_rows,
    margin_constraints,
    require_room,
)
from poskernel.realizability.refutation import EPSILON, ROUNDINGS, refuted, row_lengths
from poskernel.tasks import Targets

LEAST = float(np.finfo(np.float64).smallest_subnormal)
"""What the rounding of the smallest numbers loses."""

Rows = Float[np.ndarray, "constraint weight"]
Columns = Float[np.ndarray, " weight"]


@dataclass(frozen=True, eq=False)
class Programme:
    """Constraints whose every row the weights have to make positive."""

    rows: Rows
    upper: Columns
    """Largest admissible weight, 0 or inf."""
    resolution: Columns
    """How far rounding may have put an entry of each column off, beyond a few roundings of the entry itself."""
    rounded: bool
    """Features are roundings of irrational numbers, so that equal ones need not be equal."""
    tied: bool = False
    """Whether a row of zeros is a tie in truth, not only in products that float64 rounds alike."""


@dataclass(frozen=True, eq=False)
class Cone:
    """What was found: weights, or that there are none, or neither."""

    weights: Columns | None
    margin: float | None
    """Least row at the weights, each at most 1, by substitution; None without weights, or without a row."""
    bound: float
    """No weights of at most 1 have a larger margin."""
    empty: bool
    """Whether it is proved that there are none."""
    why: str
    """In words: what excludes weights, or why nothing was decided."""


def phase_rate(encoding: Encoding, length: int) -> float:
    """Most radians a position in an encoding's sines and cosines, which float64 rounds; 0 where it has none.

    Of somebody's own encoding the features count as the numbers they are in float64.
    """
    if isinstance(encoding, RotaryEncoding):
        rates = encoding.rates(encoding.frequencies, length)
        return float(rates.max()) if len(rates) else 0.0
    return 1.0 if isinstance(encoding, Sinusoidal) else 0.0  # whose frequencies are base^(-k/n) from k = 0 on


def programme(families: Sequence[LinearFamily], targets: Sequence[Targets], rate: float = 0.0) -> Programme:
    """The constraints of targets, each on its own family; the weights are shared. `rate` as by `phase_rate`."""
    pairs = list(zip(families, targets, strict=True))
    parts = [margin_constraints(*pair) for pair in pairs]
    last = [int(each.query.max()) if len(each.query) else 0 for each in targets]
    tied = any(surely_tied(*pair, rows) for pair, rows in zip(pairs, parts, strict=True))
    return with_resolution(distinct_rows(np.vstack(parts)), families, last, rate, tied)


def surely_tied(family: LinearFamily, targets: Targets, rows: Rows) -> bool:
    """Whether a row of zeros, of these that a family gives, says that the target's logit is the other key's."""
    zero = torch.from_numpy(~rows.any(axis=1))
    if not isinstance(family, BilinearFamily) or not bool(zero.any()):
        return bool(zero.any())  # the difference of two numbers is 0 only if they are equal
    query, target, key = (family.values(each[zero]) for each in compared(family, targets))
    return bool(((query == 0).all(1) | (target == key).all(1)).any())


def with_resolution(
    rows: Rows, families: Sequence[LinearFamily], last: Sequence[int], rate: float, tied: bool
) -> Programme:
    """Rows with what rounding may have done to them; `last` is the largest position that each family is asked for."""
    resolution, rounded = np.zeros(rows.shape[1]), rate > 0
    for family, position in zip(families, last, strict=True):
        largest = largest_logit(family, position)
        require_room(largest, family)
        # A phase carries the relative rounding of theta and of theta x position: rate x position x epsilon at most.
        lost = 2 * EPSILON * (4 + position * max(1.0, rate))
        resolution = np.maximum(resolution, lost * largest)
    if not rounded:
        resolution[exact_columns(families, last)] = 0.0
    return Programme(rows, families[0].upper_bounds().numpy(), resolution, rounded, tied)


def largest_logit(family: LinearFamily, last: int) -> Columns:
    """Largest |logit| that each weight alone can give at positions up to `last`."""
    position = torch.arange(last + 1)
    if isinstance(family, RelativeFamily | BilinearFamily):
        parts = [family.values(block).abs().amax(0) for block in position.split(BLOCK)]
        single = torch.stack(parts).amax(0)
        return (torch.outer(single, single).flatten() if isinstance(family, BilinearFamily) else single).numpy()
    parts = [family.design(torch.full((row + 1,), row), torch.arange(row + 1)).abs().amax(0) for row in position]
    return torch.stack(parts).amax(0).numpy()


def decide(asked: Programme, seconds: float, accept: Callable[[Columns], bool] = lambda weights: True) -> Cone:
    """Weights that make every row positive and are accepted, or that there are none, within a time limit.

    Without a row all weights do; then no margin bounds them.
    """
    if not len(asked.rows):
        nothing = np.zeros(asked.rows.shape[1])
        return Cone(nothing if accept(nothing) else None, None, float("inf"), False, "no row asks for anything")
    if not asked.rows.any(axis=1).all():
        if asked.rounded or not asked.tied:
            return undecided(0.0, "float64 does not tell the features of the target from those of another key")
        return Cone(None, None, 0.0, True, "the target and another key have equal features, so they always tie")
    started = time.monotonic()
    raw = best_margin(asked.rows, asked.upper, seconds)
    if found := witness(asked, raw, accept):
        return found
    if refuted(asked.rows, asked.upper, raw.dual, asked.resolution):
        return Cone(None, None, max(raw.upper_bound, 0.0), True, "the constraints cancel each other")
    scale = np.abs(asked.rows).max(axis=0)
    scale[scale == 0] = 1.0
    length = row_lengths(asked.rows / scale)
    length[length == 0] = 1.0  # smaller than its columns by more than float64 holds: such a row decides nothing here
    sized = asked.rows / scale / length[:, None]
    even = best_margin(sized, asked.upper, seconds - (time.monotonic() - started))
    if found := witness(asked, rescaled(even, scale, raw.upper_bound), accept):
        return found
    dual = None if even.dual is None else even.dual * (length.min() / length)  # of the rows as they were
    if refuted(asked.rows, asked.upper, dual, asked.resolution):
        return Cone(None, None, max(raw.upper_bound, 0.0), True, "the constraints cancel each other")
    if time.monotonic() - started >= seconds:
        return undecided(raw.upper_bound, f"the linear programme was stopped at its limit of {seconds:g} s")
    size = max(even.upper_bound, EPSILON)
    why = (
        f"a margin of at most {size:.1g} of the features' size is neither found nor excluded: "
        "float64 does not resolve it"
    )
    return undecided(raw.upper_bound, why)


def undecided(bound: float, why: str) -> Cone:
    """Neither weights nor a proof."""
    return Cone(None, None, bound, False, why)


def positive_rows(asked: Programme, weights: Columns) -> bool:
    """Whether every row is positive at the weights, whatever the rounding of entries and sums."""
    size = np.abs(weights)
    roundings = len(weights) + ROUNDINGS
    lost = size @ asked.resolution + roundings * (EPSILON * (np.abs(asked.rows) @ size) + LEAST)
    return bool((asked.rows @ weights > lost).all())


def witness(asked: Programme, best: BestMargin, accept: Callable[[Columns], bool]) -> Cone | None:
    """The weights of a programme, where they are proved and accepted."""
    if best.weights is None or not positive_rows(asked, best.weights) or not accept(best.weights):
        return None
    return Cone(best.weights, float((asked.rows @ best.weights).min()), best.upper_bound, False, "")


def rescaled(best: BestMargin, scale: Columns, bound: float) -> BestMargin:
    """The weights for the columns as they were, at most 1, with the bound that holds there."""
    if best.weights is None or not best.weights.any():
        return BestMargin(float("nan"), bound, None)
    weights = best.weights * (scale.min() / scale)
    largest = np.abs(weights).max()
    return BestMargin(best.margin, bound, weights / largest if largest > 0 else None)
