"""Scans in blocks against whole profiles, row by row."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.attention.extension import survival
from poskernel.attention.extension.survival import (
    NEVER,
    Waves,
    half_spans,
    kept_share,
    limit_of,
    log_spans,
    peaks_of,
    scan,
)


def waves(seed, heads=3, planes=4):
    generator = torch.Generator().manual_seed(seed)
    coefficients = torch.randn(heads, planes, dtype=torch.complex128, generator=generator)
    return Waves(coefficients, torch.randn(heads, dtype=torch.float64, generator=generator),
                 10.0 ** -torch.arange(planes, dtype=torch.float64))  # fmt: skip


def test_waves_are_sums_of_cosines_and_sines():
    one = waves(0)
    for head in range(3):
        for offset in (0, 3, 1000):
            total = float(one.level[head])
            for c, rate in zip(one.coefficients[head].tolist(), one.rates.tolist(), strict=True):
                total += c.real * math.cos(rate * offset) - c.imag * math.sin(rate * offset)
            assert float(one.at(torch.tensor([offset]))[head, 0]) == pytest.approx(total)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 150))
def test_a_scan_in_blocks_is_a_scan_of_everything(seed, first, more):
    one, stop = waves(seed), first + more
    values = one.at(torch.arange(first, stop))
    heights = torch.stack([values.quantile(0.9, 1), values.amax(1) + 1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survival, "OFFSETS_PER_BLOCK", 7)
        found = scan(one, heights, first, stop, 5)
    for head in range(3):
        crossing = next(d for d in range(first, stop) if values[head, d - first] >= heights[0, head])
        assert int(found.overtaken[0, head]) == crossing and int(found.overtaken[1, head]) == NEVER
        for span, (low, high) in enumerate(zip(found.spans[:-1].tolist(), found.spans[1:].tolist(), strict=True)):
            inside = values[head, low - first : high - first]
            assert int(found.highest[head, span]) == low + int(inside.argmax())
    torch.testing.assert_close(found.log_mass, values.logsumexp(1))
    torch.testing.assert_close(found.mean, (values.softmax(1) * values).sum(1))


def test_a_scan_of_nothing_holds_nothing():
    found = scan(waves(1), torch.zeros(2, 3, dtype=torch.float64), 9, 9, 4)
    assert found.highest.shape == (3, 0) and bool((found.overtaken == NEVER).all())
    assert bool((found.log_mass == -torch.inf).all())


def test_peaks_are_strict_maxima():
    profile = torch.tensor([[0.0, 2.0, 1.0], [3.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    found = peaks_of(profile)
    assert found.offset[0] == 1 and found.strict.tolist() == [True, False, False]
    assert peaks_of(profile[:1, :1]).strict.tolist() == [True]


def test_spans_have_one_ratio_and_are_never_empty():
    edges = log_spans(16, 4096, 8)
    assert edges.tolist() == [16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
    narrow = log_spans(5, 9, 100)
    assert narrow.tolist() == [5, 6, 7, 8, 9]
    assert log_spans(9, 9, 4).tolist() == [9]


def test_half_spans_reach_to_half_of_the_weight_without_a_gap():
    weight = torch.tensor([[0.3, 0.1, 0.3, 0.5, 0.26, 0.2, 0.4], [1.0, 0.4, 0.4, 0.4, 0.4, 0.4, 0.9]])
    assert half_spans(weight.log(), torch.tensor([3, 0])).tolist() == [[2, 4], [0, 0]]


def test_shares_and_limits():
    lost = torch.tensor([10, 10, 50, 60, 70, NEVER, NEVER, NEVER, NEVER, NEVER])
    assert kept_share(lost, 10) == 0.8 and kept_share(lost, 49) == 0.8 and kept_share(lost, 50) == 0.7
    # At the measured length 10 two are lost already; the share falls by another 0.1 when the third goes, at 50.
    assert limit_of(lost, 10, 100, 0.1) == 50
    assert limit_of(lost, 10, 100, 0.15) == 60
    assert limit_of(lost, 10, 65, 0.3) is None and limit_of(lost, 10, 70, 0.3) == 70
    assert limit_of(lost, 10, 100, 0.4) is None
    assert limit_of(lost[:0], 10, 100, 0.1) is None and math.isnan(kept_share(lost[:0], 10))
    shares = [kept_share(lost, length) for length in range(10, 101)]
    for fall in (0.1, 0.2, 0.3):
        first = next(length for length, share in enumerate(shares, 10) if share <= shares[0] - fall + 1e-12)
        assert limit_of(lost, 10, 100, fall) == first
