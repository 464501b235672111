"""Proposition 3: the peak of the cosine sum, and the lucky length of the slowest sine."""

import math

import pytest
import torch

from poskernel.realizability.theorems import sinusoidal
from poskernel.realizability.theorems.check import Effort

DEFAULT = Effort.DEFAULT
PERIODIC = 2 * math.pi / torch.tensor([4.0, 8.0, 16.0], dtype=torch.float64)


def test_every_fixed_offset_has_its_kernel():
    check = sinusoidal.proposition_3a(DEFAULT, 0, offsets=(1, 5, 1000, 100_000))
    assert check.holds
    assert check.measured == (
        "least margin 0.686, at 1 from the peak, of all distances to 200,000; 0.686 in rows of the bilinear kernels"
    )


def test_frequencies_with_a_whole_period_have_no_single_peak():
    check = sinusoidal.proposition_3a(DEFAULT, 0, frequency=PERIODIC, offsets=(1, 5), horizon=1000)
    assert not check.holds and float(check.measured.split()[2].rstrip(",")) < 1e-20
    assert not sinusoidal.proposition_3a(DEFAULT, 0, frequency=PERIODIC, offsets=(1, 5), expected=None).holds


def test_the_first_frequency_is_enough():
    one = torch.ones(1, dtype=torch.float64)
    alone = sinusoidal.proposition_3a(DEFAULT, 0, frequency=one, expected=None)
    assert alone.holds and 0 < float(alone.measured.split()[2].rstrip(",")) < 1e-6  # 103993 is nearly 33102 pi
    assert sinusoidal.fall_from_peak(one, 100_000).min() > 1e-11
    # 1, .1, .01 and .001 are among the frequencies, so they are not incommensurate.
    assert all(float((sinusoidal.FREQUENCY - 10.0**-power).abs().min()) < 1e-15 for power in range(4))


def test_another_margin_than_the_paper_s_is_noticed():
    assert not sinusoidal.proposition_3a(DEFAULT, 0, frequency=sinusoidal.FREQUENCY[1:]).holds
    assert sinusoidal.proposition_3a(DEFAULT, 0, frequency=sinusoidal.FREQUENCY[1:], expected=None).holds


def test_the_fall_is_what_the_cosines_lose():
    slow = [sum(1 - math.cos(theta * e) for theta in sinusoidal.FREQUENCY.tolist()) for e in range(1, 50)]
    assert sinusoidal.fall_from_peak(sinusoidal.FREQUENCY, 49).tolist() == pytest.approx(slow, rel=1e-9)
    assert slow[0] == pytest.approx(0.686, abs=5e-4)


def test_a_row_that_does_not_see_past_the_peak_has_the_same_margin():
    assert sinusoidal.peak_margin(sinusoidal.FREQUENCY, 5, 60) == pytest.approx(0.686, abs=5e-4)
    assert sinusoidal.peak_margin(PERIODIC, 5, 60) == pytest.approx(0.0, abs=1e-9)


def test_the_slowest_sine_has_two_lucky_lengths():
    check = sinusoidal.proposition_3b(DEFAULT, 0)
    assert check.holds
    assert check.measured.startswith("alpha = 1 at 17665, 17666; at 17665 8832 rows, least margin 8.3e-09;")
    assert "peak at 8833; 1 of 10 rows at 20; a rising kernel: copy at 0 lengths, alpha of first 1" in check.measured


def test_another_frequency_peaks_elsewhere():
    assert not sinusoidal.proposition_3b(DEFAULT, 0, frequency=3e-4).holds


@pytest.mark.parametrize(("name", "value"), [("LUCKY_ROWS", 8831), ("LUCKY_MARGIN", 8.5e-9), ("LUCKY_PEAK", 8832)])
def test_every_figure_of_the_lucky_length_counts(monkeypatch, name, value):
    monkeypatch.setattr(sinusoidal, name, value)
    assert not sinusoidal.proposition_3b(DEFAULT, 0).holds
