"""Both probes of a planted source: its kernels do not depend on the tokens, and nothing of it is induction."""

import pytest
import torch

from planted_source import PositionSource, stream
from poskernel.attention.estimators.head_probes import CONSTANT, head_probes
from poskernel.attention.measuring import Subject, measure


@pytest.mark.parametrize("causal", [True, False])
def test_a_kernel_of_position_alone_is_the_same_on_one_token_for_ever(causal):
    source = PositionSource(causal)
    kernels = measure(Subject(source, stream(480).view(8, 60), [0, 1], dropped=4, causal=causal))
    before = source.passes
    probes = head_probes(source, {0: 3, 1: 3}, 60, kernels)
    assert source.passes == before + 2
    assert [(each.layer, each.head) for each in probes] == [(layer, head) for layer in (0, 1) for head in range(3)]
    for each in probes:
        assert each.constant.counts.max() == 60
        assert each.agreement.correlation > 0.9 or (not causal and each.head == 1)  # that one looks ahead alone
        # One token before in a pattern of 30: far from the token after the earlier occurrence, 29 before.
        assert each.repetition.induction.value < 0.1
        assert each.repetition.induction.n == 8
    assert probes[0].agreement.agrees
    # Content of a constant token moves with the key's position here: planted heads are not exactly Toeplitz.
    assert probes[0].constant.toeplitz_error > probes[0].constant.floor
    assert probes[0].constant.spread.shape == probes[0].constant.g.shape
    assert CONSTANT >= 2


def test_the_seed_draws_other_tokens():
    source = PositionSource()
    kernels = measure(Subject(source, stream(480).view(8, 60), [0], dropped=4))
    first, again, other = (head_probes(source, {0: 3}, 60, kernels, seed) for seed in (0, 0, 1))
    assert torch.equal(first[0].constant.g, again[0].constant.g)
    assert not torch.equal(first[0].constant.g, other[0].constant.g)
