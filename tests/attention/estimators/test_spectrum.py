"""Planted lines are found; random frequencies are the null; spectra agree with sums written out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.attention.estimators.spectrum import (
    alignment,
    chance,
    fourier_spectra,
    line_spectra,
    random_frequencies,
)
from poskernel.errors import InputError
from rotary_captures import FREQUENCIES, turn

OWN = 10000.0 ** -(torch.arange(8, dtype=torch.float64) / 8)


def planted(offsets, amplitude, phase, frequencies=OWN, level=3.0):
    d = torch.arange(offsets, dtype=torch.float64)[:, None]
    return level + (amplitude * torch.cos(frequencies * d + phase)).sum(-1)


def lines(seed):
    generator = torch.Generator().manual_seed(seed)
    amplitude = torch.rand(8, generator=generator, dtype=torch.float64) + 0.2
    return amplitude, (torch.rand(8, generator=generator, dtype=torch.float64) - 0.5) * 6


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_planted_lines_are_recovered(seed):
    amplitude, phase = lines(seed)
    resolved = OWN.ge(2 * math.pi / 400)
    amplitude = amplitude * resolved
    found = line_spectra(planted(400, amplitude, phase)[None], OWN, draws=2)[0]
    assert torch.equal(found.resolved, resolved)
    assert found.explained == pytest.approx(1)
    assert found.explained_resolved == pytest.approx(1)
    kept = line_spectra(planted(400, amplitude, phase)[None], OWN[resolved], draws=2)[0]
    torch.testing.assert_close(kept.amplitude, amplitude[resolved])
    torch.testing.assert_close(kept.phase, phase[resolved], rtol=1e-6, atol=1e-6)
    assert kept.level == pytest.approx(3.0)


def test_a_rotary_kernel_of_constant_means_is_its_lines():
    """g of constant vectors, by rotating them: amplitude and phase of plane k are those of conj(q_k) k_k."""
    query, key = torch.randn(2, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rotated = turn(query.expand(300, 8)), turn(key.expand(300, 8))
    g = rotated[0] @ rotated[1][0]  # offset t, key at 0
    found = line_spectra(g[None], FREQUENCIES[:3], draws=2)[0]
    assert found.explained < 1 - 1e-6  # the fourth is missing
    found = line_spectra(g[None], FREQUENCIES, draws=2)[0]
    assert found.explained == pytest.approx(1)
    # Rotating by +theta t takes q (first, second halves as real and imaginary part) to q e^(i theta t).
    planes = torch.complex(query[:4], query[4:]) * torch.complex(key[:4], key[4:]).conj()
    # The two unresolved lines share directions; that the least amplitudes are given for them moves the others a little.
    torch.testing.assert_close(found.amplitude[:2], planes.abs()[:2], rtol=5e-3, atol=0)
    torch.testing.assert_close(found.phase[:2], planes.angle()[:2], rtol=0, atol=5e-3)
    assert found.resolved.tolist() == [True, True, False, False]


def test_lines_that_a_length_does_not_tell_apart_keep_small_amplitudes_and_their_sum():
    """Lines of SmolLM2's rotary layer, known amplitudes of 0.5 nats, noise of 0.01 nats, 40 offsets only."""
    own = 100_000.0 ** -(torch.arange(15).double() / 15)
    generator = torch.Generator().manual_seed(3)
    d = torch.arange(40, dtype=torch.float64)[:, None]
    phase = torch.rand(15, generator=generator).double()
    clean = 0.5 * (d * own + phase).cos().sum(-1)
    g = clean + 0.01 * torch.randn(40, generator=generator, dtype=torch.float64)
    found = line_spectra(g[None], own, draws=2)[0]
    # Plain least squares, which is what the same columns give without care, cancels lines of millions of nats.
    columns = torch.cat([torch.ones(40, 1), (d * own).cos(), (d * own).sin()], 1).double()
    plain = torch.linalg.lstsq(columns, g[:, None], driver="gelsd").solution[1:, 0]
    assert plain.abs().max() > 1e3
    assert found.amplitude.max() < 15 * 0.5
    assert found.directions < 1 + 2 * 15
    # The strongest line that the length resolves is near its own value; the sum of all is g.
    assert float(found.amplitude[0]) == pytest.approx(0.5, abs=0.05)
    summed = found.level + (found.amplitude * (d * own + found.phase).cos()).sum(-1)
    assert float((summed - clean).abs().max()) < 0.05
    assert 0 <= found.rest_share < 1e-3


def test_well_separated_lines_lose_no_direction():
    found = line_spectra(planted(400, *lines(0))[None], OWN[:4], draws=2)[0]
    assert found.directions == 9
    assert found.rest_share == pytest.approx(0, abs=1e-9)


def test_own_frequencies_beat_random_ones_and_other_kernels_do_not():
    amplitude, phase = lines(1)
    own = planted(300, amplitude, phase)
    other = planted(300, amplitude[:7], phase[:7], OWN[:7] * 10 ** (0.5 / 2))  # half-way between the lines
    first, second = line_spectra(torch.stack([own, other]), OWN, draws=100)
    assert first.p == pytest.approx(1 / 101)
    assert first.explained > float(first.null.max())
    assert second.p > 0.05
    assert len(first.null) == 100
    again = line_spectra(own[None], OWN, draws=100)[0]
    torch.testing.assert_close(again.null, first.null)
    assert not torch.allclose(line_spectra(own[None], OWN, draws=100, seed=1)[0].null, first.null)


def test_shares_are_those_of_an_obvious_weighted_fit():
    generator = torch.Generator().manual_seed(2)
    g = torch.randn(1, 60, generator=generator, dtype=torch.float64)
    counts = torch.rand(60, generator=generator, dtype=torch.float64) + 1
    frequencies = OWN[:3]
    found = line_spectra(g, frequencies, counts, draws=2)[0]
    d = np.arange(60)[:, None]
    columns = np.hstack([np.ones((60, 1)), np.cos(d * frequencies.numpy()), np.sin(d * frequencies.numpy())])
    w, y = counts.numpy(), g[0].numpy()
    solved = np.linalg.solve(columns.T @ (w[:, None] * columns), columns.T @ (w * y))
    rest, mean = y - columns @ solved, (w * y).sum() / w.sum()
    assert found.explained == pytest.approx(1 - (w * rest**2).sum() / (w * (y - mean) ** 2).sum())
    np.testing.assert_allclose(found.amplitude, np.hypot(solved[1:4], solved[4:]))
    default = line_spectra(g, frequencies, draws=2)[0].explained
    assert default == pytest.approx(line_spectra(g, frequencies, torch.arange(60.0, 0, -1), draws=2)[0].explained)
    assert default != pytest.approx(found.explained)


def test_constants_have_no_lines_and_no_spectrum():
    found = line_spectra(torch.full((1, 50), 2.0), OWN[:2], draws=3)[0]
    assert math.isnan(found.explained)
    assert math.isnan(found.p)
    assert torch.isnan(fourier_spectra(torch.full((1, 50), 2.0))[0].power).all()


def test_random_frequencies_are_log_uniform_in_the_range():
    drawn = torch.stack(list(random_frequencies(OWN, 4000, 0))).log()
    low, high = math.log(float(OWN.min())), 0.0
    assert low <= float(drawn.min())
    assert float(drawn.max()) <= high
    assert float(drawn.mean()) == pytest.approx((low + high) / 2, abs=0.05)
    assert float(drawn.std()) == pytest.approx((high - low) / math.sqrt(12), rel=0.02)


def test_spectrum_equals_the_sum_written_out():
    g = torch.randn(1, 20, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = fourier_spectra(g, padding=3)[0]
    offsets = range(-19, 20)
    taper = {d: 0.5 * (1 + math.cos(math.pi * d / 20)) for d in offsets}
    mean = sum(float(g[0, abs(d)]) * taper[d] for d in offsets) / sum(taper.values())
    power = [
        sum((float(g[0, abs(d)]) - mean) * taper[d] * math.cos(w * d) for d in offsets) ** 2
        for w in found.frequencies.tolist()
    ]
    np.testing.assert_allclose(found.power, np.array(power) / sum(power), atol=1e-12)
    assert float(found.frequencies[-1]) == pytest.approx(math.pi)
    assert float(found.power.sum()) == pytest.approx(1)
    assert float(found.power[0]) == pytest.approx(0, abs=1e-20)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.2, 2.9), st.floats(-100, 100))
def test_a_cosine_peaks_at_its_frequency_whatever_the_level(frequency, level):
    g = level + torch.cos(frequency * torch.arange(128, dtype=torch.float64))
    found = fourier_spectra(g[None])[0]
    peak = float(found.frequencies[found.power.argmax()])
    assert abs(peak - frequency) <= found.resolution / 4 + 1e-9
    near = (found.frequencies - frequency).abs() <= found.resolution
    assert float(found.power[near].sum()) > 0.99


def test_alignment_tells_an_encodings_frequencies_from_others():
    own = torch.tensor([0.5, 1.2, 2.5], dtype=torch.float64)
    g = torch.cos(own * torch.arange(256, dtype=torch.float64)[:, None]).sum(-1)
    spectrum = fourier_spectra(g[None])[0]
    good = alignment(spectrum, torch.cat([own, torch.tensor([1e-3])]))
    assert good.frequencies == 3  # the fourth is not resolved
    assert good.share > 0.99
    assert good.p == pytest.approx(1 / 201)
    bad = alignment(spectrum, own + 0.15)
    assert bad.share < 0.05
    assert bad.p > 0.2


def test_p_counts_the_null_and_itself():
    assert chance(0.5, torch.tensor([0.4, 0.5, 0.6])) == 3 / 4
    assert chance(1.0, torch.tensor([0.4, 0.5, 0.6])) == 1 / 4


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(InputError, match="8 lines have 17 parameters, which fit any kernel of 17 offsets"):
        line_spectra(torch.randn(1, 17), OWN)
    for wrong in ([], [0.0], [3.2]):
        with pytest.raises(InputError, match="cannot be fitted: give at least one"):
            line_spectra(torch.randn(1, 17), torch.tensor(wrong))
    with pytest.raises(InputError, match="a kernel of 3 offsets has no spectrum"):
        fourier_spectra(torch.randn(1, 3))
    with pytest.raises(InputError, match="none of the 1 frequencies is resolved"):
        alignment(fourier_spectra(torch.randn(1, 20))[0], torch.tensor([0.01]))
