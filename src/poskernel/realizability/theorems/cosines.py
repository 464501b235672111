"""Kernels that are sums of cosines about one offset: they peak there alone, by a proof and not by a number.

sum_k cos(theta_k (d - delta)) is largest at d = delta. Another whole number d would need every theta_k (d - delta) to
be a multiple of 2 pi; a frequency that a computer holds is rational and not 0, and pi is irrational, so there is none.
The margin may be far below what float64 shows, at low frequencies or far out: it is summed from 2 sin^2(theta e / 2),
which keeps its digits.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings import Sinusoidal
from poskernel.encodings.encoding import geometric_frequencies
from poskernel.encodings.rotary import RotaryEncoding
from poskernel.realizability.alignment import STRICTNESS, row_margins
from poskernel.realizability.theorems.case import Case
from poskernel.realizability.theorems.sinusoidal import fall_from_peak
from poskernel.realizability.theorems.tails import ROTARY, tail_of
from poskernel.realizability.theorems.verdicts import Answer, Verdict


def cosine_sum(features: Float[Tensor, " feature"]) -> Float[Tensor, "feature feature"]:
    """Weights of sum_k cos(theta_k (d - offset)) on [sines, cosines], from the features of the position `offset`."""
    sine, cosine = (part.diag() for part in features.chunk(2))
    return torch.cat([torch.cat([cosine, sine], 1), torch.cat([-sine, cosine], 1)])


def cosine_peak(case: Case) -> Answer | None:
    """The cosine sum at the demanded offset, where the encoding holds it and it solves the training length."""
    rotary = tail_of(case.encoding) is ROTARY
    if not (rotary or type(case.encoding) is Sinusoidal):
        return None
    demand = case.demand()
    if not demand.settles or demand.value is None:
        return None
    offset = demand.value
    weights, unit, frequency = (rotary_weights if rotary else sinusoidal_weights)(case, offset)
    fall = unit * fall_from_peak(frequency, max(offset, case.horizon - offset))
    least, seen = float(fall.min()), STRICTNESS * unit * len(frequency)
    trained = case.trained
    if not bool((trained.offset == offset).all()):
        # Rows that do not see the peak ask for something else: whether they get it is a matter of numbers.
        judged = row_margins(case.kernel(weights), trained)
        if judged.first_wrong is not None:
            return None
        least = min(least, judged.least)
    reason = (
        f"{demand.reason}, and sum_k cos(theta_k (d - {offset})), a kernel of the family, peaks there strictly over "
        f"all others and solves length {case.train_length}"
    )
    if least <= seen:
        reason += f", though by less than float64 tells from a tie somewhere up to {case.horizon}"
    shown = float(fall[: 3 * case.train_length].min()) > seen
    return Answer(
        Verdict.TRANSFERS, "theorem 2" if rotary else "proposition 3", reason, demand.exact, demand,
        weights if shown else None, least,
    )  # fmt: skip


Peaked = tuple[Tensor, float, Tensor]
"""Weights, each at most 1, of unit x sum_k cos(theta_k (d - offset)); that unit; the frequencies that turn."""


def rotary_weights(case: Case, offset: int) -> Peaked:
    """On the rotary basis [constant if there is one, cosines, sines]."""
    encoding = case.encoding
    assert isinstance(encoding, RotaryEncoding)
    frequency = encoding.rates(encoding.frequencies, 1).double()
    waves = torch.cat([(frequency * offset).cos(), (frequency * offset).sin()])
    largest = float(waves.abs().max())
    constant = waves.new_zeros(0 if len(frequency) == encoding.frequencies else 1)
    return torch.cat([constant, waves / largest]), encoding.attention_factor**2 / largest, frequency


def sinusoidal_weights(case: Case, offset: int) -> Peaked:
    """On sinusoidal features [sines, cosines] of queries and keys."""
    encoding = case.encoding
    assert isinstance(encoding, Sinusoidal)
    frequency = geometric_frequencies(encoding.base, encoding.frequencies)
    weights = cosine_sum(torch.cat([(frequency * offset).sin(), (frequency * offset).cos()]))
    largest = float(weights.abs().max())
    return weights / largest, 1 / largest, frequency
