"""The programme behind attainability, and what is said where it does not decide."""

import torch

from poskernel.encodings.family import RelativeFamily
from poskernel.realizability.cone import programme
from poskernel.realizability.theorems.attainment import peak
from poskernel.tasks import POSITIONAL_TASKS


def family(*powers, scale=1.0):
    def basis(offset):
        return torch.stack([scale * offset.double() ** power for power in powers], 1)

    return RelativeFamily(basis, "powers")


def asked(of, task, length=20, seconds=10.0):
    targets = POSITIONAL_TASKS[task].targets(length)
    return peak(of, programme([of], [targets]), [targets], seconds)


def test_features_of_any_size_hold_the_same_kernels():
    for scale in (1e-7, 1.0, 1e5):
        found = asked(family(1, 2, scale=scale), "first")
        assert found.margin > 0 and float(found.weights.abs().max()) <= 1 + 1e-12 and not found.impossible
        none = asked(family(1, scale=scale), "prev")
        assert none.impossible and none.margin is None


def test_equal_features_are_named():
    assert "equal features" in asked(family(0), "prev").why and asked(family(0), "prev").impossible


def test_logits_that_outgrow_their_margin_are_named():
    """Offset 1 can be the peak of a d + b d^2, with logits of 1e10 at the far end."""
    of, far = family(1, 2), POSITIONAL_TASKS["prev"].targets(100_000).rows(99_999, 100_000)
    found = peak(of, programme([of], [far]), [far], 10.0)
    assert found.margin is None and not found.impossible
    assert "strict argmax" in found.why and "limit" not in found.why


def test_a_limit_that_was_reached_is_named():
    found = asked(family(0.5, 1, 2, 3), "prev", 20, seconds=1e-9)
    assert found.margin is None and "limit of 1e-09 s" in found.why
