"""Verdicts from numbers: Holm's correction against known values, t tests, and that nothing is decided by too little."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from poskernel.experiments.judging import Outcome, Side, holm, judge, least_effect, p_value


def test_holm_gives_known_values() -> None:
    # Worked by hand: smallest times 4, next times 3, and never less than the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02] and holm([]) == []


def slow_holm(p: list[float], level: float) -> list[bool]:
    """Rejects the smallest below level / m, the next below level / (m - 1), and stops at the first that is not."""
    rejected = [False] * len(p)
    for rank, index in enumerate(sorted(range(len(p)), key=lambda index: p[index])):
        if p[index] >= level / (len(p) - rank):
            break
        rejected[index] = True
    return rejected


@given(st.lists(st.floats(1e-6, 1), max_size=8), st.sampled_from([0.01, 0.05, 0.2]))
def test_a_corrected_p_below_the_level_is_what_the_procedure_rejects(p: list[float], level: float) -> None:
    adjusted = holm(p)
    if not any(math.isclose(value, level, rel_tol=1e-9) for value in adjusted):
        assert [value < level for value in adjusted] == slow_holm(p, level)
    assert all(corrected >= raw or math.isclose(corrected, raw) for raw, corrected in zip(p, adjusted, strict=True))


def test_an_undefined_p_belongs_to_the_family() -> None:
    assert holm([0.02, math.nan]) == [0.04, 1.0]


def test_p_is_that_of_the_t_test_and_of_signs_where_nothing_spreads() -> None:
    values = [0.95, 0.97, 0.99]
    assert p_value(values, 0.9) == pytest.approx(float(ttest_1samp(values, 0.9).pvalue))
    assert p_value([1.0] * 5, 0.9) == pytest.approx(2 / 2**5)
    assert p_value([0.9] * 5, 0.9) == 1.0
    assert math.isnan(p_value([0.99], 0.9)) and math.isnan(p_value([0.9, math.nan, 0.99], 0.9))


@pytest.mark.parametrize(
    ("side", "values", "outcome"),
    [
        (Side.ABOVE, [0.97, 0.98, 0.99], Outcome.HELD),
        (Side.BELOW, [0.97, 0.98, 0.99], Outcome.FAILED),
        (Side.ABOVE, [0.1, 0.12, 0.11], Outcome.FAILED),
        (Side.BELOW, [0.1, 0.12, 0.11], Outcome.HELD),
        (Side.ABOVE, [0.5, 0.9, 1.3], Outcome.INCONCLUSIVE),
        (Side.ABOVE, [0.99], Outcome.INCONCLUSIVE),
        (Side.ABOVE, [], Outcome.INCONCLUSIVE),
        (Side.ABOVE, [0.97, 0.98, 0.99, math.nan], Outcome.INCONCLUSIVE),
    ],
)
def test_the_side_decides_where_the_line_is_told_apart(side: Side, values: list[float], outcome: Outcome) -> None:
    (found,) = judge([side], [0.9], [values])
    assert found.outcome is outcome
    assert found.estimate.n == len([value for value in values if not math.isnan(value)])


def test_a_larger_family_asks_for_more() -> None:
    values = [0.93, 0.95, 0.97]
    (alone,) = judge([Side.ABOVE], [0.9], [values])
    raw = alone.p
    assert raw < 0.05 and alone.outcome is Outcome.HELD
    many = judge([Side.ABOVE] * 6, [0.9] * 6, [values, *([[0.8, 0.9, 1.0]] * 5)])
    assert many[0].p == raw and many[0].adjusted == pytest.approx(6 * raw)
    assert many[0].outcome is Outcome.INCONCLUSIVE and "not told apart" in many[0].reason


def test_chance_alone_decides_as_seldom_as_it_says() -> None:
    generator, decided = np.random.default_rng(0), 0
    for _ in range(400):
        samples = generator.normal(0.9, 0.05, (3, 5))
        found = judge([Side.ABOVE] * 3, [0.9] * 3, samples.tolist())
        decided += any(each.outcome is not Outcome.INCONCLUSIVE for each in found)
    assert decided / 400 < 0.09  # 5% and three standard errors


def test_reasons_name_what_is_missing() -> None:
    lacking, few = judge([Side.ABOVE] * 2, [0.9] * 2, [[0.9, math.nan], [0.99]])
    assert lacking.reason == "1 of 2 replicates gave no number" and few.reason == "1 replicates cannot decide it"


def test_equal_counts_are_decided_by_the_step_of_the_count() -> None:
    """Five shares of 1.00 say no less than five of nearly 1.00; without a step they decide nothing."""
    assert p_value([1.0] * 5, 0.8) == pytest.approx(1 / 16)
    nearly = [1 - 0.05 * part for part in (0.0, 2.0, 4.0, 2.0, 0.0)]
    assert p_value([1.0] * 5, 0.8, step=0.05) < p_value(nearly, 0.8, step=0.05) == p_value(nearly, 0.8)
    assert p_value([1.0] * 5, 1.0, step=0.05) == 1.0
    assert math.isnan(p_value([1.0], 0.8, step=0.05)) and math.isnan(p_value([1.0, math.nan], 0.8, step=0.05))
    family = [Side.ABOVE] * 19, [0.8] * 19, [[1.0] * 5, *([[0.7, 0.8, 0.9, 0.75, 0.85]] * 18)]
    assert judge(*family)[0].outcome is Outcome.INCONCLUSIVE
    assert judge(*family, [0.05] * 19)[0].outcome is Outcome.HELD
    assert judge(*family, [0.2] * 19)[0].outcome is Outcome.INCONCLUSIVE


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.floats(0, 0.5), st.floats(0, 1))
def test_a_step_never_makes_a_prediction_easier(values: list[float], step: float, threshold: float) -> None:
    if np.std(values, ddof=1) > 1e-9:
        assert p_value(values, threshold, step) >= p_value(values, threshold) * (1 - 1e-9)


@pytest.mark.parametrize(("replicates", "predictions"), [(3, 16), (5, 19), (5, 1)])
def test_the_least_effect_is_where_the_strictest_step_decides(replicates: int, predictions: int) -> None:
    effect = least_effect(replicates, predictions)
    unit = np.arange(replicates) - (replicates - 1) / 2
    values = unit / np.std(unit, ddof=1)
    for factor, decided in ((1.001, True), (0.999, False)):
        p = p_value((values + factor * effect).tolist(), 0.0)
        assert (holm([p, *[1.0] * (predictions - 1)])[0] < 0.05) is decided
    assert (least_effect(3, 16) > 10) and 2.5 < least_effect(5, 19) < 3.1
