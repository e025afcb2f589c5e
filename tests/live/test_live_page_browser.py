"""The live page in a real browser, before a service that only talks like one."""

from __future__ import annotations

import base64
import math

import pytest

from tests.live.fake_service import FakeService, png

EVIL = '<img src=x onerror="window.hacked=1">'


@pytest.fixture
def service():
    started = FakeService().start()
    yield started
    started.stop()


@pytest.fixture
def visit(browser):
    """Opens the page of a service; in the end nothing was complained about, and nobody else was asked."""
    opened = []

    def open_page(service, width=1280, height=900, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        context.set_default_timeout(15000)
        tab = context.new_page()
        troubles, asked = [], []
        tab.on("console", lambda message: troubles.append(message.text))
        tab.on("pageerror", lambda error: troubles.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        opened.append((context, tab, troubles, asked, service.url))
        tab.goto(service.url)
        return tab

    yield open_page
    for context, tab, troubles, asked, home in opened:
        assert tab.evaluate("window.hacked") is None
        assert [text for text in troubles if not text.startswith("Failed to load resource")] == []
        assert [url for url in asked if not url.startswith((home, "data:image/", "blob:" + home))] == []
        context.close()


def learning(service, points=40):
    """A service that has met three classes."""
    service.learn("cat", 400)
    service.learn("dog", 250)
    service.learn("bird", 90)
    for i in range(1, points):
        service.point(i * 20, 0.8 - 0.5 * math.exp(-i / 12), 0.85 - 0.5 * math.exp(-i / 6), 3e-4 * 0.98**i)
    return service


def file(name="one.png", content=None, kind="image/png"):
    return {"name": name, "mimeType": kind, "buffer": png(1, 2) if content is None else content}


def settled(tab, state="idle"):
    tab.wait_for_selector(f"#state[data-state={state}]")


def labels(tab):
    return tab.locator("#classes tbody th").all_inner_texts()


def wait_for_text(tab, selector, text):
    tab.wait_for_function("([s, t]) => document.querySelector(s)?.innerText.includes(t)", arg=[selector, text])


def test_what_happens_appears_without_reload(service, visit):
    tab = visit(service)
    settled(tab)
    assert tab.locator("#curves-none").is_visible()
    assert tab.locator("#classes-none").is_visible()
    tab.evaluate("window.same = true")
    service.changes = {"state": "learning", "sentence": "Learning.", "queue": 950}
    learning(service)
    settled(tab, "learning")
    tab.wait_for_selector("#curves[data-points='39']")
    assert not tab.locator("#curves-none").is_visible()
    wait_for_text(tab, "#classes", "bird")
    assert labels(tab) == ["cat", "dog", "bird"]
    assert tab.inner_text("#learnt") == "740"
    assert tab.locator("#queue-bar").evaluate("bar => bar.style.width") == "95%"
    assert tab.locator("#queue-bar.full").count() == 1
    service.seen["frog"] = 1
    service.tell("class", {"label": "frog"})
    wait_for_text(tab, "#classes", "frog")
    assert tab.locator("tr.new th", has_text="frog").count() == 1
    assert "frog" in tab.text_content("#spoken")
    before = tab.evaluate("document.querySelector('#curves canvas').toDataURL()")
    service.point(900, 0.9, 0.95)
    tab.wait_for_selector("#curves[data-points='40']")
    tab.wait_for_function("old => document.querySelector('#curves canvas').toDataURL() !== old", arg=before)
    assert tab.evaluate("window.same") is True


def test_many_points_are_drawn_a_few_times(service, visit):
    tab = visit(learning(service))
    tab.wait_for_selector("#curves[data-points='39']")
    count = "(window.drawn = 0, CanvasRenderingContext2D.prototype.clearRect = () => { window.drawn += 1; })"
    tab.evaluate(count)
    for i in range(40, 640):
        service.point(i * 20, 0.7, 0.8)
    tab.wait_for_selector("#curves[data-points='639']")
    assert 1 <= tab.evaluate("window.drawn") <= 200  # two charts, and not 600 times
    service.points = service.points[::2]  # as a service thins its history
    for i in range(640, 900):
        service.point(i * 20, 0.7, 0.8)
    tab.wait_for_selector("#curves[data-points='580']")  # they were so many that it was asked for
    assert service.asked.count("/v1/history") == 2


def test_curves_are_read_and_zoomed(service, visit):
    tab = visit(learning(service))
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
    service.point(800, 0.9, 0.95)  # beyond what is seen
    tab.wait_for_selector("#curves[data-points='40']")
    assert tab.evaluate(picture) == zoomed
    tab.locator(".plot").focus()
    tab.keyboard.press("0")
    tab.wait_for_function(f"old => {picture} !== old", arg=zoomed)


def test_a_heading_sorts_and_stays_sorted(service, visit):
    tab = visit(learning(service))
    wait_for_text(tab, "#classes", "bird")
    head = tab.locator("button[data-by=label]")
    head.click()
    assert labels(tab) == ["bird", "cat", "dog"]
    service.learn("ant", 3)
    wait_for_text(tab, "#classes", "ant")
    assert labels(tab)[0].startswith("ant")
    head.focus()
    tab.keyboard.press("Enter")
    assert [label.split()[0] for label in labels(tab)] == ["dog", "cat", "bird", "ant"]
    assert tab.locator("th[aria-sort=descending]").count() == 1
    head.click()
    assert [label.split()[0] for label in labels(tab)] == ["cat", "dog", "bird", "ant"]  # as they arrived
    assert tab.locator("th[aria-sort]").count() == 0


def test_pictures_are_asked_about(service, visit):
    tab = visit(service)
    tab.set_input_files("#files", [file()])
    wait_for_text(tab, "#tray", "Nothing is learnt yet: teach a sample first.")
    learning(service)
    tab.get_by_role("button", name="Ask again").click()
    wait_for_text(tab, "#tray", "model version 740")
    assert tab.locator("#tray ol li").all_inner_texts() == ["cat\n72 %", "dog\n19 %", "bird\n6 %"]
    assert tab.locator("#tray ol i").first.evaluate("bar => bar.style.width") == "72%"
    assert "/v1/learn" not in service.asked
    assert service.keys == []
    tab.set_input_files("#files", [file("no.png", b"no"), file("two.png"), file("text.txt", b"text", "text/plain")])
    wait_for_text(tab, "#tray", "This is no picture that can be read: send PNG.")
    assert "Only pictures can be asked about" in tab.inner_text("#try-note")
    assert tab.locator("#tray .file").all_inner_texts() == ["no.png", "two.png", "one.png"]
    tab.get_by_role("button", name="Remove no.png").click()
    assert tab.locator("#tray .file").all_inner_texts() == ["two.png", "one.png"]
    tab.get_by_role("button", name="Clear").click()
    assert tab.locator("#tray > li").count() == 0


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_pictures_are_dropped_and_pasted(service, visit, kind):
    tab = visit(learning(service))
    tab.evaluate(
        """([kind, text]) => {
            const data = new DataTransfer();
            const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
            data.items.add(new File([bytes], "given.png", { type: "image/png" }));
            const how = { dataTransfer: data, clipboardData: data, bubbles: true, cancelable: true };
            if (kind === "paste") return document.body.dispatchEvent(new ClipboardEvent("paste", how));
            if (document.body.dispatchEvent(new DragEvent("dragover", how))) throw Error("nothing can be dropped here");
            document.body.dispatchEvent(new DragEvent("drop", how));
        }""",
        [kind, base64.b64encode(png()).decode()],
    )
    wait_for_text(tab, "#tray", "given.png")
    wait_for_text(tab, "#tray", "72 %")
    assert tab.locator("#drop.over").count() == 0


def test_teaching_is_tried_again_under_the_same_key(service, visit):
    service.refusals = [("/v1/learn", 429, "queue_full", "The queue is full: send slower.", 1)]
    service.silences = 1
    tab = visit(service)
    settled(tab)
    tab.get_by_role("button", name="Teach").click()
    assert tab.inner_text("#try-note") == "Drop or choose a picture first."
    tab.set_input_files("#files", [file("one.png"), file("two.png")])
    tab.get_by_role("button", name="Teach 2").click()
    assert tab.inner_text("#try-note") == "Give a label first: what is it?"
    tab.keyboard.type(" a new & old class ")  # the field was given the focus
    tab.keyboard.press("Enter")
    wait_for_text(tab, "#tray", "The queue is full: send slower. Trying again in 1 s.")
    wait_for_text(tab, "#tray", "The service does not answer. Trying again in ")  # it learnt, but its answer was lost
    wait_for_text(tab, "#tray > li:last-child", "✓ sample 2: a new & old class")
    wait_for_text(tab, "#tray > li:first-child", "✓ sample 1: a new & old class")
    assert service.seen == {"a new & old class": 2}
    assert len(service.keys) == 4
    assert len(set(service.keys)) == 2
    assert service.keys[0] == service.keys[1] == service.keys[2]  # and the second picture waited
    wait_for_text(tab, "#classes", "a new & old class")
    assert tab.locator("#labels option").get_attribute("value") == "a new & old class"
    tab.get_by_role("button", name="Teach", exact=True).click()
    assert tab.inner_text("#try-note") == "Drop or choose a picture first."  # nothing is taught twice
    service.refusals = [("/v1/learn", 409, "too_many_classes", "There is no room for one more class.", None)]
    tab.set_input_files("#files", [file("three.png")])
    tab.get_by_role("button", name="Teach", exact=True).click()
    wait_for_text(tab, "#tray", "There is no room for one more class.")
    assert len(service.keys) == 5
    tab.get_by_role("button", name="Teach", exact=True).click()  # it was refused, so it may be sent again
    wait_for_text(tab, "#tray", "✓ sample 3")


def test_a_token_is_asked_for_and_kept(service, visit):
    service.token = "open sesame"
    tab = visit(learning(service))
    tab.wait_for_selector("dialog[open]")
    tab.keyboard.type("wrong")
    tab.keyboard.press("Enter")
    wait_for_text(tab, "#token-why", "refused")
    tab.get_by_role("button", name="Not now").click()
    settled(tab, "'token needed'")
    assert "Send the service's token." in tab.inner_text("#lost")
    tab.get_by_role("button", name="Enter the token").click()
    tab.wait_for_selector("dialog[open]")
    tab.keyboard.type("open sesame")
    tab.keyboard.press("Enter")
    settled(tab)
    wait_for_text(tab, "#classes", "bird")
    assert not tab.locator("#lost").is_visible()
    assert tab.evaluate("Object.values(sessionStorage)") == ["open sesame"]
    assert tab.evaluate("document.cookie + localStorage.length") == "0"
    tab.set_input_files("#files", [file()])
    wait_for_text(tab, "#tray", "72 %")
    tab.reload()
    settled(tab)
    assert not tab.locator("dialog[open]").count()


def test_labels_are_only_text(service, visit):
    service.learn(EVIL, 5)
    service.changes = {"sentence": EVIL}
    tab = visit(service, height=2400)
    wait_for_text(tab, "#classes", EVIL)
    wait_for_text(tab, "#sheet", EVIL)
    tab.set_input_files("#files", [file(EVIL.replace("/", ""))])
    wait_for_text(tab, "#tray ol", EVIL)
    tab.fill("#label", EVIL)
    tab.keyboard.press("Enter")
    wait_for_text(tab, "#tray", "✓ sample 6: " + EVIL)
    tab.locator("#sheet li").first.hover()
    wait_for_text(tab, "#closer", EVIL)
    assert tab.inner_text("#sentence") == EVIL
    assert tab.locator("img[src=x], [onerror]").count() == 0
    assert tab.locator("#labels option").get_attribute("value") == EVIL


def test_the_memory_is_fetched_when_it_is_seen(service, visit):
    tab = visit(learning(service), height=500)
    wait_for_text(tab, "#classes", "bird")
    assert "/v1/memory" not in service.asked
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


def test_it_connects_again_by_itself(service, visit):
    tab = visit(learning(service))
    settled(tab)
    service.stop()
    tab.wait_for_selector("#lost:not([hidden])")
    assert tab.inner_text("#state") == "no connection"
    service.points = service.points[:10]  # it comes back from an earlier checkpoint
    service.learn("frog", 8)
    service.start()
    settled(tab)
    assert not tab.locator("#lost").is_visible()
    wait_for_text(tab, "#classes", "frog")
    tab.wait_for_selector("#curves[data-points='10']")


@pytest.mark.parametrize("width, filled", [(360, True), (360, False), (700, True), (1280, True)])
def test_nothing_sticks_out(service, visit, width, filled):
    if filled:
        learning(service)
        service.learn("W" * 200, 12)
        service.learn("many words " * 18, 12)
    service.changes = {"sentence": "A sentence of the service. " * 6, "accepted": 123_456_789, "learnt": 123_456_789}
    tab = visit(service, width=width, height=3000)
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


def test_dark_when_the_reader_likes_it_dark(service, visit):
    tab = visit(learning(service), scheme="dark")
    tab.wait_for_selector("#curves[data-points='39']")
    colour = "getComputedStyle(document.querySelector('section')).backgroundColor"
    assert tab.evaluate(colour) == "rgb(23, 27, 32)"
    dark = tab.evaluate("document.querySelector('#curves canvas').toDataURL()")
    tab.emulate_media(color_scheme="light")
    tab.wait_for_function("old => document.querySelector('#curves canvas').toDataURL() !== old", arg=dark)
    assert tab.evaluate(colour) == "rgb(255, 255, 255)"
