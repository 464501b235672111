"""E7 on rows whose truth is known: it holds, and each broken hypothesis is noticed."""

import pytest

from language_rows import expected_outcomes, made_up_rows, outcomes
from poskernel.experiments.real_models import E7

METRICS = (
    "r2", "signal", "position", "additive_input", "both_input", "additive_token", "induction", "copied", "ahead_1",
    "ahead_2", "itself", "variation", "noise",
)  # fmt: skip
CIRCUIT = {
    "none": {"copied": 0.6, "induction": 0.6},
    "damped": {"copied": 0.1, "induction": 0.1},
    "damped, heads with a control": {"copied": 0.2},
    "energy-matched": {"copied": 0.6},
    "moved by 1": {"ahead_1": 0.5},
    "moved by 2": {"ahead_2": 0.4},
    "moved by -1": {"itself": 0.8},
    "induction without resolved planes": {"induction": 0.6},
}


def expected(columns, metric: str, length: int) -> float:
    """What was predicted."""
    if columns.get("protocol") == "circuit":
        return CIRCUIT.get(str(columns["change"]), {}).get(metric, 0.01)
    if metric == "variation":
        return 0.05 + (0.3 if columns["direction"] == "causal" else 0.05) * (8 / length)
    trained = columns.get("state") != "untrained"
    values = {
        "r2": 0.97 if columns["direction"] == "causal" else 0.6, "signal": 1.5 if trained else 0.1, "position": 0.3,
        "additive_input": 0.7, "both_input": 0.701, "additive_token": 0.6 - 0.01 * float(columns.get("layer", 0)),
        "noise": 0.05,
    }  # fmt: skip
    return values[metric]


def but(metric: str, value: float, **where):
    """The same truth but for one metric somewhere."""

    def truth(columns, name: str, length: int) -> float:
        if name == metric and all(columns.get(key) == wanted for key, wanted in where.items()):
            return value
        return expected(columns, name, length)

    return truth


SMOLLM2, GEMMA, MINILM = {"model": "SmolLM2-135M"}, {"model": "Gemma-3-270M"}, {"model": "MiniLM-L6"}


def test_what_was_predicted_is_what_is_expected() -> None:
    rows = made_up_rows("E7", expected, METRICS)
    assert outcomes("E7", rows) == expected_outcomes("E7")
    assert str(E7.verdict(rows).outcome) == "held"


@pytest.mark.parametrize(
    ("truth", "broken"),
    [
        (but("r2", 0.5, **SMOLLM2), "SmolLM2 is stationary"),
        (but("r2", 0.5, **GEMMA), "Gemma-3 is stationary"),
        (but("signal", 0.1, **GEMMA), "training makes the signal"),
        (but("r2", 0.95, **MINILM), "learned positions are less stationary"),
        (but("additive_input", 0.35), "content adds"),
        (but("both_input", 0.8, **SMOLLM2), "SmolLM2 is no product"),
        (but("both_input", 0.8, **GEMMA), "Gemma-3 is no product"),
        (but("additive_token", 0.6), "frozen tokens are left behind"),
        (but("copied", 0.6, change="damped", **SMOLLM2), "damping breaks the copy"),
        (but("copied", 0.2, change="energy-matched"), "not any planes break it"),
        (but("ahead_1", 0.01, change="moved by 1", **SMOLLM2), "moving the kernel moves the copy"),
        (but("itself", 0.01, change="moved by -1"), "by two, and back"),
        (but("ahead_1", 0.5, change="other heads moved by 1"), "other heads move nothing"),
        (but("induction", 0.01, change="induction without resolved planes"), "matching lives in unresolved planes"),
        (but("ahead_1", 0.01, change="moved by 1", **GEMMA), "Gemma-3's copy moves too"),
        (but("copied", 0.6, change="damped", **GEMMA), "damping breaks Gemma-3's copy"),
        (but("variation", 0.1, **SMOLLM2), "SmolLM2's early rows are not stationary"),
        (but("variation", 0.1, **GEMMA), "Gemma-3's neither"),
        (but("variation", 0.5, **MINILM), "without a mask they are"),
    ],
)
def test_a_broken_hypothesis_is_noticed(truth, broken: str) -> None:
    assert outcomes("E7", made_up_rows("E7", truth, METRICS))[broken] == "failed"


def test_a_model_whose_weights_are_absent_decides_nothing() -> None:
    rows = made_up_rows("E7", expected, METRICS)
    rows.loc[rows["model"] == "Gemma-3-270M", ["value", "status"]] = [float("nan"), "failed"]
    found = outcomes("E7", rows)
    assert {found[name] for name in ("Gemma-3 is stationary", "Gemma-3 is no product")} == {"inconclusive"}
    assert found["SmolLM2 is stationary"] == "held"
    assert found["training makes the signal"] == "inconclusive"
