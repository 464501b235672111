"""Files of a report."""

import pandas as pd
import pytest

from poskernel.experiments.reproduction.output import Output, not_run
from poskernel.statistics import Estimate


def test_tables_carry_their_intervals(tmp_path):
    table = pd.DataFrame({"cell": ["rope prev"], "LG": [Estimate(0.9, 0.8, 1.0, 5, "t")]})
    panel = Output(tmp_path).table(table, "cells", "Cells at length 60")
    assert pd.read_csv(tmp_path / "tables" / "cells.csv").iloc[0].to_dict() == {
        "cell": "rope prev", "LG": pytest.approx(0.9), "LG_low": 0.8, "LG_high": 1.0,
    }  # fmt: skip
    latex = (tmp_path / "tables" / "cells.tex").read_text()
    assert r"\toprule" in latex and "0.90 [0.80, 1.00]" in latex and r"\label{tab:cells}" in latex
    assert "0.90 [0.80, 1.00]" in panel.html


def test_a_study_without_rows_says_how_to_run_it():
    section = not_run("Scale", "Does it hold?", "scale")
    assert section.command == "poskernel study run scale" and "scale" in section.findings[0].sentence
