"""Rows beside their plan: what is missing is counted and its command said, numbers go over texts with an interval."""

import math

import pandas as pd
import pytest

from extension_world import LEFT_OUT, RUN, VERDICT_RUN, made_up, nothing_special, write
from poskernel.errors import InputError
from poskernel.experiments.extension.rows import (
    GEMMA_VALIDATION,
    VALIDATION,
    VERDICTS,
    ExtensionRows,
    over_texts,
    planned_frame,
    summary_table,
)
from poskernel.study.store import frame


def test_rows_say_what_they_speak_of():
    table = made_up(
        RUN, lambda spoken, metric, length: 7.0 if spoken["layer"] == 1 and metric == "covariance_rms" else None
    )
    rows = ExtensionRows.of(RUN, table)
    assert rows.missing == 0 and len(rows.table) == rows.planned == len(planned_frame(RUN.asked))
    heads = rows.wide(["layer", "head", "text"], ["covariance_rms"])
    assert len(heads) == 8 * 3 and heads[heads["layer"] == 1]["covariance_rms"].min() >= 7
    wide = rows.wide(["setting", "text", "length"], ["correlation"])
    assert wide["setting"].drop_duplicates().tolist() == ["none", "linear:8", "yarn:2"], "in the order of the plan"
    held_out = ExtensionRows.of(VERDICT_RUN, made_up(VERDICT_RUN, nothing_special))
    assert held_out.table["held_out"].drop_duplicates().tolist() == ["b", "c", "d"]


def test_what_is_missing_is_counted_and_its_command_said():
    table = made_up(RUN, lambda spoken, metric, length: LEFT_OUT if spoken["text"] == "c" else None)
    rows = ExtensionRows.of(RUN, table)
    assert rows.missing == rows.planned // 3
    assert "python -m make.the.rows" in rows.coverage_words()
    whole = ExtensionRows.of(RUN, made_up(RUN, nothing_special))
    assert "python -m" not in whole.coverage_words()


def test_rows_of_another_plan_are_no_rows_of_this_one():
    assert ExtensionRows.of(RUN, made_up(VERDICT_RUN, nothing_special)).table.empty


def test_failures_keep_their_reason():
    table = made_up(RUN, nothing_special)
    table.loc[:4, ["value", "status", "reason"]] = [math.nan, "failed", "out of memory"]
    rows = ExtensionRows.of(RUN, table)
    assert len(rows.lost) == 5 and "5 failed, for instance: out of memory" in rows.coverage_words()


def test_without_a_folder_there_is_nothing_and_a_damaged_one_is_told(tmp_path):
    empty = ExtensionRows.read(RUN, tmp_path)
    assert empty.table.empty and empty.missing == empty.planned
    assert empty.wide(["setting", "text", "length"], ["correlation"]).empty
    write(RUN, made_up(RUN, nothing_special), tmp_path, {"dtype": "float32"})
    assert ExtensionRows.read(RUN, tmp_path).about == {"dtype": "float32"}
    frame([]).to_parquet(tmp_path / "extension" / "rows.parquet")
    with pytest.raises(InputError, match="digest"):
        ExtensionRows.read(RUN, tmp_path)


def test_an_interval_over_texts_is_cut_at_what_a_number_can_be():
    found = over_texts(pd.Series([0.99, 1.0, math.nan]), -1.0, 1.0)
    assert found.n == 2 and found.high == 1 and "cut" in found.method and found.value == pytest.approx(0.995)
    assert math.isnan(over_texts(pd.Series([0.5])).low) and math.isnan(over_texts(pd.Series([math.nan])).value)


def test_summaries_count_texts():
    wide = pd.DataFrame({"setting": ["x", "x", "y"], "correlation": [0.5, 0.7, math.nan], "rms": [3.0, 4.0, 5.0]})
    table = summary_table(wide, ["setting"], ["correlation", "rms"], ["rms"])
    assert table["texts"].tolist() == [2, 1] and table["rms"][0].value == 3.5 and table["rms"][0].high > 4


def test_the_three_runs_are_planned_apart():
    plans = [set(planned_frame(run.asked)["cell"]) for run in (VALIDATION, VERDICTS, GEMMA_VALIDATION)]
    assert all(plans) and not plans[0] & plans[1] and not plans[0] & plans[2]
