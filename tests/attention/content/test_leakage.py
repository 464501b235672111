"""Leakage of planted heads: absolute parts are found, kernels of the offset and content are not."""

import pytest
import torch

from captures import capture_of
from poskernel.attention.content.leakage import LeakageEstimator, absolute_forms
from poskernel.attention.content.pair_layout import PairLayout
from poskernel.errors import InputError

LENGTH = 30
POSITION = torch.arange(LENGTH, dtype=torch.float64)
KERNEL = torch.exp(-(POSITION[:, None] - POSITION).abs() / 5)
ABSOLUTE = torch.sin(POSITION[:, None] * POSITION / 17)


def leakage(logits, first=1, batches=1, **settings):
    key = torch.eye(LENGTH, dtype=torch.float64).expand(len(logits), 1, -1, -1)
    estimator = LeakageEstimator([0], first)
    for part in torch.arange(len(logits)).tensor_split(batches):
        estimator.consume(capture_of(logits[part, None], key[part], **settings))
    return estimator.estimates()[0]


def noise(sequences, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sequences, LENGTH, LENGTH, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("causal", [True, False])
def test_forms_are_products_of_least_squares_residuals(causal):
    layout, logits = PairLayout.of(LENGTH, 0, causal, None), noise(3)
    offset = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    features = torch.stack([layout.centred((offset == d).double()).flatten() for d in layout.offsets], 1)
    target = layout.centred(logits).flatten(1).T
    left = target - features @ torch.linalg.lstsq(features, target, driver="gelsd").solution
    inverse = torch.linalg.pinv(layout.offset_normal(), hermitian=True)
    residual, variance = absolute_forms(logits, layout, inverse)
    torch.testing.assert_close(residual, left.T @ left)
    torch.testing.assert_close(variance, target.T @ target)


@pytest.mark.parametrize("batches", [1, 4])
def test_kernels_of_the_offset_and_content_do_not_leak(batches):
    # Keys of their own in every sequence: what a regression on positions in one sequence would call position.
    content = noise(16, seed=1)[:, :1] * 2
    found = leakage(KERNEL + content + 0.3 * noise(16), batches=batches)
    for part in (found.total, found.mask, found.first):
        assert part.low < 0 < part.high
        assert abs(part.value) < 0.05


def test_a_planted_absolute_part_is_found_with_its_share():
    layout = PairLayout.of(LENGTH, 0, True, None)
    planted = absolute_forms(ABSOLUTE[None], layout, torch.linalg.pinv(layout.offset_normal(), hermitian=True))[0]
    errors = []
    for seed in range(10):
        logits = ABSOLUTE + KERNEL + noise(12, seed)
        found = leakage(logits)
        share = float(planted) / float(layout.centred(logits).square().sum((1, 2)).mean())
        assert found.total.value == pytest.approx(share, abs=0.06)
        errors.append(found.total.value - share)
        assert found.total.value == pytest.approx(found.mask.value + found.first.value)
        assert found.mask.value > 5 * abs(found.first.value)
    assert sum(errors) / len(errors) == pytest.approx(0, abs=0.012)


def test_a_sink_at_position_0_is_a_leak_of_the_first_positions_alone():
    sink = torch.zeros(LENGTH, LENGTH, dtype=torch.float64)
    sink[:, 0] = 4 - 0.1 * POSITION
    found = leakage(KERNEL + sink + 0.3 * noise(12))
    assert found.first.low > 0.2
    assert found.mask.low < 0 < found.mask.high
    two = sink.clone()
    two[:, 1] = 3.0
    assert leakage(KERNEL + two + 0.3 * noise(12)).mask.low > 0.05
    assert abs(leakage(KERNEL + two + 0.3 * noise(12), first=2).mask.value) < 0.02


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(InputError, match="2 sequences in a batch give no interval"):
        leakage(noise(2))
    with pytest.raises(InputError, match="3 sequences give no interval"):
        leakage(noise(3))
    with pytest.raises(InputError, match="the first 0 positions are none"):
        LeakageEstimator([0], 0)
    estimator = LeakageEstimator([1])
    estimator.consume(capture_of(noise(4)[:, None], noise(4)[:, None]))
    assert not estimator.estimates()
