"""The frozen values: those that the paper prints more than once agree, and none repeats another's name."""

from collections import Counter

from poskernel.experiments.reproduction.paper_values import HEADLINES, TABLE_3
from poskernel.experiments.reproduction.verdicts import Kind


def printed(name):
    (found,) = [each for each in HEADLINES if each.name == name]
    return found.printed


def test_values_stand_as_printed():
    assert printed("Spearman, learnable cells, tier 1") == "0.90 [0.73, 0.95]"
    assert printed("Spearman, all cells, tier 1") == "0.47"
    assert printed("precision at alpha of 0.5, tier 1") == "0.925"
    assert printed("LG of sinusoidal first, length 60, tier 1") == "0.87 ± 0.13"
    assert printed("LG of RoPE at scale 0.03, skip3") == "0.88"
    assert printed("Spearman on the learnable rows, rule min-norm") == "0.56"
    assert printed("precision at alpha of 0.5, learnable cells, tier 3") == "0.97 [0.94, 0.99]"


def test_names_are_told_apart():
    assert [name for name, number in Counter(each.name for each in HEADLINES).items() if number > 1] == []


def test_table_3_is_whole():
    assert sum(each.kind is Kind.ALPHA for each in TABLE_3) == 10
    assert sum(each.kind is Kind.ACCURACY for each in TABLE_3) == 20


def test_every_headline_can_be_asked(evidence):
    assert all(each.ours(evidence).method for each in HEADLINES)
