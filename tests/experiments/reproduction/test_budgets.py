"""The answer on sinusoidal prev and skips follows the rows, whichever way they fall."""

import pandas as pd
import pytest

from poskernel.experiments.reproduction.budgets import (
    answer,
    budget_table,
    budgets_sections,
    budgets_there,
    distance,
    nearest_rules,
    trained_means,
)
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.rules import rule_words
from poskernel.statistics import Estimate


def estimate(value, spread=0.01):
    return Estimate(value, value - spread, value + spread, 20, "made up")


def distances(nearest):
    """A table in which one rule is nearest at each budget."""
    rules = ("adam", "optimum", "adam:steps=10000")
    return pd.DataFrame(
        [
            {"training steps": steps, "rule": rule_words(rule), "distance": estimate(0.1 if rule == best else 0.5)}
            for steps, best in nearest.items()
            for rule in rules
        ]
    )


def test_distance_by_hand(evidence):
    # LG is 0.1 plus a hundredth a seed: 0.12 over five seeds, 0.11 over three. Alpha is 0.2, or 1 under the optimum.
    assert distance(evidence, 2000, "adam").value == pytest.approx(0.08)
    assert distance(evidence, 8000, "adam").value == pytest.approx(0.09)
    assert distance(evidence, 32_000, "optimum").value == pytest.approx(0.89)
    assert budgets_there(evidence) == [2000, 8000, 32_000]


def test_nearest_rule_and_those_level_with_it(evidence):
    rule, found, level = nearest_rules(budget_table(evidence))[2000]
    assert rule == rule_words("adam") and found.value == pytest.approx(0.08)
    assert rule_words("adam0") in level and rule_words("optimum") not in level


@pytest.mark.parametrize(("last", "words"), [(0.52, "no accident"), (0.9, "depends on where"), (0.2, "does not bring")])
def test_answer_follows_training(last, words):
    text = answer(distances({2000: "adam", 32_000: "adam"}), {2000: estimate(0.5), 32_000: estimate(last)})
    assert words in text and "changes with the budget" not in text


def test_answer_notices_another_rule():
    table = distances({2000: "adam", 32_000: "optimum"})
    assert "changes with the budget" in answer(table, {2000: estimate(0.2), 32_000: estimate(0.9)})
    assert "With one budget" in answer(distances({2000: "adam"}), {2000: estimate(0.2)})


def test_section(evidence, partial, nothing, tmp_path):
    (section,) = budgets_sections(evidence, Output(tmp_path))
    assert len(section.findings) == 3 and len(section.panels) == 3
    assert trained_means(evidence)[2000].value == pytest.approx(0.12)
    assert "empty until" in budgets_sections(nothing, Output(tmp_path))[0].findings[0].sentence
    assert "Budgets without models so far: 8000, 32000" in budgets_sections(partial, Output(tmp_path))[0].text


def test_trained_models_without_predictions_say_so():
    nothing = estimate(float("nan"))
    table = pd.DataFrame(
        [
            {
                "training steps": 2000,
                "rule": rule_words("adam"),
                "distance": Estimate(nothing.value, nothing.value, nothing.value, 0, "no rows"),
            }
        ]
    )
    assert nearest_rules(table) == {}
    assert answer(table, {2000: estimate(0.2)}).startswith("No rule's alpha stands beside a trained model yet")
