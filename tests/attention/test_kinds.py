"""The shape of a profile, and the table that names a head's kind, read from the top."""

import math

import pytest
import torch

from poskernel.attention.estimators.even_attention import even_masses
from poskernel.attention.kinds import KINDS, LOCAL_OFFSETS, Profile, Sink, head_kind

FLAT = Profile.of(torch.zeros(100), 100)


def peak_at(offset, height=8.0):
    return Profile.of(height * (torch.arange(100) == offset), 100)


def test_profile_of_a_box():
    g = torch.zeros(40)
    g[3:6] = 4.0
    profile = Profile.of(g, 40)
    assert (profile.peak_offset, profile.half_width, profile.resolved) == (3, 3, 20)
    assert profile.peak_weight == pytest.approx(math.exp(4) / (3 * math.exp(4) + 17))
    assert Profile.of(torch.zeros(40), 40).effective_offsets == pytest.approx(20)


def test_kinds_read_from_the_top():
    flat, peak = Profile.of(torch.zeros(100), 100), Profile.of(8.0 * (torch.arange(100) == 1), 100)
    assert head_kind(flat, 0.9, Sink(1, 0.9)) == "sink"
    assert head_kind(peak, 0.9, Sink(1, 0.9)) == "previous-token"
    assert head_kind(peak, 0.9, Sink(1, 0.1)) == "previous-token"
    assert head_kind(flat, 0.05, Sink(1, 0.1)) == "uniform"
    assert head_kind(peak, 0.1, Sink(1, 0.1)) == "mixed"
    assert head_kind(flat, math.nan, Sink(1, 0.1)) == "mixed"
    assert list(KINDS)[-1] == "mixed"


def test_further_offsets_than_half_of_the_rows_hold_are_not_looked_at():
    g = torch.zeros(40)
    g[2], g[20] = 1.0, 9.0
    assert Profile.of(g, 40).peak_offset == 2
    assert Profile.of(g, 42).peak_offset == 20
    # A sliding window of 9 offsets on 40 positions ends the profile sooner.
    assert Profile.of(g[:9], 40).resolved == 9


def test_only_neighbours_of_the_peak_count_to_its_width():
    g = torch.full((40,), -9.0)
    g[[0, 1, 5, 8]] = torch.tensor([math.log(0.51), 0.0, -0.1, -0.1])
    assert (Profile.of(g, 40).peak_offset, Profile.of(g, 40).half_width) == (1, 2)
    g[0] = math.log(0.49)
    assert Profile.of(g, 40).half_width == 1


def test_weights_are_a_softmax_of_g_whose_level_says_nothing():
    g = torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    profile, raised = Profile.of(g, 60), Profile.of(g + 700, 60)
    weight = [math.exp(value) for value in g[:30].tolist()]
    assert profile.near_weight == pytest.approx(sum(weight[:LOCAL_OFFSETS]) / sum(weight))
    assert profile.peak_weight == pytest.approx(max(weight) / sum(weight))
    share = [value / sum(weight) for value in weight]
    assert profile.effective_offsets == pytest.approx(math.exp(-sum(value * math.log(value) for value in share)))
    assert raised.near_weight == pytest.approx(profile.near_weight)


@pytest.mark.parametrize(
    ("profile", "share", "sink", "kind"),
    [
        (FLAT, 0.0, 0.5, "sink"),
        (FLAT, 0.0, 0.49, "uniform"),
        (peak_at(1), 0.3, 0.0, "previous-token"),
        (peak_at(1), 0.29, 0.0, "local"),
        (peak_at(5), 0.3, 0.0, "fixed-offset 5"),
        (peak_at(30), 0.3, 0.0, "fixed-offset 30"),
        (peak_at(30), 0.29, 0.0, "mixed"),
        # A peak on the token itself looks at no other position: near, but no fixed offset.
        (peak_at(0), 0.9, 0.0, "local"),
        (peak_at(1, 3.0), 0.9, 0.0, "local"),
        (peak_at(1), 0.19, 0.0, "mixed"),
        (FLAT, 0.2, 0.0, "mixed"),
    ],
)
def test_thresholds(profile, share, sink, kind):
    assert head_kind(profile, share, Sink(1, sink)) == kind


def test_a_signed_profile_looks_both_ways():
    g = torch.zeros(79)
    g[[39 - 4, 39 - 3, 39 + 25]] = torch.tensor([4.0, 4.0, 9.0])
    profile = Profile.of(g, 40, -39)
    # Offsets -19 to 19 are those that at least half of the rows hold.
    assert (profile.peak_offset, profile.half_width, profile.resolved) == (-4, 2, 39)
    assert profile.near_weight == pytest.approx((2 * math.exp(4) + 29) / (2 * math.exp(4) + 37))
    assert Profile.of(g[39:], 40).resolved == 20


@pytest.mark.parametrize(("offset", "kind"), [(1, "previous-token"), (-1, "next-token"), (-6, "fixed-offset -6")])
def test_heads_of_encoders_are_named_by_the_sign_of_their_offset(offset, kind):
    profile = Profile.of(8.0 * (torch.arange(-99, 100) == offset), 100, -99)
    assert head_kind(profile, 0.5) == kind
    assert head_kind(profile, 0.25) == "local"


def test_every_kind_says_what_it_means():
    assert all(meaning for meaning, _ in KINDS.values())


def test_a_sink_is_measured_against_even_attention():
    # Of 48 positions the first 16 get 54% of even attention: no sink. At 512 the threshold is half, as it is for ever.
    first, early = even_masses(48, 16, None, True)
    assert head_kind(FLAT, 0.0, Sink(1, first, first), Sink(16, early, early)) == "uniform"
    assert Sink(16, early, early).excess == 0
    assert not Sink(16, early + 0.39 * (1 - early), early).holds and Sink(16, early + 0.41 * (1 - early), early).holds
    assert head_kind(FLAT, 0.0, Sink(1, 0.55, first), Sink(16, 0.6, early)) == "sink"
    for length in (512, 4096, 2**20):
        even = even_masses(length, 16, None, True)[1]
        assert Sink(16, 0.5, even).holds and not Sink(16, 0.499, even).holds
    assert not Sink(16, 1.0, 1.0).holds


def test_flat_profiles_are_those_of_most_offsets():
    assert FLAT.flat and not peak_at(1).flat
