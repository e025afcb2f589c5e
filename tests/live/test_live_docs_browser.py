"""The service's pages in a real browser, from the real server: the API's own, and that nothing in either is blocked."""

from __future__ import annotations

import pytest

from tests.live.toy import Toy

pytestmark = pytest.mark.slow

TOKEN = "sesame-0123456789"


@pytest.fixture(scope="module")
def url(running):
    return f"http://127.0.0.1:{running(Toy(), token=TOKEN)[0]}"


@pytest.fixture(params=[(360, "light"), (1200, "dark")], ids=["phone", "desk"])
def tab(browser, request):
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.asked, page.said = [], []
    page.on("request", lambda one: page.asked.append(one.url))
    page.on("console", lambda one: page.said.append(one.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => console.log('blocked ' + e.violatedDirective))"
    )
    yield page
    context.close()


def test_the_api_is_shown_to_whoever_has_the_token(tab, url):
    tab.goto(f"{url}/docs")
    tab.wait_for_selector("#token[open]")
    assert tab.query_selector("article") is None
    tab.fill("#token-text", "wrong")
    tab.click("#token .main")
    tab.wait_for_function("() => document.getElementById('token-why').textContent.includes('refused')")
    tab.click("#token-not")
    tab.wait_for_function("() => document.getElementById('trouble').textContent.includes('token')")
    tab.reload()
    tab.fill("#token-text", TOKEN)
    tab.click("#token .main")
    tab.wait_for_selector("article#learn")
    assert len(tab.query_selector_all("article")) == 15
    assert tab.inner_text("#trouble") == ""
    learn = tab.inner_text("article#learn")
    for word in ("POST", "/v1/learn", "Idempotency-Key", "--data-binary @picture.png", f"{url}/v1/learn?label=cat"):
        assert word in learn
    tab.eval_on_selector_all("details", "all => all.forEach((one) => (one.open = true))")
    assert "507" in tab.inner_text("article#learn")
    assert "3 x 4 x 4 = 48 bytes" in tab.inner_text("#about")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert all(address.startswith(url) for address in tab.asked)
    assert not [text for text in tab.said if "401" not in text]


def test_the_page_is_not_hindered_by_its_own_policy(tab, url):
    tab.add_init_script(f"sessionStorage.setItem('iblurry-token', '{TOKEN}')")
    tab.goto(url)
    tab.wait_for_function("() => document.body.innerText.includes('clib')")
    assert all(address.startswith((url, "data:", "blob:")) for address in tab.asked)
    assert not tab.said
