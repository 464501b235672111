"""Why a value differs, from the rows alone."""

from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.explanations import by_cells, by_seeds, by_violations, moved


def test_sets():
    assert moved({"a", "b"}, {"b", "c"}, "cells") == "cells: here also a; here not c"
    assert moved({"a"}, {"a"}, "cells") == ""


def test_cells_that_the_paper_has_and_we_do_not(evidence):
    assert by_cells(evidence) == "cells learned: here not rope first"


def test_seeds(evidence, nothing):
    words = by_seeds("rope", "prev", 60, 1, 0.915)(evidence)
    assert words.startswith("our 5 seeds range from 0.90 to 0.94, 3 of them above")
    assert by_seeds("rope", "prev", 60, 1, 0.915)(nothing) == "not explained by the rows"


def test_violations(evidence, tables):
    assert by_violations(1)(evidence) == "no row falls short here"
    rows = tables["paper"].copy()
    bad = (rows["metric"] == "length_generalization") & (rows["encoding"] == "rope") & (rows["task"] == "prev")
    rows.loc[bad & (rows["length"] == 30) & (rows["tier"] == 1), "value"] = 0.1
    words = by_violations(1)(Evidence({"paper": rows}, "changed"))
    assert words == "rows that fall short: rope prev at 30 (5 seeds), not in the paper's list"
