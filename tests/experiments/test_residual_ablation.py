"""The residual ablation on rows whose truth is known; a quick run end to end."""

import pytest

from language_rows import expected_outcomes, made_up_rows, outcomes, quick_rows
from poskernel.experiments.language_grid import FULL
from poskernel.experiments.positional_kernel import E1
from poskernel.experiments.residual_ablation import ABLATION, ARMS, cost_data, loss_table
from poskernel.experiments.results_page import write_report

METRICS = ("validation_loss", "bigram_margin")
LOSSES = {"none": 4.0, "apart": 4.02, "frozen": 4.06, "apart and frozen": 4.1}


def expected(columns, metric: str, step: int) -> float:
    """Cross-terms are not needed, context in kernels is; all better than a bigram of 4.5."""
    loss = 4.2 if columns["encoding"] == "nope" else LOSSES[columns["ablation"]]
    if metric == "bigram_margin":
        return 4.5 - loss
    return loss + 2 * (1 - step / 800)


def but(**losses: float):
    """The same truth but for the loss of some arms."""

    def truth(columns, metric: str, step: int) -> float:
        name = "nope" if columns["encoding"] == "nope" else columns["ablation"].replace(" ", "_")
        return losses[name] if name in losses and metric == "validation_loss" else expected(columns, metric, step)

    return truth


def test_what_was_predicted_is_what_is_expected() -> None:
    rows = made_up_rows("ablation", expected, METRICS)
    assert outcomes("ablation", rows) == expected_outcomes("ablation")
    assert str(ABLATION.verdict(rows).outcome) == "held"


@pytest.mark.parametrize(
    ("truth", "broken"),
    [
        (but(apart=4.12), "cross-terms are not needed"),
        (but(apart_and_frozen=4.4), "no collapse"),
        (but(frozen=4.0), "what layers made reaches the kernels"),
        (but(nope=4.0), "a kernel apart is a kernel"),
    ],
)
def test_a_broken_hypothesis_is_noticed(truth, broken: str) -> None:
    assert outcomes("ablation", made_up_rows("ablation", truth, METRICS))[broken] == "failed"


def test_a_lost_model_decides_nothing() -> None:
    rows = made_up_rows("ablation", expected, METRICS)
    rows.loc[(rows["ablation"] == "apart") & (rows["seed"] == 1), ["value", "status"]] = [float("nan"), "failed"]
    assert outcomes("ablation", rows)["cross-terms are not needed"] == "inconclusive"


def test_costs_and_losses_are_those_after_training() -> None:
    rows = made_up_rows("ablation", expected, METRICS, spread=0)
    costs = cost_data(rows).set_index("arm")["estimate"]
    assert [round(costs[arm].value, 6) for arm in ARMS if arm != "plain"] == [0.02, 0.06, 0.1, 0.2]
    table = loss_table(rows).set_index("arm")
    assert table.loc["both", "better than a bigram by"].value == pytest.approx(0.4)
    assert table.loc["plain", "held-out loss, nats a token"].value == pytest.approx(4.0)


def test_it_trains_three_models_a_seed_beside_those_of_e1(tmp_path) -> None:
    mine, theirs = ({unit.weights_file(tmp_path) for unit in each.units()} for each in (ABLATION, E1))
    assert len(mine) == len(ARMS) * len(FULL.seeds) and len(mine - theirs) == 3 * len(FULL.seeds)


def test_a_quick_run_goes_end_to_end(tmp_path) -> None:
    rows = quick_rows(ABLATION, tmp_path)
    assert set(rows["status"]) == {"done"}
    assert {each.estimate.n for each in ABLATION.quick.verdict(rows).judgements.values()} == {2}
    losses = rows[(rows["metric"] == "validation_loss") & (rows["length"] == 20) & (rows["seed"] == 0)]
    assert losses["value"].nunique() == len(ARMS)
    page = write_report(ABLATION.quick, rows, tmp_path / "report").read_text()
    assert page.count("<figure") == len(ABLATION.pictures)
