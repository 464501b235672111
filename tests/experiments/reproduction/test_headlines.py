"""The table of headlines: verdicts from rows, reasons where they differ, partial rows marked."""

from poskernel.experiments.reproduction.headlines import complete, counts, headline_sections, headline_table
from poskernel.experiments.reproduction.output import Output
from poskernel.experiments.reproduction.paper_values import HEADLINES


def line(table, name):
    return table.set_index("what").loc[name]


def test_verdicts_follow_the_rows(evidence):
    table = headline_table(evidence, HEADLINES)
    assert line(table, "AUC over all 35 cells, tier 1")["verdict"] == "agrees"
    learned = line(table, "learnable cells, tier 1")
    assert (learned["verdict"], learned["ours"], learned["why"]) == (
        "differs",
        "14",
        "cells learned: here not rope first",
    )
    assert set(table["rows"]) == {"complete"}
    assert not (table.loc[table["verdict"] == "differs", "why"] == "").any()
    assert (table.loc[table["verdict"] == "agrees", "why"] == "").all()


def test_partial_rows_are_marked(partial):
    table = headline_table(partial, HEADLINES)
    assert line(table, "AUC over all 35 cells, tier 1")["rows"] == "partial"
    assert line(table, "Spearman, learnable cells, tier 2")["verdict"] == "not measured"
    assert "partial rows" in counts(table)
    counted = line(table, "cells that generalize, tier 1")
    assert counted["verdict"] == "not measured" and "needs every row" in counted["why"]
    assert not complete(partial, "paper", 1)


def test_sections(partial, tmp_path):
    (section,) = headline_sections(partial, Output(tmp_path))
    assert section.findings[0].number.isdigit()
    assert (tmp_path / "tables" / "headlines-in-full.csv").exists() and (
        tmp_path / "tables" / "recomputed.tex"
    ).exists()
