"""Proofs that no weights make every constraint positive: combinations of the constraints that leave nothing.

Farkas: no w has A w > 0 (and w <= 0 where an encoding bounds it) exactly if some y >= 0, not 0, has y'A = 0 on the free
columns and y'A >= 0 on the bounded ones. A linear programme gives such a y up to rounding; that alone proves nothing,
since a margin may be smaller than rounding. Two kinds of y do: one that cancels in exact arithmetic, where the entries
are whole numbers in some unit of their column, and one that stays positive under any change of the entries by their
rounding errors.
"""

import math
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float

LARGEST_DENOMINATOR = 1000
"""Of the shares that the corners of a programme in whole numbers are looked for among."""
LEAST_SHARE = 1e-9
"""Of the largest dual weight: what is smaller is the solver's rounding."""
EPSILON = float(np.finfo(np.float64).eps)
ROUNDINGS = 32
"""Relative roundings of one entry that its column's resolution does not count."""

Rows = Float[np.ndarray, "constraint weight"]
Columns = Float[np.ndarray, " weight"]
Marked = Bool[np.ndarray, " weight"]


def refuted(rows: Rows, upper: Columns, dual: Float[np.ndarray, " constraint"] | None, resolution: Columns) -> bool:
    """Whether these dual weights prove that no admissible weights make every row positive.

    `resolution` is how far rounding may have put an entry of each column off; 0 where the entries are exact.
    """
    if dual is None or not 0 < dual.max() < np.inf:
        return False
    chosen = dual > LEAST_SHARE * dual.max()
    support, share = rows[chosen], dual[chosen] / dual.max()
    bounded = upper <= 0
    return cancels(support, share, bounded, resolution) or withstands(support, share, bounded, resolution)


def whole_numbers(rows: Rows) -> tuple[Rows, Marked]:
    """Each column in the largest unit that its entries are whole numbers of, and whether there is a simple one."""
    exact = np.all(np.isin(rows, (-1.0, 0.0, 1.0)), axis=0)  # their own counts, as of one-hot features
    whole = np.where(exact, rows, 0.0)
    for column in np.flatnonzero(~exact):
        sizes, which = np.unique(np.abs(rows[:, column]), return_inverse=True)
        counts = counts_of_unit(sizes)
        if counts is not None:
            whole[:, column], exact[column] = np.copysign(counts[which], rows[:, column]), True
    return whole, exact


def counts_of_unit(sizes: Float[np.ndarray, " size"]) -> Float[np.ndarray, " size"] | None:
    """Distinct sizes, not all 0, in their largest common unit; None where the least is too many of it."""
    if (sizes == np.rint(sizes)).all() and sizes.max(initial=0.0) < 2**53:
        counted = sizes.astype(np.int64)
        unit = np.gcd.reduce(counted)
        return counted / unit if counted[counted > 0].min() // unit <= LARGEST_DENOMINATOR else None
    least = Fraction(sizes[sizes > 0].min())
    parts, counts = 1, []
    for size in sizes.tolist():
        count = Fraction(size) / least
        parts = math.lcm(parts, count.denominator)
        if parts > LARGEST_DENOMINATOR:
            return None
        counts.append(count)
    whole = [int(count * parts) for count in counts]
    return np.array(whole, dtype=float) if max(whole) < 2**53 else None  # as whole numbers: float64 may not hold them


def row_lengths(rows: Rows) -> Float[np.ndarray, " constraint"]:
    """Euclidean lengths; the squares of small entries do not vanish, since the largest of each row is taken out."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    largest[largest == 0] = 1.0
    return np.linalg.norm(rows / largest, axis=1) * largest[:, 0]


def cancels(support: Rows, share: Float[np.ndarray, " constraint"], bounded: Marked, resolution: Columns) -> bool:
    """Whether simple fractions near the dual weights cancel the rows exactly."""
    whole, exact = whole_numbers(support)
    if not exact.all() or resolution.any():
        return False
    parts = [Fraction(each).limit_denominator(LARGEST_DENOMINATOR) for each in share.tolist()]
    common = math.lcm(*(part.denominator for part in parts))
    counts = np.array([int(part * common) for part in parts], dtype=object)
    used = whole.any(axis=0)
    pull = counts @ whole[:, used].astype(np.int64).astype(object)
    return bool(counts.any()) and all(
        each >= 0 if limited else each == 0 for each, limited in zip(pull, bounded[used], strict=True)
    )


def withstands(support: Rows, share: Float[np.ndarray, " constraint"], bounded: Marked, resolution: Columns) -> bool:
    """Whether the dual weights are the one solution of as many equations, positive whatever the rounding errors.

    Unknown are the weights y of the rows and the slack z of the bounded columns; known y'A - z = 0 and sum y = 1.
    With M x = e, M the matrix of these equations and |dM| <= E, the solution moves by at most r |x| / (1 - r) where
    r is the norm of |M^-1| E.
    """
    used = support.any(axis=0) | (resolution > 0)
    matrix, error, limited = support[:, used], resolution[used], bounded[used]
    size = np.abs(matrix).max(axis=0, initial=0.0)
    size[size == 0] = 1.0
    with np.errstate(over="ignore"):  # an error of infinite size withstands nothing
        matrix, error = matrix / size, error / size
    length = row_lengths(matrix)
    if not length.all():
        return False
    matrix = matrix / length[:, None]
    count, width = matrix.shape
    weighed = share * length
    slack = np.flatnonzero(limited & (weighed @ matrix > LEAST_SHARE))
    if count + len(slack) != width + 1:
        return False
    equations = np.zeros((width + 1, width + 1))
    equations[:width, :count], equations[width, :count] = matrix.T, 1.0
    equations[slack, count + np.arange(len(slack))] = -1.0
    uncertain = (width + ROUNDINGS) * EPSILON * np.abs(equations)
    try:
        inverse = np.linalg.inv(equations)
    except np.linalg.LinAlgError:
        return False
    solution = inverse[:, width]
    with np.errstate(over="ignore", invalid="ignore"):
        uncertain[:width, :count] += error[:, None] / length
        moved = float((np.abs(inverse) @ uncertain).sum(axis=1).max())
    if not moved < 0.5:
        return False
    return bool(solution.min() > moved / (1 - moved) * np.abs(solution).max())
