"""Attention by distance against loops; the boundary's exact identity and its three cases; real rows and their noise."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captures import capture_of, random_capture
from poskernel.attention.estimators.distance import DistanceEstimator, distance_edges, kernel_boundary, total_variation
from poskernel.errors import InputError

DROPPED = 5


def measured(captures, dropped=DROPPED):
    estimator = DistanceEstimator({0: captures[0].heads}, captures[0].length, dropped)
    for part in captures:
        estimator.consume(part)
    return estimator.estimates()


def weights_of(kernel, length):
    """Softmax of g(t - s) over causal rows."""
    offset = torch.arange(length)[:, None] - torch.arange(length)
    return kernel[offset.clamp(min=0)].masked_fill(offset < 0, -math.inf).softmax(-1)


def toeplitz(kernel, sequences, noise=0.0, seed=0):
    """A capture whose logits are g(t - s) plus noise."""
    length = len(kernel)
    offset = (torch.arange(length)[:, None] - torch.arange(length)).clamp(min=0)
    logits = kernel[offset] + noise * torch.randn(
        sequences, 1, length, length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return capture_of(logits, torch.eye(length, dtype=torch.float64).expand(sequences, 1, -1, -1))


def test_edges():
    assert distance_edges(1) == (0, 1)
    assert distance_edges(2) == (0, 1, 2)
    assert distance_edges(8) == (0, 1, 2, 4, 8)
    assert distance_edges(9) == (0, 1, 2, 4, 8, 9)
    for length in range(1, 70):
        edges = distance_edges(length)
        assert list(edges) == sorted(set(edges))
        assert edges[-1] == length


@pytest.mark.parametrize(
    "settings",
    [{}, {"window": 7}, {"causal": False}, {"sinks": torch.linspace(-1, 2, 4, dtype=torch.float64)}],
    ids=["causal", "window", "both directions", "sinks"],
)
@pytest.mark.parametrize("dropped", [0, DROPPED])
def test_masses_equal_loops(settings, dropped, monkeypatch):
    monkeypatch.setattr("poskernel.attention.estimators.row_tiles.ENTRIES", 4 * 40 * 7)
    capture = random_capture(4, **settings)
    found, pattern = measured([capture], dropped)[2], capture.pattern(2)
    allowed = capture.allowed(2)[0]
    for masses, even, first in ((found.mass, found.even, 0), (found.mass_kept, found.even_kept, dropped)):
        expected, flat = np.zeros((4, len(found.edges) - 1)), np.zeros(len(found.edges) - 1)
        for t, s in itertools.product(range(first, 40), repeat=2):
            if allowed[t, s]:
                place = next(i for i, edge in enumerate(found.edges[1:]) if abs(t - s) < edge)
                kept = pattern[:, t, first:].sum(-1) if first else 1.0
                expected[:, place] += (pattern[:, t, s] / kept).numpy() / (40 - first)
                flat[place] += 1 / float(allowed[t, first:].sum()) / (40 - first)
        np.testing.assert_allclose([mass.value for mass in masses], expected.mean(0), atol=1e-12)
        np.testing.assert_allclose(even, flat)
        assert masses[0].low == pytest.approx(expected[:, 0].mean() - 3.1824463 * expected[:, 0].std(ddof=1) / 2)


def test_sinks_leave_less_and_keys_past_the_first_get_everything():
    sinks = torch.full((4,), 3.0, dtype=torch.float64)
    found = measured([random_capture(4, sinks=sinks)])[0]
    assert sum(mass.value for mass in found.mass) < 0.9
    assert sum(mass.value for mass in found.mass_kept) == pytest.approx(1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60), st.floats(0.1, 4))
def test_total_variation_of_a_shared_kernel_is_one_less_the_ratio_of_denominators(seed, length, spread):
    kernel = spread * torch.randn(length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weights, found = weights_of(kernel, length), kernel_boundary(kernel)
    for t in range(length // 2):
        early, late = weights[t, : t + 1].flip(0), weights[2 * t + 1, : 2 * t + 2].flip(0)
        assert total_variation(early, late) == pytest.approx(float(found.variation[t]), abs=1e-12)
        assert float(found.variation[t]) == pytest.approx(1 - 2 ** -float(found.slope[t]), abs=1e-12)
    torch.testing.assert_close(found.log_z, torch.stack([kernel[: t + 1].logsumexp(0) for t in range(length)]))


def test_three_cases_of_the_boundary():
    d = torch.arange(4096, dtype=torch.float64)
    linear, power, bounded = (
        kernel_boundary(g) for g in (-0.1 * d, -3 * (1 + d).log(), torch.cos(d) + torch.cos(0.01 * d))
    )
    # ALiBi: the tail beyond t holds r^(t + 1) of the weight, r = exp(-m).
    t = torch.tensor([10, 50, 100])
    tail = torch.exp(-0.1 * (t + 1.0)).double()
    torch.testing.assert_close(linear.variation[t], tail * (1 - tail) / (1 - tail**2))
    assert linear.crossover is None
    # KERPLE's logarithm with exponent 3: a power law, t^-2.
    ratio = power.variation[1000] / power.variation[500]
    assert float(ratio) == pytest.approx(1 / 4, rel=0.01)
    assert power.crossover is None
    assert float(bounded.variation[2000]) == pytest.approx(0.5, abs=0.05)
    assert bounded.crossover is not None
    assert kernel_boundary(torch.zeros(10)).crossover == 0


def test_the_crossover_is_where_the_far_past_takes_over():
    """A peak of weight e^6 before a flat floor of 1: log Z has slope 1/2 where the floor holds about as much."""
    kernel = torch.zeros(4096, dtype=torch.float64)
    kernel[1] = 6.0
    found = kernel_boundary(kernel)
    # Z_t = e^6 + t, and Z_(2t + 1) / Z_t = sqrt(2) at t = (sqrt(2) - 1) e^6 / (2 - sqrt(2)), about e^6 / sqrt(2).
    assert found.crossover == pytest.approx(math.exp(6) / math.sqrt(2), rel=0.01)
    assert (found.slope[found.crossover :] >= 0.5).all()
    assert found.slope[found.crossover - 1] < 0.5


def test_rows_of_a_stationary_head_vary_as_its_kernel_says():
    kernel = -0.05 * torch.arange(64, dtype=torch.float64)
    found = measured([toeplitz(kernel, 4)], 0)[0]
    expected = kernel_boundary(kernel).variation
    assert found.boundary.keys == (8, 16, 32)
    assert found.boundary.variation == pytest.approx([float(expected[keys - 1]) for keys in (8, 16, 32)], abs=1e-6)
    assert found.boundary.noise == pytest.approx([0, 0, 0], abs=1e-6)
    dropped = measured([toeplitz(kernel, 4)], 10)[0].boundary_kept
    assert dropped.keys == (8, 16)
    assert dropped.variation == pytest.approx(found.boundary.variation[:2], abs=1e-6)


def test_noise_is_what_halves_of_the_sequences_differ_by():
    few, many = (measured([toeplitz(torch.zeros(64).double(), n, noise=1.0)], 0)[0].boundary for n in (4, 64))
    assert few.noise[2] > 2 * many.noise[2] > 0
    assert many.variation[2] == pytest.approx(0.5, abs=0.1)


def test_batches_follow_each_other():
    capture = toeplitz(torch.zeros(40).double(), 5, noise=1.0)
    halves = [capture_of(capture.query[part], capture.key[part]) for part in (slice(0, 3), slice(3, 5))]
    one, two = measured([capture])[0], measured(halves)[0]
    assert one.mass == two.mass
    assert one.boundary.variation == pytest.approx(two.boundary.variation, abs=1e-6)
    # By hand: even and odd sequences, rows of 8 and 16 keys.
    weights = capture.pattern(0)
    rows = {keys: [weights[half::2, keys - 1, :keys].mean(0).flip(0) for half in range(2)] for keys in (8, 16)}
    crossed = [total_variation(rows[8][half], rows[16][1 - half]) for half in range(2)]
    assert one.boundary.variation[0] == pytest.approx(np.mean(crossed), abs=1e-6)


def test_encoders_have_no_boundary_and_short_ones_no_rows():
    assert measured([random_capture(4, causal=False)])[0].boundary is None
    assert measured([random_capture(4, length=7)], 1)[0].boundary.keys == ()
    single = measured([random_capture(1)])[0]
    assert single.boundary is None
    assert math.isnan(single.mass[0].value)


def test_refusals():
    with pytest.raises(InputError, match="a kernel of 1 offset has no later row"):
        kernel_boundary(torch.zeros(1))
    with pytest.raises(InputError, match="a mask that is neither causal"):
        measured([random_capture(4, mask=torch.ones(1, 1, 40, 40, dtype=torch.bool))])
    with pytest.raises(InputError, match="layer 9 was not captured"):
        DistanceEstimator({9: 1}, 40).estimates()
    with pytest.raises(InputError, match="dropping 39 positions of 40"):
        DistanceEstimator({0: 1}, 40, 39)
