"""One cell of the predictor under test encodings, changing families, draws and no kernel at all."""

import dataclasses
import math
from collections.abc import Callable
from statistics import mean, stdev

import pytest
import torch

import reference
from poskernel.encodings import (
    Cope,
    DynamicNtk,
    Encoding,
    LearnedGaussian,
    LinearInterpolation,
    Randomized,
    Rope,
    Yarn,
)
from poskernel.errors import InputError
from poskernel.realizability import predict
from poskernel.realizability.cell import Prediction
from poskernel.realizability.prediction import default_horizon
from poskernel.tasks import TASKS

LENGTHS = (30, 40, 60)


def quick(encoding: Encoding | str, task: str, **options: object) -> Prediction:
    return predict(encoding, task, **{"lengths": LENGTHS, "existence": False, "horizon": 120, **options})  # type: ignore[arg-type]


def linear_rates(length: int) -> list[float]:
    """Linear interpolation by 4."""
    return [theta / 4 for theta in reference.frequencies()]


def dynamic_rates(length: int) -> list[float]:
    """Dynamic NTK scaling by 2 from length 20 on, from its definition: the base grows with the length."""
    base = 1e4 * (2 * max(length, 20) / 20 - 1) ** (32 / 30)
    return reference.frequencies(base=base)


ORACLES: dict[str, Callable[[int], list[float]]] = {"linear:factor=4": linear_rates, "dynamic": dynamic_rates}


def kernel_by_loops(weights: list[float], rates: list[float]) -> Callable[[int, int], float]:
    """kappa(i - j) = sum of a cos + b sin, a rate at a time."""

    def logit(query: int, key: int) -> float:
        offset = query - key
        pairs = zip(rates, weights[:16], weights[16:], strict=True)
        return sum(a * math.cos(rate * offset) + b * math.sin(rate * offset) for rate, a, b in pairs)

    return logit


@pytest.mark.parametrize("task", ["prev", "skip3", "copy", "first"])
@pytest.mark.parametrize("tested", ORACLES)
def test_a_test_encoding_evaluates_the_weights_of_the_fit(tested: str, task: str) -> None:
    weights, rates = reference.adam_fit("rope", task).tolist(), ORACLES[tested]
    found = quick("rope", task, test_encoding=tested)
    plain = quick("rope", task)
    for row in found.rows:
        by_loops = kernel_by_loops(weights, rates(row.length))
        assert row.alpha == reference.alpha(by_loops, task, 20, row.length)
        assert not row.certified  # theorem 1 speaks of one kernel
    # The fit is RoPE's: what it does at the training length is not changed by where it goes next.
    assert (found.train_margin, found.realized) == (plain.train_margin, plain.realized)
    assert found.encoding.startswith("rope:base=10000.0,frequencies=16,scale=1.0 at ")
    if task == "copy" or tested == "dynamic":
        failing = [
            length
            for length in range(21, 60)
            if reference.alpha(kernel_by_loops(weights, rates(length)), task, 20, length) < 1
        ]
        assert (found.reach or 999) >= 60 if not failing else found.reach == failing[0]
    else:
        assert found.reach == reference.reach(kernel_by_loops(weights, rates(60)), task, 20, 120)


def test_linear_interpolation_moves_the_peak_and_so_loses_prev() -> None:
    assert [row.alpha for row in quick("rope", "prev").rows] == [1.0] * 3
    lost = quick("rope", "prev", test_encoding=LinearInterpolation(factor=4.0))
    assert [row.alpha for row in lost.rows] == [0.0] * 3
    assert lost.realized
    assert quick("rope", "prev", test_encoding=Yarn(factor=4.0, original=20)).rows[0].alpha is not None


def test_the_same_encoding_as_test_encoding_changes_nothing() -> None:
    assert quick("rope", "first", test_encoding="rope:base=10000") == quick("rope", "first")


def test_a_scaling_trained_with_is_not_a_test_encoding() -> None:
    """Fitted with interpolation, the peak stands where it was asked for."""
    assert [row.alpha for row in quick("linear:factor=4", "prev").rows] == [1.0] * 3
    assert quick("linear:factor=4", "prev").rows[0].certified


def test_existence_asks_for_weights_that_solve_each_length_under_its_encoding() -> None:
    """One frequency, half a turn in 40 positions: first is possible to 30, and to 80 at a quarter of the speed."""
    fast, slow = Rope(frequencies=1, scale=math.pi / 40), Rope(frequencies=1, scale=math.pi / 160)
    alone = predict(fast, "first", 20, [30, 80], horizon=100)
    slowed = predict(fast, "first", 20, [30, 80], horizon=100, test_encoding=slow)
    assert [row.exists for row in alone.rows] == ["yes", "no"]
    assert [row.exists for row in slowed.rows] == ["yes", "yes"]


def test_other_targets_are_no_conflict_under_another_kernel() -> None:
    """Rows below 20 that copy asks something else of at 30: one kernel has not both, two may."""
    assert predict("rope", "copy", 20, [30], horizon=100).rows[0].exists == "conflict"
    for options in ({"test_encoding": "linear:factor=2"}, {}):
        encoding = "rope" if options else DynamicNtk(factor=4.0)
        row = predict(encoding, "copy", 20, [30], horizon=60, **options).rows[0]  # type: ignore[arg-type]
        assert row.exists in ("yes", "no")
        assert "change their targets" not in row.reason


def test_a_family_that_changes_with_the_length_is_not_certified_but_may_generalize() -> None:
    found = quick(DynamicNtk(), "prev")
    assert found.realized
    assert [row.alpha for row in found.rows] == [1.0] * 3
    assert not any(row.certified for row in found.rows)
    assert "right on every new row" in found.rows[0].reason
    assert "not certified, since the kernel is not the one that was fitted" in found.rows[0].reason
    assert default_horizon(DynamicNtk(), TASKS["prev"], 20) == 1024


@pytest.mark.parametrize(
    ("tested", "words"),
    [
        ("alibi", "'alibi' means alibi by its weights and 'rope' rotary pairs: evaluate under an encoding whose"),
        ("t5", "'t5' means t5 by its weights and 'rope' rotary pairs"),  # 32 weights as well
        ("cope", "'cope' means cope by its weights"),
        ("rope:frequencies=8", r"has weights of shape \(16,\) and 'rope:.*' of \(32,\)"),
        ("yran", "unknown encoding 'yran': did you mean 'yarn'"),
    ],
)
def test_weights_are_not_read_as_something_else(tested: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        quick("rope", "prev", test_encoding=tested)


@pytest.mark.parametrize("task", ["prev", "copy"])
def test_alpha_of_randomized_positions_is_the_mean_over_test_draws(task: str) -> None:
    encoding = Randomized("t5", positions=60, train_draws=2, test_draws=4)
    found = quick(encoding, task, lengths=(25, 30))
    weights = selected(encoding, task)
    for row in found.rows:
        shares = []
        for draw in range(4):
            sample = encoding.drawn_family(20, row.length, draw).position[0].tolist()  # type: ignore[attr-defined]
            shares.append(reference.alpha(t5_at(weights, sample), task, 20, row.length))
        assert row.alpha == pytest.approx(mean(shares), abs=1e-12)
        assert "alpha is the mean of 4 draws" in row.reason
        assert f"standard error {stdev(shares) / 2:.2g}" in row.reason
        assert not row.certified
    assert found.reach is None
    assert found.horizon is None
    trained = encoding.family(20, 20).position.tolist()  # type: ignore[attr-defined]
    right = [reference.target_key(task, row, 20) for row in range(20)]
    solved = all(
        reference.row_margin([t5_at(weights, sample)(row, key) for key in range(row + 1)], row, wanted)[1]
        for sample in trained
        for row, wanted in enumerate(right)
        if wanted is not None
    )
    assert found.realized == solved


def t5_at(weights: list[float], sample: list[int]) -> Callable[[int, int], float]:
    """T5's bias between sampled positions."""

    def logit(query: int, key: int) -> float:
        offset = sample[query] - sample[key]
        shared = 16 + math.floor(16 * math.log(offset / 16) / math.log(8)) if offset >= 16 else offset
        return weights[min(31, shared)]

    return logit


def selected(encoding: Encoding, task: str) -> list[float]:
    """Weights of the adam rule."""
    from poskernel.realizability.selection import Adam

    (chosen,) = Adam().select(encoding.family(20, 20), [TASKS[task].targets(20)], 20)
    assert chosen.weights is not None
    return chosen.weights.tolist()  # type: ignore[no-any-return]


def test_the_number_of_test_draws_is_a_setting() -> None:
    few, many = (quick(Randomized("alibi", positions=80, train_draws=2, test_draws=n), "prev") for n in (1, 5))
    assert "alpha is that of one draw" in few.rows[0].reason
    assert "mean of 5 draws, standard error" in many.rows[0].reason
    assert (few.train_margin, few.realized) == (many.train_margin, many.realized)


def test_fresh_rows_of_learned_positions_are_hit_by_chance() -> None:
    """Proposition 2: of the 10 to 40 new keys each is as likely; the rows that were trained are all right."""
    encoding = LearnedGaussian(test_draws=12)
    found = quick(encoding, "prev")
    assert found.realized
    assert all(row.alpha is not None and row.alpha < 0.1 for row in found.rows)
    other = quick(dataclasses.replace(encoding, test_draws=3), "prev")
    assert other.rows[0].alpha != found.rows[0].alpha
    assert "will not generalize: alpha is the mean of 12 draws" in found.rows[0].reason


def test_cope_has_alpha_null_and_a_reason() -> None:
    for task in ("prev", "copy", "induction"):
        found = predict(Cope(), task, 20, [30, 40])
        assert (found.train_margin, found.realized, found.reach, found.horizon) == (None, None, None, None)
        for row in found.rows:
            assert (row.alpha, row.margin, row.certified, row.exists) == (None, None, False, "not-applicable")
            assert row.reason.startswith("undefined: CoPE counts positions by gates that depend on the tokens")
            assert row.scored == (0 if task == "induction" else len(TASKS[task].new_targets(20, row.length).query))


@pytest.mark.parametrize("encoding", ["fire", "kerple-power", "kerple-log:free_rate=true", "randomized"])
@pytest.mark.parametrize("rule", ["optimum", "max-margin", "min-norm"])
def test_rules_that_solve_programmes_say_why_they_select_nothing(encoding: str, rule: str) -> None:
    found = predict(encoding, "prev", 20, [30], rule)
    (row,) = found.rows
    assert (found.realized, row.alpha, row.exists) == (None, None, "not-applicable")
    assert row.reason == f"undefined: rule {rule} needs logits that are linear in the weights on one grid, use adam"


def test_lengths_beyond_an_encoding_are_refused() -> None:
    with pytest.raises(InputError, match="length 60 is beyond what 'randomized' is evaluated to: give at most 50"):
        quick(Randomized(positions=50), "prev")


def test_a_kernel_of_several_draws_is_not_one() -> None:
    from poskernel.realizability import select_kernel

    with pytest.raises(InputError, match="16 draws of positions give as many kernels"):
        select_kernel("randomized", "prev")
    with pytest.raises(InputError, match="'cope' has no kernel family"):
        select_kernel("cope", "prev")
    assert torch.isfinite(select_kernel("fire", "prev").g(30)).all()
