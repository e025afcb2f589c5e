"""The report in a real browser: it draws, sorts, hides, zooms, fits a phone, and asks no network."""

from __future__ import annotations

import pytest

from iblurry.experiment.journal import NewClass, Query, Start, TaskEnd
from iblurry.studies.report.data import report_data
from iblurry.studies.report.page import render_page
from tests.studies.test_report_data import rewrite, stop
from tests.studies.written import spend, usual, write_run

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
    tab.wait_for_selector(".u-over")
    yield tab
    assert troubles == []
    assert asked == [written.as_uri()]
    context.close()


def picture(tab, kind="accuracy"):
    """What is drawn in a chart."""
    return tab.evaluate(f"document.querySelector('.chart[data-kind={kind}] canvas').toDataURL()")


def names(tab):
    return [text.strip() for text in tab.locator("table").first.locator("tbody th").all_inner_texts()]


def test_nothing_sticks_out(shown):
    width = shown.viewport_size["width"]
    for details in shown.locator("summary").all():
        if details.is_visible():
            details.click()
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    for box in shown.locator("section section, .cards div, .plot, .map").all():
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


def test_a_line_is_hidden_and_shown_again(shown):
    whole, rates = picture(shown), picture(shown, "rate")
    button = shown.locator(".legend").get_by_role("button", name="CLIB", exact=True)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    shown.wait_for_function("before => document.querySelector('.chart canvas').toDataURL() !== before", arg=whole)
    assert picture(shown, "rate") != rates
    button.press("Space")
    assert button.get_attribute("aria-pressed") == "true"
    shown.wait_for_function("before => document.querySelector('.chart canvas').toDataURL() === before", arg=whole)


def test_hovering_reads_the_values(shown):
    over = shown.locator(".chart[data-kind=accuracy] .u-over")
    over.scroll_into_view_if_needed()
    size = over.bounding_box()
    shown.mouse.move(size["x"] + size["width"] * 0.4, size["y"] + 40)
    tip = shown.locator(".chart[data-kind=accuracy] .tip")
    assert tip.inner_text().startswith("40 samples")
    assert "CLIB" in tip.inner_text()
    assert "Joint" not in tip.inner_text()  # it was not asked there
    assert " ± " in tip.inner_text()
    place = tip.bounding_box()
    assert place["x"] >= 0
    assert place["x"] + place["width"] <= shown.viewport_size["width"]


def test_zoom_by_pointer_and_by_keys(shown):
    over = shown.locator(".chart[data-kind=accuracy] .u-over")
    over.scroll_into_view_if_needed()
    whole, rates = picture(shown), picture(shown, "rate")
    size = over.bounding_box()
    shown.mouse.move(size["x"] + size["width"] * 0.2, size["y"] + 60)
    shown.mouse.down()
    shown.mouse.move(size["x"] + size["width"] * 0.7, size["y"] + 60, steps=4)
    shown.mouse.up()
    changed = "([kind, before]) => document.querySelector(`.chart[data-kind=${kind}] canvas`).toDataURL() !== before"
    shown.wait_for_function(changed, arg=["accuracy", whole])
    shown.wait_for_function(changed, arg=["rate", rates])  # they zoom together
    shown.get_by_role("button", name="Show all").click()
    shown.wait_for_function(changed.replace("!==", "==="), arg=["accuracy", whole])
    shown.locator(".plot").first.focus()
    shown.keyboard.press("ArrowRight")
    shown.keyboard.press("ArrowRight")
    assert "10 samples" in shown.locator(".spoken").first.text_content()
    shown.keyboard.press("+")
    shown.wait_for_function(changed, arg=["accuracy", whole])
    shown.keyboard.press("0")
    shown.wait_for_function(changed.replace("!==", "==="), arg=["accuracy", whole])


def test_tabs_seeds_and_marks(shown):
    tabs = shown.get_by_role("tab")
    panels = shown.locator(".tabs").first.locator(".tab")
    assert [panel.is_visible() for panel in panels.all()] == [True, False, False, False]
    tabs.nth(0).focus()
    shown.keyboard.press("ArrowRight")
    assert [panel.is_visible() for panel in panels.all()] == [False, True, False, False]
    assert shown.locator(".map").count() == 4
    shown.get_by_role("button", name="seed 2").click()
    assert shown.locator(".map h4").all_inner_texts() == ["CLIB", "ER"]
    whole = picture(shown)
    shown.get_by_label("tasks").uncheck()
    shown.wait_for_function("before => document.querySelector('.chart canvas').toDataURL() !== before", arg=whole)


def test_what_was_spent(shown):
    section = shown.locator("section section", has=shown.get_by_role("heading", name="Compute and memory"))
    lines = section.locator("tbody tr")

    def read():
        rows = [line.locator("th, td").all_inner_texts() for line in lines.all() if line.is_visible()]
        return [[text.strip() for text in row] for row in rows]

    clib, er = read()
    assert (clib[0], clib[1], er[0], er[1]) == ("clib", "3", "er", "2")
    assert clib[3:] == ["54.8", "4.80", "50.0", "0", "0", "0", "0.100"]  # TFLOP of a million operations each
    assert er[3:] == ["5.60", "4.80", "0", "0", "0.800", "0", "0.100"]
    per = shown.locator("table").first.locator("tbody tr").first.locator("td").nth(1).get_attribute("data-value")
    assert float(clib[2].split(" ± ")[0]) == pytest.approx(float(per) / 54.8, abs=0.01)
    assert "query_every=20" in section.locator(".note").inner_text()
    section.locator("thead button", has_text="per TFLOP").first.click()
    assert [row[0] for row in read()] == ["er", "clib"]  # the most accuracy per compute first
    section.get_by_role("tab", name="Images").click()
    assert [row[2:] for row in read() if row[0] == "er"] == [
        ["100", "1,600,000 / 1,600,000", "0", "0", "800,000 / 0", "0", "100,000 / 0"]
    ]
    section.get_by_role("tab", name="Bytes").click()
    assert [row[2:] for row in read() if row[0] == "er"] == [["7.00", "5.00", "0", "0", "2.00", "<0.001", "0"]]
    section.get_by_role("link", name="What is counted").click()
    told = shown.locator("#counted")
    at = "height => Math.abs(document.getElementById('counted').getBoundingClientRect().top) < height"
    shown.wait_for_function(at, arg=shown.viewport_size["height"])
    for word in ("batches", "memory's loss", "distillation", "other parts", "queries", "other models"):
        assert told.locator("dt").get_by_text(word, exact=True).count() == 1


def test_on_paper_everything_is_open_and_light(shown):
    shown.emulate_media(media="print")
    shown.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert all(panel.is_visible() for panel in shown.locator(".tab").all())
    assert shown.locator("details:not([open])").count() == 0
    assert not shown.locator(".copy").first.is_visible()
    assert shown.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--card').trim()") == "#ffffff"
    shown.evaluate("dispatchEvent(new Event('afterprint'))")
    assert shown.locator("details[open]").count() == 0
