"""Aims met, missed and open are told apart in made-up rows, with the distance from them."""

import pytest

pytest.importorskip("matplotlib")
from extension_world import RUN, made_up, nothing_special
from poskernel.experiments.extension.kernel_sections import (
    HARD,
    Reached,
    aims_table,
    both,
    direction,
    hard_findings,
    has_aim,
    kernel_sections,
    reached,
)
from poskernel.experiments.extension.rows import ExtensionRows
from poskernel.experiments.extension.validation import SETTINGS
from poskernel.experiments.reproduction.output import Output
from poskernel.statistics import Estimate


def world(answer):
    return ExtensionRows.of(RUN, made_up(RUN, answer))


def said(sections):
    return " ".join(f"{each.sentence} {each.number} {each.method}" for section in sections for each in section.findings)


def test_the_aim_is_of_the_settings_that_it_was_set_for():
    aimed = [setting for setting in SETTINGS if has_aim(setting)]
    assert aimed == [
        "ntk:2",
        "ntk:4",
        "ntk:8",
        "yarn:2",
        "yarn:4",
        "yarn:8",
        "llama3:2",
        "llama3:4",
        "llama3:8",
        "base:x2",
    ]


def test_an_aim_is_met_or_missed_by_the_whole_interval():
    assert reached(Estimate(0.9995, 0.9992, 0.9998, 6, ""), 0.999) is Reached.MET
    assert reached(Estimate(0.9985, 0.9982, 0.9988, 6, ""), 0.999) is Reached.MISSED
    assert reached(Estimate(0.9991, 0.9982, 0.9998, 6, ""), 0.999) is Reached.OPEN
    assert reached(Estimate(0.9999, float("nan"), float("nan"), 1, ""), 0.999) is Reached.OPEN, "one text"
    assert both(Reached.MET, Reached.MISSED) is Reached.MISSED and both(Reached.OPEN, Reached.MET) is Reached.OPEN
    assert both(Reached.OPEN, Reached.MISSED) is Reached.MISSED and both(Reached.MET, Reached.MET) is Reached.MET


def test_an_aim_that_is_met_everywhere_is_said(tmp_path):
    sections = kernel_sections(world(nothing_special), Output(tmp_path), "")
    assert "2 of 2 missed at 0" in said(sections) and "At 32 tokens: met for yarn:2" in said(sections)
    assert len(sections) == 2 and (tmp_path / "tables" / "extension-shapes.csv").is_file()


def test_a_miss_is_said_with_its_distance(tmp_path):
    def answer(spoken, metric, length):
        return 0.98 if metric == "correlation_p10" and length == 64 and spoken["setting"] == "yarn:2" else None

    rows = world(answer)
    aims = aims_table(rows).set_index("length")
    assert aims["aim"].to_dict() == {32: "met", 64: "missed"} and aims["p10_over_aim"][64] == pytest.approx(
        -0.01, abs=1e-5
    )
    text = said(kernel_sections(rows, Output(tmp_path), ""))
    assert "1 of 2 missed at 1" in text and "At 64 tokens: missed for yarn:2" in text and "(-0.0100)" in text


def test_a_setting_that_fails_with_depth_is_said_to(tmp_path):
    def answer(spoken, metric, length):
        by_depth = {"early_correlation": 0.999, "middle_correlation": 0.9, "late_correlation": 0.7}
        return by_depth.get(metric) if spoken["setting"] == HARD else None

    def wide(rows):
        names = ["correlation", "correlation_p10", *(f"{name}_correlation" for name in ("early", "middle", "late"))]
        table = rows.wide(["setting", "text", "length"], names)
        return table[table["length"] == 32]

    assert "it falls with depth" in hard_findings(wide(world(answer)))[1].sentence
    assert "no fall with depth is shown" in hard_findings(wide(world(nothing_special)))[1].sentence


def test_loss_that_goes_with_the_correlation_is_noticed_and_its_absence_too(tmp_path):
    def related(spoken, metric, length):
        if metric not in ("loss", "correlation") or spoken["setting"] == "none":
            return None
        costs = 2.0 if spoken["setting"] == HARD else 1.0
        return costs if metric == "loss" else 1 - 0.1 * costs

    text = said(kernel_sections(world(related), Output(tmp_path), ""))
    assert "the more it costs, the worse it is predicted" in text


def test_a_sign_is_read_off_the_interval():
    assert direction(Estimate(-1.0, -2.0, -0.5, 3, ""), "down", "up") == "down"
    assert direction(Estimate(1.0, 0.5, 2.0, 3, ""), "down", "up") == "up"
    assert direction(Estimate(1.0, -0.5, 2.0, 3, ""), "down", "up") == "no relation is shown"


def test_without_rows_there_is_no_section(tmp_path):
    assert kernel_sections(ExtensionRows.of(RUN, made_up(RUN, nothing_special).iloc[:0]), Output(tmp_path), "") == []
