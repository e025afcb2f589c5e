"""The live page in a real browser: it follows a service that learns nothing, and fits."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from iblurry.live.quota import Refusal
from tests.live.browsing import file, learning, png, settled, wait_for_text

pytestmark = pytest.mark.slow


def labels(tab):
    return tab.locator("#classes tbody th").all_inner_texts()


def test_what_happens_appears_without_reload(toy, site, visit):
    tab = visit(site.url)
    settled(tab)
    assert tab.locator("#curves-none").is_visible()
    assert tab.locator("#classes-none").is_visible()
    tab.evaluate("window.same = true")
    toy.changes = {"state": "learning", "sentence": "Learning.", "queue": 950}
    learning(toy)
    settled(tab, "learning")
    tab.wait_for_selector("#curves[data-points='39']")
    assert not tab.locator("#curves-none").is_visible()
    wait_for_text(tab, "#classes", "bird")
    assert labels(tab) == ["cat", "dog", "bird"]
    assert tab.inner_text("#learnt") == "740"
    assert tab.locator("#queue-bar").evaluate("bar => bar.style.width") == "95%"
    assert tab.locator("#queue-bar.full").count() == 1
    toy.teach("frog")
    wait_for_text(tab, "#classes", "frog")
    assert tab.locator("tr.new th", has_text="frog").count() == 1
    assert "frog" in tab.text_content("#spoken")
    before = tab.evaluate("document.querySelector('#curves canvas').toDataURL()")
    toy.point(900, 0.9, 0.95)
    tab.wait_for_selector("#curves[data-points='40']")
    tab.wait_for_function("old => document.querySelector('#curves canvas').toDataURL() !== old", arg=before)
    assert tab.evaluate("window.same") is True


def test_many_points_are_drawn_a_few_times(toy, site, visit):
    learning(toy)
    tab = visit(site.url)
    tab.wait_for_selector("#curves[data-points='39']")
    count = "(window.drawn = 0, CanvasRenderingContext2D.prototype.clearRect = () => { window.drawn += 1; })"
    tab.evaluate(count)
    for i in range(40, 640):
        toy.point(i * 20, 0.7, 0.8)
    tab.wait_for_selector("#curves[data-points='639']")
    assert 1 <= tab.evaluate("window.drawn") <= 200  # two charts, and not 600 times
    toy.points = toy.points[::2]  # as a service thins its history
    for i in range(640, 900):
        toy.point(i * 20, 0.7, 0.8)
    tab.wait_for_selector("#curves[data-points='580']")  # they were so many that it was asked for
    assert site.paths.count("/v1/history") == 2


def test_curves_are_read_and_zoomed(toy, site, visit):
    learning(toy)
    tab = visit(site.url)
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
    toy.point(800, 0.9, 0.95)  # beyond what is seen
    tab.wait_for_selector("#curves[data-points='40']")
    assert tab.evaluate(picture) == zoomed
    tab.locator(".plot").focus()
    tab.keyboard.press("0")
    tab.wait_for_function(f"old => {picture} !== old", arg=zoomed)


def test_a_heading_sorts_and_stays_sorted(toy, site, visit):
    learning(toy)
    tab = visit(site.url)
    wait_for_text(tab, "#classes", "bird")
    head = tab.locator("button[data-by=label]")
    head.click()
    assert labels(tab) == ["bird", "cat", "dog"]
    toy.teach("ant", 3)
    wait_for_text(tab, "#classes", "ant")
    assert labels(tab)[0].startswith("ant")
    head.focus()
    tab.keyboard.press("Enter")
    assert [label.split()[0] for label in labels(tab)] == ["dog", "cat", "bird", "ant"]
    assert tab.locator("th[aria-sort=descending]").count() == 1
    head.click()
    assert [label.split()[0] for label in labels(tab)] == ["cat", "dog", "bird", "ant"]  # as they arrived
    assert tab.locator("th[aria-sort]").count() == 0


def test_the_memory_is_fetched_when_it_is_seen(toy, site, visit):
    learning(toy)
    tab = visit(site.url, height=500)
    wait_for_text(tab, "#classes", "bird")
    assert "/v1/memory" not in site.paths
    tab.locator("#memory").scroll_into_view_if_needed()
    tab.wait_for_selector("#sheet li")
    assert tab.locator("#sheet ul").nth(0).locator("li").count() == 10
    assert tab.locator("#sheet h3").first.inner_text().split("\n") == ["bird", "90 held, 10 shown"]
    levels = tab.locator("#sheet li").evaluate_all("items => items.map((li) => +li.style.getPropertyValue('--level'))")
    assert levels[0] == 1
    assert levels[:10] == sorted(levels[:10], reverse=True)
    tab.locator("#sheet li").first.focus()
    tab.keyboard.press("ArrowRight")
    assert "importance 73.7" in tab.inner_text("#closer")
    tab.keyboard.press("ArrowDown")
    assert "cat" in tab.inner_text("#closer")
    assert tab.locator("#sheet li[tabindex='0']").count() == 1
    first = tab.locator("#sheet li").first.element_handle()
    tab.select_option("#each", "5")
    tab.wait_for_function("() => document.querySelector('#sheet ul').children.length === 5")
    assert first.evaluate("item => item.isConnected")  # what stays is not drawn anew


def test_a_memory_without_pictures_says_why(toy, site, visit):
    toy.has_pictures = False
    learning(toy)
    tab = visit(site.url)
    tab.locator("#memory").scroll_into_view_if_needed()
    tab.wait_for_selector("#sheet li")
    assert tab.locator("#sheet img").count() == 0
    sizes = tab.locator("#sheet .blank").evaluate_all("all => all.map((one) => [one.clientWidth, one.clientHeight])")
    assert len(sizes) == 30
    assert min(min(size) for size in sizes) >= 30
    tab.locator("#sheet li").first.focus()
    assert "features of the frozen network" in tab.inner_text("#closer")
    assert tab.locator("#closer img").count() == 0


def test_it_connects_again_by_itself(toy, site, visit):
    learning(toy)
    tab = visit(site.url)
    settled(tab)
    site.stop()
    tab.wait_for_selector("#lost:not([hidden])")
    assert tab.inner_text("#state") == "no connection"
    toy.points = toy.points[:10]  # it comes back from an earlier checkpoint
    toy.teach("frog", 8)
    site.start()
    settled(tab)
    assert not tab.locator("#lost").is_visible()
    wait_for_text(tab, "#classes", "frog")
    tab.wait_for_selector("#curves[data-points='10']")


@pytest.mark.parametrize("width, filled", [(360, True), (360, False), (700, True), (1280, True)])
def test_nothing_sticks_out(toy, site, visit, width, filled):
    if filled:
        learning(toy)
        toy.teach("W" * 200, 12)
        toy.teach("many words " * 18, 12)
    toy.changes = {"sentence": "A sentence of the service. " * 6, "accepted": 123_456_789, "learnt": 123_456_789}
    tab = visit(site.url, width=width, height=3000)
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


def record_texts(tab):
    """From now on, `drawn` gives what is written on canvases."""
    tab.evaluate("""() => {
        const draw = CanvasRenderingContext2D.prototype.fillText;
        window.texts = [];
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
            window.texts.push(text);
            return draw.call(this, text, ...rest);
        };
    }""")


def wait_for_drawn(tab, text):
    tab.wait_for_function("text => window.texts.includes(text)", arg=text)


def test_new_classes_are_named_at_their_marks(toy, site, visit):
    learning(toy)
    tab = visit(site.url)
    tab.wait_for_selector("#curves[data-points='39']")
    wait_for_text(tab, "#classes", "bird")
    tab.locator(".plot").focus()
    tab.keyboard.press("ArrowRight")
    assert "new class" in tab.text_content(".plot .spoken")
    assert "cat" in tab.text_content(".plot .spoken")  # its first sample was the first
    tab.keyboard.press("ArrowRight")
    assert "new class" not in tab.text_content(".plot .spoken")
    for _ in range(19):
        tab.keyboard.press("ArrowRight")
    assert "420 samples" in tab.text_content(".plot .spoken")
    assert "dog" in tab.text_content(".plot .spoken")  # the 401st
    before = tab.evaluate("document.querySelector('#curves canvas').toDataURL()")
    record_texts(tab)
    toy.samples = toy.samples[:100]  # as after corrections
    toy.teach("wolf", 640)
    tab.wait_for_function("old => document.querySelector('#curves canvas').toDataURL() !== old", arg=before)
    wait_for_drawn(tab, "cat")
    wait_for_drawn(tab, "wolf")


def test_window_and_axis_are_chosen(toy, site, visit):
    toy.teach("cat", 400)
    for at in range(20, 2020, 20):
        toy.point(at, 0.5 if at <= 1000 else 500 / at, 0.5)  # right half the time, then never
    tab = visit(site.url)
    tab.wait_for_selector("#curves[data-points='100']")

    def last():
        tab.locator(".plot").focus()
        tab.keyboard.press("ArrowLeft")
        tab.keyboard.press("ArrowRight")
        return tab.inner_text(".plot .tip").replace("\n", " ")

    record_texts(tab)
    assert "last 1,000 0.0 %" in last()
    assert tab.inner_text("#recent-key") == "last 1,000"
    tab.select_option("#window", "10000")
    wait_for_text(tab, "#recent-key", "last 10,000")
    assert "last 2,000 25.0 %" in last()  # all there are
    tab.select_option("#window", "100")
    wait_for_text(tab, "#recent-key", "last 100")
    before = tab.evaluate("document.querySelector('#curves canvas').toDataURL()")
    wait_for_drawn(tab, "1,500")
    wait_for_drawn(tab, "samples learnt")
    tab.select_option("#axis", "time")
    changed = "old => ![undefined, old].includes(document.querySelector('#curves canvas')?.toDataURL())"
    tab.wait_for_function(changed, arg=before)
    assert tab.locator(".plot").count() == 1
    wait_for_drawn(tab, "time of acceptance")
    tab.evaluate("window.texts = []")
    toy.point(2020, 500 / 2020, 0.5)
    wait_for_drawn(tab, "time of acceptance")
    assert "1,500" not in tab.evaluate("window.texts")
    assert any(re.fullmatch(r"\d\d:\d\d", text) for text in tab.evaluate("window.texts"))
    assert "last 100 0.0 %" in last()


def test_a_window_is_never_called_shorter_than_it_is(toy, site, visit):
    toy.teach("cat", 4000)
    for at in range(500, 4001, 500):
        toy.point(at, 0.5, 0.5)
    tab = visit(site.url)
    tab.wait_for_selector("#curves[data-points='8']")
    tab.select_option("#window", "100")
    wait_for_text(tab, "#recent-key", "last 500")


def test_held_out_samples_have_a_curve(toy, site, visit):
    learning(toy)
    tab = visit(site.url)
    tab.wait_for_selector("#curves[data-points='39']")
    assert not tab.locator("#held-out-key").is_visible()
    toy.changes = {"held_out": 40, "held_out_accuracy": 0.925}
    toy.teach("cat")
    toy.point(800, 0.9, 0.95, held_out_accuracy=0.925)
    tab.wait_for_selector("#curves[data-points='40']")
    wait_for_text(tab, "#held-out-key", "held out: 92.5 % of 40")
    tab.locator(".plot").focus()
    tab.keyboard.press("ArrowLeft")
    assert "92.5 %" in tab.text_content(".plot .spoken")


def test_which_classes_are_confused(toy, site, visit):
    toy.confused = [("cat", "cat", 30), ("cat", "dog", 7), ("dog", "dog", 5), ("dog", None, 1)]
    learning(toy)
    tab = visit(site.url, height=3000)
    wait_for_text(tab, "#confusion-key", "8 of 43 recent answers were wrong; cat taken for dog 7×")
    rows = tab.locator("#confusion tr").all_inner_texts()
    assert [[cell.strip() for cell in row.split("\t")] for row in rows] == [
        ["true class", "cat", "dog", "others"],
        ["cat", "30", "7", "·"],
        ["dog", "·", "5", "1"],
    ]
    assert tab.locator("#confusion td.wrong").all_inner_texts() == ["7", "1"]
    toy.confused = [(f"class {i}", f"class {i + (i % 3 == 0)}", 10 + i) for i in range(300)]
    toy.teach("cat")
    wait_for_text(tab, "#confusion-key", "class 297 taken for class 298 307×")
    assert tab.locator("#confusion tr").count() == 14  # heading, twelve and the others
    counts = tab.locator("#confusion td").all_inner_texts()
    assert sum(int(text.replace(",", "")) for text in counts if text != "·") == sum(10 + i for i in range(300))


@pytest.mark.parametrize("kind, name", [("Model, torch (.pt2)", "model.pt2"), ("History (.csv)", "history.csv")])
def test_model_and_history_are_downloaded(toy, site, visit, kind, name):
    site.token = "open-sesame"
    learning(toy)
    tab = visit(site.url)
    tab.wait_for_selector("dialog[open]")
    tab.keyboard.type("open-sesame")
    tab.keyboard.press("Enter")
    settled(tab)
    with tab.expect_download() as download:
        tab.get_by_role("button", name=kind).click()
    assert download.value.suggested_filename == name
    content = Path(download.value.path()).read_text()
    if name == "model.pt2":
        assert content == "pt2" * 200_000
        assert "740 of 741" in tab.inner_text("#save-note")
    else:
        rows = list(csv.DictReader(io.StringIO(content)))
        assert len(rows) == 39
        assert float(rows[3]["accuracy"]) == toy.points[3]["accuracy"]


def test_a_model_that_is_refused_is_explained(toy, site, visit):
    site.troubles = [("/v1/model", Refusal(422, "needs_onnx", "ONNX is an extra: install it."))]
    learning(toy)
    tab = visit(site.url)
    tab.get_by_role("button", name="Model, ONNX").click()
    wait_for_text(tab, "#save-note", "ONNX is an extra: install it.")
    assert tab.get_by_role("button", name="Model, ONNX").is_enabled()


def top_of(tab, selector):
    return tab.locator(selector).bounding_box()["y"]


@pytest.mark.parametrize("width", [360, 1280])
def test_asking_and_teaching_come_first_on_a_phone(toy, site, visit, width):
    learning(toy)
    tab = visit(site.url, width=width, height=3000)
    tab.wait_for_selector("#curves[data-points='39']")
    places = [top_of(tab, name) for name in ("#try", "#cards", "#curves-panel", "#classes-panel", "#memory")]
    if width == 360:
        assert places == sorted(places)
    else:
        assert places[1] < places[0] == places[2]  # numbers above, curves beside


def test_pictures_are_shown_as_they_are(toy, site, visit):
    learning(toy)
    tab = visit(site.url, height=3000)
    tab.set_input_files("#files", [file("small.png"), file("large.png", png(size=300))])
    tab.wait_for_selector("#sheet img.small")
    tab.wait_for_selector("#tray img.small")
    style = "image => [getComputedStyle(image).opacity, getComputedStyle(image).imageRendering]"
    assert {tuple(one.evaluate(style)) for one in tab.locator("#sheet img").all()} == {("1", "pixelated")}
    assert [one.evaluate(style)[1] for one in tab.locator("#tray img").all()] == ["pixelated", "auto"]


def test_dark_when_the_reader_likes_it_dark(toy, site, visit):
    learning(toy)
    tab = visit(site.url, scheme="dark")
    tab.wait_for_selector("#curves[data-points='39']")
    colour = "getComputedStyle(document.querySelector('section')).backgroundColor"
    assert tab.evaluate(colour) == "rgb(23, 27, 32)"
    dark = tab.evaluate("document.querySelector('#curves canvas').toDataURL()")
    tab.emulate_media(color_scheme="light")
    tab.wait_for_function("old => document.querySelector('#curves canvas').toDataURL() !== old", arg=dark)
    assert tab.evaluate(colour) == "rgb(255, 255, 255)"
