"""Agreement of kernels against loops, and what it says of kernels that are equal, shifted and unlike."""

import pytest
import torch

from poskernel.experiments.extension.agreement import (
    LagMeans,
    agreement,
    aligned_share,
    correlations,
    root_mean_squares,
)
from rotary_captures import LENGTH, noisy


def test_lag_means_are_those_of_the_logits():
    capture, lags = noisy(3, torch.Generator().manual_seed(0), heads=4, keyheads=2), LagMeans(LENGTH, 4)
    lags.consume(capture)
    found = lags.profile([0])
    every = torch.arange(4, LENGTH)
    for head in range(4):
        logits = capture.logits(head, every, every).double().mean(0)
        for offset in range(lags.reach):
            assert float(found[head, offset]) == pytest.approx(float(logits.diagonal(-offset).mean()), abs=1e-9)


def test_shapes_are_compared_without_their_level():
    one = torch.randn(3, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(correlations(one, 2 * one + 5), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(root_mean_squares(one, one + 5), torch.zeros(3, dtype=torch.float64))
    expected = torch.stack([torch.corrcoef(torch.stack([row, row.flip(0)]))[0, 1] for row in one])
    torch.testing.assert_close(correlations(one, one.flip(1)), expected)


def test_rows_are_right_while_the_peak_is_the_largest():
    profile = torch.tensor([[0.0, 3.0, 1.0, 2.0, 3.5, 0.0]])
    assert float(aligned_share(profile, torch.tensor([1]), 2)) == 0.5
    assert float(aligned_share(profile, torch.tensor([0]), 2)) == 0


def test_equal_kernels_agree_and_others_do_not():
    own = torch.randn(5, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    decided = torch.tensor([True, True, True, True, False])
    same = agreement(own, own, own, decided, 10)
    assert same["correlation"] == pytest.approx(1) and same["rms"] == pytest.approx(0)
    assert same["peak_match"] == same["predicted_kept"] == same["measured_kept"] == 1
    assert same["predicted_alpha"] == same["measured_alpha"] and same["predicted_mass"] == same["measured_mass"]
    other = agreement(own, own.roll(3, 1), own, decided, 30)
    assert other["correlation"] < 0.9 and other["peak_match"] == 0 and "predicted_alpha" not in other
    assert "peak_match" not in agreement(own, own, own, torch.zeros(5, dtype=torch.bool), 10)
