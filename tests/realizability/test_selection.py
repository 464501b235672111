import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from cells import STUDY_NAMES, kernel, selections
from poskernel.encodings import (
    ENCODINGS,
    Alibi,
    Fire,
    KernelFamily,
    KerpleLog,
    KerplePower,
    Learned,
    Randomized,
    RelativeFamily,
    Rope,
    Sinusoidal,
    parse_encoding,
)
from poskernel.errors import InputError, MissingExtraError
from poskernel.realizability.alignment import row_margins
from poskernel.realizability.selection import (
    SELECTION_RULES,
    Adam,
    MaxMargin,
    MinNorm,
    Optimum,
    SelectionRule,
    TrainingSpan,
    causal_pairs,
    least_norm,
    parse_rule,
    target_patterns,
)
from poskernel.tasks import TASKS, Targets


def weights_of(encoding: str, task: str, rule: str = "adam") -> Tensor:
    weights = selections(encoding, rule)[task].weights
    assert weights is not None
    return weights


def objective(family: KernelFamily, targets: Targets, weights: Tensor, decay: float) -> float:
    """Mean row cross-entropy + decay / 2 |w|^2, a row at a time."""
    grid = family.kernel(weights).transfer(20)
    loss = 0.0
    for row, key in zip(targets.query.tolist(), targets.key.tolist(), strict=True):
        loss += float(grid[row, : row + 1].logsumexp(0) - grid[row, key])
    return loss / len(targets.query) + decay / 2 * float((weights**2).sum())


@pytest.mark.parametrize("task", reference.STUDY_TASKS)
@pytest.mark.parametrize("encoding", STUDY_NAMES)
def test_batched_adam_equals_the_plain_loop_in_all_35_cells(encoding: str, task: str) -> None:
    torch.testing.assert_close(weights_of(encoding, task), reference.adam_fit(encoding, task), atol=1e-9, rtol=0)


def test_adam_parameters_reach_the_loop() -> None:
    rule = Adam(steps=57, learning_rate=0.03, weight_decay=0.01)
    (chosen,) = rule.select(Rope().family(11, 11), [TASKS["skip2"].targets(11)], 11)
    expected = reference.adam_fit("rope", "skip2", train_length=11, steps=57, rate=0.03, decay=0.01)
    assert chosen.weights is not None
    torch.testing.assert_close(chosen.weights, expected, atol=1e-12, rtol=0)


def test_a_batch_equals_its_cells_alone() -> None:
    family = Sinusoidal(frequencies=4).family(12, 12)
    targets = [TASKS[name].targets(12) for name in ("prev", "copy", "first")]
    together = Adam(steps=30).select(family, targets, 12)
    for each, wanted in zip(together, targets, strict=True):
        (alone,) = Adam(steps=30).select(family, [wanted], 12)
        assert each.weights is not None
        assert alone.weights is not None
        torch.testing.assert_close(each.weights, alone.weights, atol=1e-12, rtol=0)


def test_the_slope_of_alibi_stays_at_its_bound() -> None:
    assert weights_of("alibi", "first")[1] == 0.0
    (free,) = Adam().select(Alibi(free_slope=True).family(20, 20), [TASKS["first"].targets(20)], 20)
    assert free.weights is not None
    assert free.weights[1] > 0


@pytest.mark.parametrize("encoding", ["rope", "sinusoidal", "alibi", "learned", "nope"])
@pytest.mark.parametrize("task", ["prev", "first", "reverse"])
def test_optimum_is_the_minimiser(encoding: str, task: str) -> None:
    family, targets = ENCODINGS[encoding].family(20, 20), TASKS[task].targets(20)
    weights = selections(encoding, "optimum")[task].weights
    assert weights is not None
    variable = weights.clone().requires_grad_()
    logits, _, upper = reference.family(encoding)
    (reference.cross_entropy(task, 20)(logits(variable)) + 0.5e-4 * (variable**2).sum()).backward()
    assert variable.grad is not None
    gradient = variable.grad.clone()
    if upper is not None:
        bound = weights == upper
        assert (gradient[bound] <= 1e-9).all()  # at a bound the objective only falls beyond it
        gradient[bound] = 0
    assert gradient.norm() < 1e-9
    least = objective(family, targets, weights, 1e-4)
    assert least <= objective(family, targets, weights_of(encoding, task), 1e-4) + 1e-12


def test_optimum_does_not_depend_on_the_basis() -> None:
    """An orthogonal change of the features leaves the optimal kernel as it is, adam's not."""
    turn = torch.linalg.qr(torch.randn(32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    family = Rope().family(20, 20)
    turned = RelativeFamily(lambda offset: Rope().basis(offset) @ turn, "turned")
    targets = [TASKS["prev"].targets(20)]

    def profiles(rule: Optimum | Adam) -> list[Tensor]:
        found = []
        for each in (family, turned):
            (chosen,) = rule.select(each, targets, 20)
            assert chosen.weights is not None
            profile = each.kernel(chosen.weights).profile(80)
            assert profile is not None
            found.append(profile)
        return found

    torch.testing.assert_close(*profiles(Optimum()), atol=1e-6, rtol=0)
    left, right = profiles(Adam())
    assert (left - right).abs().max() > 0.1


@pytest.mark.parametrize("task", ["prev", "skip3", "copy", "first"])
def test_max_margin_is_the_least_norm_with_margin_one(task: str) -> None:
    weights = selections_of_max_margin(task)
    family, targets = Rope().family(20, 20), TASKS[task].targets(20)
    judged = row_margins(family.kernel(weights), targets)
    assert judged.least == pytest.approx(1.0, abs=1e-5)
    # Optimality: w is a non-negative combination of the rows that hold with equality (scipy's NNLS finds it).
    from scipy.optimize import nnls

    rows = TrainingSpan(family, 20).margin_rows(targets)
    binding = rows[rows @ weights.numpy() < 1 + 1e-4]
    _, residual = nnls(binding.T, weights.numpy(), maxiter=10_000)
    assert residual < 1e-3 * float(weights.norm())


def selections_of_max_margin(task: str) -> Tensor:
    (chosen,) = MaxMargin().select(Rope().family(20, 20), [TASKS[task].targets(20)], 20)
    assert chosen.weights is not None
    return chosen.weights


def test_max_margin_says_where_nothing_is_feasible() -> None:
    for encoding, task in ((Rope(), "reverse"), (Alibi(), "first"), (Rope(), "pos2")):
        (chosen,) = MaxMargin().select(encoding.family(20, 20), [TASKS[task].targets(20)], 20)
        assert chosen.weights is None
        assert chosen.note == "no kernel of the family has a positive margin at length 20"


def test_max_margin_keeps_the_sign_of_alibi() -> None:
    """A task that alibi solves: attend to oneself."""
    targets = Targets(torch.arange(1, 10), torch.arange(1, 10))
    (chosen,) = MaxMargin().select(Alibi().family(10, 10), [targets], 10)
    assert chosen.weights is not None
    assert chosen.weights.tolist() == pytest.approx([0, -1], abs=1e-6)


def test_tiny_margins_survive_the_quadratic_programme() -> None:
    """Unscaled, the solver calls this infeasible; scaled by the LP margin (7.4e-5) it is solved."""
    kernel_found = kernel("rope:scale=0.01", "skip3", "max-margin")
    assert row_margins(kernel_found, TASKS["skip3"].targets(20)).least == pytest.approx(1.0, abs=1e-4)


def test_least_norm_of_a_known_programme() -> None:
    rows, free = np.array([[2.0, 0.0], [0.0, 0.5]]), np.full(2, np.inf)
    assert least_norm(rows, free, 1.0) == pytest.approx([0.5, 2.0], abs=1e-6)
    assert least_norm(np.array([[1.0, 1.0]]), np.array([np.inf, 0.0]), 1.0) == pytest.approx([1.0, 0.0], abs=1e-6)
    assert least_norm(np.array([[1.0, 1.0]]), free, 1.0) == pytest.approx([0.5, 0.5], abs=1e-6)
    assert least_norm(np.array([[1.0, 0.0], [-1.0, 0.0]]), free, 1.0) is None


def test_without_the_solver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'poskernel\[solvers\]'"):
        least_norm(np.eye(2), np.full(2, np.inf), 1.0)


@pytest.mark.parametrize("task", ["prev", "copy", "first"])
def test_min_norm_is_the_sandwich_of_pseudo_inverses(task: str) -> None:
    phi = Sinusoidal(frequencies=4).features(torch.arange(6), 6)  # 6 x 8, well conditioned
    targets = TASKS[task].targets(6)
    pattern = torch.zeros(6, 6, dtype=torch.float64)
    pattern[targets.query, targets.key] = 1
    (chosen,) = MinNorm().select(Sinusoidal(frequencies=4).family(6, 6), [targets], 6)
    expected = np.linalg.pinv(phi.numpy()) @ pattern.numpy() @ np.linalg.pinv(phi.numpy()).T
    assert chosen.weights is not None
    np.testing.assert_allclose(chosen.weights.numpy(), expected, atol=1e-8)
    assert chosen.note.startswith("rank 6 of 6")


@pytest.mark.parametrize("task", ["prev", "copy", "first"])
def test_relative_min_norm_is_least_squares_over_all_causal_pairs(task: str) -> None:
    family, targets = Rope(frequencies=2).family(12, 12), TASKS[task].targets(12)
    rows, wanted = [], []
    for query, target in zip(targets.query.tolist(), targets.key.tolist(), strict=True):
        for key in range(query + 1):
            rows.append(family.design(torch.tensor([query]), torch.tensor([key]))[0].tolist())
            wanted.append(float(key == target))
    expected = np.linalg.lstsq(np.array(rows), np.array(wanted), rcond=None)[0]
    (chosen,) = MinNorm().select(family, [targets], 12)
    assert chosen.weights is not None
    np.testing.assert_allclose(chosen.weights.numpy(), expected, atol=1e-8)


def test_min_norm_refits_where_a_weight_would_cross_its_bound() -> None:
    targets = TASKS["first"].targets(12)
    (chosen,) = MinNorm().select(Alibi().family(12, 12), [targets], 12)
    assert chosen.weights is not None
    mean = len(targets.query) / float((targets.query + 1).sum())  # share of ones among all pairs
    assert chosen.weights.tolist() == pytest.approx([mean, 0.0])


def test_min_norm_states_its_rank() -> None:
    (chosen,) = MinNorm().select(Sinusoidal().family(20, 20), [TASKS["first"].targets(20)], 20)
    assert chosen.note.startswith("rank 15 of 20 at a cut-off of 7.1e-15")


def test_every_rule_respects_the_bounds() -> None:
    upper = Alibi().family(20, 20).upper_bounds()
    for rule in SELECTION_RULES:
        for chosen in selections("alibi", rule).values():
            if chosen.weights is not None:
                assert (chosen.weights <= upper).all()


def test_the_span_loses_nothing() -> None:
    family = Sinusoidal(frequencies=4).family(5, 5)
    span = TrainingSpan(family, 5)
    coordinates = torch.randn(span.size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    lifted = span.lift(coordinates)
    query, key = torch.ones(5, 5).nonzero(as_tuple=True)
    torch.testing.assert_close(
        span.design(query, key) @ coordinates, family.design(query, key) @ lifted.flatten(), atol=1e-10, rtol=0
    )
    assert lifted.norm() == pytest.approx(float(coordinates.norm()), rel=1e-10)


@given(st.integers(2, 12), st.sampled_from(reference.POSITIONAL_TASKS))
@settings(deadline=None)
def test_causal_pairs_and_patterns(length: int, task: str) -> None:
    targets = TASKS[task].targets(length)
    query, key = causal_pairs(targets)
    assert list(zip(query.tolist(), key.tolist(), strict=True)) == [
        (row, other) for row in targets.query.tolist() for other in range(row + 1)
    ]
    if len(targets.query):
        wanted, weight = target_patterns([targets], length)
        assert wanted.sum() == len(targets.query)
        assert weight.sum() == pytest.approx(1.0)
        assert (wanted[0, targets.query, targets.key] == 1).all()


def test_learned_min_norm_is_the_pattern_itself() -> None:
    targets = TASKS["prev"].targets(6)
    (chosen,) = MinNorm().select(Learned().family(6, 6), [targets], 6)
    assert chosen.weights is not None
    torch.testing.assert_close(chosen.weights, torch.diag(torch.ones(5, dtype=torch.float64), -1), atol=1e-14, rtol=0)


@pytest.mark.parametrize("task", ["prev", "first"])
def test_adam_fits_a_family_that_is_not_linear_from_its_start(task: str) -> None:
    family, loss = Fire().family(12, 12), reference.cross_entropy(task, 12)
    (chosen,) = Adam(steps=40).select(family, [TASKS[task].targets(12)], 12)
    expected = reference.plain_adam(family.start(), lambda weights: loss(reference.fire_grid(weights, 12)), 40)
    assert chosen.weights is not None
    torch.testing.assert_close(chosen.weights, expected, atol=1e-8, rtol=0)


def test_adam_fits_kerple_through_softplus() -> None:
    family, loss = KerpleLog(free_rate=True).family(9, 9), reference.cross_entropy("prev", 9)
    offset = torch.tensor([[max(i - j, 0) for j in range(9)] for i in range(9)], dtype=torch.float64)

    def of_weights(weights: Tensor) -> Tensor:
        first, second = torch.nn.functional.softplus(weights)
        return loss(-first * torch.log(1 + second * offset))

    (chosen,) = Adam(steps=60).select(family, [TASKS["prev"].targets(9)], 9)
    assert chosen.weights is not None
    torch.testing.assert_close(chosen.weights, reference.plain_adam(family.start(), of_weights, 60), atol=1e-9, rtol=0)


@pytest.mark.parametrize("inner", ["t5", "sinusoidal"])
def test_adam_fits_randomized_positions_on_the_mean_loss_over_draws(inner: str) -> None:
    encoding = Randomized(inner, positions=30, train_draws=3)
    family, plain = encoding.family(9, 9), parse_encoding(inner).family(30, 30)
    loss = reference.cross_entropy("skip2", 9)

    def of_weights(weights: Tensor) -> Tensor:
        whole = plain.grid_logits(weights[None], 30)[0]
        return sum((loss(whole[sample][:, sample]) for sample in family.position), torch.tensor(0.0)) / 3  # type: ignore[attr-defined]

    (chosen,) = Adam(steps=40).select(family, [TASKS["skip2"].targets(9)], 9)
    assert chosen.weights is not None
    torch.testing.assert_close(chosen.weights, reference.plain_adam(family.start(), of_weights, 40), atol=1e-9, rtol=0)


def test_a_batch_that_is_not_linear_equals_its_cells_alone() -> None:
    for encoding in (Fire(width=4), Randomized("alibi", positions=30, train_draws=2)):
        family, targets = encoding.family(9, 9), [TASKS[name].targets(9) for name in ("prev", "first")]
        together = Adam(steps=20).select(family, targets, 9)
        for each, wanted in zip(together, targets, strict=True):
            (alone,) = Adam(steps=20).select(family, [wanted], 9)
            assert each.weights is not None
            assert alone.weights is not None
            torch.testing.assert_close(each.weights, alone.weights, atol=1e-12, rtol=0)


@pytest.mark.parametrize("rule", [Optimum(), MaxMargin(), MinNorm()], ids=lambda rule: rule.name)
def test_rules_that_solve_programmes_need_a_linear_family(rule: SelectionRule) -> None:
    targets = [TASKS["prev"].targets(9)] * 2
    for encoding in (Fire(), KerplePower(), Randomized(positions=30)):
        chosen = rule.select(encoding.family(9, 9), targets, 9)
        assert [each.weights for each in chosen] == [None, None]
        assert f"rule {rule.name} needs logits that are linear in the weights" in chosen[0].note


def test_min_norm_with_every_weight_at_its_bound_is_zero() -> None:
    (chosen,) = MinNorm().select(KerpleLog().family(12, 12), [TASKS["prev"].targets(12)], 12)
    assert chosen.weights is not None
    assert chosen.weights.tolist() == [0.0]
    assert chosen.note == "every weight is held at its bound"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("adam", Adam()),
        ("adam0", Adam(weight_decay=0.0)),
        ("adam:steps=1500", Adam(steps=1500)),
        ("adam:1500", Adam(steps=1500)),
        ("optimum:weight_decay=1e-2", Optimum(weight_decay=0.01)),
        ("min-norm:cutoff=1e-10", MinNorm(cutoff=1e-10)),
        ("max-margin", MaxMargin()),
    ],
)
def test_rules_are_named_by_text(text: str, rule: Adam) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("adm", "unknown selection rule 'adm': did you mean 'adam'"),
        ("max-margn", "did you mean 'max-margin'"),
        ("adam:steps=0", "0 steps"),
        ("adam:learning_rate=0", "learning rate 0.0"),
        ("adam:learning_rate=nan", "learning rate nan"),
        ("adam:weight_decay=inf", "weight decay inf"),
        ("adam:weight_decay=-1", "weight decay -1.0"),
        ("optimum:weight_decay=0", "without it no optimum exists"),
        ("optimum:weight_decay=nan", "weight decay nan"),
        ("min-norm:cutoff=1", "cutoff 1.0"),
        ("min-norm:cutoff=nan", "cutoff nan"),
        ("max-margin:steps=1", "takes no parameters"),
    ],
)
def test_what_is_no_rule_is_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_rule(text)


def test_math_is_float64_throughout() -> None:
    for rule in SELECTION_RULES:
        weights = selections("rope", rule)["prev"].weights
        assert weights is not None
        assert weights.dtype == torch.float64
        assert math.isfinite(float(weights.abs().max()))
