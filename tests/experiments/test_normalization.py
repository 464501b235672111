"""E3 on rows whose truth is known: it fails as expected where the norm does nothing, and would hold where it does."""

import pytest

from language_rows import expected_outcomes, made_up_rows, outcomes, quick_rows
from poskernel.experiments.language_grid import FULL
from poskernel.experiments.normalization import E3, NORMS, REMOVED, SCALED, effects_data
from poskernel.experiments.positional_kernel import E1
from poskernel.experiments.results_page import write_report

METRICS = ("r2", "lines_explained", "lines_random", "fit_product", "fit_additive", "signal", "position_share")


def expected(columns, metric: str, length: int) -> float:
    """A norm matters a little with sinusoidal positions, and not with RoPE."""
    rotary, removed = columns["encoding"] == "rope", columns["norm"] == REMOVED
    values = {"r2": 0.95 if rotary else 0.78 if removed else 0.88, "lines_explained": 0.95, "lines_random": 0.8}
    return values.get(metric, 0.1)


def but(metric: str, value: float, **where):
    """The same truth but for one metric in some models."""

    def truth(columns, name: str, length: int) -> float:
        if name == metric and all(columns[key] == wanted for key, wanted in where.items()):
            return value
        return expected(columns, name, length)

    return truth


def test_what_was_predicted_is_what_is_expected() -> None:
    rows = made_up_rows("E3", expected, METRICS)
    assert outcomes("E3", rows) == expected_outcomes("E3")
    assert str(E3.verdict(rows).outcome) == "failed"


@pytest.mark.parametrize(
    ("truth", "changed", "outcome"),
    [
        (but("r2", 0.4, norm=REMOVED), "the norm is needed for stationarity", "held"),
        (but("lines_explained", 0.81, norm=REMOVED), "the norm is needed for the lines", "held"),
        (but("r2", 0.4, norm=SCALED), "a scale does not replace it", "held"),
        (but("r2", 0.4, norm="rms"), "RMSNorm lies near LayerNorm", "failed"),
        (but("r2", 0.4, norm="rms", encoding="rope"), "RoPE is stationary under every norm", "failed"),
        (but("r2", 0.95), "the encoding matters", "failed"),
        (but("r2", 0.7, norm=REMOVED, encoding="rope"), "the norm matters more with sinusoidal positions", "failed"),
        (but("fit_product", 0.0, norm=REMOVED), "the norm helps the product form", "held"),
    ],
)
def test_another_truth_is_noticed(truth, changed: str, outcome: str) -> None:
    assert outcomes("E3", made_up_rows("E3", truth, METRICS))[changed] == outcome


def test_a_lost_model_decides_nothing() -> None:
    rows = made_up_rows("E3", expected, METRICS)
    rows.loc[(rows["norm"] == REMOVED) & (rows["seed"] == 1), ["value", "status"]] = [float("nan"), "failed"]
    assert outcomes("E3", rows)["the norm is needed for stationarity"] == "inconclusive"


def test_effects_are_differences_of_means() -> None:
    shown = effects_data(made_up_rows("E3", expected, METRICS, spread=0)).set_index(["measure", "effect"])["estimate"]
    assert shown["R2", "LayerNorm less none"].value == pytest.approx(0.05)
    assert shown["R2", "RoPE less sinusoidal"].value == pytest.approx(0.95 - (3 * 0.88 + 0.78) / 4)
    assert shown["R2", "interaction"].value == pytest.approx(0.1)


def test_it_trains_what_e1_has_not(tmp_path) -> None:
    mine, theirs = ({unit.weights_file(tmp_path) for unit in each.units()} for each in (E3, E1))
    assert len(mine) == 2 * len(NORMS) * len(FULL.seeds) and len(mine - theirs) == 4 * len(FULL.seeds)


def test_a_quick_run_goes_end_to_end(tmp_path) -> None:
    rows = quick_rows(E3, tmp_path)
    assert set(rows["status"]) == {"done"}
    assert {each.estimate.n for each in E3.quick.verdict(rows).judgements.values()} == {2}
    page = write_report(E3.quick, rows, tmp_path / "report").read_text()
    assert page.count("<figure") == len(E3.pictures)
