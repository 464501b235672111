"""The fits of a head's row-centred logits: position, content, their sum, their product, and what bounds them.

In the order of FITS, with g a kernel of the offset (the functions of `OffsetBasis`, least squares in every fit anew,
so that fits are nested), kc a content kernel, and eta a term of the key alone:

- position: g; content: a kc;
- sum: g + kc; additive: g + kc + eta;
- product: (kc + c1) v(d) with v a free kernel of the offset and c1 free: a (kc + c1)(g + c2) + b, whatever the origins
  that g and kc come with. As a (kc + c1)(g + c2) holds a kc g + a c2 kc + a c1 g, it comes as close as wished to
  g + kc (a to 0): it never does worse than the sum, and only its gain over the sum speaks for a product;
- fixed: a (kc - mean)(g - mean) with the g of position, the product with both origins at the means, which holds no
  position-only and no content-only part;
- both: additive + the fitted product: what the product adds to the additive form;
- free: offset bins + content bins; saturated: free + octaves of the offset x content bins. Neither is a ceiling.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.content.content_kernels import solve
from poskernel.attention.content.pair_statistics import BINS, OffsetBasis, PairStatistics

FITS = ("position", "content", "sum", "additive", "product", "fixed", "both", "free", "saturated")
RELATIVE_CUTOFF = 1e-10
"""Directions of the scaled normal matrix below this share of its largest eigenvalue have no data."""
FARTHEST_ORIGIN = 1e3
"""Largest origin c1 of the content kernel, in its standard deviations: there the product is a sum within 1e-6."""
GRID, REFINEMENTS = 81, 40


@dataclass(frozen=True, eq=False)
class FittedHead:
    """Coefficients of every fit over the features of `PairStatistics`, and the product's origin."""

    coefficients: Mapping[str, Float[Tensor, " feature"]]
    origin: float
    """c1 of the product, in the content kernel's own unit."""


def fit_head(basis: OffsetBasis, statistics: PairStatistics) -> FittedHead:
    """All fits of one head and content kernel by least squares on summed statistics."""
    normal, moment = statistics.normal[0], statistics.moment[0]
    pairs, total, _ = statistics.kernel_sums[0]
    product, origin = fit_product(basis, statistics)
    coefficients = {"product": product}
    forms = combinations(basis)
    forms["both"] = torch.cat([forms["additive"], product[:, None]], 1)
    for name, combination in forms.items():
        coefficients[name] = restricted(normal, moment, combination)
    centred = fixed_product(basis, coefficients["position"], float(total / pairs))
    coefficients["fixed"] = restricted(normal, moment, centred[:, None])
    return FittedHead({name: coefficients[name] for name in FITS}, origin)


def restricted(
    normal: Float[Tensor, "feature feature"],
    moment: Float[Tensor, " feature"],
    combination: Float[Tensor, "feature coefficient"],
) -> Float[Tensor, " feature"]:
    """Least squares over some combinations of the features, as coefficients of the features."""
    return combination @ least_squares(combination.T @ normal @ combination, combination.T @ moment)


def combinations(basis: OffsetBasis) -> dict[str, Float[Tensor, "feature coefficient"]]:
    """The linear fits, each as the combinations of features that its coefficients multiply."""
    count, octaves = basis.count, basis.octaves.shape[1]
    identity = torch.eye(basis.features, dtype=torch.float64)
    position, key = identity[:, :count], identity[:, 2 * count : 2 * count + 1]
    # The bins' indicators add up to 1, so their products with kc add up to kc.
    content = identity[:, count + 1 : 2 * count].sum(1, keepdim=True)
    cells = identity[:, 2 * count + 1 :]
    content_bins = cells.view(-1, octaves, BINS).sum(1)
    return {
        "position": position,
        "content": content,
        "sum": torch.cat([position, content], 1),
        "additive": torch.cat([position, content, key], 1),
        "free": torch.cat([position, content_bins], 1),
        "saturated": torch.cat([position, content_bins, cells], 1),
    }


def fixed_product(
    basis: OffsetBasis, position: Float[Tensor, " feature"], kernel_mean: float
) -> Float[Tensor, " feature"]:
    """(kc - mean)(g - mean) for the g of the position fit, up to a constant, as a combination of the features."""
    count, weights = basis.count, position[: basis.count].clone()
    counts = basis.layout.valid.sum(0)
    # The bins add up to 1, so taking the mean from each of their weights takes it from g.
    weights[1:] -= counts @ (basis.functions @ weights) / counts.sum()
    return torch.cat([-kernel_mean * weights, weights, torch.zeros(basis.features - 2 * count, dtype=torch.float64)])


def fit_product(basis: OffsetBasis, statistics: PairStatistics) -> tuple[Float[Tensor, " feature"], float]:
    """Coefficients of the best (kc + c1) v(d), and c1: for each c1 the best v is linear, so c1 is searched alone."""
    count = basis.count
    pairs, total, square = (float(part) for part in statistics.kernel_sums[0])
    mean = total / pairs
    unit = max(0.0, square / pairs - mean**2) ** 0.5 or 1.0
    # In standardised kc, kc = mean + unit z, the features are z phi and phi.
    normal, moment = statistics.normal[0, : 2 * count, : 2 * count], statistics.moment[0, : 2 * count]
    identity = torch.eye(count, dtype=torch.float64)
    weights = torch.cat([-mean / unit * identity, identity / unit]), torch.cat([identity, 0 * identity])

    def combination(reach: float) -> Float[Tensor, "feature function"]:
        origin = torch.sinh(torch.tensor(reach, dtype=torch.float64))
        return (weights[0] + origin * weights[1]) / (1 + origin**2).sqrt()

    def explained(reach: float) -> float:
        mixed = combination(reach)
        projected = (mixed.T @ moment)[:, None]
        return float((projected * solve(mixed.T @ normal @ mixed, projected)).sum())

    limit = float(torch.tensor(FARTHEST_ORIGIN).asinh())
    grid = torch.linspace(-limit, limit, GRID, dtype=torch.float64).tolist()
    best = max(range(GRID), key=lambda place: explained(grid[place]))
    reach = golden_section(explained, grid[max(0, best - 1)], grid[min(GRID - 1, best + 1)])
    mixed = combination(reach)
    coefficients = torch.zeros(basis.features, dtype=torch.float64)
    coefficients[: 2 * count] = mixed @ least_squares(mixed.T @ normal @ mixed, mixed.T @ moment)
    return coefficients, unit * float(torch.sinh(torch.tensor(reach, dtype=torch.float64))) - mean


def golden_section(value: Callable[[float], float], low: float, high: float) -> float:
    """Place of the maximum of a function with one maximum between two places."""
    ratio = (5**0.5 - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = value(left), value(right)
    for _ in range(REFINEMENTS):
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = value(right)
    return (low + high) / 2


def least_squares(
    normal: Float[Tensor, "coefficient coefficient"], moment: Float[Tensor, " coefficient"]
) -> Float[Tensor, " coefficient"]:
    """Smallest coefficients that solve the normal equations; features without data, or repeated ones, do no harm."""
    scale = normal.diagonal().clamp(min=0).sqrt()
    # A feature that is constant along every row is centred to nothing but rounding.
    scale = torch.where(scale > 1e-7 * scale.max(), scale, torch.inf)
    values, axes = torch.linalg.eigh(normal / scale[:, None] / scale)
    seen = values > RELATIVE_CUTOFF * values[-1].clamp(min=1e-300)
    projected = axes[:, seen].T @ (moment / scale) / values[seen]
    return axes[:, seen] @ projected / scale
