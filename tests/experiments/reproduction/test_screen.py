"""The screen of every encoding: a line a cell, and what has no alpha says why."""

from poskernel.encodings import ENCODINGS
from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.screen import screen_sections, screen_table
from poskernel.tasks import POSITIONAL_TASKS


def test_every_encoding_has_a_line_a_task(evidence):
    table = screen_table(evidence)
    assert len(table) == len(ENCODINGS) * len(POSITIONAL_TASKS)
    assert not table.duplicated(["encoding", "task"]).any()
    line = table.set_index(["encoding", "task"]).loc[("t5", "prev")]
    assert (line["alpha"], line["exists"], line["exists_why"]) == (1.0, 1.0, "yes")


def test_what_has_no_alpha_says_why(tables, tmp_path):
    rows = tables["encodings"].copy()
    cope = (rows["encoding"] == "cope") & (rows["metric"] == "alpha")
    rows.loc[cope, ["value", "reason"]] = [float("nan"), "undefined: positions depend on tokens"]
    dropped = (rows["encoding"] == "shaw") & (rows["task"] == "prev") & (rows["metric"] == "alpha")
    (section,) = screen_sections(Evidence({"encodings": rows[~dropped]}, "with a gap"), Output(tmp_path))
    found = section.findings[-1]
    assert found.number == "10" and found.method == "cope: undefined: positions depend on tokens; shaw: not run"


def test_section(evidence, nothing, tmp_path):
    (section,) = screen_sections(evidence, Output(tmp_path))
    solved = sum(len(BOUNDED) for _ in BEYOND) + len(BOUNDED) + 2 * len(FIXED)
    assert section.findings[0].number == f"{solved} of {len(ENCODINGS) * len(POSITIONAL_TASKS)}"
    assert section.panels and (tmp_path / "tables" / "encodings-screen.csv").exists()
    assert "No predictions" in screen_sections(nothing, Output(tmp_path))[0].findings[0].sentence


BOUNDED, FIXED = ("prev", "skip2", "skip3", "skip5"), ("first", "pos2", "pos5")
BEYOND = ("t5", "shaw", "xpos", "partial", "p-rope", "randomized")
