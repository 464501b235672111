"""RoPE scaled zero-shot: what helps is found, and whether alpha foresaw it; an alpha that knows nothing foresees none.

In the made-up world NTK helps on `first` as alpha says, YaRN on `pos2` unforeseen, linear interpolation harms `prev` as
alpha says, and alpha raises a false alarm for llama3 on `skip2`.
"""

import numpy as np
import pandas as pd
import pytest

from poskernel.experiments.reproduction.encodings import NO_VERDICT, NOT_SHOWN
from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.scalings import (
    FORESEEN,
    HARMS,
    HELPS,
    LEVELS,
    STAYS,
    UNDECIDED,
    answer,
    at_its_length,
    by_length,
    change_table,
    foresight,
    paired_rows,
    predicted_word,
    scalings_sections,
    trained_word,
    verdict,
)
from poskernel.statistics import Estimate
from poskernel.tasks import POSITIONAL_TASKS


@pytest.fixture(scope="module")
def changes(evidence):
    return change_table(paired_rows(evidence))


def pairs(alpha, change):
    """A table of pairs with these changes of alpha and LG: six scalings times nine tasks."""
    names = ("linear", "ntk", "dynamic", "yarn", "longrope", "llama3")
    keys = [(scaling, task) for scaling in names for task in POSITIONAL_TASKS]
    return pd.DataFrame(keys, columns=["scaling", "task"]).assign(
        **{"factor": 2.0, "change of alpha": alpha, "alpha": alpha, "learned": True},
        difference=[Estimate(value, value, value, 3, "made up") for value in change],
        LG=[Estimate(0.5 + value, 0.0, 1.0, 3, "made up") for value in change],
    )


def test_pairs_by_hand(changes):
    assert len(changes) == 18 * 9 * 4
    line = changes.set_index(["scaling", "factor", "task", "length"]).loc[("ntk", 4.0, "first", 80)]
    assert (line["LG"].value, line["LG unscaled"].value) == (pytest.approx(0.91), pytest.approx(0.11))
    assert (line["difference"].value, line["difference"].n) == (pytest.approx(0.8), 3)
    assert (line["alpha"], line["alpha unscaled"], line["trained"], line["predicted"]) == (1.0, 0.0, HELPS, HELPS)


def test_each_scaling_is_judged_at_its_own_length(changes):
    own = at_its_length(changes)
    assert len(own) == 18 * 9 and set(zip(own["factor"], own["length"], strict=True)) == {(2, 40), (4, 80), (8, 160)}


def test_answer_names_what_helps_and_whether_it_was_foreseen(changes):
    text = answer(at_its_length(changes))
    assert "helps in 6 of 162 pairs (ntk on first x2 x4 x8; yarn on pos2 x2 x4 x8), and alpha foresaw 3 of" in text
    assert "harms in 3 of 162 pairs (linear on prev x2 x4 x8), and alpha foresaw 3 of these 3" in text
    assert "announces a fall that is not seen in 3 pairs (llama3 on skip2 x2 x4 x8)" in text
    assert "announces a rise" not in text and "do not decide" not in text


def test_answer_says_where_alpha_had_no_room_to_rise(changes):
    own = at_its_length(changes)
    assert "no room" not in answer(own)
    full = own.assign(**{"alpha unscaled": own["alpha unscaled"].where(own["task"] != "pos2", 1.0)})
    assert "In 3 of the others alpha is near 1 unscaled" in answer(full)


def test_answer_says_plainly_that_nothing_helps(changes):
    own = at_its_length(changes)
    text = answer(own[~own["task"].isin(["first", "pos2"])])
    assert text.startswith("No scaling helps on any task")


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ((0.3, 0.1, 0.5), HELPS),
        ((0.3, -0.1, 0.7), UNDECIDED),
        ((0.05, 0.04, 0.06), STAYS),
        ((-0.3, -0.5, -0.1), HARMS),
        ((0.3, float("nan"), float("nan")), UNDECIDED),
    ],
)
def test_words(found, word):
    assert trained_word(Estimate(*found, 3, "")) == word
    assert predicted_word(found[0]) == (word if word != UNDECIDED else HELPS)
    assert predicted_word(float("nan")) == UNDECIDED


def test_verdict_follows_the_pairs():
    random = np.random.default_rng(0)
    change, other = random.uniform(-0.5, 0.5, 54), random.uniform(-0.5, 0.5, 54)
    assert verdict(foresight(pairs(change, change), 0)) == FORESEEN
    assert verdict(foresight(pairs(other, change), 0)) == NOT_SHOWN
    assert verdict(foresight(pairs(-change, change), 0)) == NOT_SHOWN
    assert verdict(foresight(pairs(0.0, change), 0)) == NO_VERDICT
    assert foresight(pairs(change, change), 0)[LEVELS].estimate.value == 1.0


def test_by_length_is_over_the_tasks_learned(evidence):
    table = by_length(paired_rows(evidence)).set_index("scaling")
    assert list(table.columns) == ["length 40", "length 60", "length 80", "length 160"] and len(table) == 18
    assert table.loc["linear x2", "length 60"].value == pytest.approx(-0.2)  # one of four tasks falls by 0.8
    assert table.loc["ntk x2", "length 60"].value == pytest.approx(0.0)  # `first` was not learned


def test_section(evidence, tables, nothing, tmp_path):
    (section,) = scalings_sections(evidence, Output(tmp_path))
    assert "so far" not in section.text and "Partial" not in section.text and len(section.panels) == 5
    numbers = [finding.number for finding in section.findings]
    assert numbers[-2:] == ["6 of 162", "3 of 162"]
    rows = tables["encodings"]
    one = rows[rows["tier"].isna() | ((rows["seed"] == 0) & (rows["task"] == "copy"))]
    (section,) = scalings_sections(Evidence({"encodings": one}, "one seed of one task"), Output(tmp_path))
    assert "Tasks without models so far: prev, skip2" in section.text and "26 of 27 models" in section.text
    assert section.findings[0].number == NO_VERDICT
    plain = rows[~rows["encoding"].str.contains(" at ")]
    for without in (nothing, Evidence({"encodings": plain}, "no scaling")):
        (section,) = scalings_sections(without, Output(tmp_path))
        assert "No models of RoPE under a scaling" in section.findings[0].sentence
