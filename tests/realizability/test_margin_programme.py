import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from poskernel.encodings import Alibi, KernelFamily, Learned, Rope, Sinusoidal
from poskernel.realizability.margin_programme import BestMargin, best_margin, better, margin_constraints, solve
from poskernel.tasks import TASKS, Targets

FREE = np.full(3, np.inf)


def loop_constraints(family: KernelFamily, targets: Targets) -> set[tuple[float, ...]]:
    rows = set()
    for query, target in zip(targets.query.tolist(), targets.key.tolist(), strict=True):
        for key in range(query + 1):
            if key != target:
                pair = family.design(torch.tensor([query, query]), torch.tensor([target, key]))
                rows.add(tuple((pair[0] - pair[1]).round(decimals=9).tolist()))
    return rows


@pytest.mark.parametrize("encoding", [Rope(frequencies=2), Alibi(), Learned(), Sinusoidal(frequencies=2)])
@pytest.mark.parametrize("task", ["prev", "copy", "reverse", "pos2"])
def test_constraints_are_target_less_wrong_key(encoding: Rope, task: str) -> None:
    family, targets = encoding.family(8, 8), TASKS[task].targets(8)
    rows = margin_constraints(family, targets)
    assert {tuple(row) for row in np.round(rows, 9).tolist()} == loop_constraints(family, targets)


def test_the_margin_of_a_known_programme() -> None:
    # w1 >= gamma and w2 - w1 >= gamma with |w| <= 1: best is w = (1/2, 1), gamma 1/2.
    best = best_margin(np.array([[1.0, 0.0, 0.0], [-1.0, 1.0, 0.0]]), FREE)
    assert best.margin == pytest.approx(0.5, abs=1e-12)
    assert best.upper_bound == pytest.approx(0.5, abs=1e-12)
    assert best.positive
    assert best.weights is not None
    assert best.weights[:2] == pytest.approx([0.5, 1.0])


def test_what_counts_as_a_margin() -> None:
    assert best_margin(np.array([[2e-6]]), np.array([np.inf])).positive
    assert not BestMargin(1e-6, 1.0, np.ones(1)).positive
    assert not BestMargin(math.nan, 1.0, None).positive
    assert not BestMargin(1e-3, 1.0, np.ones(1), unit=1e3).positive


@pytest.mark.parametrize("unit", [1e-12, 1e-7, 1e5])
def test_the_unit_of_the_rows_is_that_of_the_margin(unit: float) -> None:
    rows = np.array([[1.0, 0.0, 0.0], [-1.0, 1.0, 0.0]])
    best, same = best_margin(unit * rows, FREE), best_margin(rows, FREE)
    assert best.positive
    assert best.margin == pytest.approx(unit * same.margin)
    assert best.upper_bound == pytest.approx(unit * same.upper_bound)
    none = best_margin(unit * np.vstack([rows, -rows]), FREE)
    assert not none.positive


def test_dual_weights_give_the_bound() -> None:
    rows = np.random.default_rng(0).standard_normal((700, 3))
    best = best_margin(rows, FREE)
    assert best.dual is not None
    assert best.dual.min() >= 0
    assert best.dual.sum() == pytest.approx(1)
    assert float(np.abs(rows.T @ best.dual).sum()) == pytest.approx(best.upper_bound, abs=1e-12)


def test_a_contradiction_is_bounded_by_zero() -> None:
    best = best_margin(np.array([[1.0, 2.0, 0.0], [-1.0, -2.0, 0.0]]), FREE)
    assert not best.positive
    assert best.margin == pytest.approx(0, abs=1e-12)
    assert best.upper_bound <= 1e-12


def test_a_sign_constraint_binds() -> None:
    row = np.array([[1.0, 1.0, 0.0]])
    assert best_margin(row, FREE).margin == pytest.approx(2.0)
    assert best_margin(row, np.array([np.inf, 0.0, np.inf])).margin == pytest.approx(1.0)
    assert best_margin(np.array([[0.0, 1.0, 0.0]]), np.array([np.inf, 0.0, np.inf])).upper_bound == pytest.approx(
        0, abs=1e-12
    )


@given(st.integers(0, 2**30))
@settings(deadline=None, max_examples=15)
def test_adding_constraints_one_batch_at_a_time_changes_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((700, 12)) + rng.standard_normal(12) * rng.uniform(0, 2)
    upper = np.where(rng.random(12) < 0.2, 0.0, np.inf)
    best = best_margin(rows, upper)
    whole = linprog(
        np.r_[np.zeros(12), -1.0],
        A_ub=np.hstack([-rows, np.ones((700, 1))]),
        b_ub=np.zeros(700),
        bounds=[*((-1.0, min(1.0, ceiling)) for ceiling in upper), (None, None)],
        method="highs-ipm",
    )
    assert best.margin == pytest.approx(-whole.fun, abs=1e-7)
    assert best.weights is not None
    assert best.margin == (rows @ best.weights).min()
    assert (best.weights <= np.minimum(upper, 1)).all()
    assert best.margin <= best.upper_bound + 1e-12
    assert best.upper_bound == pytest.approx(best.margin, abs=1e-7)


@given(st.integers(0, 2**30))
@settings(deadline=None, max_examples=30)
def test_the_upper_bound_bounds_every_kernel(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((9, 4))
    bound = best_margin(rows, np.full(4, np.inf)).upper_bound
    weights = rng.uniform(-1, 1, (500, 4))
    assert (rows @ weights.T).min(axis=0).max() <= bound + 1e-12


def test_no_time_no_answer() -> None:
    best = best_margin(np.eye(3), FREE, seconds=0.0)
    assert best.weights is None
    assert not best.positive
    assert math.isnan(best.margin)
    assert best.upper_bound == math.inf


def test_the_better_of_two_keeps_both_bounds() -> None:
    first, second = BestMargin(0.1, 0.9, np.ones(1)), BestMargin(0.3, 1.2, np.zeros(1))
    both = better(first, second)
    assert both.dual is first.dual
    assert (both.margin, both.upper_bound) == (0.3, 0.9)
    assert both.weights is second.weights
    assert better(BestMargin(math.nan, math.inf, None), first).margin == 0.1


def test_solve_stays_within_the_box() -> None:
    solved = solve(np.array([[3.0, -5.0, 0.0]]), np.array([0.0, np.inf, np.inf]), None)
    assert solved.weights is not None
    assert solved.weights[:2].tolist() == [0, -1]
    assert solved.margin == solved.upper_bound == 5.0
