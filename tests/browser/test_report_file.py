"""Tests in Chromium a report's page that is opened from a disk, without a server."""

import pytest
from browser.conftest import visit
from playwright.sync_api import expect

from mlcl.report.document import Details, Document, Picture, ReportSection, ReportTable, text_row
from mlcl.report.plots.charts import Axis, chart_plot, series, to_svg
from mlcl.report.report_files import as_html

LONG = "objective.heads.section.temperature_of_a_long_name"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Writes a page with a wide table, folded sections and one plot, and returns its path."""
    line = series("ours", [1.0, 2.0, 3.0], [0.5, 0.7, 0.6])
    axes = Axis("step"), Axis("accuracy")
    plot = chart_plot("curve", "Accuracy by step", "One line.", [line], *axes)
    wide_table = ReportTable(tuple(f"{LONG}_{n}" for n in range(9)), (text_row(*[LONG] * 9),))
    seeds = ReportTable(("setting", "seed"), (text_row("as written", "1"),))
    sections = (
        ReportSection("Result", ("A paragraph. " * 200, wide_table, Details("Every seed", (seeds,)))),
        ReportSection("Plots", (Picture(plot), Details("Not drawn", (seeds,)))),
        ReportSection("The end", ("A paragraph. " * 200,)),
    )
    document = Document(f"Sweep {LONG}", "About it", sections)
    path = tmp_path_factory.mktemp("page") / "report.html"
    images = {plot.name: to_svg(plot.figure())}
    path.write_text(as_html(document, images, "http://nowhere.example/{}".format, "today"), encoding="utf-8")
    return path


@pytest.fixture
def told():
    """Returns the list of the browser's requests and error messages."""
    return []


@pytest.fixture
def page(chromium, report, told):
    """Yields the page in a browser without history."""
    with visit(chromium, None) as page:
        page.on("request", lambda request: told.append(request.url))
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.goto(report.as_uri())
        yield page


def test_the_plot_is_drawn_across_the_column_and_nothing_is_fetched(page, told, report):
    picture = page.locator("figure img")
    assert picture.evaluate("image => image.complete && image.naturalWidth > 0")
    assert picture.bounding_box()["width"] > 600
    assert [url for url in told if not url.startswith("data:")] == [report.as_uri()]


def test_the_keyboard_goes_on_from_where_a_link_led(page):
    page.get_by_role("link", name="Plots").focus()
    page.keyboard.press("Enter")
    expect(page.locator("section", has_text="Accuracy by step")).to_be_focused()
    expect(page.get_by_role("heading", name="Plots")).to_be_in_viewport()
    page.keyboard.press("Tab")
    expect(page.get_by_text("The figures of this plot")).to_be_focused()


def test_tables_have_names_for_who_hears_the_page(page):
    page.get_by_text("Every seed").click()
    table = page.get_by_role("region", name="Every seed")
    expect(table.get_by_role("rowheader", name="as written")).to_be_visible()
    expect(table.get_by_role("columnheader")).to_have_text(["setting", "seed"])


def test_in_print_an_open_fold_has_its_title(page):
    page.get_by_text("Every seed").click()
    page.emulate_media(media="print")
    expect(page.get_by_text("Every seed")).to_be_visible()
    expect(page.get_by_text("Every seed")).to_have_css("font-weight", "700")
    for title in ("Not drawn", "The figures of this plot"):
        expect(page.get_by_text(title)).to_be_hidden()


def test_a_telephone_scrolls_tables_and_not_the_page(page):
    page.set_viewport_size({"width": 360, "height": 640})
    for fold in page.locator("summary").all():
        fold.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.querySelector('.scroll').scrollWidth") > 360
