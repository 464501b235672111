"""Groups of heads give what their heads give one by one, also for resampled sequences."""

import pytest
import torch

from poskernel.attention.closed_form import ClosedFormEstimator
from poskernel.attention.extension.head_groups import grouped
from poskernel.attention.extension.planes import Turning
from poskernel.attention.extension.survival import NEVER, scan
from poskernel.attention.sources.rotary_probe import probe_rotation
from rotary_captures import FREQUENCIES, LENGTH, noisy

SLOW = Turning(0.7 * FREQUENCIES, 1.1)
MEASURED = 16


@pytest.fixture(scope="module")
def layers():
    generator = torch.Generator().manual_seed(0)
    captures = [noisy(6, generator, heads=2, layer=layer, noise=0.4) for layer in range(3)]
    probe = probe_rotation(captures[0].rotation, 8)
    turnings = {"slow": dict.fromkeys(range(3), SLOW)}
    estimator = ClosedFormEstimator(dict.fromkeys(range(3), probe), LENGTH, 4, turnings=turnings)
    for capture in captures:
        estimator.consume(capture)
    return estimator.layers()


def test_layers_that_turn_alike_stand_together(layers):
    turnings = {0: SLOW, 1: Turning(FREQUENCIES), 2: Turning(0.7 * FREQUENCIES, 1.1)}
    groups = grouped(layers, turnings)
    assert [group.names for group in groups] == [[(0, 0), (0, 1), (2, 0), (2, 1)], [(1, 0), (1, 1)]]


def test_profiles_are_those_of_the_kernels(layers):
    (group,) = grouped(layers, dict.fromkeys(range(3), SLOW), "slow")
    profile = group.profile(40)
    for row, (layer, head) in zip(profile, group.names, strict=True):
        torch.testing.assert_close(row, layers[layer].kernel(head).with_turning(SLOW).profile(40))
    torch.testing.assert_close(group.profile(7), profile[:, :7])


def test_equal_weights_resample_to_the_estimate_itself(layers):
    (group,) = grouped(layers, dict.fromkeys(range(3), SLOW), "slow")
    weights = torch.full((2, 6), 1 / 6, dtype=torch.float64)
    peak = group.profile(MEASURED).argmax(1)
    height = group.profile(MEASURED).gather(1, peak[:, None])[:, 0]
    far = scan(group.waves, height[None], MEASURED, 4000, 4000)
    lost = group.resampled_lost(weights, peak, MEASURED, far.highest)
    expected = torch.where(far.overtaken[0] < NEVER, far.overtaken[0] + 1, NEVER)
    assert torch.equal(lost, expected.expand(2, -1))
    elsewhere = group.resampled_lost(weights, (peak + 1) % MEASURED, MEASURED, far.highest)
    assert bool((elsewhere == MEASURED).all())
    offsets, strict = group.resampled_peaks(weights, MEASURED)
    assert torch.equal(offsets, peak.expand(2, -1)) and bool(strict.all())


def test_one_sequence_alone_gives_its_own_profile(layers):
    (group,) = grouped(layers, dict.fromkeys(range(3), SLOW), "slow")
    weights = torch.eye(6, dtype=torch.float64)
    values, _, _ = group.resample(weights, slice(1, 3), MEASURED)
    torch.testing.assert_close(values[:, :, : group.reach], group.sequences[:, 1:3])
    late = group.late
    products = late.query[4, 2] * late.key[4, 2].conj()
    expected = SLOW.factor**2 * 0.5 * (products * torch.polar(torch.ones(4).double(), 13 * SLOW.rates)).sum().real
    torch.testing.assert_close(values[4, 1, 13], expected)


def test_the_first_keys_logit_turns_with_the_length(layers):
    (group,) = grouped(layers, dict.fromkeys(range(3), SLOW))
    query, key = group.first.query.mean(0), group.first.key.mean(0)
    for length in (5, 900):
        wave = torch.polar(torch.ones(4).double(), (length - 1) * SLOW.rates)
        torch.testing.assert_close(
            group.sink_logit(length), SLOW.factor**2 * 0.5 * (query * key.conj() * wave).sum(1).real
        )


def test_a_window_ends_the_profile(layers):
    from dataclasses import replace

    (group,) = grouped([replace(forms, window=12) for forms in layers], dict.fromkeys(range(3), SLOW))
    assert group.window == 12 and group.profile(40).shape == (6, 12) and group.stop(9) == 9
