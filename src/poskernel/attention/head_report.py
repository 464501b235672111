"""A measured head as a row of a table, as a document and in words."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.attention.estimators.estimate import HeadEstimate
from poskernel.attention.estimators.variant_estimates import VariantEstimate
from poskernel.attention.kinds import Profile, head_kind
from poskernel.kernel import PositionalKernel
from poskernel.statistics import Estimate

WIDEST = 1.0
"""An R2 with a wider interval says nothing, and sentences do not quote it."""
NEAR_OFFSETS, FAR_OFFSETS = 65, 192
"""g is listed at offsets 0 to 64 and at 192 further ones, log-spaced; in encoders at minus those as well."""


@dataclass(frozen=True, eq=False)
class HeadReport:
    """One head: its kernel, its estimates, its shape, and a sentence that says it in words.

    `untrained` is the same head of the same architecture with weights drawn anew, where it was asked for.
    """

    estimate: HeadEstimate
    profile: Profile
    kind: str
    sentence: str
    untrained: HeadEstimate | None = None

    @property
    def kernel(self) -> PositionalKernel:
        """g(offset) as a positional kernel."""
        return self.estimate.kernel

    @classmethod
    def of(cls, estimate: HeadEstimate, kept: int, untrained: HeadEstimate | None = None) -> "HeadReport":
        """From what was measured on sequences with `kept` positions."""
        profile = Profile.of(estimate.g, kept, estimate.first_offset)
        sink = max(estimate.first_mass, estimate.dropped_mass)
        kind = head_kind(profile, estimate.share.value, sink)
        return cls(estimate, profile, kind, describe(estimate, profile, kind), untrained)

    def row(self, offsets: Sequence[int]) -> dict[str, Any]:
        """The head as one flat row; g and its band at the given offsets. Undefined numbers are nan."""
        estimate, other = self.estimate, self.untrained
        g, reach = estimate.g, student_reach(estimate.r2.n) * estimate.g_error
        bands = {"g": g, "g_low": g - reach, "g_high": g + reach}
        row = {
            "layer": estimate.layer,
            "head": estimate.head,
            "r2": estimate.r2.value,
            "r2_low": estimate.r2.low,
            "r2_high": estimate.r2.high,
            **spread("r2_raw", estimate.r2_raw),
            **spread("r2_plugin", estimate.r2_plugin),
            **spread("r2_plugin_centred", estimate.r2_plugin_centred),
            "r2_null": math.nan if estimate.null is None else estimate.null.value,
            "r2_untrained": math.nan if other is None else other.r2.value,
            **spread("signal", estimate.signal),
            "signal_plugin": estimate.signal_plugin,
            "signal_untrained": math.nan if other is None else other.signal.value,
            **spread("share", estimate.share),
            "share_untrained": math.nan if other is None else other.share.value,
            "first_mass": estimate.first_mass,
            "dropped_mass": estimate.dropped_mass,
        }
        for name, variant in estimate.variants.items():
            row |= variant_columns(name, variant)
        words = {
            "peak_offset": self.profile.peak_offset,
            "half_width": self.profile.half_width,
            "kind": self.kind,
            "sentence": self.sentence,
        }
        return row | words | {name: listed(curve, estimate.first_offset, offsets) for name, curve in bands.items()}

    def _repr_html_(self) -> str:
        return f"<p>Layer {self.estimate.layer}, head {self.estimate.head}: {html.escape(self.sentence)}</p>"

    def __repr__(self) -> str:
        return f"layer {self.estimate.layer} head {self.estimate.head}: {self.sentence}"


def spread(name: str, estimate: Estimate) -> dict[str, float]:
    """An estimate as three columns."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def variant_columns(name: str, variant: VariantEstimate) -> dict[str, float]:
    """A Gram variant as columns that start with its name: mean_r2, whole_mean_signal."""
    return {
        **spread(f"{name}_r2", variant.r2),
        **spread(f"{name}_r2_raw", variant.r2_raw),
        f"{name}_r2_plugin": variant.r2_plugin,
        f"{name}_r2_plugin_centred": variant.r2_plugin_centred,
        **spread(f"{name}_signal", variant.signal),
        f"{name}_signal_plugin": variant.signal_plugin,
    }


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


def describe(estimate: HeadEstimate, profile: Profile, kind: str) -> str:
    """A head in words."""
    words = f"{kind} head: positional kernel peaks at offset {profile.peak_offset}, half-width {profile.half_width}"
    if not math.isnan(estimate.share.value):
        words += f", position {estimate.share.value:.0%} of its logit variance"
    r2 = estimate.r2
    if math.isnan(r2.value):
        words += ", R2 undefined"
    elif r2.high - r2.low > WIDEST:
        words += ", R2 undetermined (its interval is wider than 1: take more sequences)"
    else:
        words += f", R2 {r2.value:.2f} ({r2.low:.2f} to {r2.high:.2f})"
    return f"{words}; {estimate.first_mass:.0%} of its attention on the first token"


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
