"""Which columns of a programme are exact: features whose products and differences float64 does not round.

A proof by whole numbers may rest on such columns alone: of others a difference may have lost the very digits that make
a kernel, as 1 + 2^-52 and 1 have the same distance from 9. Features of one's own count as the numbers they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float

from poskernel.encodings import BilinearFamily, LinearFamily, RelativeFamily
from poskernel.realizability.refutation import ROUNDINGS, counts_of_unit

MANTISSA = 53
"""Digits of a float64, in base 2."""
LEAST_NORMAL = float(np.finfo(np.float64).tiny)
"""Products below it lose digits."""
MOST_COUNTS = 2**20
"""Counts of one unit whose differences, rounded, are no other simple multiples of each other than they are in truth."""
MOST_PRODUCTS = ROUNDINGS // 2
"""The same for differences of products, of which each is rounded by itself."""
BLOCK = 1 << 16
"""Positions whose features are evaluated together."""

Columns = Float[np.ndarray, " feature"]


@dataclass(frozen=True, eq=False)
class Digits:
    """How many digits the entries of each column take, up to a factor that the whole column has."""

    span: Columns
    """Largest |entry| in the largest power of 2 that every entry is a multiple of: 0 for a column of zeros."""
    step: Columns
    """That power of 2."""
    count: Columns
    """Largest |entry| in the largest unit that every entry is a multiple of; inf where there is no simple one."""
    least: Columns
    """Least |entry| that is not 0; 1 in a column of zeros."""


def digits(table: Float[np.ndarray, "position feature"]) -> Digits:
    """The digits of each column."""
    found = np.zeros((4, table.shape[1]))
    found[1] = found[3] = 1.0
    for column in range(table.shape[1]):
        sizes = np.unique(np.abs(table[:, column]))
        if sizes[-1] > 0:
            found[:, column] = digits_of(sizes)
    return Digits(*found)


def digits_of(sizes: Float[np.ndarray, " size"]) -> tuple[float, float, float, float]:
    """The digits of one column's sizes, in rising order, not all 0."""
    sizes = sizes[sizes > 0]
    mantissa, exponent = np.frexp(sizes)
    whole = np.ldexp(mantissa, MANTISSA).astype(np.int64)
    step = float(np.ldexp((whole & -whole).astype(float), exponent - MANTISSA).min())
    counts = counts_of_unit(sizes)
    with np.errstate(over="ignore"):
        span = float(sizes[-1] / np.float64(step))
    return span, step, np.inf if counts is None else float(counts.max()), float(sizes[0])


def exact_columns(families: Sequence[LinearFamily], last: Sequence[int]) -> Bool[np.ndarray, " weight"]:
    """Which weights' columns are exact, up to one factor a column, at all pairs of positions up to `last`.

    A small relative rounding of single entries, as of 3 x 0.7 - 0.7, is no loss where it cannot be taken for another
    simple multiple; it is for the reader of the entries to allow for it.
    """
    if not all(isinstance(family, RelativeFamily | BilinearFamily) for family in families):
        return np.zeros(families[0].size, dtype=bool)
    found = digits(np.vstack([values_to(family, position) for family, position in zip(families, last, strict=True)]))
    if isinstance(families[0], RelativeFamily):
        return (found.span < 2 ** (MANTISSA - 1)) | (found.count < MOST_COUNTS)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        short = np.outer(found.span, found.span) < 2 ** (MANTISSA - 1)
        short &= np.outer(found.step, found.step) >= LEAST_NORMAL
        simple = np.outer(found.count, found.count) <= MOST_PRODUCTS
        simple &= np.outer(found.least, found.least) >= LEAST_NORMAL
    return (short | simple).flatten()


def values_to(family: LinearFamily, last: int) -> Float[np.ndarray, "position feature"]:
    """Basis by offset, or features by position, up to `last`."""
    assert isinstance(family, RelativeFamily | BilinearFamily)
    return np.vstack([family.values(block).numpy() for block in torch.arange(last + 1).split(BLOCK)])
