"""E5 on rows whose truth is known: it holds, and each broken hypothesis is noticed by the prediction it breaks."""

import numpy as np
import pandas as pd
import pytest

from poskernel.experiments.judging import Outcome
from poskernel.experiments.known_kernel import E5, SEEDS
from poskernel.experiments.recovery import CURVES, KERNELS, OFFSETS
from poskernel.models.transformer import Norm

Columns = dict[str, object]


def recovered(columns: Columns) -> bool:
    """What the spec's throw-away runs saw: order is needed, a norm is not."""
    return columns["positions"] == "ordered" and columns["encoding"] != "nope"


def rows_of(truth=recovered, norms_matter: bool = False) -> pd.DataFrame:
    """Final rows of the full design under some truth."""
    rows, noise = [], np.random.default_rng(0)
    for unit in E5.units():
        cell = unit.cell
        good = truth(cell.columns) and not (norms_matter and cell.columns["norm"] == str(Norm.NONE))
        wobble = noise.uniform(0, 0.008)
        values = dict.fromkeys(CURVES, 0.99 - wobble if good else 0.3 + wobble)
        values["weight_error"] = 0.05 + wobble if good else 0.65 + 3 * wobble
        rows += [
            {**cell.columns, "cell": cell.id, "metric": metric, "length": 800, "seed": unit.seed, "value": value,
             "status": "done", "reason": ""}
            for metric, value in values.items()
        ]  # fmt: skip
    return pd.DataFrame(rows)


def outcomes(rows: pd.DataFrame) -> dict[str, Outcome]:
    return {name: each.outcome for name, each in E5.verdict(rows).judgements.items()}


def test_it_holds_where_order_is_what_is_needed() -> None:
    found = outcomes(rows_of())
    assert found == {each.name: each.expected for each in E5.predictions}
    assert E5.verdict(rows_of()).outcome is Outcome.HELD and found["the norm is needed"] is Outcome.FAILED


@pytest.mark.parametrize(
    ("truth", "broken"),
    [
        (lambda c: recovered(c) and (c["kernel"], c["encoding"]) != ("box", "sinusoidal"), "weights recovered"),
        (lambda c: recovered(c) and (c["kernel"], c["encoding"]) != ("triangular", "rope"), "logits recovered"),
        (lambda c: c["encoding"] != "nope", "scrambled positions fail"),
        (lambda c: c["positions"] == "ordered", "no positions fail"),
        (lambda c: recovered(c) and c["norm"] != "rms", "RMSNorm does not differ"),
        (lambda c: recovered(c) and (c["kernel"], c["encoding"]) != ("two-peaked", "rope"), "another kernel recovered"),
        (lambda c: recovered(c) and c["layers"] == 1, "two layers compose it"),
    ],
)
def test_a_broken_hypothesis_is_noticed(truth, broken: str) -> None:
    assert outcomes(rows_of(truth))[broken] is Outcome.FAILED


def test_a_norm_that_matters_would_be_seen() -> None:
    assert outcomes(rows_of(norms_matter=True))["the norm is needed"] is Outcome.HELD


def test_a_model_that_failed_decides_nothing() -> None:
    rows = rows_of()
    lost = (rows["kernel"] == "gaussian") & (rows["norm"] == "layer") & (rows["seed"] == 3)
    rows.loc[lost, "value"] = float("nan")
    assert outcomes(rows)["weights recovered"] is Outcome.INCONCLUSIVE


def test_the_design_is_balanced() -> None:
    units = E5.units()
    assert len(units) == len(set(units)) == len(SEEDS) * (len(KERNELS) * 9 + 2)
    columns = pd.DataFrame([{**unit.cell.columns, "seed": unit.seed} for unit in units])
    assert set(columns.groupby(["kernel", "encoding", "norm", "positions", "layers"]).size()) == {len(SEEDS)}


def test_the_quick_version_has_replicates_for_every_prediction_and_cells_of_its_own() -> None:
    quick = E5.quick.units()
    assert len(quick) <= 20
    assert not {unit.cell.id for unit in quick} & {unit.cell.id for unit in E5.units()}
    rows = pd.DataFrame([
        {**unit.cell.columns, "cell": unit.cell.id, "metric": metric, "length": 100, "seed": unit.seed, "value": 0.5,
         "status": "done", "reason": ""}
        for unit in quick for metric in CURVES
    ])  # fmt: skip
    assert {each.estimate.n for each in E5.quick.verdict(rows).judgements.values()} == {2}


def test_pictures_show_means_over_seeds_beside_the_truth() -> None:
    profile = pd.DataFrame([
        {**unit.cell.columns, "cell": unit.cell.id, "metric": "weight", "length": offset, "seed": unit.seed,
         "value": offset + 10.0 * unit.seed}
        for unit in E5.units()[:38] + E5.units()[38:76] for offset in range(OFFSETS)
    ])  # fmt: skip
    weights, recovery = E5.pictures
    shown = weights.data(profile)
    assert set(shown["series"]) == {
        "w, the truth",
        "rope",
        "sinusoidal",
        "rope, scrambled",
        "sinusoidal, scrambled",
        "nope",
    }
    assert shown[(shown["series"] == "rope") & (shown["offset"] == 3)]["weight"].tolist() == [8.0]
    assert shown[shown["series"] == "w, the truth"]["weight"].sum() == pytest.approx(1)
    curve = recovery.data(rows_of())
    assert curve[curve["series"] == "rope, no norm"]["error"].tolist() == pytest.approx([0.054], abs=0.002)
