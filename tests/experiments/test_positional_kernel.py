"""E1 on rows whose truth is known: it holds, each broken hypothesis is noticed, and a quick run goes end to end."""

import pandas as pd
import pytest

from language_rows import expected_outcomes, made_up_rows, outcomes, quick_rows
from poskernel.experiments.experiment import columns_of
from poskernel.experiments.kernel_units import PretrainedKernelUnit
from poskernel.experiments.language_grid import SEEDS
from poskernel.experiments.positional_kernel import E1, MODEL
from poskernel.experiments.results_page import write_report

METRICS = (
    "r2",
    "r2_null",
    "r2_mean",
    "r2_global",
    "r2_whitened",
    "signal",
    "signal_centred",
    "lines_explained",
    "lines_random",
)


def expected(columns, metric: str, length: int) -> float | None:
    """What the predictions say, with each source of it apart."""
    encoding = columns["encoding"]
    trained, rotary = columns.get("state") == "trained", encoding in ("rope", MODEL)
    values = {
        "r2": 0.97 if rotary else 0.8 if trained and encoding != "nope" else 0.2,
        "r2_null": 0.03,
        "signal": {MODEL: 1.5, "nope": 0.05}.get(encoding, 0.4) if trained else 0.01,
        "signal_centred": 0.01,
        "lines_explained": 0.95 if rotary or encoding == "sinusoidal" else 0.81,
        "lines_random": 0.8,
    }
    return values.get(metric, 0.3)


def but(change):
    """The same truth where `change` gives nothing."""

    def truth(columns, metric: str, length: int) -> float | None:
        changed = change(columns, metric)
        return expected(columns, metric, length) if changed is None else changed

    return truth


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return made_up_rows("E1", expected, METRICS)


def test_what_was_predicted_is_what_is_expected(rows: pd.DataFrame) -> None:
    assert outcomes("E1", rows) == expected_outcomes("E1")
    assert str(E1.verdict(rows).outcome) == "held"


def trained(columns, *encodings: str) -> bool:
    return columns.get("state") == "trained" and columns["encoding"] in encodings


BROKEN = {
    "training makes a kernel": lambda c, m: 0.012 if trained(c, "learned") and m == "signal" else None,
    "it is stationary": lambda c, m: 0.05 if trained(c, "sinusoidal") and m.startswith("r2") else None,
    "not only after whitening": lambda c, m: 0.05 if trained(c, "sinusoidal") and m == "r2" else None,
    "RoPE's lines show": lambda c, m: 0.81 if trained(c, "rope") and m == "lines_explained" else None,
    "sinusoidal lines show": lambda c, m: 0.95 if trained(c, "learned") and m == "lines_explained" else None,
    "an encoding is needed": lambda c, m: 0.4 if trained(c, "nope") and m == "signal" else None,
    "learned positions become stationary": lambda c, m: 0.1 if trained(c, "learned") and m == "r2" else None,
    "RoPE is stationary untrained": lambda c, m: 0.2 if c.get("state") == "untrained" and m == "r2" else None,
    "centring removes the kernel": lambda c, m: 0.4 if m == "signal_centred" else None,
    "pretrained heads are stationary": lambda c, m: 0.5 if trained(c, MODEL) and m == "r2" else None,
    "pretrained heads have signal": lambda c, m: 0.02 if trained(c, MODEL) and m == "signal" else None,
}


@pytest.mark.parametrize("broken", list(BROKEN))
def test_a_broken_hypothesis_is_noticed(broken: str) -> None:
    assert outcomes("E1", made_up_rows("E1", but(BROKEN[broken]), METRICS))[broken] == "failed"


def test_a_norm_that_matters_would_be_seen() -> None:
    truth = but(
        lambda c, m: 0.2 if c.get("norm") == "none" and trained(c, "rope", "sinusoidal") and m == "r2" else None
    )
    assert outcomes("E1", made_up_rows("E1", truth, METRICS))["the norm is needed"] == "held"


def test_stationarity_after_whitening_alone_is_flagged_and_does_not_pass_for_raw() -> None:
    truth = but(lambda c, m: 0.05 if trained(c, "sinusoidal") and m in ("r2", "r2_mean", "r2_global") else
                0.9 if trained(c, "sinusoidal") and m == "r2_whitened" else None)  # fmt: skip
    found = outcomes("E1", made_up_rows("E1", truth, METRICS))
    assert found["it is stationary"] == "held" and found["not only after whitening"] == "failed"


def test_heads_without_an_r2_count_as_no_kernel_and_lost_models_decide_nothing() -> None:
    none = made_up_rows("E1", but(lambda c, m: None), METRICS)
    gone = (none["encoding"] == "sinusoidal") & (none["state"] == "trained")
    none.loc[gone & none["metric"].str.startswith("r2") & (none["metric"] != "r2_null"), "value"] = float("nan")
    assert outcomes("E1", none)["it is stationary"] == "failed"
    lost = made_up_rows("E1", expected, METRICS)
    one = gone & (lost["norm"] == "layer") & (lost["seed"] == 1)
    lost.loc[one, ["value", "status"]] = [float("nan"), "failed"]
    assert outcomes("E1", lost)["it is stationary"] == "inconclusive"


def test_the_design_fits_its_budget() -> None:
    units = E1.units()
    small = [unit for unit in units if not isinstance(unit, PretrainedKernelUnit)]
    assert len(small) == len(set(small)) == 10 * len(SEEDS) and len(units) == 11 * len(SEEDS)
    assert sum(unit.cost for unit in small) < len(small) * 12  # tier-1 trainings


def test_a_quick_run_goes_end_to_end(tmp_path) -> None:
    rows = quick_rows(E1, tmp_path)
    assert set(rows["status"]) == {"done"}
    judged = E1.quick.verdict(rows).judgements
    assert {each.estimate.n for name, each in judged.items() if not name.startswith("pretrained")} == {2}
    assert {each.estimate.n for name, each in judged.items() if name.startswith("pretrained")} == {0}
    page = write_report(E1.quick, rows, tmp_path / "report").read_text()
    assert "quick version" in page and page.count("<figure") == len(E1.pictures)
    assert columns_of(E1.quick.units()[0].cell)["source"] == "topics"
