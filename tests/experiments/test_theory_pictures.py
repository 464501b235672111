"""The pictures of the claims: whose they are, and that their tables show what the claims say."""

import math

import pytest

pytest.importorskip("matplotlib")

from poskernel.experiments import theory_pictures
from poskernel.experiments.theory_pictures import PICTURES
from poskernel.realizability.theorems.table import claims


def test_every_picture_belongs_to_claims_there_are():
    named = [name for each in PICTURES for name in each.claims]
    assert set(named) <= set(claims()) and len(set(named)) == len(named)
    assert len({each.name for each in PICTURES}) == len({each.title for each in PICTURES}) == len(PICTURES)


def test_deep_rows_stay_at_the_peak():
    table = theory_pictures.deep_rows()
    for peak in (3, 12, 30):
        rows = table[table["kernel"] == f"peak at {peak}"]
        assert set(rows.loc[rows["row"] >= peak, "offset"]) == {peak}
        assert (rows["offset"] <= rows["row"]).all() and rows["offset"].nunique() > 1


def test_exceptions_that_thin_out_cost_nothing_in_the_limit():
    last = theory_pictures.density().groupby("task").last()["alpha"]
    assert last["exceptions on squares"] > 0.98 and last["exceptions on powers of two"] > 0.99
    assert last["exceptions on odd rows"] == pytest.approx(0.5, abs=0.01) and last["offset drifts"] < 0.01


def test_each_kernel_solves_what_the_other_cannot():
    alpha = theory_pictures.duality().pivot(index="encoding", columns="task", values="alpha")
    assert alpha.loc["relative, peak at 1"].to_dict() == {"prev": 1, "first": 0, "copy": 0}
    # Copy at 60 asks for key 0 on one of its 30 rows, the first.
    assert alpha.loc["clamped table, column 0"].to_dict() == pytest.approx({"prev": 0, "first": 1, "copy": 1 / 30})


def test_fourier_sums_lie_on_the_formula():
    table = theory_pictures.cauchy()
    assert (table["density"] > 0).all() and set(table["by"]) == {"formula", "Fourier sum"}
    computed = table[(table["by"] == "Fourier sum") & (table["slope"] == "m = 1/2")]
    for frequency, density in zip(computed["frequency"], computed["density"], strict=True):
        decay = math.exp(-0.5)
        expected = (1 - decay**2) / (2 * math.pi * (1 - 2 * decay * math.cos(frequency) + decay**2))
        assert density == pytest.approx(expected)


def test_the_boundary_goes_three_ways():
    last = theory_pictures.boundary().dropna().groupby("g").last()["distance"]
    assert last["bounded (rotary)"] == pytest.approx(0.5, abs=0.01)
    assert last["logarithmic (KERPLE, c = 2)"] < 1e-4 and last["linear (ALiBi, m = 1/16)"] < 1e-9


@pytest.mark.parametrize("picture", PICTURES, ids=lambda each: each.name)
def test_every_picture_is_drawn_from_its_table(picture):
    figure = picture.draw(picture.data())
    assert figure.axes and picture.alt and picture.caption
