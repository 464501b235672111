"""The rule of the verdicts, case by case."""

import math

import pytest

from poskernel.errors import RunError
from poskernel.experiments.reproduction.verdicts import TOLERANCE, Headline, Kind, verdict
from poskernel.statistics import Estimate


def paper(value, kind=Kind.CORRELATION, **fields):
    return Headline("what", value, "where", kind, lambda _: ours(0), "paper", **fields)


def ours(value, low=math.nan, high=math.nan):
    return Estimate(float(value), low, high, 5, "made up")


@pytest.mark.parametrize(
    ("headline", "found", "expected"),
    [
        (paper(0.90), ours(0.94), "agrees"),  # within 0.05
        (paper(0.90), ours(0.96), "differs"),
        (paper(0.90), ours(0.50, 0.1, 0.91), "agrees"),  # in our interval
        (paper(0.90), ours(0.50, 0.1, 0.896), "agrees"),  # widened by half a digit
        (paper(0.90), ours(0.50, 0.1, 0.89), "differs"),
        (paper(0.90, low=0.73, high=0.95), ours(0.74), "agrees"),  # ours in the paper's
        (paper(0.90, low=0.73, high=0.95), ours(0.72), "differs"),
        (paper(0.87, Kind.ACCURACY, sd=0.13), ours(0.76), "agrees"),  # 2 x 0.13 / sqrt(5) = 0.116
        (paper(0.87, Kind.ACCURACY, sd=0.13), ours(0.74), "differs"),
        (paper(0.45, Kind.ALPHA), ours(0.4549), "agrees"),  # prints as 0.45
        (paper(0.45, Kind.ALPHA), ours(0.456), "differs"),
        (paper(6, Kind.COUNT), ours(6), "agrees"),
        (paper(6, Kind.COUNT), ours(7), "differs"),
        (paper(1, Kind.CLAIM), ours(0), "differs"),
        (paper(0.90), ours(math.nan), "not measured"),
    ],
)
def test_rule(headline, found, expected):
    assert verdict(headline, found) == expected


def test_every_kind_has_a_tolerance_and_alphas_and_counts_have_none():
    assert set(TOLERANCE) == set(Kind)
    assert TOLERANCE[Kind.ALPHA] == TOLERANCE[Kind.COUNT] == TOLERANCE[Kind.CLAIM] == 0


def test_values_are_shown_in_the_papers_form():
    assert paper(1, Kind.CLAIM).printed == "yes" and paper(1, Kind.CLAIM).shown(ours(0.0)) == "no"
    assert paper(12, Kind.COUNT).printed == "12" and paper(12, Kind.COUNT).shown(ours(9.0)) == "9"
    assert paper(0.87, sd=0.05).printed == "0.87 ± 0.05"
    assert paper(0.9, low=0.73, high=0.95).printed == "0.90 [0.73, 0.95]"
    assert paper(0.925, places=3).shown(ours(0.9, 0.8, 1.0)) == "0.900 [0.800, 1.000]"
    assert paper(0.9).shown(ours(math.nan)) == "–"


def test_what_cannot_be_measured_says_why(evidence):
    def fail(_):
        raise RunError("run the study first.")

    found = Headline("what", 1.0, "where", Kind.ALPHA, fail, "paper").ours(evidence)
    assert math.isnan(found.value) and found.method == "run the study first."
