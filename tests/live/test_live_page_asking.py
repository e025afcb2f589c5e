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
    assert tab.locator("#tray .miss").count() == 0  # that is how it begins, and nobody's fault
    learning(fake)
    tab.get_by_role("button", name="Ask again").click()
    wait_for_text(tab, "#tray", "model version 740")
    assert tab.locator("#tray ol li").all_inner_texts() == ["cat\n72 %", "dog\n19 %", "bird\n6 %"]
    assert tab.locator("#tray ol i").first.evaluate("bar => bar.style.width") == "72%"
    assert "/v1/learn" not in fake.asked
    assert fake.keys == []
    tab.set_input_files("#files", [file("no.png", b"no"), file("two.png"), file("text.txt", b"text", "text/plain")])
    wait_for_text(tab, "#tray .miss", "This is no picture that can be read: send PNG.")
    assert "PNG or JPEG" in tab.inner_text("#try-note")
    assert tab.locator("#tray .file").all_inner_texts() == ["no.png", "two.png", "one.png"]
    tab.get_by_role("button", name="Remove no.png").click()
    assert tab.locator("#tray .file").all_inner_texts() == ["two.png", "one.png"]
    tab.get_by_role("button", name="Clear").click()
    assert tab.locator("#tray > li").count() == 0


def test_an_unknown_answer_says_so_above_its_guesses(fake, visit):
    learning(fake).threshold = 0.8
    tab = visit(fake.url)
    tab.set_input_files("#files", [file()])
    wait_for_text(tab, "#tray", "unknown: all are below 80 %")
    assert tab.locator("#tray ol li").first.inner_text() == "cat\n72 %"
    assert tab.get_by_role("button", name="Confirm cat").is_visible()


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
    assert tab.inner_text("#try-note") == "Enter a label first."
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
    fake.refusals = [("/v1/label", 409, "too_many_classes", "There is no room for one more class.", None)]
    tab.set_input_files("#files", [file("three.png")])
    tab.get_by_role("button", name="Teach", exact=True).click()
    wait_for_text(tab, "#tray", "There is no room for one more class.")
    assert len(fake.keys) == 5
    tab.get_by_role("button", name="Teach", exact=True).click()  # it was refused, so it may be sent again
    wait_for_text(tab, "#tray", "✓ sample 3")


def test_one_click_confirms_the_guess(fake, visit):
    tab = visit(learning(fake).url)
    tab.set_input_files("#files", [file("one.png"), file("two.png")])
    tab.get_by_role("button", name="Confirm cat for two.png").wait_for()
    before = fake.questions
    tab.get_by_role("button", name="Confirm cat for one.png").click()
    wait_for_text(tab, "#tray > li:first-child", "✓ sample 741: cat")
    assert fake.labelled == [("f-1", "cat")]
    assert "/v1/learn" not in fake.asked
    wait_for_text(tab, "#tray > li:first-child .answers", "by model version 741")  # asked again, both of them
    wait_for_text(tab, "#tray > li:last-child .answers", "by model version 741")
    assert fake.questions == before + 2
    assert tab.locator("#tray .sign").count() == 1  # the one that was taught is answered as taught
    assert not tab.get_by_role("button", name="Confirm cat for one.png").is_visible()
    assert tab.get_by_role("button", name="Confirm cat for two.png").is_visible()


def test_a_guess_is_corrected_and_what_was_taught_is_relabelled(fake, visit):
    tab = visit(learning(fake).url)
    tab.set_input_files("#files", [file("one.png")])
    tab.get_by_role("button", name="Confirm cat for one.png").wait_for()
    field = tab.get_by_role("combobox", name="Label of one.png")
    assert field.get_attribute("list") == "labels"  # those known are offered
    field.fill(" wolf ")
    field.press("Enter")
    wait_for_text(tab, "#tray", "✓ sample 741: wolf")
    assert fake.labelled == [("f-1", "wolf")]
    wait_for_text(tab, "#classes", "wolf")
    field.fill("dog")
    tab.get_by_role("button", name="Relabel one.png").click()
    wait_for_text(tab, "#tray", "✓ sample 741: dog")
    assert fake.relabelled == [(741, "dog")]
    assert fake.learnt == 741


def test_each_picture_has_its_label(fake, visit):
    tab = visit(learning(fake).url)
    tab.set_input_files("#files", [file("one.png"), file("two.png"), file("three.png")])
    tab.get_by_role("button", name="Confirm cat for three.png").wait_for()
    tab.get_by_role("combobox", name="Label of two.png").fill("frog")
    tab.get_by_role("button", name="Teach 3").click()
    assert tab.inner_text("#try-note") == "Enter a label first."
    tab.fill("#label", "ant")
    tab.get_by_role("button", name="Teach 3").click()
    wait_for_text(tab, "#tray > li:last-child", "✓ sample 743: ant")
    assert (fake.seen["ant"], fake.seen["frog"]) == (2, 1)
    assert fake.labelled == [("f-1", "ant"), ("f-2", "frog"), ("f-3", "ant")]


def test_a_picture_that_is_not_kept_any_more_is_sent_again(fake, visit):
    fake.questions_gone = True
    tab = visit(learning(fake).url)
    tab.set_input_files("#files", [file("one.png")])
    tab.get_by_role("button", name="Confirm cat for one.png").click()
    wait_for_text(tab, "#tray", "✓ sample 741: cat")
    assert (fake.labelled, fake.seen["cat"]) == ([], 401)


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
