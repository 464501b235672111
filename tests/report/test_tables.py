"""One table, three forms, nothing lost and nothing unescaped."""

import csv
import io
import math
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel.errors import InputError
from poskernel.report.tables import (
    Link,
    cell_text,
    csv_text,
    html_text,
    latex_escape,
    latex_text,
    write_csv,
    write_latex,
)
from poskernel.statistics import Estimate

RHO, NONE = Estimate(0.9, 0.73, 0.951, 15, ""), Estimate(math.nan, math.nan, math.nan, 0, "no rows")
TABLE = pd.DataFrame(
    {"name": ["<script>alert(1)</script>", "a_b & 50%"], "rho": [RHO, NONE],
     "n": [15, 0], "done": [True, False], "value": [1 / 3, np.nan]}
)  # fmt: skip


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
def test_csv_reads_back_to_the_same_numbers(numbers):
    table = pd.DataFrame({"x": numbers, "name": [f'"{i}", <b>\n' for i in range(len(numbers))]})
    back = list(csv.DictReader(io.StringIO(csv_text(table), newline="")))
    assert [float(row["x"]) for row in back] == numbers
    assert [row["name"] for row in back] == list(table["name"])


def test_an_interval_takes_three_csv_columns(tmp_path):
    back = pd.read_csv(write_csv(TABLE, tmp_path / "t.csv"))
    assert list(back.columns) == ["name", "rho", "rho_low", "rho_high", "n", "done", "value"]
    assert back.loc[0, ["rho", "rho_low", "rho_high"]].tolist() == [0.9, 0.73, 0.951]
    assert back.loc[1, ["rho", "rho_low", "rho_high", "value"]].isna().all()


def test_csv_columns_never_clash():
    with pytest.raises(InputError, match="two csv columns would be named 'rho_low'"):
        csv_text(pd.DataFrame({"rho": [RHO], "rho_low": [1]}))


@pytest.mark.parametrize(
    ("cell", "text"),
    [(RHO, "0.90 [0.73, 0.95]"), (0.5, "0.50"), (np.float32(0.25), "0.25"), (-0.0001, "0.00"), (3, "3"),
     (True, "yes"), (np.False_, "no"), (None, "–"), (math.nan, "–"), (pd.NA, "–"), ("x", "x")],
)  # fmt: skip
def test_cells_in_words(cell, text):
    assert cell_text(cell) == text


def test_html_is_escaped_and_scoped():
    html = str(html_text(TABLE, caption="a < b", formats={"value": ".4f"}))
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert "<caption><span>a &lt; b</span></caption>" in html
    assert html.count('scope="col"') == 5 and html.count('scope="row"') == 2
    assert "0.3333" in html and "0.90 [0.73, 0.95]" in html and "undefined" in html
    assert '<th scope="col" class="number">rho</th>' in html and '<th scope="col">done</th>' in html


def test_a_link_leads_in_html_and_is_its_text_elsewhere():
    table = pd.DataFrame(
        {"name": [Link("a < b", "#c&d"), Link("here", anchor="c"), Link("plain & text"), Link("a.b:c_d.", "#c")]}
    )
    html = str(html_text(table, caption="links"))
    assert '<a href="#c&amp;d">a &lt; b</a>' in html and '<span id="c">here</span>' in html
    assert '<th scope="row">plain &amp; text</th>' in html
    assert "a.<wbr>b:<wbr>c_<wbr>d.</a>" in html
    assert csv_text(table) == "name\na < b\nhere\nplain & text\na.b:c_d.\n"
    assert r"plain \& text" in latex_text(table, caption="links", label="links")


def test_text_below_a_link_leads_nowhere():
    link = Link("name", "#c", below="a < b")
    assert link.html == '<a href="#c">name</a><p>a &lt; b</p>' and str(link) == "name: a < b"


def test_widths_let_cells_be_read_one_below_the_other():
    table = pd.DataFrame({"x & y": ["a"], "z": ["b"]})
    html = str(html_text(table, caption="c", widths={"z": 70}))
    assert '<col style="width:1%"><col style="width:70%">' in html
    assert '<th scope="row" data-label="x &amp; y">a</th><td data-label="z">b</td>' in html
    assert "data-label" not in html_text(table, caption="c") and "<col" not in html_text(table, caption="c")


def test_a_format_of_no_column_is_an_error():
    with pytest.raises(InputError, match="no column 'valeu'"):
        html_text(TABLE, caption="", formats={"valeu": ".4f"})


def test_latex_escapes_and_rules(tmp_path):
    text = write_latex(TABLE, tmp_path / "t.tex", caption="50% of α_1", label="tab:a b").read_text()
    assert r"\caption{50\% of $\alpha$\_1}" in text and r"\label{tab:a-b}" in text
    assert r"a\_b \& 50\%" in text and r"\textless{}script\textgreater{}" in text
    assert r"\begin{tabular}{lrrlr}" in text
    assert text.index(r"\toprule") < text.index(r"\midrule") < text.index(r"\bottomrule")
    assert all(row.count(" & ") == 4 for row in text.split(r"\midrule")[1].split(r"\bottomrule")[0].split("\\\\\n")[:2])


def test_latex_minus_and_specials():
    assert latex_escape("-0.20 [-0.4, 0.1]") == "$-$0.20 [$-$0.4, 0.1]"
    assert latex_escape("max-margin skip-3") == "max-margin skip-3"
    assert latex_escape("\\{}~^$#") == (r"\textbackslash{}\{\}\textasciitilde{}\textasciicircum{}\$\#")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path):
    body = latex_text(TABLE, caption="α ≥ 1", label="t")
    (tmp_path / "a.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}" + body + "\\end{document}"
    )
    subprocess.run(["pdflatex", "-halt-on-error", "a.tex"], cwd=tmp_path, check=True, capture_output=True)
