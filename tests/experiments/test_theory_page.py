"""The page of claims: the table, and the pictures that belong to what was run."""

import re

import pytest

pytest.importorskip("matplotlib")

from poskernel.experiments.theory_page import PICTURES, theory_sections, write_theory
from poskernel.realizability.theorems.check import Check
from poskernel.realizability.theorems.table import claims


def check(name, holds=True):
    return Check(name, f"What {name} says.", "a source", "1 < 2", "2", 7, holds, "a note")


def test_every_picture_belongs_to_claims_there_are():
    named = {name for each in PICTURES for name in each.claims}
    assert named <= set(claims())


def test_every_picture_is_drawn_with_what_was_measured(tmp_path):
    every = [check(each.claims[0]) for each in PICTURES]
    text = write_theory(every, tmp_path / "theory.html", "poskernel theory --seed 5").read_text()
    assert text.count("<img") == len(PICTURES) == 5
    assert "5 of 5" in text and "poskernel theory --seed 5" in text
    assert all(f"What {each.name} says." in text for each in every)
    assert text.count("1 &lt; 2") >= 10  # escaped, in the table and in the findings
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", text)


def test_pictures_follow_the_claims_that_were_run():
    sections = theory_sections([check("layer-norm-sphere")])
    assert [section.title for section in sections] == ["The claims"]
    sections = theory_sections([check("boundary-rate")], "poskernel theory --long")
    assert [section.title for section in sections] == ["The claims", "The causal boundary"]
    assert "--long" in sections[0].command


def test_what_does_not_hold_is_said_first():
    (section,) = theory_sections([check("layer-norm-sphere", holds=False), check("rms-norm-sphere")])
    assert section.findings[0].number == "1 of 2"
    assert "layer-norm-sphere" in section.findings[1].sentence
