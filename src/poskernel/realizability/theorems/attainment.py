"""The programme behind attainability: a kernel that puts some offsets or keys above others, or a proof of none."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings.family import LinearFamily
from poskernel.realizability.alignment import STRICTNESS, row_margins
from poskernel.realizability.cone import Programme, decide
from poskernel.tasks import Targets


@dataclass(frozen=True, eq=False)
class Peak:
    """The programme's answer: a kernel with its margin, or that there is none, or neither."""

    weights: Float[Tensor, "..."] | None
    margin: float | None
    impossible: bool
    """Whether it is proved that there is none."""
    why: str
    """In words: what excludes a kernel, or why nothing was decided."""


def peak(family: LinearFamily, asked: Programme, wanted: Sequence[Targets], seconds: float) -> Peak:
    """Weights of at most 1 that make every row positive, as large as it gets; verified on the targets wanted."""
    unseen = False

    def seen(weights: Float[np.ndarray, " weight"]) -> bool:
        nonlocal unseen
        kernel = family.kernel(torch.from_numpy(weights).reshape(family.shape))
        right = all(row_margins(kernel, each).first_wrong is None for each in wanted)
        unseen = unseen or not right
        return right

    found = decide(asked, seconds, seen)
    if found.weights is not None:
        return Peak(torch.from_numpy(found.weights).reshape(family.shape), found.margin, False, "")
    if unseen and not found.empty:
        why = (
            "a kernel exists there, but its logits grow so large that a strict argmax, which needs "
            f"{STRICTNESS:g} of the largest, does not see it: a shorter horizon may decide"
        )
        return Peak(None, None, False, why)
    return Peak(None, None, found.empty, found.why)
