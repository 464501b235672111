"""Encodings beyond the paper: planted exceptions are found with their reasons, and no verdict holds where none should.

In the made-up world alpha is right in every cell but two.
"""

import pandas as pd
import pytest

from poskernel.experiments.comparison import compare
from poskernel.experiments.reproduction.encodings import (
    BLIND_SIDE,
    DIFFER,
    GAIN,
    HOLDS,
    NO_VERDICT,
    NOT_SHOWN,
    SAME_SIDE,
    TASK_ALONE,
    TRAINED,
    UNDEFINED,
    beyond_rows,
    by_encoding,
    cell_lines,
    compared,
    encodings_sections,
    statistics_beside,
    verdict,
    why,
)
from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.verdicts import NOT_EXPLAINED

BOUNDED = ("prev", "skip2", "skip3", "skip5")


def with_alphas(tables, value):
    """The made-up world with alphas of its own: value(row) of every alpha of the study."""
    rows = tables["encodings"].copy()
    alphas = rows["metric"] == "alpha"
    rows.loc[alphas, "value"] = rows[alphas].apply(value, axis=1)
    return Evidence({"encodings": rows}, "another world")


def judged(evidence):
    return verdict(compared(evidence, compare(beyond_rows(evidence)))[0])


def group(alpha=1.0, accuracy=0.1, trained=1.0, exists="yes", **columns):
    """Rows of one cell, two seeds at lengths 30 and 60."""
    rows = pd.DataFrame({"length": [30, 60, 30, 60], "seed": [0, 0, 1, 1]})
    values = {"alpha": alpha, "accuracy": accuracy, "train_accuracy": trained, "exists": exists}
    return rows.assign(**values | {"alpha_reason": "", "reason": ""} | columns)


def test_the_planted_cells_are_named_with_their_reasons(evidence):
    cells = cell_lines(beyond_rows(evidence))
    assert len(cells) == 63 and set(cells["encoding"]) == set(TRAINED)
    apart = cells[cells["sides"] == DIFFER].set_index(["encoding", "task"])["why"]
    assert set(apart.index) == {("xpos", "skip5"), ("fire", "prev")}
    assert apart["xpos", "skip5"] == "not learned at the training length (accuracy 0.30 there)"
    assert apart["fire", "prev"] == "a kernel of the family solves both lengths and the rule does not select it"
    line = cells.set_index(["encoding", "task"]).loc[("t5", "prev")]
    assert (line["alpha"], line["LG"].value, line["LG"].n) == (1.0, pytest.approx(0.91), 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, NOT_EXPLAINED),
        ({"trained": 0.5}, "not learned at the training length (accuracy 0.50 there)"),
        ({"accuracy": [0.9, 0.9, 0.0, 0.0]}, "seeds lie on both sides (1 of 2 generalize)"),
        ({"accuracy": [0.6, 0.1, 0.6, 0.1]}, "LG is at least 0.5 at length 30 alone"),
        ({"alpha": [0.9, 0.3, 0.9, 0.3]}, "alpha is at least 0.5 at length 30 alone"),
        ({"alpha": 0.0, "accuracy": 0.9, "exists": "no"}, "no kernel of the family solves both lengths in full"),
        (
            {"alpha": 0.0, "accuracy": 0.9, "exists": "not-applicable"},
            "existence is not defined for this family",
        ),
        ({"alpha": 0.0, "accuracy": 0.9, "exists": ["yes", "no", "yes", "no"]}, NOT_EXPLAINED),
    ],
)
def test_why(changes, words):
    assert why(group(**changes)) == words


def test_a_cell_without_an_alpha_has_no_side():
    rows = group(alpha=float("nan"), alpha_reason="undefined: no kernel", exists=["yes", "conflict"] * 2)
    (line,) = cell_lines(rows.assign(encoding="t5", task="prev")).to_dict("records")
    assert line["sides"] == UNDEFINED and line["why"] == "alpha undefined: no kernel"
    assert line["exists"] == "yes at 30; conflict at 60"


def test_statistics_by_hand(evidence):
    beyond, paper = compared(evidence, compare(beyond_rows(evidence)))
    assert beyond[SAME_SIDE].estimate.value == pytest.approx(61 / 63)
    # The rule of bounded offsets is wrong where KERPLE and FIRE fail on them, and in the planted cell of xPos.
    assert beyond[BLIND_SIDE].estimate.value == pytest.approx((63 - 11 - 1) / 63)
    assert beyond[GAIN].estimate.value == pytest.approx(10 / 63)
    assert "9 clusters" in beyond[SAME_SIDE].estimate.method
    beside = statistics_beside(beyond, paper).set_index("statistic")
    assert beside.loc[SAME_SIDE, "n, the paper's five"] == 35 and beside.loc[SAME_SIDE, "n, beyond the paper"] == 63


def test_the_verdict_holds_where_alpha_is_right(evidence):
    assert judged(evidence) == HOLDS


def test_an_alpha_unrelated_to_training_holds_no_verdict(tables):
    assert judged(with_alphas(tables, lambda row: float(int(row["cell"], 16) % 2))) == NOT_SHOWN


def test_an_alpha_that_knows_the_task_alone_is_found_out(tables):
    assert judged(with_alphas(tables, lambda row: float(row["task"] in BOUNDED))) == TASK_ALONE


def test_an_alpha_turned_round_is_no_success(tables):
    assert judged(with_alphas(tables, lambda row: 1 - row["value"])) == NOT_SHOWN


def test_one_encoding_decides_nothing(tables):
    rows = tables["encodings"]
    alone = Evidence({"encodings": rows[rows["tier"].isna() | (rows["encoding"] == "t5")]}, "one encoding")
    assert judged(alone) == NO_VERDICT


def test_a_line_an_encoding(evidence):
    lines = by_encoding(cell_lines(beyond_rows(evidence)), 0).set_index("encoding")
    assert list(lines["same side"].loc[["t5", "xpos", "fire"]]) == ["7 of 7", "6 of 7", "6 of 7"]
    assert lines.loc["xpos", "on different sides"] == "skip5" and lines.loc["kerple-log", "generalizes"] == "none"
    assert lines.loc["fire", "not learned"] == "skip2, skip3, skip5, copy, reverse, first"


def test_section(evidence, tables, nothing, tmp_path):
    (section,) = encodings_sections(evidence, Output(tmp_path))
    assert section.findings[0].number == HOLDS and section.text.startswith("Alpha tells which")
    numbers = {finding.sentence: finding.number for finding in section.findings}
    assert numbers["Cells where prediction and training lie on different sides:"] == "2 of 63"
    assert sum("on the side that alpha says" in sentence for sentence in numbers) == len(TRAINED) + 1
    assert "Partial rows" not in section.text and len(section.panels) == 5
    rows = tables["encodings"]
    few = rows[rows["tier"].isna() | ((rows["seed"] == 0) & (rows["encoding"] != "randomized"))]
    (section,) = encodings_sections(Evidence({"encodings": few}, "a part"), Output(tmp_path))
    assert "133 of 189 models are not there yet" in section.text
    assert "randomized: no model among the rows yet." in [finding.sentence for finding in section.findings]
    assert "empty until" in encodings_sections(nothing, Output(tmp_path))[0].findings[0].sentence
