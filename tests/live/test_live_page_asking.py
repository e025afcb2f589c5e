"""Asking, teaching and the token, on the live page in a real browser."""

from __future__ import annotations

import base64

import pytest

from iblurry.live.quota import Refusal
from tests.live.browsing import file, learning, png, settled, wait_for_text

pytestmark = pytest.mark.slow

NOTHING = "Nothing has been learnt yet; send samples first."
EVIL = '<img src=x onerror="window.hacked=1">'


def labelled(toy):
    return [(one.partition("-")[2], label) for one, label in toy.labelled]


def test_pictures_are_asked_about(toy, site, visit):
    tab = visit(site.url)
    tab.set_input_files("#files", [file()])
    wait_for_text(tab, "#tray", NOTHING)
    assert tab.locator("#tray .miss").count() == 0  # that is how it begins, and nobody's fault
    learning(toy)
    tab.get_by_role("button", name="Ask again").click()
    wait_for_text(tab, "#tray", "model version 740")
    assert tab.locator("#tray ol li").all_inner_texts() == ["cat\n72 %", "dog\n19 %", "bird\n6 %"]
    assert tab.locator("#tray ol i").first.evaluate("bar => bar.style.width") == "72%"
    assert "/v1/learn" not in site.paths
    assert site.keys == []
    tab.set_input_files("#files", [file("no.png", b"no"), file("two.png"), file("text.txt", b"text", "text/plain")])
    wait_for_text(tab, "#tray .miss", "is not a readable picture")
    assert "PNG or JPEG" in tab.inner_text("#try-note")
    assert tab.locator("#tray .file").all_inner_texts() == ["no.png", "two.png", "one.png"]
    tab.get_by_role("button", name="Remove no.png").click()
    assert tab.locator("#tray .file").all_inner_texts() == ["two.png", "one.png"]
    tab.get_by_role("button", name="Clear").click()
    assert tab.locator("#tray > li").count() == 0


def test_an_unknown_answer_says_so_above_its_guesses(toy, site, visit):
    learning(toy)
    toy.threshold = 0.8
    tab = visit(site.url)
    tab.set_input_files("#files", [file()])
    wait_for_text(tab, "#tray", "unknown: all are below 80 %")
    assert tab.locator("#tray ol li").first.inner_text() == "cat\n72 %"
    assert tab.get_by_role("button", name="Confirm cat").is_visible()


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_pictures_are_dropped_and_pasted(toy, site, visit, kind):
    learning(toy)
    tab = visit(site.url)
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


def test_teaching_is_tried_again_under_the_same_key(toy, site, visit):
    full = Refusal(429, "queue_full", "The queue is full: send slower.", retry_after=1)
    site.troubles = [("/v1/learn", full), ("/v1/learn", "commit")]
    tab = visit(site.url)
    settled(tab)
    tab.get_by_role("button", name="Teach").click()
    assert tab.inner_text("#try-note") == "Drop or choose a picture first."
    tab.set_input_files("#files", [file("one.png"), file("two.png")])
    tab.get_by_role("button", name="Teach 2").click()
    assert tab.inner_text("#try-note") == "Enter a label first."
    tab.keyboard.type(" a new & old class ")  # the field was given the focus
    tab.keyboard.press("Enter")
    wait_for_text(tab, "#tray", "The queue is full: send slower. Trying again in 1 s.")
    wait_for_text(tab, "#tray", "incomplete. Trying again in ")  # it learnt, but its answer was lost
    wait_for_text(tab, "#tray > li:last-child", "✓ sample 2: a new & old class")
    wait_for_text(tab, "#tray > li:first-child", "✓ sample 1: a new & old class")
    assert toy.seen == {"a new & old class": 2}
    assert len(site.keys) == 4
    assert len(set(site.keys)) == 2
    assert site.keys[0] == site.keys[1] == site.keys[2]  # and the second picture waited
    wait_for_text(tab, "#classes", "a new & old class")
    assert tab.locator("#labels option").get_attribute("value") == "a new & old class"
    tab.get_by_role("button", name="Teach", exact=True).click()
    assert tab.inner_text("#try-note") == "Drop or choose a picture first."  # nothing is taught twice
    site.troubles = [("/v1/label", Refusal(409, "too_many_classes", "There is no room for one more class."))]
    tab.set_input_files("#files", [file("three.png")])
    tab.get_by_role("button", name="Teach", exact=True).click()
    wait_for_text(tab, "#tray", "There is no room for one more class.")
    assert len(site.keys) == 5
    tab.get_by_role("button", name="Teach", exact=True).click()  # it was refused, so it may be sent again
    wait_for_text(tab, "#tray", "✓ sample 3")


def test_one_click_confirms_the_guess(toy, site, visit):
    learning(toy)
    tab = visit(site.url)
    tab.set_input_files("#files", [file("one.png"), file("two.png")])
    tab.get_by_role("button", name="Confirm cat for two.png").wait_for()
    before = toy.predicted
    tab.get_by_role("button", name="Confirm cat for one.png").click()
    wait_for_text(tab, "#tray > li:first-child", "✓ sample 741: cat")
    assert labelled(toy) == [("1", "cat")]
    assert "/v1/learn" not in site.paths
    wait_for_text(tab, "#tray > li:first-child .answers", "by model version 741")  # asked again, both of them
    wait_for_text(tab, "#tray > li:last-child .answers", "by model version 741")
    assert toy.predicted == before + 2
    assert tab.locator("#tray .sign").count() == 1  # the one that was taught is answered as taught
    assert not tab.get_by_role("button", name="Confirm cat for one.png").is_visible()
    assert tab.get_by_role("button", name="Confirm cat for two.png").is_visible()


def test_a_guess_is_corrected_and_what_was_taught_is_relabelled(toy, site, visit):
    learning(toy)
    tab = visit(site.url)
    tab.set_input_files("#files", [file("one.png")])
    tab.get_by_role("button", name="Confirm cat for one.png").wait_for()
    field = tab.get_by_role("combobox", name="Label of one.png")
    assert field.get_attribute("list") == "labels"  # those known are offered
    field.fill(" wolf ")
    field.press("Enter")
    wait_for_text(tab, "#tray", "✓ sample 741: wolf")
    assert labelled(toy) == [("1", "wolf")]
    wait_for_text(tab, "#classes", "wolf")
    field.fill("dog")
    tab.get_by_role("button", name="Relabel one.png").click()
    wait_for_text(tab, "#tray", "✓ sample 741: dog")
    assert [(one.number, one.label) for one in toy.corrections] == [(741, "dog")]
    assert len(toy.samples) == 741


def test_each_picture_has_its_label(toy, site, visit):
    learning(toy)
    tab = visit(site.url)
    tab.set_input_files("#files", [file("one.png"), file("two.png"), file("three.png")])
    tab.get_by_role("button", name="Confirm cat for three.png").wait_for()
    tab.get_by_role("combobox", name="Label of two.png").fill("frog")
    tab.get_by_role("button", name="Teach 3").click()
    assert tab.inner_text("#try-note") == "Enter a label first."
    tab.fill("#label", "ant")
    tab.get_by_role("button", name="Teach 3").click()
    wait_for_text(tab, "#tray > li:last-child", "✓ sample 743: ant")
    assert (toy.seen["ant"], toy.seen["frog"]) == (2, 1)
    assert labelled(toy) == [("1", "ant"), ("2", "frog"), ("3", "ant")]


def test_a_picture_that_is_not_kept_any_more_is_sent_again(toy, site, visit):
    site.troubles = [("/v1/label", Refusal(410, "question_gone", "The image of the answer is gone."))]
    learning(toy)
    tab = visit(site.url)
    tab.set_input_files("#files", [file("one.png")])
    tab.get_by_role("button", name="Confirm cat for one.png").click()
    wait_for_text(tab, "#tray", "✓ sample 741: cat")
    assert (toy.labelled, toy.seen["cat"]) == ([], 401)


def test_a_token_is_asked_for_and_kept(toy, site, visit):
    site.token = "open-sesame"
    learning(toy)
    tab = visit(site.url)
    tab.wait_for_selector("dialog[open]")
    tab.keyboard.type("wrong")
    tab.keyboard.press("Enter")
    wait_for_text(tab, "#token-why", "refused")
    tab.get_by_role("button", name="Not now").click()
    settled(tab, "'token needed'")
    assert "The token is missing or wrong" in tab.inner_text("#lost")
    tab.get_by_role("button", name="Enter the token").click()
    tab.wait_for_selector("dialog[open]")
    tab.keyboard.type("open-sesame")
    tab.keyboard.press("Enter")
    settled(tab)
    wait_for_text(tab, "#classes", "bird")
    assert not tab.locator("#lost").is_visible()
    assert tab.evaluate("Object.values(sessionStorage)") == ["open-sesame"]
    assert tab.evaluate("document.cookie + localStorage.length") == "0"
    tab.set_input_files("#files", [file()])
    wait_for_text(tab, "#tray", "72 %")
    tab.reload()
    settled(tab)
    assert not tab.locator("dialog[open]").count()


def test_labels_are_only_text(toy, site, visit):
    toy.teach(EVIL, 5)
    toy.changes = {"sentence": EVIL}
    tab = visit(site.url, height=2400)
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
