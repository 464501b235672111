"""Every encoding with every task under every rule: what a prediction must keep, whatever it says."""

import dataclasses
import math

import pytest
from torch import Tensor

from cells import ENCODING_NAMES, KERNEL_NAMES, LENGTHS, POSITIONAL_NAMES, RULE_NAMES, TASK_NAMES, selections
from poskernel.encodings import ENCODINGS, Encoding, LinearFamily
from poskernel.kernel import PositionalKernel
from poskernel.realizability import certificate, predict_all, reach, row_margins
from poskernel.realizability.cell import Asked
from poskernel.tasks import TASKS

HORIZON = 120


def one_kernel(encoding: Encoding) -> bool:
    """Whether the same weights are the same kernel at every length."""
    return not (encoding.depends_on_length or encoding.drawn)


def kernel_at(encoding: Encoding, weights: Tensor, length: int) -> PositionalKernel:
    """The weights at a length, under the first draw where something is drawn."""
    return encoding.drawn_family(20, length, 0).kernel(weights)


@pytest.mark.parametrize("task", POSITIONAL_NAMES)
@pytest.mark.parametrize("rule", RULE_NAMES)
@pytest.mark.parametrize("encoding", KERNEL_NAMES)
def test_verdicts_hang_together(encoding: str, rule: str, task: str) -> None:
    chosen, named = selections(encoding, rule)[task], ENCODINGS[encoding]
    family = named.family(20, 20)
    if chosen.weights is None:
        assert chosen.note
        assert rule == "max-margin" or (rule in ("optimum", "min-norm") and not isinstance(family, LinearFamily))
        return
    assert chosen.weights.shape == family.shape
    assert bool((chosen.weights.flatten() <= family.upper_bounds()).all())
    wanted = TASKS[task]
    kernel = kernel_at(named, chosen.weights, HORIZON)
    first_wrong = reach(kernel, wanted, 20, HORIZON)
    for length in LENGTHS:
        kernel = kernel if one_kernel(named) else kernel_at(named, chosen.weights, length)
        rows = row_margins(kernel, wanted.new_targets(20, length))
        proof = certificate(kernel, wanted, 20, length)
        assert 0 <= rows.share <= 1
        assert math.isfinite(rows.least)
        assert (rows.least > 0) >= rows.right.all()
        assert proof.aligned == (rows.share == 1)
        if proof.holds:
            assert row_margins(kernel, wanted.targets(length)).share == 1
        if not one_kernel(named):
            continue
        if not wanted.depends_on_length:
            assert (rows.share == 1) == (first_wrong is None or first_wrong >= length)
        elif first_wrong is None:
            assert rows.share == 1
    if rule == "max-margin":
        # Solvable at the training length, then, and solved.
        assert row_margins(family.kernel(chosen.weights), wanted.targets(20)).least == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("encoding", ENCODING_NAMES)
def test_every_cell_is_predicted_with_a_reason(encoding: str) -> None:
    named = ENCODINGS[encoding]
    if named.drawn:
        named = dataclasses.replace(named, test_draws=3)  # type: ignore[type-var]  # encodings are dataclasses
    for found in predict_all(named, TASK_NAMES, 12, [16, 25], asked=Asked(existence=False), horizon=60):
        assert [row.length for row in found.rows] == [16, 25]
        for row in found.rows:
            assert row.reason
            assert (row.alpha is None) == (found.task == "induction" or bool(named.no_kernel))
            assert row.certified <= (bool(found.realized) and one_kernel(named))
            assert (row.exists is None) == (row.alpha is not None)
        searched = found.realized is not None and not named.drawn
        assert found.horizon == (60 if searched else None)
