"""E6 on rows whose truth is known: it holds, each broken hypothesis is noticed; a quick run end to end."""

import pytest
import torch

from language_rows import expected_outcomes, made_up_rows, outcomes, quick_rows
from poskernel.attention.estimators.distance import DistanceEstimator
from poskernel.attention.sources.small_source import TransformerSource
from poskernel.encodings import Rope
from poskernel.experiments.causal_boundary import E6, KERNEL_MEASURES, ROW_MEASURES, RowSums, compared
from poskernel.experiments.kernel_measures import held_out_tokens
from poskernel.experiments.language_grid import QUICK, SEEDS
from poskernel.experiments.positional_kernel import E1
from poskernel.experiments.results_page import write_report
from poskernel.models.training import initial_model

METRICS = (*(each.name for each in (*ROW_MEASURES, *KERNEL_MEASURES)), "identity_error", "rate", "limit")


def expected(columns, metric: str, keys: int) -> float:
    """The mask bends early rows; kernels say as much; laws hold."""
    causal = columns.get("direction") == "causal"
    far = (0.3 if causal else 0.05) * (8 / keys) ** 0.5
    values = {"variation": 0.05 + far, "noise": 0.05, "kernel_variation": far, "identity_error": -0.01}
    return values.get(metric, 1.0)


def but(metric: str, value: float, **where):
    """The same truth but for one metric in some models."""

    def truth(columns, name: str, keys: int) -> float:
        if name == metric and all(columns.get(key) == wanted for key, wanted in where.items()):
            return value
        return expected(columns, name, keys)

    return truth


def test_what_was_predicted_is_what_is_expected() -> None:
    rows = made_up_rows("E6", expected, METRICS)
    assert outcomes("E6", rows) == expected_outcomes("E6")
    assert str(E6.verdict(rows).outcome) == "held"


@pytest.mark.parametrize(
    ("truth", "broken"),
    [
        (but("variation", 0.1, direction="causal"), "early rows are not stationary"),
        (but("variation", 0.35, direction="bidirectional"), "the mask does it"),
        (but("kernel_variation", 0.6), "the denominator explains it"),
        (but("identity_error", 0.2), "the identity is exact"),
        (but("rate", 1.5, case="linear"), "linear kernels: exponentially"),
        (but("rate", 0.5, case="logarithmic"), "logarithmic kernels: as a power"),
        (but("limit", 0.3, case="bounded"), "bounded kernels: never"),
    ],
)
def test_a_broken_hypothesis_is_noticed(truth, broken: str) -> None:
    assert outcomes("E6", made_up_rows("E6", truth, METRICS))[broken] == "failed"


def test_a_lost_model_decides_nothing() -> None:
    rows = made_up_rows("E6", expected, METRICS)
    lost = (rows["direction"] == "bidirectional") & (rows["seed"] == 2)
    rows.loc[lost, ["value", "status"]] = [float("nan"), "failed"]
    assert outcomes("E6", rows)["the mask does it"] == "inconclusive"


@pytest.mark.parametrize("dropped", [0, 4])
def test_rows_of_causal_models_agree_with_the_estimator_of_distances(dropped: int) -> None:
    condition = QUICK.condition(Rope())
    source = TransformerSource(initial_model(condition.architecture, Rope(), 0).eval())
    tokens = held_out_tokens(condition.recipe.source, 8, 40)
    sums, distance = RowSums(40, dropped), DistanceEstimator({0: 1, 1: 1}, 40, 4)
    for batch in tokens.split(4):
        source.forward(batch, sums.consume)
        source.forward(batch, distance.consume)
    for found in distance.estimates():
        boundary = found.boundary_kept if dropped else found.boundary
        assert boundary is not None and list(boundary.keys) == sums.keys == compared(40 - dropped)
        for keys, variation, noise in zip(boundary.keys, boundary.variation, boundary.noise, strict=True):
            assert sums.values(found.layer, found.head, keys, 2) == pytest.approx((variation, noise), abs=1e-5)


def test_without_a_mask_rows_hold_every_signed_offset() -> None:
    condition = QUICK.condition(Rope(), causal=False)
    source = TransformerSource(initial_model(condition.architecture, Rope(), 0).eval())
    tokens, sums = held_out_tokens(condition.recipe.source, 8, 40), RowSums(40, 0)
    source.forward(tokens, sums.consume)
    weights = sums.weights[1, 0, 8]
    assert torch.allclose(weights.sum(1), torch.ones(2).double(), atol=1e-5)
    own = source.own_patterns(tokens)[1][:, 0, 7].double()
    by_hand = torch.zeros(79, dtype=torch.float64)
    for key in range(40):
        by_hand[7 - key + 39] = own[0::2, key].mean()
    assert torch.allclose(weights[0], by_hand, atol=1e-6)


def test_it_trains_two_models_a_seed_beside_those_of_e1(tmp_path) -> None:
    files = {unit.weights_file(tmp_path) for unit in E6.units()} - {None}
    theirs = {unit.weights_file(tmp_path) for unit in E1.units()}
    assert len(files) == 3 * len(SEEDS) and len(files - theirs) == 2 * len(SEEDS)


def test_a_quick_run_goes_end_to_end(tmp_path) -> None:
    rows = quick_rows(E6, tmp_path)
    assert set(rows["status"]) == {"done"}
    assert {each.estimate.n for each in E6.quick.verdict(rows).judgements.values()} == {2}
    page = write_report(E6.quick, rows, tmp_path / "report").read_text()
    assert page.count("<figure") == len(E6.pictures)
