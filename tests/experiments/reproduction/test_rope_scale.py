"""The answer on low-frequency RoPE follows the rows, whichever way they fall."""

import pytest

from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.rope_scale import answer, false_negatives, rope_scale_sections, scale_table
from poskernel.experiments.reproduction.rules import rule_words


def test_false_negatives_are_found(evidence):
    table = scale_table(evidence)
    assert list(false_negatives(table)["scale"]) == ["0.05", "0.03", "0.01"]
    assert list(table["scale"]) == ["1", "0.5", "0.3", "0.1", "0.05", "0.03", "0.01"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "early stopping fails"),
        ({"optimum": 0.0}, "objective with its decay fails"),
        ({"optimum": 0.0, "max-margin": 0.0}, "a gap of selection that no rule closes"),
        ({"exists": "no"}, "no kernel of the family is known"),
    ],
)
def test_answer(evidence, changes, words):
    assert answer(scale_table(evidence).assign(**changes)).count(words) == 3


def test_without_a_false_negative_there_is_nothing_to_explain(evidence, partial, tables):
    assert "no false negative here" in answer(scale_table(evidence).assign(**{rule_words("adam"): 1.0}))
    assert "no false negative here" in answer(scale_table(partial))  # scale 1 is a cell of the main study
    predictions = tables["rope-scale"][tables["rope-scale"]["tier"].isna()]
    assert "No model of this study" in answer(scale_table(Evidence({"rope-scale": predictions}, "predictions")))


def test_section(evidence, partial, nothing, tmp_path):
    (section,) = rope_scale_sections(evidence, Output(tmp_path))
    assert section.findings[0].number == "3 of 7" and len(section.findings) == 7
    assert rope_scale_sections(partial, Output(tmp_path))[0].panels
    assert "empty until" in rope_scale_sections(nothing, Output(tmp_path))[0].findings[0].sentence
