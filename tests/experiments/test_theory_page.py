"""The page of claims: the table, and the pictures that belong to what was run."""

import re

import pytest

pytest.importorskip("matplotlib")

from poskernel.experiments.theory_page import (
    CHECKOUT,
    anchor,
    function_address,
    page_address,
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
    assert "5 of 5" in text and "poskernel theory --seed 5" in text
    assert all(f"What {each.name} says." in text for each in every)
    assert text.count("1 &lt; 2") >= 10  # escaped, in the table and in the findings
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", text)


def test_pictures_follow_the_claims_that_were_run():
    sections = theory_sections([check("layer-norm-sphere")])
    assert [section.title for section in sections] == ["The claims", "Sources and functions"]
    sections = theory_sections([check("boundary-rate")], "poskernel theory --long")
    assert [section.title for section in sections] == ["The claims", "The causal boundary", "Sources and functions"]
    assert "--long" in sections[0].command


def test_what_does_not_hold_is_said_first():
    section, _ = theory_sections([check("layer-norm-sphere", holds=False), check("rms-norm-sphere")])
    assert section.findings[0].number == "1 of 2"
    assert "layer-norm-sphere" in section.findings[1].sentence


def test_a_row_leads_to_its_source_and_its_function(tmp_path):
    text = write_theory([check("rms-norm-sphere")], tmp_path / "theory.html").read_text().replace("<wbr>", "")
    assert f'href="#{anchor("rms-norm-sphere")}"' in text and f'id="{anchor("rms-norm-sphere")}"' in text
    assert "poskernel.realizability.theorems.kernels:rms_norm_sphere" in text
    assert "docs/theory.md#rms-norm-sphere" in text and "keep their mean component" in text


def test_every_claim_s_addresses_inside_the_checkout_are_there():
    folder = CHECKOUT / "out"
    for name, function in claims().items():
        file, line = function_address(name, folder).split("#L")
        lines = (folder / file).read_text().splitlines()
        assert any(text.startswith(f"def {function.__name__}(") for text in lines[int(line) - 1 : int(line) + 3])
        page, section = page_address(name, folder).split("#")
        assert f"### {section}" in (folder / page).read_text().splitlines()


def test_a_page_outside_the_checkout_names_no_path_of_this_machine(tmp_path):
    assert page_address("rms-norm-sphere", tmp_path) == function_address("rms-norm-sphere", tmp_path) == ""
    assert function_address("no-such-claim", CHECKOUT) == ""


def test_pictures_are_kept_as_files_with_their_data(tmp_path):
    save_pictures([check("layer-norm-sphere"), check("proposition-4")], tmp_path)
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {f"figures/duality.{kind}" for kind in ("png", "svg", "csv")}
