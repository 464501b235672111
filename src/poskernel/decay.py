"""How a quantity decays along an axis such as depth: four forms, the one chosen by AIC, where it crosses a level.

Arrays in, `Estimate` out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from poskernel.errors import InputError
from poskernel.resampling import RESAMPLES, Array, Bootstrap, Column, Estimate, Rows
from poskernel.statistics import same_length, undefined, vector

FORMS: dict[str, tuple[Callable[..., Array], int]] = {
    "constant": (lambda x, a: a + 0 * x, 1),
    "linear": (lambda x, a, b: a + b * x, 2),
    "exponential": (lambda x, a, b: a * np.exp(-np.clip(b * x, -500, 500)), 2),
    "power": (lambda x, a, b: a * (1 + x) ** -b, 2),
}
"""Form and number of coefficients: a; a + b x; a exp(-b x); a (1 + x)^-b, finite at x = 0."""
FEWEST = 5
"""Points below which the corrected AIC of two coefficients and a variance is undefined."""


@dataclass(frozen=True)
class DecayFit:
    """One form's least-squares fit; `aic` is the corrected criterion with the error variance as a coefficient."""

    form: str
    coefficients: tuple[float, ...]
    residual: float
    """Sum of squared residuals."""
    aic: float

    def at(self, x: Column) -> Array:
        """Fitted values."""
        return FORMS[self.form][0](np.asarray(x, dtype=float), *self.coefficients)


def decay_fits(x: Column, y: Column) -> list[DecayFit]:
    """Every form's fit of y over x >= 0, the best by corrected AIC first; ties go to fewer coefficients.

    Raises InputError for fewer than 5 points or 3 distinct x, unequal lengths, nan, or x below 0.
    """
    place, value = vector(x, "x"), vector(y, "y")
    same_length(place, value, "x", "y")
    if place.size < FEWEST:
        raise InputError(f"{place.size} points are too few to choose a form of decay: give at least {FEWEST}.")
    if np.unique(place).size < 3:
        raise InputError(f"x holds {np.unique(place).size} distinct places: a form of decay needs at least 3.")
    if place.min() < 0:
        raise InputError(f"x holds {place.min():g}: give places of at least 0, such as depths.")
    fits = [fit_form(form, place, value) for form in FORMS]
    # A residual of rounding alone says nothing against one that is a little smaller.
    return sorted(fits, key=lambda fit: (fit.aic, FORMS[fit.form][1]))


def fit_form(form: str, place: Array, value: Array) -> DecayFit:
    """Least squares of one form; the nonlinear ones in their one nonlinear coefficient, the other being linear."""
    from scipy.optimize import minimize_scalar

    function, count = FORMS[form]
    if form in {"constant", "linear"}:
        coefficients = tuple(float(part) for part in np.polyfit(place, value, count - 1)[::-1])
    else:

        def amplitude(rate: float) -> float:
            shape = function(place, 1.0, rate)
            return float(shape @ value / max(float(shape @ shape), 1e-300))

        def residual(rate: float) -> float:
            return float(((value - function(place, amplitude(rate), rate)) ** 2).sum())

        # Rates from a growth by e^20 over the range to gone within the first step, dense where they are small.
        scale = np.unique(np.log1p(place) if form == "power" else place)
        reach = float(np.ptp(scale))
        slow, growth, fast = 0.01 / reach, 20 / reach, 20 / float(np.diff(scale).min())
        grid = slow * np.sinh(np.linspace(-np.arcsinh(growth / slow), np.arcsinh(fast / slow), 201))
        best = int(np.argmin([residual(rate) for rate in grid]))
        bounds = grid[max(0, best - 1)], grid[min(200, best + 1)]
        rate = float(minimize_scalar(residual, bounds=bounds, method="bounded", options={"xatol": 1e-10}).x)
        coefficients = (amplitude(rate), rate)
    left = float(((value - function(place, *coefficients)) ** 2).sum())
    return DecayFit(form, coefficients, left, corrected_aic(left, value, count))


def corrected_aic(residual: float, value: Array, count: int) -> float:
    """AICc of Gaussian errors; residuals are floored at rounding, so that exact fits tie."""
    n, estimated = value.size, count + 1
    floor = 1e-24 * max(float((value**2).sum()), 1e-300)
    return (
        n * math.log(max(residual, floor) / n) + 2 * estimated + 2 * estimated * (estimated + 1) / (n - estimated - 1)
    )


def crossing(
    x: Column,
    y: Column,
    *,
    level: float = 0.5,
    seed: int = 0,
    clusters: Column | None = None,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Smallest x at which the mean of y falls to the level, linear between the x that were seen.

    Several y at one x (heads of a layer) are averaged; the interval is a percentile bootstrap over rows, or over whole
    clusters. Undefined where y starts at or below the level, or never falls to it. Raises InputError for unequal
    lengths or nan.
    """
    place, value = vector(x, "x"), vector(y, "y")
    same_length(place, value, "x", "y")
    if not place.size:
        return undefined(0, "undefined: no rows")
    places, group = np.unique(place, return_inverse=True)
    member = (group[:, None] == np.arange(places.size)).astype(float)

    def statistic(counts: Array) -> Array:
        weight = counts @ member
        means = (counts * value) @ member / weight
        return np.array([first_crossing(places, row, level) for row in means])

    with np.errstate(invalid="ignore", divide="ignore"):
        at = float(statistic(np.ones((1, value.size)))[0])
    if math.isnan(at):
        means = (value @ member) / member.sum(0)
        what = "starts at or below" if means[0] <= level else "never falls to"
        return undefined(value.size, f"undefined: it {what} {level:g}")
    return Bootstrap("percentile", seed, resamples, 0.95).estimate(statistic, Rows.of(clusters, value.size))


def first_crossing(places: Array, means: Array, level: float) -> float:
    """Where a curve first falls to a level; nan if it starts there or never does. Places without a mean are passed."""
    seen = ~np.isnan(means)
    places, means = places[seen], means[seen]
    if not means.size or means[0] <= level:
        return math.nan
    below = np.flatnonzero(means <= level)
    if not below.size:
        return math.nan
    last, first = below[0] - 1, below[0]
    share = (means[last] - level) / (means[last] - means[first])
    return float(places[last] + share * (places[first] - places[last]))
