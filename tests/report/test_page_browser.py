"""The page in Debian's chromium: the curve follows pointer and keyboard, console and network stay silent."""

import shutil

import pytest

from poskernel.report.figures import heat_maps, svg_text
from poskernel.report.head_map import head_map
from poskernel.report.page import ChartPanel, FigurePanel, Finding, Section, TablePanel, write_page

CHROMIUM = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on the PATH: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as engine:
        running = engine.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield running
        running.close()


@pytest.fixture
def opened(browser, heads, cells, tmp_path):
    """A page with a figure, a table and a head map, open in the browser; with what it said and asked for."""
    picture = FigurePanel(svg_text(heat_maps(cells, {"alpha": "α"}, title="?")), "a map", "A map.")
    chart = ChartPanel(head_map(heads, {"r2": "R²", "signal": "signal"}, [0, 1, 2, 4, 8, 16, 31]), "heads", "Heads.")
    path = write_page(
        tmp_path / "page.html",
        "A page",
        "Lead.",
        [
            Section("One", "Why?", [Finding("Because.", "0.9")], [picture, TablePanel(cells, "Cells")], command="ls"),
            Section("Two", "And?", panels=[chart]),
        ],
    )
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append((message.type, message.text)))
    page.on("pageerror", lambda error: said.append(("error", str(error))))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("[data-chart=ready]", timeout=20_000)
    yield page, said, asked
    context.close()
    assert said == []
    assert [address for address in asked if not address.startswith("data:")] == [path.as_uri()]


def words(page):
    """Every text drawn in the chart."""
    return page.locator("[data-chart] svg text").all_text_contents()


def drawn(page):
    """The outline of every curve in the chart."""
    return [path.get_attribute("d") for path in page.locator("[data-chart] .mark-line path").all()]


def cell(page, layer, head):
    return page.locator(f"[data-chart] .map_0_marks path[aria-label^='layer {layer}, head {head}:']")


def slider(page, name):
    return page.locator("[data-chart] .vega-bind", has_text=name).locator("input")


def shows(page, layer, head):
    """Wait until the curve's title and the sentence name that head."""
    page.wait_for_function(
        "words => words.every(word => document.querySelector('[data-chart]').textContent.includes(word))",
        arg=[f"g(offset): layer {layer}, head {head}", f"Layer {layer} head {head} looks {head} back."],
        timeout=5_000,
    )


def test_a_click_chooses_the_head(opened):
    page, *_ = opened
    shows(page, 0, 0)
    before = drawn(page)
    cell(page, 2, 3).click()
    shows(page, 2, 3)
    assert drawn(page) != before
    assert (slider(page, "Layer").input_value(), slider(page, "Head").input_value()) == ("2", "3")


def test_sliders_reach_every_head_by_keyboard(opened):
    page, *_ = opened
    before = drawn(page)
    slider(page, "Layer").focus()
    page.keyboard.press("ArrowRight")
    shows(page, 1, 0)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    shows(page, 1, 1)
    assert drawn(page) != before


def test_the_head_under_the_pointer_is_drawn_beside_the_chosen_one(opened):
    page, *_ = opened
    assert not any("Layer 1 head 2" in word for word in words(page))
    curves = len(drawn(page))
    cell(page, 1, 2).hover()
    page.wait_for_function(
        "() => document.querySelector('[data-chart]').textContent.includes('Layer 1 head 2 looks')", timeout=5_000
    )
    assert len(drawn(page)) == curves + 1
    shows(page, 0, 0)


def test_the_menu_changes_what_the_colour_shows(opened):
    page, *_ = opened
    undefined = cell(page, 0, 0).get_attribute("fill")
    assert cell(page, 0, 0).get_attribute("aria-label") == "layer 0, head 0: undefined"
    page.locator("[data-chart] select").select_option(label="signal")
    page.wait_for_selector("[data-chart] path[aria-label='layer 0, head 0: 0']", timeout=5_000, state="attached")
    assert cell(page, 0, 0).get_attribute("fill") != undefined


def test_nothing_sticks_out_on_a_narrow_screen(opened):
    page, *_ = opened
    page.set_viewport_size({"width": 420, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
