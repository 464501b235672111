"""Statistics over pairs of sequences with their sampling variance: means of F(x, y) over x != y, and ratios of them.

A mean over pairs of different sequences is a U-statistic of degree two. Its variance follows from two moments, the
mean of F(x, y)^2 and the mean of F(x, y) F(x, z), which are all that is kept: memory does not grow with the sequences.
The delete-one jackknife would count the pair noise twice (it over-states the error up to 1.4 times and more at 16).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.statistics import Estimate, undefined

CONFIDENCE = 0.95
MINIMUM_SEQUENCES = 4
"""The variance of a pair mean needs pairs of pairs that share no sequence."""


class PairMoments:
    """Running moments of several forms F(x, y) over batches of sequences."""

    def __init__(self, forms: int) -> None:
        self.sequences = 0
        self.pairs = self.triples = self.earlier_pairs = 0
        self.diagonal = torch.zeros(forms, dtype=torch.float64)
        self.crossed = torch.zeros(forms, dtype=torch.float64)
        self.triple_first = torch.zeros(forms, dtype=torch.float64)
        square = torch.zeros(forms, forms, dtype=torch.float64)
        self.pair_square, self.triple, self.row_square, self.row_diagonal, self.diagonal_square = (
            square.clone() for _ in range(5)
        )
        self.total: Float[Tensor, " form"] | None = None

    def add(
        self, values: Float[Tensor, "form batch batch"], earlier: Float[Tensor, "form batch"] | None = None
    ) -> None:
        """Add the forms of all pairs within a batch of at least two sequences.

        `earlier` are those of each sequence with the sum of all that came before: they make what pairs that share a
        sequence have in common much better known, though not what one pair has.
        """
        count, before = values.shape[1], 0 if earlier is None else self.sequences
        diagonal = values.diagonal(dim1=1, dim2=2)
        rows = values.sum(2) - diagonal
        squares = torch.einsum("axy,bxy->ab", values, values) - diagonal @ diagonal.T
        self.sequences += count
        self.pairs += count * (count - 1)
        all_rows = rows if earlier is None else rows + earlier
        self.triples += count * (count + before - 1) * (count + before - 2)
        self.earlier_pairs += count * before
        self.triple_first += (count + before - 2) * all_rows.sum(1)
        self.diagonal += diagonal.sum(1)
        self.crossed += rows.sum(1)
        self.pair_square += squares
        self.triple += all_rows @ all_rows.T - squares
        self.row_square += rows @ rows.T / (count - 1) ** 2
        self.row_diagonal += rows @ diagonal.T / (count - 1)
        self.diagonal_square += diagonal @ diagonal.T

    def join(self, total: Float[Tensor, " form"]) -> None:
        """Give F(sum over x, sum over x), which adds the pairs across batches: all pairs then count."""
        self.total = total

    @property
    def partners(self) -> float:
        """Sequences that each one is paired with, plus one."""
        return float(self.sequences if self.total is not None else self.pairs / self.sequences + 1)

    def unbiased(self) -> Float[Tensor, " form"]:
        """Mean of each form over pairs of different sequences."""
        if self.total is None:
            return self.crossed / self.pairs
        return (self.total - self.diagonal) / (self.sequences * (self.sequences - 1))

    def plug_in(self) -> Float[Tensor, " form"]:
        """Each form of the mean over sequences with itself: of each batch's mean where batches are not joined."""
        if self.total is None:
            return (self.crossed + self.diagonal) / (self.pairs + self.sequences)
        return self.total / self.sequences**2

    def variance(self, pair: Float[Tensor, " form"], single: Float[Tensor, " form"] | None = None) -> float:
        """Sampling variance of pair . (mean over pairs) + single . (mean over sequences).

        Linearise a function of the forms to use it. Writes F(x, y) = mean + h(x) + h(y) + e(x, y): the mean over pairs
        varies by 4 var(h) / n + 2 var(e) / pairs. Without `single` unbiased where all pairs are at hand; never below
        what e alone would give.
        """
        n, others = self.sequences, self.partners - 1
        mean, within = float(pair @ self.unbiased()), float(pair @ self.crossed) / self.pairs
        # Second moments are of pairs within batches; about the mean of all pairs they need both means.
        shift = mean**2 - 2 * mean * within
        square = float(pair @ self.pair_square @ pair) / self.pairs + shift
        # Squares of pairs across batches are not known one by one; on average they are those within.
        squares = self.earlier_pairs * float(pair @ self.pair_square @ pair) / self.pairs
        shared = float(pair @ self.triple @ pair) - squares
        triple = shared / self.triples + mean**2 - 2 * mean * float(pair @ self.triple_first) / self.triples
        # Rounding can leave a variance that is exactly 0 just below it.
        floor = max(0.0, 2 * square / (n * others))
        small_sample = n * (n - 1) / ((n - 2) * (n - 3))
        of_pairs = small_sample * (4 * (others - 1) * triple + 2 * square) / (n * others)
        if single is None:
            return max(floor, of_pairs)
        # A row mean over m partners holds (1 - 1/m) of h and the noise of m pairs; the mean over pairs has half of it.
        partners = self.pairs / n
        row = partners / (partners - 1)
        centre = 2 * row * within + float(single @ self.diagonal) / n
        influence = float(
            4 * row**2 * pair @ self.row_square @ pair
            + 4 * row * pair @ self.row_diagonal @ single
            + single @ self.diagonal_square @ single
        )
        # Moments about the estimated mean hold its variance too. Two row means share a pair, so they differ by less
        # than the noise of m pairs each: by (n - 2) / (n - 1) of it.
        noise = max(0.0, square - 2 * triple - of_pairs)
        own = (influence / n - centre**2) / (n - 1) - 4 * row**2 * noise * (n - 2) / (n * (n - 1) * partners)
        return max(0.0, own) + 2 * noise / (n * others)


def interval(value: float, variance: float, n: int, method: str) -> Estimate:
    """value with its 95% interval from Student's t with n - 1 degrees of freedom; never clipped."""
    from scipy.stats import t as student

    half = float(student.ppf((1 + CONFIDENCE) / 2, n - 1)) * math.sqrt(variance)
    return Estimate(value, value - half, value + half, n, method)


def pair_ratio(moments: PairMoments, numerator: int, denominator: int) -> Estimate:
    """Ratio of two forms' means over pairs of different sequences, whose sampling noise is independent."""
    means = moments.unbiased()
    if not means[denominator] > 0:
        return undefined(
            moments.sequences, "undefined: the variance of the mean logits does not stand out from their sampling noise"
        )
    value = float(means[numerator] / means[denominator])
    slope = torch.zeros_like(means)
    slope[numerator] += 1 / means[denominator]
    slope[denominator] -= value / means[denominator]
    kind = "all pairs" if moments.total is not None else "pairs within batches"
    return interval(
        value,
        moments.variance(slope),
        moments.sequences,
        f"pairs of different sequences ({kind}), U-statistic variance, t",
    )


def plug_in_ratio(moments: PairMoments, numerator: int, denominator: int) -> Estimate:
    """Ratio of two forms of the mean over sequences; its interval is about its own expectation, which noise biases."""
    n, partners, means = moments.sequences, moments.partners, moments.plug_in()
    if not means[denominator] > 0:
        return undefined(n, "undefined: the logits do not vary")
    value = float(means[numerator] / means[denominator])
    slope = torch.zeros_like(means)
    slope[numerator] += 1 / means[denominator]
    slope[denominator] -= value / means[denominator]
    variance = moments.variance(slope * (partners - 1) / partners, slope / partners)
    return interval(value, variance, n, "mean Gram (plug-in), delta method, t")


def pair_to_single_ratio(moments: PairMoments, numerator: int, denominator: int) -> Estimate:
    """Ratio of a form's mean over pairs of different sequences to another's mean over single sequences."""
    n, means, singles = moments.sequences, moments.unbiased(), moments.diagonal / moments.sequences
    if not singles[denominator] > 0:
        return undefined(n, "undefined: the logits do not vary within rows")
    value = float(means[numerator] / singles[denominator])
    pair, single = torch.zeros_like(means), torch.zeros_like(means)
    pair[numerator] = 1 / singles[denominator]
    single[denominator] = -value / singles[denominator]
    return interval(
        value, moments.variance(pair, single), n, "pairs of different sequences over single ones, delta method, t"
    )


def pair_root(moments: PairMoments, form: int, divisor: float) -> Estimate:
    """Signed square root of a form's mean over pairs of different sequences, over `divisor`, and its interval."""
    mean = float(moments.unbiased()[form])
    slope = torch.zeros_like(moments.diagonal)
    slope[form] = 1.0
    square = interval(mean / divisor, moments.variance(slope) / divisor**2, moments.sequences, "")
    value, low, high = (math.copysign(math.sqrt(abs(end)), end) for end in (square.value, square.low, square.high))
    return Estimate(
        value, low, high, moments.sequences, "signed root of pairs of different sequences, U-statistic variance, t"
    )
