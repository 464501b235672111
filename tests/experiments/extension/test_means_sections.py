"""What stands in for moments, in made-up rows whose errors are known."""

import pandas as pd
import pytest

pytest.importorskip("matplotlib")
from extension_world import RUN, made_up, nothing_special
from poskernel.experiments.extension.means_sections import differences, heads_table, means_sections
from poskernel.experiments.extension.rows import ExtensionRows
from poskernel.experiments.reproduction.output import Output


def found(answer, tmp_path):
    sections = means_sections(ExtensionRows.of(RUN, made_up(RUN, answer)), Output(tmp_path), "")
    return sections, [f"{each.sentence} {each.number}" for section in sections for each in section.findings]


def jittered(value, spoken):
    return value + 1e-3 * "abc".index(spoken["text"])


def test_the_nearer_stand_in_is_named(tmp_path):
    errors = {"rms": 0.1, "means_rms": 0.2, "overall_rms": 0.4, "tail_rms": 0.05, "late_beyond_rms": 0.3,
              "tail_beyond_rms": 0.1, "overall_beyond_rms": 0.5}  # fmt: skip

    def answer(spoken, metric, length):
        return jittered(errors[metric], spoken) * (1 + 0.01 * "abc".index(spoken["text"])) if metric in errors else None

    _, said = found(answer, tmp_path)
    text = "\n".join(said)
    assert "late means alone, nearer: measured moments with late means beyond at 32, 64 tokens" in text
    assert "Late means against means over all positions, nearer: late means at 32, 64 tokens" in text
    assert "nearer: measured moments with their tail beyond at 32, 64" in text
    assert "nearer: beyond the measured offsets the moments' own tail at 64 tokens" in text

    def turned(spoken, metric, length):
        return answer(spoken, {"rms": "means_rms", "means_rms": "rms"}.get(metric, metric), length)

    _, other = found(turned, tmp_path)
    assert "nearer: late means alone at 32, 64 tokens" in "\n".join(other)


def test_no_difference_is_said_to_be_none():
    numbers = {"rms": [0.1, 0.2, 0.3], "means_rms": [0.2, 0.1, 0.3], "overall_rms": [0.2, 0.1, 0.3]}
    wide = pd.DataFrame({"text": ["a", "b", "c"], "length": 32, **numbers, "tail_rms": [0.2, 0.3, 0.4]})
    beyond = pd.DataFrame({"text": [], "length": []})
    table = differences(wide, beyond).set_index("comparison")["nearer"]
    assert table.tolist() == ["no relation is shown", "with late means beyond"], (
        "late and all means are one kernel here"
    )


def test_what_is_enough_for_the_aim_is_said(tmp_path):
    def answer(spoken, metric, length):
        if metric == "tail_correlation":
            return 0.9996
        if metric == "tail_correlation_p10":
            return 0.996
        return 0.9 if metric == "correlation" and length == 64 else None

    _, said = found(answer, tmp_path)
    (near,) = [each for each in said if "Enough for the aim at 32 tokens" in each]
    (far,) = [each for each in said if "Enough for the aim at 64 tokens" in each]
    assert "measured moments, then late means; measured moments, then their tail" in near
    assert far.strip().endswith("model as it is: measured moments, then their tail.")
    _, none = found(lambda spoken, metric, length: 0.5, tmp_path)
    assert any("Enough for the aim at 64 tokens, model as it is: none." in each for each in none)


def test_heads_come_with_the_largest_covariance_first(tmp_path):
    def answer(spoken, metric, length):
        if metric == "covariance_rms":
            return jittered(1.0 + spoken["layer"] * 4 + spoken["head"], spoken)
        if metric == "peak_offset":
            return (None, "undefined") if spoken["head"] == 0 else (3.0 - 1e-6 * "abc".index(spoken["text"]), "")
        return {"share_of_means": 0.2 if spoken["layer"] else 0.995}.get(metric)

    rows = ExtensionRows.of(RUN, made_up(RUN, answer))
    table = heads_table(rows.wide(["layer", "head", "text"], ["share_of_means", "covariance_rms", "peak_offset"]))
    assert table["head"].iloc[0] == "1.3" and table["texts"].tolist() == [3] * 8
    assert table.set_index("head")["own peak"]["1.0"] == "undecided"
    sections, said = found(answer, tmp_path)
    assert sections[-1].title == "The covariance part, by head"
    assert any("give at least 0.99 of it: 0.50" in each for each in said)
    assert any("less than half: 0.50" in each for each in said)
    assert any("it is larger in late layers" in each for each in said)


def test_without_rows_there_is_no_section(tmp_path):
    assert means_sections(ExtensionRows.of(RUN, made_up(RUN, nothing_special).iloc[:0]), Output(tmp_path), "") == []
