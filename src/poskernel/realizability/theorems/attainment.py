"""The programme behind attainability: a kernel that puts some offsets or keys above others, or a bound that forbids it.

Rows are tried as they are, since weights of at most 1 then mean what the margin is quoted for; where that decides
nothing, columns and rows are brought to one size, which changes whether a kernel exists as little as its units do.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings.family import LinearFamily
from poskernel.realizability.alignment import STRICTNESS, row_margins
from poskernel.realizability.margin_programme import POSITIVE, BestMargin, best_margin
from poskernel.tasks import Targets

IMPOSSIBLE = 1e-9
"""A proven bound on the margin (with |w| <= 1) at or below this counts as none."""

Rows = Float[np.ndarray, "constraint weight"]


@dataclass(frozen=True, eq=False)
class Peak:
    """The programme's answer: a kernel with its margin, or a bound on every margin."""

    weights: Float[Tensor, "..."] | None
    margin: float | None
    bound: float
    why: str
    """In words: what bounds the margin, or why nothing was decided."""

    @property
    def impossible(self) -> bool:
        """Whether no kernel exists."""
        return self.margin is None and self.bound <= IMPOSSIBLE


def peak(family: LinearFamily, rows: Rows, wanted: Sequence[Targets], seconds: float) -> Peak:
    """Weights of at most 1 that make every row positive, as large as it gets; verified on the targets wanted."""
    if not rows.any(axis=1).all():
        return Peak(None, None, 0.0, "another offset or key has equal features")
    started, upper = time.monotonic(), family.upper_bounds().numpy()
    raw = best_margin(rows, upper, seconds)
    found = verified(family, rows, raw, wanted)
    if found is not None or raw.upper_bound <= IMPOSSIBLE:
        return found or Peak(None, None, raw.upper_bound, f"every margin is bounded by {raw.upper_bound:.1g}")
    scale = np.abs(rows).max(axis=0)
    scale[scale == 0] = 1.0
    sized = rows / scale
    sized /= np.linalg.norm(sized, axis=1, keepdims=True)
    left = seconds - (time.monotonic() - started)
    even = best_margin(sized, np.where(np.isfinite(upper), upper * scale, upper), left)
    found = verified(family, rows, rescaled(even, scale), wanted)
    if found is not None or even.upper_bound <= IMPOSSIBLE:
        bound = f"every margin is bounded by {even.upper_bound:.1g} of the features' size"
        return found or Peak(None, None, even.upper_bound, bound)
    positive = max((each.margin for each in (raw, rescaled(even, scale)) if each.positive), default=0.0)
    if positive:
        why = (
            f"a kernel has a margin of {positive:.1g} there, but its logits grow so large that a strict argmax, which "
            f"needs {STRICTNESS:g} of the largest, does not see it: a shorter horizon may decide"
        )
    elif time.monotonic() - started >= seconds:
        why = f"the linear programme was stopped at its limit of {seconds:g} s"
    else:
        why = f"the margin is too small for the solver to tell from 0 (below {POSITIVE:g})"
    return Peak(None, None, raw.upper_bound, why)


def rescaled(best: BestMargin, scale: Float[np.ndarray, " weight"]) -> BestMargin:
    """The weights for the columns as they were, at most 1."""
    if best.weights is None or not best.positive:
        return BestMargin(float("nan"), best.upper_bound, None)
    weights = best.weights / scale
    return BestMargin(best.margin, best.upper_bound, weights / np.abs(weights).max())


def verified(family: LinearFamily, rows: Rows, best: BestMargin, wanted: Sequence[Targets]) -> Peak | None:
    """The kernel, if every row is positive by substitution and every target its strict argmax."""
    if best.weights is None or not best.positive:
        return None
    margin = float((rows @ best.weights).min())
    weights = torch.from_numpy(best.weights).reshape(family.shape)
    kernel = family.kernel(weights)
    if margin <= 0 or any(row_margins(kernel, each).first_wrong is not None for each in wanted):
        return None  # the margin is lost in the size of the logits
    return Peak(weights, margin, best.upper_bound, "")
