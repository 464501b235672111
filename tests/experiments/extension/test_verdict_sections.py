"""Agreement with a held-out text against chance: said where it is beyond it, and where it is not."""

import pytest

pytest.importorskip("matplotlib")
from extension_world import LEFT_OUT, VERDICT_RUN, made_up
from poskernel.experiments.extension.rows import ExtensionRows
from poskernel.experiments.extension.verdict_sections import (
    ALL_ALIKE,
    BELOW,
    BEYOND,
    NOT_BEYOND,
    UNKNOWN,
    judged,
    verdict_sections,
    verdicts_table,
)
from poskernel.experiments.extension.verdicts import MEANINGS
from poskernel.experiments.reproduction.output import Output


def world(same, chance, texts="bcd"):
    """Agreement by held-out text."""

    def answer(spoken, metric, length):
        if spoken["held_out"] not in texts:
            return LEFT_OUT
        place = "bcd".index(spoken["held_out"])
        return {"same_verdict": same[place], "same_by_chance": chance}.get(metric)

    return ExtensionRows.of(VERDICT_RUN, made_up(VERDICT_RUN, answer))


def wide(rows):
    return rows.wide(["setting", "held_out"], list(MEANINGS)).dropna(subset=["same_verdict", "same_by_chance"])


@pytest.mark.parametrize(
    ("same", "chance", "words"),
    [
        ((0.9, 0.92, 0.88), 0.5, BEYOND),
        ((0.5, 0.52, 0.48), 0.5, NOT_BEYOND),
        ((0.3, 0.32, 0.28), 0.5, BELOW),
        ((1.0, 1.0, 1.0), 1.0, ALL_ALIKE),
    ],
)
def test_agreement_is_judged_against_chance(same, chance, words, tmp_path):
    rows = world(same, chance)
    assert judged(wide(rows)) == words
    assert verdicts_table(wide(rows))["verdict"].tolist() == [words, words]
    (section,) = verdict_sections(rows, Output(tmp_path))
    assert f"({words})" in section.findings[0].sentence
    assert any(each.sentence.startswith(f"{words.capitalize()}: none, linear:2") for each in section.findings)


def test_one_held_out_text_decides_nothing():
    assert judged(wide(world((0.9, 0.9, 0.9), 0.5, "b"))) == UNKNOWN


def test_without_rows_there_is_no_section(tmp_path):
    assert verdict_sections(world((1, 1, 1), 1, ""), Output(tmp_path)) == []
