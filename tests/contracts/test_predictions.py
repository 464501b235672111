"""Every encoding with every task under every rule: what a prediction must keep, whatever it says."""

import math

import pytest

from cells import ENCODING_NAMES, LENGTHS, POSITIONAL_NAMES, RULE_NAMES, TASK_NAMES, selections
from poskernel.encodings import ENCODINGS
from poskernel.realizability import certificate, predict, reach, row_margins
from poskernel.tasks import TASKS

HORIZON = 120


@pytest.mark.parametrize("task", POSITIONAL_NAMES)
@pytest.mark.parametrize("rule", RULE_NAMES)
@pytest.mark.parametrize("encoding", ENCODING_NAMES)
def test_verdicts_hang_together(encoding: str, rule: str, task: str) -> None:
    chosen = selections(encoding, rule)[task]
    if chosen.weights is None:
        assert rule == "max-margin"
        assert chosen.note
        return
    family = ENCODINGS[encoding].family(20, 80)
    assert chosen.weights.shape == family.shape
    assert bool((chosen.weights.flatten() <= family.upper_bounds()).all())
    kernel, wanted = family.kernel(chosen.weights), TASKS[task]
    judged = {length: row_margins(kernel, wanted.new_targets(20, length)) for length in LENGTHS}
    first_wrong = reach(kernel, wanted, 20, HORIZON)
    for length, rows in judged.items():
        proof = certificate(kernel, wanted, 20, length)
        assert 0 <= rows.share <= 1
        assert math.isfinite(rows.least)
        assert (rows.least > 0) >= rows.right.all()
        assert proof.aligned == (rows.share == 1)
        if proof.holds:
            assert row_margins(kernel, wanted.targets(length)).share == 1
        if not wanted.depends_on_length:
            assert (rows.share == 1) == (first_wrong is None or first_wrong >= length)
        elif first_wrong is None:
            assert rows.share == 1
    if rule == "max-margin":
        # Solvable at the training length, then, and solved.
        assert row_margins(kernel, wanted.targets(20)).least == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("task", TASK_NAMES)
@pytest.mark.parametrize("encoding", ENCODING_NAMES)
def test_every_cell_is_predicted_with_a_reason(encoding: str, task: str) -> None:
    found = predict(encoding, task, 12, [16, 25], existence=False, horizon=60)
    assert [row.length for row in found.rows] == [16, 25]
    for row in found.rows:
        assert row.reason
        assert (row.alpha is None) == (task == "induction")
        assert row.certified <= bool(found.realized)
