"""A page stands alone, escapes what it is given, and says where it stops."""

import re
from html.parser import HTMLParser

import pandas as pd
import pytest

from made_up_heads import unpacked
from poskernel.errors import InputError, RunError
from poskernel.report import page
from poskernel.report.figures import heat_maps, svg_text
from poskernel.report.head_map import HeadStatistic, head_map
from poskernel.report.page import (
    EntriesPanel,
    Entry,
    FigurePanel,
    Finding,
    HeadsPanel,
    Section,
    TablePanel,
    page_text,
    prose,
    write_page,
)
from poskernel.report.tables import Link
from poskernel.statistics import Estimate

EVIL = "<script>alert(1)</script> \" ' </title> {{ 7 * 7 }} &"
LOADING = {"src", "href", "srcset", "data", "action", "poster", "xlink:href", "background"}


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.stack = [], 0, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in {"meta", "link", "img"}:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, f"</{tag}> closes another element"

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def sections(cells, heads, word="plain"):
    figure = FigurePanel(svg_text(heat_maps(cells, {"alpha": word}, title=word)), word, word)
    table = TablePanel(pd.DataFrame({word: [word], "rho": [Estimate(0.9, 0.73, 0.95, 15, word)]}), word)
    entries = EntriesPanel([Entry("explained", word, "row", word, {word: word})], word)
    statistic, named = HeadStatistic("r2", word, word, word), heads.assign(sentence=word, kind=word)
    chart = HeadsPanel(head_map(named, [statistic], [0, 1, 2, 4, 8, 16, 31], kinds={word: word}), word, word)
    return [
        Section(f"First {word}", word, [Finding(word, word, word)], [figure, table, entries], text=word, command=word),
        Section(f"Second {word}", word, [Finding(word, method=word)], [chart, TablePanel(cells, word, folded=True)]),
        Section(f"Third {word}", word, [], [chart]),
    ]


def test_labels_are_escaped_everywhere(cells, heads):
    plain = Elements(page_text("plain", "plain", sections(cells, heads), "plain"))
    evil = Elements(page_text(EVIL, EVIL, sections(cells, heads, EVIL), EVIL))
    assert [tag for tag, _ in evil.found] == [tag for tag, _ in plain.found]
    assert not evil.stack
    assert "49" not in prose(EVIL)


def test_an_entry_is_reached_by_its_anchor_and_leads_back():
    panel = EntriesPanel([Entry("e", "Name", "r", "w", {"f": Link("module", "#there")})], "c")
    text = page_text("t", "l", [Section("A", "q", panels=[panel])])
    assert '<article id="e" aria-labelledby="e-title">' in text and '<a href="#r">back to the table</a>' in text
    assert '<dt>f</dt><dd><a href="#there">module</a></dd>' in text


def test_a_table_of_sentences_stacks_on_a_narrow_screen():
    cells = pd.DataFrame({"x": ["a"]})
    for panel, stacks in ((TablePanel(cells, "c", widths={"x": 50}), True), (TablePanel(cells, "c"), False)):
        assert ('class="wide stacked"' in page_text("t", "l", [Section("A", "q", panels=[panel])])) is stacks


def test_nothing_is_loaded_from_anywhere(cells, heads):
    elements = Elements(page_text("t", "l", sections(cells, heads)))
    addresses = [value for _, attributes in elements.found for name, value in attributes.items() if name in LOADING]
    assert addresses and all(address.startswith(("#", "data:")) for address in addresses)
    policy = next(meta["content"] for meta in elements.all("meta") if "http-equiv" in meta)
    assert policy.startswith("default-src 'none'") and "http" not in policy and "eval" not in policy
    css = page_text("t", "l", [Section("A", "q")])
    assert "url(" not in css and "@import" not in css


def test_the_script_of_the_map_is_there_once_and_only_where_needed(cells, heads):
    with_charts, without = page_text("t", "l", sections(cells, heads)), page_text("t", "l", sections(cells, heads)[:1])
    assert with_charts.count("class HeadMap") == 1 and with_charts.count("<script>") == 3
    assert "HeadMap" not in without and "<script" not in without and ".heads" not in without
    assert len(with_charts) < 400_000 and len(without) < 300_000


def test_what_a_map_carries_is_unpacked_as_it_was(cells, heads):
    text = page_text("t", "l", sections(cells, heads, EVIL))
    assert unpacked(text) == sections(cells, heads, EVIL)[1].panels[0].data
    assert unpacked(text)["statistics"][0]["label"] == EVIL


def test_structure_for_readers_and_screen_readers(cells, heads):
    text = page_text("Title", "Lead with `code`.\n\nSecond.", sections(cells, heads), "Made with seed 0.")
    elements = Elements(text)
    assert not elements.stack
    assert all(image["alt"] for image in elements.all("img")) and len(elements.all("img")) == 1
    assert len(elements.all("h1")) == 1 and elements.all("html") == [{"lang": "en"}]
    anchors = [attributes["id"] for attributes in elements.all("section")]
    assert anchors == ["first-plain", "second-plain", "third-plain"]
    assert [a["href"] for a in elements.all("a")] == ["#content", *(f"#{anchor}" for anchor in anchors), "#row"]
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert len(elements.all("details")) == 1 and len(elements.all("caption")) == 2
    assert "Lead with <code>code</code>.</p>\n<p>Second.</p>" in text
    assert "What was asked" in text and "What was found" in text and "Run it again" in text
    assert "0.90 [0.73, 0.95]" in text
    for scheme in ("prefers-color-scheme: dark", "@media print"):
        assert scheme in text


def test_written_whole_and_the_same_every_time(cells, heads, tmp_path):
    first = write_page(tmp_path / "out" / "report.html", "t", "l", sections(cells, heads))
    second = write_page(tmp_path / "again.html", "t", "l", sections(cells, heads))
    assert first.read_bytes() == second.read_bytes()
    assert re.match(r"<!doctype html>\n<html", first.read_text())


def test_a_page_too_large_is_not_written(cells, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "LARGEST", 30_000)
    large = Section("Large", "q", panels=[TablePanel(pd.DataFrame({"x": range(2000)}), "c")])
    with pytest.raises(RunError, match=r"0\.1 MB.*'Large'"):
        write_page(tmp_path / "report.html", "t", "l", [Section("Small", "q"), large])
    assert not list(tmp_path.iterdir())


def test_two_sections_of_one_title():
    with pytest.raises(InputError, match="two sections are called 'A b'"):
        page_text("t", "l", [Section("A b", "q"), Section("a-B", "q")])
