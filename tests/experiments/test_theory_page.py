"""The page of claims: the table, and the pictures that belong to what was run."""

import os
import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from poskernel.experiments.theory_page import (
    CHECKOUT,
    anchor,
    documentation,
    explanation,
    function_address,
    hypotheses,
    row_anchor,
    save_pictures,
    theory_sections,
    write_theory,
)
from poskernel.experiments.theory_pictures import PICTURES
from poskernel.realizability.theorems.check import Check
from poskernel.realizability.theorems.table import claims


def check(name, holds=True):
    return Check(name, f"What {name} says.", "a source", "1 < 2", "2", 7, holds, "a note")


def test_every_picture_is_drawn_with_what_was_measured(tmp_path):
    every = [check(each.claims[0]) for each in PICTURES]
    text = write_theory(every, tmp_path / "theory.html", "poskernel theory --seed 5").read_text()
    assert text.count("<img") == len(PICTURES) == 5
    assert "5 claims: all hold" in text and "poskernel theory --seed 5" in text
    assert all(f"What {each.name} says." in text for each in every)
    assert text.count("1 &lt; 2") >= 10  # escaped, in the tables and in the findings
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", text)


def test_pictures_follow_the_claims_that_were_run():
    sections = theory_sections([check("layer-norm-sphere")])
    assert [section.title for section in sections] == ["The claims", "The claims, one by one"]
    sections = theory_sections([check("boundary-rate")], "poskernel theory --long")
    assert [section.title for section in sections] == ["The claims", "The causal boundary", "The claims, one by one"]
    assert "--long" in sections[0].command


def test_what_does_not_hold_is_said_first():
    section, _ = theory_sections([check("layer-norm-sphere", holds=False), check("rms-norm-sphere")])
    assert section.findings[0].sentence == "2 claims: 1 does not hold, 1 holds."
    assert "layer-norm-sphere" in section.findings[1].sentence


def test_tables_are_by_source():
    names = ("window-is-toeplitz", "rms-norm-sphere", "theorem-1", "no-kernel-for-every-length")
    sections = theory_sections([check(name) for name in names])
    titles = [panel.caption for panel in sections[0].panels]
    assert titles == [panel.caption for panel in sections[-1].panels]
    assert titles[:3] == ["The realizability paper", "Ours, beside the realizability paper", "The kernel note"]
    shown = sections[0].panels[3].table
    assert titles[3].startswith("Departures") and shown["holds"][0] == "yes: source's form fails, ours holds"
    assert list(shown["n"]) == ["7"]


def test_a_row_leads_to_its_explanation_on_the_page_and_back(tmp_path):
    every = [check(name) for name in claims()]
    text = write_theory(every, tmp_path / "theory.html").read_text().replace("<wbr>", "")
    for name, function in claims().items():
        for there in (anchor(name), row_anchor(name)):
            assert text.count(f'href="#{there}"') == 1 and text.count(f'id="{there}"') == 1, name
        assert f"{function.__module__}:{function.__name__}" in text
    assert "keep their mean component" in text  # what the function computes
    assert "RMSNorm divides alone" in text  # why, from the documentation
    assert "epsilon = 1e-05" in text


def test_every_claim_is_explained_in_plain_words():
    for name in claims():
        words = explanation(name)
        assert len(words) > 80, name
        assert not any(mark in words for mark in ("{py:", "](", "###", "~poskernel")), words
        assert words.endswith((".", ")", ".`")), words
    assert " ".join(explanation("theorem-1").split()).endswith("so that old rows move by a tenth.")
    assert explanation("no-such-claim") == ""


def test_without_the_documentation_the_functions_explain(tmp_path, monkeypatch):
    monkeypatch.setattr("poskernel.experiments.theory_page.documentation", lambda: "")
    text = write_theory([check("rms-norm-sphere")], tmp_path / "theory.html").read_text()
    assert "keep their mean component" in text and "RMSNorm divides alone" not in text


def test_the_documentation_is_that_of_the_checkout():
    assert documentation() == (CHECKOUT / "docs" / "theory.md").read_text("utf-8")


def test_hypotheses_are_the_parameters_that_are_a_claim_s_own():
    assert hypotheses("theorem-2-deep-rows") == ["peaks = 1", "length = 40"]
    assert hypotheses("layer-norm-sphere") == ["normalise = layer_norm", "epsilon = 1e-05"]
    assert "cells" in hypotheses("theorem-1")  # too long to be shown
    assert hypotheses("no-such-claim") == []


def test_every_claim_s_addresses_inside_the_checkout_are_there():
    folder = CHECKOUT / "out"
    for name, function in claims().items():
        file, line = function_address(name, folder).split("#L")
        lines = Path(os.path.normpath(folder / file)).read_text().splitlines()  # out/ itself need not be there
        assert any(text.startswith(f"def {function.__name__}(") for text in lines[int(line) - 1 : int(line) + 3])


def test_a_page_outside_the_checkout_names_no_path_of_this_machine(tmp_path):
    assert function_address("rms-norm-sphere", tmp_path) == ""
    assert function_address("no-such-claim", CHECKOUT) == ""


def test_pictures_are_kept_as_files_with_their_data(tmp_path):
    save_pictures([check("layer-norm-sphere"), check("proposition-4")], tmp_path)
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {f"figures/duality.{kind}" for kind in ("png", "svg", "csv")}
