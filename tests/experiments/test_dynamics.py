"""Dynamics on rows whose truth is known: it holds, each broken hypothesis is noticed; a quick run end to end."""

import pytest

from language_rows import expected_outcomes, made_up_rows, outcomes, quick_rows
from poskernel.experiments.dynamics import DynamicsUnit, dynamics
from poskernel.experiments.kernel_units import measured_model
from poskernel.experiments.language_grid import FULL
from poskernel.experiments.positional_kernel import E1
from poskernel.experiments.results_page import write_report
from poskernel.models.language_training import train_language
from poskernel.models.training import initial_model

METRICS = ("r2", "signal", "lines_explained", "lines_random")


def expected(columns, metric: str, step: int) -> float:
    """RoPE is stationary from the start; learned positions become so; signals grow early."""
    gone, rotary = min(1.0, step / 100), columns["encoding"] == "rope"
    values = {
        "r2": 0.95 if rotary else 0.2 + 0.5 * gone,
        "signal": 0.02 + 0.5 * gone,
        "lines_explained": 0.9,
        "lines_random": 0.8,
    }
    return values[metric]


def changed(metric: str, encoding: str, change):
    """The same truth but for one metric under one encoding."""

    def truth(columns, name: str, step: int) -> float:
        if name == metric and columns["encoding"] == encoding:
            return change(step)
        return expected(columns, name, step)

    return truth


def test_what_was_predicted_is_what_is_expected() -> None:
    rows = made_up_rows("dynamics", expected, METRICS)
    assert outcomes("dynamics", rows) == expected_outcomes("dynamics")
    assert str(dynamics.verdict(rows).outcome) == "held"


BROKEN = {
    "stationarity is there before training": ("r2", "rope", lambda step: 0.2 + 0.7 * step / 800),
    "the kernel is not": ("signal", "rope", lambda step: 0.5),
    "training does not add stationarity": ("r2", "rope", lambda step: 0.5 + 0.4 * step / 800),
    "elsewhere stationarity is learned": ("r2", "learned", lambda step: 0.9),
    "the kernel comes early": ("signal", "rope", lambda step: 0.5 * (step / 800) ** 2),
    "lines are not sharpened by training": ("lines_explained", "rope", lambda step: 0.8 + 0.15 * step / 800),
}


@pytest.mark.parametrize("broken", list(BROKEN))
def test_a_broken_hypothesis_is_noticed(broken: str) -> None:
    rows = made_up_rows("dynamics", changed(*BROKEN[broken]), METRICS)
    assert outcomes("dynamics", rows)[broken] == "failed"


def test_a_lost_model_decides_nothing() -> None:
    rows = made_up_rows("dynamics", expected, METRICS)
    rows.loc[(rows["encoding"] == "rope") & (rows["seed"] == 1), ["value", "status"]] = [float("nan"), "failed"]
    assert outcomes("dynamics", rows)["the kernel is not"] == "inconclusive"


def test_its_models_are_those_of_e1(tmp_path) -> None:
    files = {unit.weights_file(tmp_path) for unit in dynamics.units()}
    assert len(files) == 2 * len(FULL.seeds) and files < {unit.weights_file(tmp_path) for unit in E1.units()}


def test_checkpoints_are_measured_as_they_are(tmp_path) -> None:
    unit = dynamics.quick.units()[0]
    assert isinstance(unit, DynamicsUnit)
    condition = unit.cell.condition
    values = {m.key: m.value for m in unit.run(tmp_path)}
    models = {
        0: initial_model(condition.architecture, condition.encoding, 0).eval(),
        20: train_language(condition, 0).model,
    }
    assert unit.looks == (0, 10, 20)
    for step, model in models.items():
        found = measured_model(model, condition.recipe.source, unit.grid, variants=False)
        for (layer, head), numbers in found.values.items():
            assert values[unit.cell.at(layer=layer, head=head).id, "signal", step, 0] == numbers["signal"]
    assert values == {m.key: m.value for m in unit.run()}  # without a folder: trained in one that goes


def test_a_quick_run_goes_end_to_end(tmp_path) -> None:
    rows = quick_rows(dynamics, tmp_path)
    assert set(rows["status"]) == {"done"} and set(rows["length"]) == {0, 10, 20}
    assert {each.estimate.n for each in dynamics.quick.verdict(rows).judgements.values()} == {2}
    page = write_report(dynamics.quick, rows, tmp_path / "report").read_text()
    assert page.count("<figure") == len(dynamics.pictures)
