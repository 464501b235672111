"""Both probes of every head, and g on one repeated token beside g on text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from poskernel.attention.estimators.estimate import HeadEstimate
from poskernel.attention.estimators.probes import (
    Agreement,
    HeadProbe,
    HeadRepetition,
    ProbeEstimator,
    RepetitionEstimator,
    agreement,
    constant_tokens,
    repeated_tokens,
)
from poskernel.attention.sources.capture import AttentionSource

CONSTANT, REPEATED = 4, 8
"""Sequences of each probe."""
PERIOD = 64
"""Tokens of the repeated pattern, or half of the measured length if that is less; it comes twice."""


@dataclass(frozen=True, eq=False)
class HeadProbes:
    """One head on one token repeated, how that agrees with g on text, and on a random pattern that comes twice."""

    layer: int
    head: int
    constant: HeadProbe
    agreement: Agreement
    repetition: HeadRepetition


def head_probes(
    source: AttentionSource, heads: Mapping[int, int], length: int, kernels: Sequence[HeadEstimate], seed: int = 0
) -> list[HeadProbes]:
    """Probes of every head of the kernels, from two forward passes; `heads` of each layer, `length` of the text."""
    constant = ProbeEstimator(heads, source.dtype)
    source.forward(constant_tokens(source, CONSTANT, length, seed), constant.consume)
    period = min(PERIOD, length // 2)
    repeated = RepetitionEstimator(heads, period)
    source.forward(repeated_tokens(source, REPEATED, period, seed=seed), repeated.consume)
    probes = {(probe.layer, probe.head): probe for probe in constant.estimates()}
    repetitions = {(each.layer, each.head): each for each in repeated.estimates()}
    return [
        HeadProbes(
            kernel.layer,
            kernel.head,
            probes[kernel.layer, kernel.head],
            agreement(probes[kernel.layer, kernel.head], kernel.g[-kernel.first_offset :]),
            repetitions[kernel.layer, kernel.head],
        )
        for kernel in kernels
    ]
