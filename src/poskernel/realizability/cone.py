"""Is the cone of weights that make every constraint positive empty: a kernel as witness, a proof, or neither.

Features of another size hold the same kernels, so no threshold here is absolute. Rows are tried as they are, since
weights of at most 1 then mean what the margin is quoted for; where that decides nothing, columns and rows are brought
to one size. A kernel counts if every row stays positive whatever the rounding errors; "none" needs a proof, or, where
the features are no roundings themselves, a bound of the size of rounding.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from poskernel.encodings import BilinearFamily, Encoding, LinearFamily, RelativeFamily, Sinusoidal
from poskernel.encodings.rotary import RotaryEncoding
from poskernel.realizability.margin_programme import BestMargin, best_margin, distinct_rows, margin_constraints
from poskernel.realizability.refutation import EPSILON, refuted, whole_numbers
from poskernel.tasks import Targets

ROUNDING = 1e-13
"""Bound on the margin of rows and columns of size 1 that rounding alone explains."""
LEFT_OVER = 1e4 * EPSILON
"""Share of a feature's size below which its change is what rounding has left."""
BLOCK = 1 << 16
"""Positions whose features are evaluated together."""

Rows = Float[np.ndarray, "constraint weight"]
Columns = Float[np.ndarray, " weight"]


@dataclass(frozen=True, eq=False)
class Programme:
    """Constraints whose every row the weights have to make positive."""

    rows: Rows
    upper: Columns
    """Largest admissible weight, 0 or inf."""
    resolution: Columns
    """How far rounding may have put an entry of each column off; 0 where the entries are exact."""
    rounded: bool
    """Features are roundings of irrational numbers, so that equal ones need not be equal."""


@dataclass(frozen=True, eq=False)
class Cone:
    """What was found: weights, or that there are none, or neither."""

    weights: Columns | None
    margin: float | None
    """Least row at the weights, each at most 1, by substitution; None without weights, or without a row."""
    bound: float
    """No weights of at most 1 have a larger margin."""
    empty: bool
    proved: bool
    """Whether emptiness is proved, not only bounded by rounding."""
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
    parts = [margin_constraints(*pair) for pair in zip(families, targets, strict=True)]
    last = [int(each.query.max()) if len(each.query) else 0 for each in targets]
    return with_resolution(distinct_rows(np.vstack(parts)), families, last, rate)


def with_resolution(rows: Rows, families: Sequence[LinearFamily], last: Sequence[int], rate: float) -> Programme:
    """Rows with what rounding may have done to them; `last` is the largest position that each family is asked for."""
    resolution, size, rounded = np.zeros(rows.shape[1]), np.zeros(rows.shape[1]), rate > 0
    for family, position in zip(families, last, strict=True):
        largest = largest_logit(family, position)
        # A phase carries the relative rounding of theta and of theta x position: rate x position x epsilon at most.
        lost = 2 * EPSILON * (4 + position * max(1.0, rate))
        size, resolution = np.maximum(size, largest), np.maximum(resolution, lost * largest)
    if not rounded:
        # Multiples of a few units in the last place are what is left of a feature that hardly changes, not its values.
        change = np.abs(rows).max(axis=0, initial=0.0)
        resolution[whole_numbers(rows)[1] & ((change == 0) | (change > LEFT_OVER * size))] = 0.0
    return Programme(rows, families[0].upper_bounds().numpy(), resolution, rounded)


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
        return Cone(nothing if accept(nothing) else None, None, float("inf"), False, False, "no row asks for anything")
    if not asked.rows.any(axis=1).all():
        why = "the target and another key have equal features, so they always tie"
        if asked.rounded:
            return undecided(0.0, "float64 does not tell the features of the target from those of another key")
        return Cone(None, None, 0.0, True, True, why)
    started = time.monotonic()
    raw = best_margin(asked.rows, asked.upper, seconds)
    if found := witness(asked, raw, accept):
        return found
    if refuted(asked.rows, asked.upper, raw.dual, asked.resolution):
        return Cone(None, None, max(raw.upper_bound, 0.0), True, True, "the constraints cancel each other")
    scale = np.abs(asked.rows).max(axis=0)
    scale[scale == 0] = 1.0
    sized = asked.rows / scale
    sized /= np.linalg.norm(sized, axis=1, keepdims=True)
    even = best_margin(sized, asked.upper, seconds - (time.monotonic() - started))
    sized_back = rescaled(even, scale, raw.upper_bound)
    if found := witness(asked, sized_back, accept):
        return found
    if refuted(asked.rows, asked.upper, scaled_dual(even, asked.rows, scale), asked.resolution):
        return Cone(None, None, max(raw.upper_bound, 0.0), True, True, "the constraints cancel each other")
    if not asked.rounded and even.upper_bound <= ROUNDING:
        bound = max(even.upper_bound, 0.0)
        why = f"every margin is bounded by {bound:.1g} of the features' size, which is rounding"
        return Cone(None, None, bound, True, False, why)
    if time.monotonic() - started >= seconds:
        return undecided(raw.upper_bound, f"the linear programme was stopped at its limit of {seconds:g} s")
    why = (
        f"a margin of at most {max(even.upper_bound, 0.0):.1g} of the features' size is neither found nor excluded: "
        "float64 does not resolve it"
    )
    return undecided(raw.upper_bound, why)


def undecided(bound: float, why: str) -> Cone:
    """Neither weights nor a proof."""
    return Cone(None, None, bound, False, False, why)


def positive_rows(asked: Programme, weights: Columns) -> bool:
    """Whether every row is positive at the weights, whatever the rounding of entries and sums."""
    size = np.abs(weights)
    lost = size @ asked.resolution + (len(weights) + 2) * EPSILON * (np.abs(asked.rows) @ size)
    return bool((asked.rows @ weights > lost).all())


def witness(asked: Programme, best: BestMargin, accept: Callable[[Columns], bool]) -> Cone | None:
    """The weights of a programme, where they are proved and accepted."""
    if best.weights is None or not positive_rows(asked, best.weights) or not accept(best.weights):
        return None
    return Cone(best.weights, float((asked.rows @ best.weights).min()), best.upper_bound, False, False, "")


def rescaled(best: BestMargin, scale: Columns, bound: float) -> BestMargin:
    """The weights for the columns as they were, at most 1, with the bound that holds there."""
    if best.weights is None or not best.weights.any():
        return BestMargin(float("nan"), bound, None)
    weights = best.weights / scale
    return BestMargin(best.margin, bound, weights / np.abs(weights).max())


def scaled_dual(best: BestMargin, rows: Rows, scale: Columns) -> Float[np.ndarray, " constraint"] | None:
    """Dual weights of the rows as they were."""
    return None if best.dual is None else best.dual / np.linalg.norm(rows / scale, axis=1)
