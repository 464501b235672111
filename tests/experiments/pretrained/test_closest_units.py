"""Measures of the closest work on kernels whose answer is known, and a unit on a tiny model."""

import math

import pytest
import torch

pytest.importorskip("transformers")

from families import HEADS, LAYERS, loaded
from poskernel.attention.estimators.estimate import HeadEstimate
from poskernel.experiments.pretrained import closest_units
from poskernel.experiments.pretrained.closest_units import (
    HEAD_MEASURES,
    LAYER_MEASURES,
    LEAKAGE,
    SHARP,
    SLOW,
    UNIFORM,
    ClosestUnit,
    effective_heads,
    kernel_claims,
    octave_share,
    score_claims,
)
from poskernel.experiments.pretrained.models import PretrainedModel, RealModelCell
from poskernel.statistics import mean

OFFSET = torch.arange(200, dtype=torch.float64)
KERNELS = {
    SHARP: 6.0 * (OFFSET == 1),
    SLOW: -1.6 * torch.log1p(OFFSET / 24),
    UNIFORM: 0.01 * torch.sin(OFFSET),
    None: 5.0 * torch.exp(-(((OFFSET - 60) / 6) ** 2)),
}


def estimate_of(g: torch.Tensor) -> HeadEstimate:
    """A head with this kernel."""
    one = mean([0.5, 0.5])
    return HeadEstimate(0, 0, g, torch.zeros_like(g), one, one, one, one, None, one, 0.5, one, 0.0, 0.0)


@pytest.mark.parametrize("kind", KERNELS, ids=str)
def test_each_kernel_has_its_type(kind: str | None) -> None:
    found = kernel_claims(estimate_of(KERNELS[kind]), 200)
    assert {name for name in (SHARP, SLOW, UNIFORM) if found[name] == 1.0} == {kind} - {None}


def test_a_step_at_one_octave_is_seen_and_a_slope_over_all_is_not() -> None:
    step = (OFFSET < 16).double()
    assert octave_share(step) == pytest.approx(1.0)
    assert octave_share(torch.log1p(OFFSET)) < 0.5
    assert math.isnan(octave_share(torch.zeros(64)))


def test_effective_heads_count_equal_ones() -> None:
    assert effective_heads([2.0, 2.0, 0.0]) == pytest.approx(2.0)
    assert effective_heads([1.0, math.nan, math.nan]) == pytest.approx(1.0)
    assert math.isnan(effective_heads([0.0, math.nan]))


@pytest.fixture
def unit(monkeypatch) -> ClosestUnit:
    """On a tiny model with a first token of its own."""
    words = loaded("llama")
    monkeypatch.setattr(closest_units, "opened", lambda model: words)
    model = PretrainedModel("tiny", "package:tiny", LAYERS, HEADS, True, (1,), "RoPE")
    return ClosestUnit(RealModelCell(model, "topics", 6, 40), 1, texts=2, dropped=4, leaking=(4, 20))


def test_everything_is_measured(unit: ClosestUnit) -> None:
    found = {m.key: m for m in unit.run()}
    assert list(found) == list(unit.keys) and {str(m.status) for m in found.values()} == {"done"}
    names = {each.name for each in (*HEAD_MEASURES, *LAYER_MEASURES, *LEAKAGE)}
    assert {metric for _, metric, _ in unit.measures} == names
    whole = unit.cell.at(protocol="closest").id
    kept, swapped = (found[whole, f"first_{name}", 20, 1].value for name in ("kept", "swapped"))
    assert kept != swapped
    for layer in range(LAYERS):
        deposit = found[unit.cell.at(protocol="closest", state="trained", layer=layer).id, "deposit", 40, 1].value
        assert deposit is None or 1 <= deposit <= HEADS
    correlation = found[unit.part(0, 0).id, "means_correlation", 40, 1].value
    assert correlation is not None and -1 <= correlation <= 1


def test_scores_of_bands_are_weighted_by_energy(unit: ClosestUnit) -> None:
    from poskernel.attention.estimators.symbolic import HeadPermutation

    scores = [mean([value, value]) for value in (0.9, 0.5, 0.1, 0.3)]
    frequencies = torch.tensor([3.0, 1.0, 1e-4, 0.0], dtype=torch.float64)
    head = HeadPermutation(
        0, 0, scores[0], scores[1], frequencies, tuple(scores), tuple(scores[::-1]),
        torch.tensor([1.0, 3.0, 2.0, 9.0], dtype=torch.float64),
    )  # fmt: skip
    found = score_claims(head, 100)
    assert found["positional_short"] == pytest.approx((0.9 + 3 * 0.5) / 4)
    assert found["symbolic_unresolved"] == pytest.approx(0.5)
    assert "undefined" in str(score_claims(head, 10**6)["positional_unresolved"])
