"""Asking, teaching and the token, on the live page in a real browser."""

from __future__ import annotations

import base64

import pytest

from tests.live.browsing import file, learning, settled, wait_for_text
from tests.live.fake_service import png

pytestmark = pytest.mark.slow

EVIL = '<img src=x onerror="window.hacked=1">'


def test_pictures_are_asked_about(fake, visit):
    tab = visit(fake.url)
    tab.set_input_files("#files", [file()])
    wait_for_text(tab, "#tray", "Nothing is learnt yet: teach a sample first.")
    learning(fake)
    tab.get_by_role("button", name="Ask again").click()
    wait_for_text(tab, "#tray", "model version 740")
    assert tab.locator("#tray ol li").all_inner_texts() == ["cat\n72 %", "dog\n19 %", "bird\n6 %"]
    assert tab.locator("#tray ol i").first.evaluate("bar => bar.style.width") == "72%"
    assert "/v1/learn" not in fake.asked
    assert fake.keys == []
    tab.set_input_files("#files", [file("no.png", b"no"), file("two.png"), file("text.txt", b"text", "text/plain")])
    wait_for_text(tab, "#tray", "This is no picture that can be read: send PNG.")
    assert "Only pictures can be asked about" in tab.inner_text("#try-note")
    assert tab.locator("#tray .file").all_inner_texts() == ["no.png", "two.png", "one.png"]
    tab.get_by_role("button", name="Remove no.png").click()
    assert tab.locator("#tray .file").all_inner_texts() == ["two.png", "one.png"]
    tab.get_by_role("button", name="Clear").click()
    assert tab.locator("#tray > li").count() == 0


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_pictures_are_dropped_and_pasted(fake, visit, kind):
    tab = visit(learning(fake).url)
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


def test_teaching_is_tried_again_under_the_same_key(fake, visit):
    fake.refusals = [("/v1/learn", 429, "queue_full", "The queue is full: send slower.", 1)]
    fake.silences = 1
    tab = visit(fake.url)
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
    assert fake.seen == {"a new & old class": 2}
    assert len(fake.keys) == 4
    assert len(set(fake.keys)) == 2
    assert fake.keys[0] == fake.keys[1] == fake.keys[2]  # and the second picture waited
    wait_for_text(tab, "#classes", "a new & old class")
    assert tab.locator("#labels option").get_attribute("value") == "a new & old class"
    tab.get_by_role("button", name="Teach", exact=True).click()
    assert tab.inner_text("#try-note") == "Drop or choose a picture first."  # nothing is taught twice
    fake.refusals = [("/v1/learn", 409, "too_many_classes", "There is no room for one more class.", None)]
    tab.set_input_files("#files", [file("three.png")])
    tab.get_by_role("button", name="Teach", exact=True).click()
    wait_for_text(tab, "#tray", "There is no room for one more class.")
    assert len(fake.keys) == 5
    tab.get_by_role("button", name="Teach", exact=True).click()  # it was refused, so it may be sent again
    wait_for_text(tab, "#tray", "✓ sample 3")


def test_a_token_is_asked_for_and_kept(fake, visit):
    fake.token = "open sesame"
    tab = visit(learning(fake).url)
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


def test_labels_are_only_text(fake, visit):
    fake.learn(EVIL, 5)
    fake.changes = {"sentence": EVIL}
    tab = visit(fake.url, height=2400)
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
