"""E2 on rows whose truth is known: it fails as expected where logits add up, and would hold where they multiply."""

import math

import pytest

from language_rows import expected_outcomes, made_up_rows, outcomes, quick_rows
from poskernel.experiments.content_decomposition import E2, MODEL
from poskernel.experiments.content_units import BROWN, OWN, ContentUnit
from poskernel.experiments.language_grid import FULL
from poskernel.experiments.positional_kernel import E1
from poskernel.experiments.results_page import write_report

METRICS = (
    "fit_position", "fit_fixed", "fit_free", "fit_content", "fit_additive", "gain_product", "gain_both", "rank",
    "rank_null", "class_gain", "class_null", "leak_mask", "deposit", "stage_change", "stage_noise", "position_share",
    "key_share", "query_share", "interaction_share",
)  # fmt: skip
VALUES = {
    "fit_position": 0.3, "fit_fixed": 0.01, "fit_free": 0.4, "fit_additive": 0.6, "gain_product": 0.005,
    "gain_both": 0.002, "rank": 40.0, "rank_null": 40.0, "class_null": -0.01, "leak_mask": 0.01, "stage_noise": 0.1,
    "position_share": 0.5, "key_share": 0.3, "query_share": 0.1, "interaction_share": 0.2,
}  # fmt: skip


def expected(columns, metric: str, length: int) -> float:
    """Sums of kernels, frozen content that decays, classes with small kernels of their own."""
    if metric == "fit_content":
        return 0.5 if columns["layer"] == 0 else 0.1
    if metric == "fit_position" and columns["state"] == "shuffled":
        return 0.0
    if metric == "class_gain":
        return {"token split": 0.03, "features": 0.08, "tags": 0.07}[columns["classes"]]
    if metric == "interaction_share" and columns["head"] == 8 and columns["layer"] in (0, 1, 3)[: columns["seed"]]:
        return 0.9  # in one text more heads than in another
    if metric == "deposit":
        return 0.6 if columns["encoding"] == "rope" else 0.9
    if metric == "stage_change":
        return 0.5 if columns["stage"] == "attention" else 0.2
    return VALUES[metric]


def but(metric: str, value: float, **where):
    """The same truth but for one metric in some places."""

    def changed(rows):
        chosen = rows["metric"] == metric
        for column, wanted in where.items():
            chosen &= rows[column].isin(wanted if isinstance(wanted, tuple) else (wanted,))
        assert chosen.any()
        return rows.assign(value=rows["value"].where(~chosen, value + rows["value"] % 0.001))

    return changed


@pytest.fixture(scope="module")
def rows():
    return made_up_rows("E2", expected, METRICS)


def test_what_was_predicted_is_what_is_expected(rows) -> None:
    assert outcomes("E2", rows) == expected_outcomes("E2")
    assert str(E2.verdict(rows).outcome) == "failed"


@pytest.mark.parametrize(
    ("truth", "changed", "outcome"),
    [
        (but("fit_fixed", 0.35, layer=0), "a product in the first layer", "held"),
        (but("fit_fixed", 0.35, layer=0), "the product decays with depth", "held"),
        (but("gain_product", 0.2, encoding="rope"), "a product beyond the sum", "held"),
        (but("fit_content", 0.5, encoding="rope"), "frozen content decays", "failed"),
        (but("fit_content", 0.5, encoding=MODEL), "frozen content decays in SmolLM2", "failed"),
        (but("gain_both", 0.2, encoding=MODEL), "no product in SmolLM2 either", "failed"),
        (but("interaction_share", 0.9, encoding=MODEL, head=(0, 1, 2, 3, 4)), "position leads in SmolLM2", "failed"),
        (but("fit_additive", 0.2, kernel="input"), "the additive form explains", "failed"),
        (but("fit_position", 0.3, state="shuffled"), "its position is position", "failed"),
        (but("rank", 20.0, residual="additive"), "cross-terms are of low rank", "held"),
        (but("class_null", 0.03, text=OWN), "classes have kernels of their own", "failed"),
        (but("class_gain", 0.0, classes="tags", text=BROWN), "gold tags say more", "failed"),
        (but("class_gain", 0.0, classes="features"), "the model's own features say more", "failed"),
        (but("leak_mask", 0.2, encoding="rope"), "no absolute position under RoPE", "failed"),
        (but("stage_change", 0.9, stage="mlp"), "MLPs change the kernel most", "held"),
        (but("deposit", 0.9, encoding="rope"), "RoPE deposits position in few heads", "failed"),
    ],
)
def test_another_truth_is_noticed(rows, truth, changed: str, outcome: str) -> None:
    assert outcomes("E2", truth(rows))[changed] == outcome


def test_a_lost_model_decides_nothing(rows) -> None:
    lost = rows.copy()
    lost.loc[(lost["encoding"] == "rope") & (lost["seed"] == 1), ["value", "status"]] = [math.nan, "failed"]
    assert outcomes("E2", lost)["a product beyond the sum"] == "inconclusive"


def test_it_measures_models_that_e1_trains(tmp_path) -> None:
    mine, theirs = (
        {unit.weights_file(tmp_path) for unit in each.units() if unit.weights_file(tmp_path)} for each in (E2, E1)
    )
    assert len(mine) == 3 * len(FULL.seeds) and mine <= theirs
    assert {unit.text for unit in E2.quick.units() if isinstance(unit, ContentUnit)} == {OWN}


def test_a_quick_run_goes_end_to_end(tmp_path) -> None:
    found = quick_rows(E2, tmp_path)
    assert set(found["status"]) == {"done"}
    counted = {name: each.estimate.n for name, each in E2.quick.verdict(found).judgements.items()}
    assert {name for name, n in counted.items() if n == 0} == {
        "frozen content decays in SmolLM2", "no product in SmolLM2 either", "position leads in SmolLM2",
        "gold tags say more",
    }  # fmt: skip
    page = write_report(E2.quick, found, tmp_path / "report").read_text()
    assert page.count("<figure") >= len(E2.pictures)
