"""The report in a real browser: it shows its figures, sorts, fits a phone and paper, and asks no network."""

from __future__ import annotations

import pytest

from iblurry.experiment.journal import NewClass, Query, Start, TaskEnd
from iblurry.studies.report import render_page, report_data
from tests.studies.written import rewrite, spend, stop, usual, write_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Joint, clib with three seeds, er with two and a third under way, one row with a long name and two classes."""
    place = tmp_path_factory.mktemp("report")
    for seed in (1, 2, 3):
        folder, *_ = write_run(place / "runs", usual("clib", seed), 71)
        spend(folder, training=1_600_000, losses=50_000_000, distillation=0, parts=0, queries=100_000 + seed)
        folder, *_ = write_run(place / "runs", usual("er", seed), 57)
        spend(folder, training=1_600_000, losses=0, parts=800_000, queries=100_000)  # before there was distillation
    stop(folder, 6)
    long = usual("clib", memory=500, query_every=20)
    folder, *_ = write_run(place / "runs", long, 40)  # which counted nothing
    rewrite(
        folder,
        Start(long.digest, 100, (20, 40, 60, 80, 100), 50),
        NewClass(1, "a class with quite a long name"),
        Query(50, 2, (5,), (10,), 0.2, 50),
        NewClass(51, "<b>"),
        Query(100, 4, (5, 2), (10, 10), 0.1, 100),
        TaskEnd(100, 4, (5, 2), (10, 10), 0.1, 100),
    )
    write_run(place / "runs", usual("joint", 1), 80)
    (place / "page.html").write_text(render_page(report_data(place / "runs")), "utf-8")
    return place / "page.html"


@pytest.fixture(params=[(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")], ids=lambda p: f"{p[0]}-{p[1]}")
def shown(browser, written, request):
    """The page at one width; no complaint, no request but for the file itself."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(5000)
    tab = context.new_page()
    troubles, asked = [], []
    tab.on("console", lambda message: troubles.append(message.text))
    tab.on("pageerror", lambda error: troubles.append(str(error)))

    def watch(route):
        asked.append(route.request.url)
        route.continue_() if route.request.url == written.as_uri() else route.abort()

    tab.route("**/*", watch)
    tab.goto(written.as_uri())
    yield tab
    assert troubles == []
    assert asked == [written.as_uri()]
    context.close()


def names(tab):
    return [text.strip() for text in tab.locator("table").first.locator("tbody th").all_inner_texts()]


def test_nothing_sticks_out(shown):
    width = shown.viewport_size["width"]
    for details in shown.locator("summary").all():
        if details.is_visible():
            details.click()
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    for box in shown.locator("section section, .cards div, figure img").all():
        edges = box.bounding_box()
        if edges is not None:
            assert edges["x"] >= 0
            assert edges["x"] + edges["width"] <= width


def test_a_heading_sorts(shown):
    heads = shown.locator("table").first.locator("thead button")
    before = names(shown)
    assert before == ["clib", "clib query_every=20", "er", "joint"]
    heads.nth(2).click()  # A_AUC: the largest first
    assert names(shown) == ["clib", "er", "clib query_every=20", "joint"]  # which has none
    assert shown.locator("th[aria-sort=descending]").inner_text().startswith("A")
    heads.nth(2).focus()
    shown.keyboard.press("Enter")
    assert names(shown) == ["clib query_every=20", "er", "clib", "joint"]
    heads.nth(0).click()
    assert names(shown) == before
    assert shown.locator("th[aria-sort]").count() == 1


def test_figures_are_there_and_can_be_read_aloud(shown):
    pictures = shown.locator("figure img").all()
    assert len(pictures) == 4
    for picture in pictures:
        assert picture.evaluate("image => image.complete && image.naturalWidth") > 100
        assert "clib" in picture.get_attribute("alt").lower()


def test_on_paper_everything_is_open_and_light(shown):
    shown.emulate_media(media="print")
    shown.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert shown.locator("details:not([open])").count() == 0
    assert shown.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--card').trim()") == "#ffffff"
