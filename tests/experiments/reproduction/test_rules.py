"""Rules are compared on the same models, each with its own alpha."""

import math

import pytest

from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.rules import (
    RULES,
    SCOPES,
    aggregated,
    nan_last,
    rule_correlation,
    rule_words,
    rules_sections,
    rules_table,
)


def test_levels(evidence):
    assert [len(aggregated(evidence, "adam", scope)) for scope in SCOPES] == [70, 175, 14, 35]
    rows = aggregated(evidence, "adam", "all rows")
    assert rows["accuracy"].max() == pytest.approx(0.92)  # the mean over five seeds


def test_the_rule_that_orders_the_models_wins(evidence):
    assert (
        rule_correlation(evidence, "adam", "learnable cells").value
        > rule_correlation(evidence, "optimum", "learnable cells").value
    )
    assert "14 clusters" in rule_correlation(evidence, "adam", "learnable rows").method


def test_table_and_section(evidence, nothing, tmp_path):
    assert list(rules_table(evidence)["rule"]) == [rule_words(rule) for rule in RULES]
    (section,) = rules_sections(evidence, Output(tmp_path))
    assert "adam" in section.findings[0].sentence
    assert "empty until" in rules_sections(nothing, Output(tmp_path))[0].findings[0].sentence


def test_words():
    assert rule_words("adam:steps=1000") == "adam, 1000 steps" and rule_words("optimum") == "optimum"
    assert nan_last(math.nan) < nan_last(-1.0)
