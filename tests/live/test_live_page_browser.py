"""The live page in a real browser: it follows a service that only talks like one, and fits."""

from __future__ import annotations

import pytest

from tests.live.browsing import file, learning, settled, wait_for_text
from tests.live.fake_service import png

pytestmark = pytest.mark.slow


def labels(tab):
    return tab.locator("#classes tbody th").all_inner_texts()


def test_what_happens_appears_without_reload(fake, visit):
    tab = visit(fake.url)
    settled(tab)
    assert tab.locator("#curves-none").is_visible()
    assert tab.locator("#classes-none").is_visible()
    tab.evaluate("window.same = true")
    fake.changes = {"state": "learning", "sentence": "Learning.", "queue": 950}
    learning(fake)
    settled(tab, "learning")
    tab.wait_for_selector("#curves[data-points='39']")
    assert not tab.locator("#curves-none").is_visible()
    wait_for_text(tab, "#classes", "bird")
    assert labels(tab) == ["cat", "dog", "bird"]
    assert tab.inner_text("#learnt") == "740"
    assert tab.locator("#queue-bar").evaluate("bar => bar.style.width") == "95%"
    assert tab.locator("#queue-bar.full").count() == 1
    fake.seen["frog"] = 1
    fake.tell("class", {"label": "frog"})
    wait_for_text(tab, "#classes", "frog")
    assert tab.locator("tr.new th", has_text="frog").count() == 1
    assert "frog" in tab.text_content("#spoken")
    before = tab.evaluate("document.querySelector('#curves canvas').toDataURL()")
    fake.point(900, 0.9, 0.95)
    tab.wait_for_selector("#curves[data-points='40']")
    tab.wait_for_function("old => document.querySelector('#curves canvas').toDataURL() !== old", arg=before)
    assert tab.evaluate("window.same") is True


def test_many_points_are_drawn_a_few_times(fake, visit):
    tab = visit(learning(fake).url)
    tab.wait_for_selector("#curves[data-points='39']")
    count = "(window.drawn = 0, CanvasRenderingContext2D.prototype.clearRect = () => { window.drawn += 1; })"
    tab.evaluate(count)
    for i in range(40, 640):
        fake.point(i * 20, 0.7, 0.8)
    tab.wait_for_selector("#curves[data-points='639']")
    assert 1 <= tab.evaluate("window.drawn") <= 200  # two charts, and not 600 times
    fake.points = fake.points[::2]  # as a service thins its history
    for i in range(640, 900):
        fake.point(i * 20, 0.7, 0.8)
    tab.wait_for_selector("#curves[data-points='580']")  # they were so many that it was asked for
    assert fake.asked.count("/v1/history") == 2


def test_curves_are_read_and_zoomed(fake, visit):
    tab = visit(learning(fake).url)
    tab.wait_for_selector("#curves[data-points='39']")
    tab.locator(".plot").focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert "40 samples" in tab.text_content(".plot .spoken")
    over = tab.locator(".u-over").first.bounding_box()
    tab.mouse.move(over["x"] + over["width"] * 0.2, over["y"] + 60)
    tab.mouse.down()
    tab.mouse.move(over["x"] + over["width"] * 0.6, over["y"] + 60, steps=4)
    tab.mouse.up()
    picture = "document.querySelector('#curves canvas').toDataURL()"
    zoomed = tab.evaluate(picture)
    fake.point(800, 0.9, 0.95)  # beyond what is seen
    tab.wait_for_selector("#curves[data-points='40']")
    assert tab.evaluate(picture) == zoomed
    tab.locator(".plot").focus()
    tab.keyboard.press("0")
    tab.wait_for_function(f"old => {picture} !== old", arg=zoomed)


def test_a_heading_sorts_and_stays_sorted(fake, visit):
    tab = visit(learning(fake).url)
    wait_for_text(tab, "#classes", "bird")
    head = tab.locator("button[data-by=label]")
    head.click()
    assert labels(tab) == ["bird", "cat", "dog"]
    fake.learn("ant", 3)
    wait_for_text(tab, "#classes", "ant")
    assert labels(tab)[0].startswith("ant")
    head.focus()
    tab.keyboard.press("Enter")
    assert [label.split()[0] for label in labels(tab)] == ["dog", "cat", "bird", "ant"]
    assert tab.locator("th[aria-sort=descending]").count() == 1
    head.click()
    assert [label.split()[0] for label in labels(tab)] == ["cat", "dog", "bird", "ant"]  # as they arrived
    assert tab.locator("th[aria-sort]").count() == 0


def test_the_memory_is_fetched_when_it_is_seen(fake, visit):
    tab = visit(learning(fake).url, height=500)
    wait_for_text(tab, "#classes", "bird")
    assert "/v1/memory" not in fake.asked
    tab.locator("#memory").scroll_into_view_if_needed()
    tab.wait_for_selector("#sheet li")
    assert tab.locator("#sheet ul").nth(0).locator("li").count() == 10
    assert tab.locator("#sheet h3").first.inner_text().split("\n") == ["cat", "50 held, 10 shown"]
    levels = tab.locator("#sheet li").evaluate_all("items => items.map((li) => +li.style.getPropertyValue('--level'))")
    assert levels[0] == 1
    assert levels[:10] == sorted(levels[:10], reverse=True)
    tab.locator("#sheet li").first.focus()
    tab.keyboard.press("ArrowRight")
    assert "importance 0.27" in tab.inner_text("#closer")
    tab.keyboard.press("ArrowDown")
    assert "dog" in tab.inner_text("#closer")
    assert tab.locator("#sheet li[tabindex='0']").count() == 1
    first = tab.locator("#sheet li").first.element_handle()
    tab.select_option("#each", "5")
    tab.wait_for_function("() => document.querySelector('#sheet ul').children.length === 5")
    assert first.evaluate("item => item.isConnected")  # what stays is not drawn anew


def test_it_connects_again_by_itself(fake, visit):
    tab = visit(learning(fake).url)
    settled(tab)
    fake.stop()
    tab.wait_for_selector("#lost:not([hidden])")
    assert tab.inner_text("#state") == "no connection"
    fake.points = fake.points[:10]  # it comes back from an earlier checkpoint
    fake.learn("frog", 8)
    fake.start()
    settled(tab)
    assert not tab.locator("#lost").is_visible()
    wait_for_text(tab, "#classes", "frog")
    tab.wait_for_selector("#curves[data-points='10']")


@pytest.mark.parametrize("width, filled", [(360, True), (360, False), (700, True), (1280, True)])
def test_nothing_sticks_out(fake, visit, width, filled):
    if filled:
        learning(fake)
        fake.learn("W" * 200, 12)
        fake.learn("many words " * 18, 12)
    fake.changes = {"sentence": "A sentence of the service. " * 6, "accepted": 123_456_789, "learnt": 123_456_789}
    tab = visit(fake.url, width=width, height=3000)
    settled(tab)
    if filled:
        tab.wait_for_selector("#sheet li")
        tab.wait_for_selector("#curves[data-points='39']")
        tab.set_input_files("#files", [file("a-very-long-name-" * 12 + ".png")])
        wait_for_text(tab, "#tray", "72 %")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    for box in tab.locator("section, .cards div, .plot, .tray > li, .drop, .teach button").all():
        edges = box.bounding_box()
        if edges is not None:
            assert edges["x"] >= 0
            assert edges["x"] + edges["width"] <= width


def top_of(tab, selector):
    return tab.locator(selector).bounding_box()["y"]


@pytest.mark.parametrize("width", [360, 1280])
def test_asking_and_teaching_come_first_on_a_phone(fake, visit, width):
    tab = visit(learning(fake).url, width=width, height=3000)
    tab.wait_for_selector("#curves[data-points='39']")
    places = [top_of(tab, name) for name in ("#try", "#cards", "#curves-panel", "#classes-panel", "#memory")]
    if width == 360:
        assert places == sorted(places)
    else:
        assert places[1] < places[0] == places[2]  # numbers above, curves beside


def test_pictures_are_shown_as_they_are(fake, visit):
    tab = visit(learning(fake).url, height=3000)
    tab.set_input_files("#files", [file("small.png"), file("large.png", png(size=300))])
    tab.wait_for_selector("#sheet img.small")
    tab.wait_for_selector("#tray img.small")
    style = "image => [getComputedStyle(image).opacity, getComputedStyle(image).imageRendering]"
    assert {tuple(one.evaluate(style)) for one in tab.locator("#sheet img").all()} == {("1", "pixelated")}
    assert [one.evaluate(style)[1] for one in tab.locator("#tray img").all()] == ["pixelated", "auto"]


def test_dark_when_the_reader_likes_it_dark(fake, visit):
    tab = visit(learning(fake).url, scheme="dark")
    tab.wait_for_selector("#curves[data-points='39']")
    colour = "getComputedStyle(document.querySelector('section')).backgroundColor"
    assert tab.evaluate(colour) == "rgb(23, 27, 32)"
    dark = tab.evaluate("document.querySelector('#curves canvas').toDataURL()")
    tab.emulate_media(color_scheme="light")
    tab.wait_for_function("old => document.querySelector('#curves canvas').toDataURL() !== old", arg=dark)
    assert tab.evaluate(colour) == "rgb(255, 255, 255)"
