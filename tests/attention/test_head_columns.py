"""Columns of a head: every one has a meaning, values are those of the results, undefined parts are nan."""

import dataclasses
import json
import math
import re

import pytest
import torch

from planted_source import PositionSource, stream
from poskernel.attention.atlas import analyze
from poskernel.attention.estimators.decompose import TERMS
from poskernel.attention.head_columns import HEAD_COLUMNS, KERNEL, SHAPE_MEANINGS, spread, spreads
from poskernel.attention.head_report import without_nan
from poskernel.attention.measures import MEASURES
from poskernel.encodings import parse_encoding
from poskernel.models.transformer import Architecture, Transformer
from poskernel.statistics import Estimate


@pytest.fixture(scope="module")
def atlas():
    torch.manual_seed(0)
    model = Transformer(Architecture(width=16, layers=1, heads=2, vocabulary=50), parse_encoding("rope"))
    return analyze(model, stream(400), 8, 50, dropped=4, measures="all")


def pattern(meanings):
    """Names that the meanings cover; words in capitals stand for names, and any may have an interval."""
    names = [re.sub(r"[A-Z]+", "[a-z_]+", name) for name in meanings]
    return re.compile(f"({'|'.join(names)})(_low|_high)?")


def test_every_column_has_a_meaning_and_every_meaning_a_column(atlas):
    report = atlas.head(0, 0)
    rows = {name: columns.values(getattr(report, name)) for name, columns in HEAD_COLUMNS.items()}
    assert list(rows) == list(MEASURES)
    for name, row in (rows | {"kernel": KERNEL.values(report.estimate)}).items():
        meanings = (HEAD_COLUMNS | {"kernel": KERNEL})[name].meanings
        for column in row:
            assert pattern(meanings).fullmatch(column), (name, column)
        for meaning in meanings:
            assert any(pattern([meaning]).fullmatch(column) for column in row), (name, meaning)
    everything = report.row(atlas.offsets)
    expected = [*KERNEL.values(report.estimate), *(column for row in rows.values() for column in row)]
    assert list(everything) == [*expected, *SHAPE_MEANINGS, "g_low", "g_high"]
    assert len(set(expected)) == len(expected), "two measures have a column of the same name"


def test_columns_hold_the_results(atlas):
    report, row = atlas.head(0, 1), atlas.head(0, 1).row(atlas.offsets)
    for term in TERMS:
        assert (row[f"{term}_share"], row[f"{term}_share_low"]) == (
            report.split.shares[term].value,
            report.split.shares[term].low,
        )
        assert row[f"{term}_kl_share_high"] == report.split.kl_shares[term].high
    assert row["distance_mass"] == [mass.value for mass in report.distance.mass]
    assert len(row["distance_edges"]) == len(row["distance_mass"]) + 1
    assert row["log_z_slope"] == pytest.approx(float(report.distance.kernel.slope[-1]))
    assert row["plane_frequencies"] == pytest.approx(report.symbolic.frequencies.tolist())
    assert row["symbolic_high"] == report.symbolic.symbolic.high
    assert row["slope_key_drift"] == report.drift.parts["key drift"].value
    assert sum(
        row[f"slope_{part}"] for part in ("stationary", "key_drift", "query_drift", "joint_drift", "content")
    ) == (pytest.approx(row["slope"]))
    assert row["leakage_mask_low"] == report.leakage.mask.low
    assert row["whole_mean_r2_high"] == report.variants.estimates["whole_mean"].r2.high
    assert row["line_directions"] == report.spectrum.lines.directions
    assert row["lines_rest"] == report.spectrum.lines.rest_share
    assert row["line_amplitudes"] == pytest.approx(report.spectrum.lines.amplitude.tolist())
    assert row["alignment_p"] == report.spectrum.alignment.p
    assert row["induction_low"] == report.probes.repetition.induction.low
    assert row["toeplitz_error"] <= row["toeplitz_floor"]
    assert row["signal_untrained"] == report.untrained.signal.value
    assert row["fit_token_additive"] == report.products.fits["token"].r2("additive").value
    assert row["residual_product_rank_null"] == report.products.cross_terms["product"].null_rank().value
    assert row["r2_null_low"] == report.estimate.null.low


def test_documents_of_all_measures_are_plain_json(atlas):
    document = atlas.document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["measures"] == list(MEASURES)
    assert document["heads"][0]["spectrum_undefined"] is None


def test_parts_that_are_not_there_are_nan(atlas):
    report = atlas.head(0, 0)
    spectrum = dataclasses.replace(report.spectrum, lines=None, fourier=None, alignment=None, undefined="why")
    row = HEAD_COLUMNS["spectrum"].values(spectrum)
    assert all(
        math.isnan(row[name])
        for name in ("lines_explained", "lines_rest", "line_directions", "alignment", "fourier_peak")
    )
    assert (row["line_phases"], row["spectrum_undefined"]) == ([], "why")
    ahead = dataclasses.replace(report.distance, boundary=None, boundary_kept=None, kernel=None)
    row = HEAD_COLUMNS["distance"].values(ahead)
    assert (row["boundary_keys"], row["boundary_kept_noise"]) == ([], [])
    assert math.isnan(row["crossover"])
    assert math.isnan(KERNEL.values(dataclasses.replace(report.estimate, null=None))["r2_null"])


def test_estimates_are_three_columns():
    one = Estimate(0.5, 0.4, 0.6, 5, "")
    assert spread("a", one) == {"a": 0.5, "a_low": 0.4, "a_high": 0.6}
    assert spreads("b", [one, one]) == {"b": [0.5, 0.5], "b_low": [0.4, 0.4], "b_high": [0.6, 0.6]}
    assert without_nan(spread("c", None)) == {"c": None, "c_low": None, "c_high": None}


def test_only_what_was_asked_for_is_there():
    asked = analyze(PositionSource(), stream(), 8, 60, dropped=4, measures=["drift"], layers=[0])
    row = asked.head(0, 0).row(asked.offsets)
    assert "slope" in row
    assert asked.head(0, 0).split is None
    assert "position_share" not in row
