"""Every kind of the split's table is reached, in its order."""

import math

import pytest
import torch

from captures import capture_of
from poskernel.attention.estimators.decompose import SplitEstimator
from poskernel.attention.estimators.probes import HeadRepetition
from poskernel.attention.kinds import KINDS
from poskernel.attention.split_kinds import SPLIT_KINDS, UNCLEAR, SplitEvidence, split_kind
from poskernel.statistics import Estimate


def shares(**given):
    return SplitEvidence(**(dict.fromkeys(("position", "key", "query", "interaction"), 0.1) | given))


@pytest.mark.parametrize(
    ("profile", "evidence", "kind"),
    [
        ("mixed", shares(key=0.6), "key-driven"),
        ("uniform", shares(query=0.4), "query-driven"),
        ("mixed", shares(interaction=0.36), "matching"),
        ("mixed", shares(interaction=0.34), "mixed"),
        ("uniform", shares(), "uniform"),
        ("mixed", shares(position=0.5, key=0.4), "mixed"),
        ("mixed", shares(key=math.nan, position=math.nan), "mixed"),
        ("sink", shares(key=0.9), "sink"),
        ("previous-token", shares(key=0.9), "previous-token"),
        ("fixed-offset 4", shares(key=0.9), "fixed-offset 4"),
        ("local", shares(key=0.9, induction=0.29), "local"),
        ("local", shares(key=0.9, induction=0.3), "induction"),
        ("mixed", shares(induction=0.9), "induction"),
    ],
)
def test_kinds_join_in_order(profile, evidence, kind):
    assert split_kind(profile, evidence) == kind


def test_the_two_tables_share_no_name_and_the_unclear_kinds_exist():
    assert not set(SPLIT_KINDS) & set(KINDS)
    assert set(UNCLEAR) <= set(KINDS)
    assert {split_kind("mixed", shares(**{name: 0.5})) for name in ("key", "query", "interaction")} == set(SPLIT_KINDS)


def test_evidence_is_read_from_measurements():
    generator = torch.Generator().manual_seed(0)
    key = torch.randn(6, 1, 20, 4, generator=generator, dtype=torch.float64)
    estimator = SplitEstimator({0: 1}, 20, 2)
    estimator.consume(capture_of(torch.ones_like(key), key))
    half = Estimate(0.5, 0.4, 0.6, 4, "")
    split = estimator.estimates()[0]
    evidence = SplitEvidence.of(split, HeadRepetition(0, 0, half, half, 0.1, 0.1))
    assert evidence.key == split.shares["key"].value
    assert evidence.induction == 0.5
    assert SplitEvidence.of(split).induction is None
    assert split_kind("mixed", SplitEvidence.of(split)) == "key-driven"


def test_without_a_split_only_probes_say_more_than_the_profile():
    evidence = SplitEvidence.of(None)
    assert all(math.isnan(getattr(evidence, name)) for name in ("position", "key", "query", "interaction"))
    assert split_kind("mixed", evidence) == "mixed"
    repetition = HeadRepetition(0, 0, Estimate(0.5, 0.4, 0.6, 8, ""), Estimate(0.0, 0.0, 0.0, 8, ""), 0.0, 0.0)
    assert split_kind("mixed", SplitEvidence.of(None, repetition)) == "induction"
