"""The sections of statistics follow the numbers."""

from poskernel.experiments.reproduction.agreement import Statistic
from poskernel.experiments.reproduction.grading import LEARNABLE_SPEARMAN, grading_sections, hidden_words, statistics
from poskernel.experiments.reproduction.output import Output
from poskernel.statistics import Estimate


def test_statistics_are_worked_out_once(evidence):
    assert statistics(evidence, "paper", 1) is statistics(evidence, "paper", 1)


def test_sections(partial, nothing, tmp_path):
    well, hidden = grading_sections(partial, Output(tmp_path))
    assert len(well.findings) == 3 and all(finding.number for finding in hidden.findings)
    assert (tmp_path / "tables" / "paper-statistics-tier-1.csv").exists()
    assert grading_sections(nothing, Output(tmp_path)) == []


def test_words_follow_the_numbers():
    def of(low, high, value=0.5):
        return Statistic("", Estimate(value, low, high, 9, "made up"))

    names = [
        f"Spearman, {scope}, whole {by} drawn"
        for scope in ("all cells", "learnable cells")
        for by in ("encodings", "tasks")
    ]
    found = {
        "Spearman, all cells": of(0.2, 0.8), LEARNABLE_SPEARMAN: of(0.3, 0.7),
        "hand taxonomy: Spearman, learnable cells": of(0.1, 0.9, 0.6), **{name: of(0.1, 0.9) for name in names},
    }  # fmt: skip
    words = hidden_words(found)
    assert words.count("excludes 0") == 4 and "inside the interval" in words and "0.80 wide instead of 0.60" in words
    broken = hidden_words(
        {**found, names[0]: of(-0.2, 0.9), "hand taxonomy: Spearman, learnable cells": of(0.1, 0.9, 0.8)}
    )
    assert broken.count("includes 0") == 1 and "outside the interval" in broken
