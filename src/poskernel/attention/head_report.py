"""A measured head as a row of a table, as a document and in words."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.content.head_products import HeadProducts
from poskernel.attention.content.leakage import HeadLeakage
from poskernel.attention.determined import undetermined
from poskernel.attention.estimators.decompose import TERMS, HeadSplit
from poskernel.attention.estimators.distance import HeadDistance
from poskernel.attention.estimators.drift import HeadDrift
from poskernel.attention.estimators.estimate import HeadEstimate
from poskernel.attention.estimators.head_probes import HeadProbes
from poskernel.attention.estimators.head_spectra import HeadSpectrum
from poskernel.attention.estimators.probes import HeadRepetition
from poskernel.attention.estimators.symbolic import HeadPermutation
from poskernel.attention.estimators.tokens import HeadTokens
from poskernel.attention.estimators.variant_estimates import HeadVariants
from poskernel.attention.head_columns import HEAD_COLUMNS, KERNEL
from poskernel.attention.kinds import Profile, Sink, head_kind
from poskernel.attention.split_kinds import SplitEvidence, split_kind
from poskernel.kernel import PositionalKernel
from poskernel.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTHING = 0.02
"""Shares that much below 0 are quoted as about 0: terms of a split that are all but uncorrelated with the logits."""
PEAKED = ("previous-token", "next-token", "fixed-offset", "local")
"""Kinds that a peak makes: their sentences name it however short the profile."""
NEAR_OFFSETS, FAR_OFFSETS = 65, 192
"""g is listed at offsets 0 to 64 and at 192 further ones, log-spaced; in encoders at minus those as well."""


@dataclass(frozen=True, eq=False)
class HeadReport:
    """One head: its kernel, its estimates, its shape, and a sentence that says it in words.

    The fields from `split` on are the measures of `measures.MEASURES` under the same names, None where not asked for;
    `untrained` is the same head of the same architecture with weights drawn anew.
    """

    estimate: HeadEstimate
    profile: Profile
    kind: str
    sentence: str
    split: HeadSplit | None = None
    distance: HeadDistance | None = None
    symbolic: HeadPermutation | None = None
    drift: HeadDrift | None = None
    leakage: HeadLeakage | None = None
    variants: HeadVariants | None = None
    tokens: HeadTokens | None = None
    spectrum: HeadSpectrum | None = None
    probes: HeadProbes | None = None
    untrained: HeadEstimate | None = None
    products: HeadProducts | None = None

    @property
    def kernel(self) -> PositionalKernel:
        """g(offset) as a positional kernel."""
        return self.estimate.kernel

    @classmethod
    def of(
        cls, estimate: HeadEstimate, kept: int, measured: Mapping[str, Any] | None = None, dropped: int = 0
    ) -> "HeadReport":
        """From what was measured on sequences with `kept` positions beside the `dropped` first ones.

        `measured` holds results of measures by name.
        """
        found = dict(measured or {})
        split, probes = found.get("split"), found.get("probes")
        repetition = None if probes is None else probes.repetition
        profile = Profile.of(estimate.g, kept, estimate.first_offset)
        sinks = (
            Sink(1, estimate.first_mass, estimate.first_even),
            Sink(dropped, estimate.dropped_mass, estimate.dropped_even),
        )
        kind = split_kind(head_kind(profile, estimate.share.value, *sinks), SplitEvidence.of(split, repetition))
        made_it = next((sink for sink in sinks if sink.holds), None) if kind == "sink" else None
        return cls(estimate, profile, kind, describe(estimate, profile, kind, split, repetition, made_it), **found)

    def row(self, offsets: Sequence[int]) -> dict[str, Any]:
        """The head as one flat row (`head_columns` says what each column means); g and its band at the given offsets.

        Undefined numbers are nan, as g is at offsets that no pair has: beyond a window, or beyond the sequences.
        """
        g, reach = self.estimate.g, student_reach(self.estimate.r2.n) * self.estimate.g_error
        row = KERNEL.values(self.estimate)
        for name, columns in HEAD_COLUMNS.items():
            result = getattr(self, name)
            if result is not None:
                row |= columns.values(result)
        row |= {name: getattr(self.profile, name) for name in ("peak_offset", "half_width")}
        row |= {"kind": self.kind, "sentence": self.sentence}
        bands = {"g": g, "g_low": g - reach, "g_high": g + reach}
        return row | {name: listed(curve, self.estimate.first_offset, offsets) for name, curve in bands.items()}

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw g with its 95% band and, where it was measured, g of one repeated token; on axes of its own by default.

        Raises MissingExtraError without matplotlib.
        """
        from poskernel.report.head_curves import kernel_curve

        constant = None if self.probes is None else self.probes.constant
        probe = None if constant is None else (constant.offsets.tolist(), constant.g.tolist())
        reach = student_reach(self.estimate.r2.n) * self.estimate.g_error
        name = f"layer {self.estimate.layer}, head {self.estimate.head}: {self.kind}"
        return kernel_curve(list(self.estimate.offsets), self.estimate.g.tolist(), reach.tolist(), name, probe, ax)

    def _repr_html_(self) -> str:
        return f"<p>Layer {self.estimate.layer}, head {self.estimate.head}: {html.escape(self.sentence)}</p>"

    def __repr__(self) -> str:
        return f"layer {self.estimate.layer} head {self.estimate.head}: {self.sentence}"


def listed(curve: Float[Tensor, " offset"], first: int, offsets: Sequence[int]) -> list[float]:
    """A curve that starts at offset `first`, at the given offsets; nan at those it does not hold.

    For reading: six digits after the point, far below its error, keep a document of 1000 heads small.
    """
    values, last = curve.tolist(), first + curve.shape[0]
    return [round(values[offset - first], 6) if first <= offset < last else math.nan for offset in offsets]


def student_reach(n: int) -> float:
    """Standard errors on either side of a mean over n sequences in its 95% interval."""
    from scipy.stats import t

    return float(t.ppf(0.975, n - 1))


def describe(
    estimate: HeadEstimate,
    profile: Profile,
    kind: str,
    split: HeadSplit | None = None,
    repetition: HeadRepetition | None = None,
    sink: Sink | None = None,
) -> str:
    """A head in words; all four shares where the split was measured, what makes an induction or a sink head one.

    `sink` is what the head puts on its first positions, with what even attention would, where that makes its kind.
    """
    words = f"{kind} head: {shape_words(profile, kind)}"
    if split is not None and not math.isnan(split.total.value):
        shares = ", ".join(f"{term} {percent(split.shares[term])}" for term in TERMS)
        words += f", {shares} of its logit variance"
    elif not math.isnan(estimate.share.value):
        words += f", position {percent(estimate.share)} of its logit variance"
    r2 = estimate.r2
    if math.isnan(r2.value):
        words += ", R2 undefined"
    elif undetermined(r2.low, r2.high):
        words += ", R2 undetermined (its interval is wider than 1: take more sequences)"
    else:
        words += f", R2 {r2.value:.2f} ({r2.low:.2f} to {r2.high:.2f})"
    if kind == "induction" and repetition is not None:
        words += f"; {repetition.induction.value:.0%} of its attention after earlier occurrences of its token"
    if sink is not None:
        place = "first token" if sink.positions == 1 else f"first {sink.positions} positions"
        words += f"; {sink.mass:.0%} of its attention on the {place}, where even attention puts {sink.even:.0%}"
        if sink.positions == 1:
            return words
    return f"{words}; {estimate.first_mass:.0%} of its attention on the first token"


def shape_words(profile: Profile, kind: str) -> str:
    """Where the kernel peaks and how widely; where it is flat, and so its peak chance, over how much it spreads."""
    if profile.flat and not kind.startswith(PEAKED):
        return f"positional weight spread over {profile.effective_offsets:.0f} of {profile.resolved} offsets"
    return f"positional kernel peaks at offset {profile.peak_offset}, half-width {profile.half_width}"


def percent(share: Estimate) -> str:
    """`12%`, and `about 0%` for a share that is below 0 by less than one can tell from 0 or would print."""
    if share.value < 0 and (share.high >= 0 or share.value > -NOTHING):
        return "about 0%"
    return f"{share.value:.0%}"


def without_nan(value: Any) -> Any:
    """The same value with None for every number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    return value


def listed_offsets(horizon: int, causal: bool = True) -> tuple[int, ...]:
    """Offsets that documents list g at: 0 to 64, then 192 log-spaced to the last (fewer where they would repeat).

    Where queries see later keys, minus those as well, rising.
    """
    if horizon <= NEAR_OFFSETS:
        ahead = list(range(horizon))
    else:
        ends = math.log10(NEAR_OFFSETS), math.log10(horizon - 1)
        far = torch.logspace(*ends, FAR_OFFSETS, dtype=torch.float64).round().int()
        ahead = sorted({*range(NEAR_OFFSETS), *far.tolist()})
    return tuple(ahead if causal else [*(-offset for offset in ahead[:0:-1]), *ahead])
