"""The alphas worked out beforehand are the predictor's: a few, computed here."""

import pytest

from cells import alphas
from poskernel.experiments.reproduction.recomputed import VALUES


@pytest.mark.parametrize(("encoding", "task", "length"), [("rope", "first", 40), ("sinusoidal", "prev", 60)])
def test_values_are_those_of_the_predictor(encoding, task, length):
    (found,) = [each for each in VALUES if each.name == f"alpha of {encoding} {task}, length {length}"]
    assert alphas(encoding, task, (length,))[0] == pytest.approx(found.value, abs=0.005)


def test_names_are_told_apart():
    assert len({each.name for each in VALUES}) == len(VALUES) > 40
