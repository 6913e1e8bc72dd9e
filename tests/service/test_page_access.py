"""The page of the service for everyone: by keyboard, on a phone, in the dark, with a screen reader, with a key."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from page_service import chromium, collection_of_texts, collection_with_images, opened
from web_service import at_address

QUERY = "digit 008.png"
KEY = "open sesame"
VIEWS = ["#/", f"#/item/{QUERY}", "#/quality"]


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    """Addresses by what is served there."""
    images = collection_with_images(tmp_path_factory.mktemp("digits"))
    with (
        at_address(images) as open_,
        at_address(images, key=KEY) as locked,
        at_address(collection_of_texts()) as texts,
    ):
        yield {"images": open_, "locked": locked, "texts": texts}


def settle(page, address):
    """Open an address, and wait until its view has its content."""
    page.goto(address)
    content = page.locator(":is(#collection-items li, #results-items li, #quality .chart):visible")
    expect(content.first).to_be_visible()


def test_everything_by_keyboard(browser, addresses):
    with opened(browser) as page:
        settle(page, addresses["images"])
        press = page.keyboard.press
        press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        press("Enter")
        expect(page.locator("main")).to_be_focused()
        press("/")
        expect(page.get_by_label("Find similar items")).to_be_focused()
        for _ in range(5):  # the three buttons, the filter, the first item
            press("Tab")
        items = page.locator("#collection-items a")
        expect(items.first).to_be_focused()
        press("ArrowRight")
        expect(items.nth(1)).to_be_focused()
        press("ArrowDown")
        below = page.evaluate("document.activeElement.getBoundingClientRect().left")
        assert below == pytest.approx(items.nth(1).bounding_box()["x"], abs=1)
        expect(items.nth(1)).not_to_be_focused()
        press("Home")
        press("Enter")
        expect(page.locator("#results-items li")).to_have_count(20)
        expect(page.locator("#results-title")).to_be_focused()
        press("Tab")
        expect(page.locator("#query").get_by_role("button")).to_be_focused()
        press("Enter")
        expect(page.locator("#large")).to_be_visible()
        press("Escape")
        expect(page.locator("#query").get_by_role("button")).to_be_focused()
        press("Tab")
        expect(page.get_by_label("Results")).to_be_focused()
        press("ArrowRight")
        expect(page.locator("#results-items li")).to_have_count(21)
        press("Escape")
        expect(items.first).to_be_focused()


@pytest.mark.parametrize("kind", ["images", "texts"])
def test_nothing_scrolls_sideways_on_a_phone(browser, addresses, kind):
    with opened(browser, viewport={"width": 360, "height": 740}) as page:
        for view in VIEWS if kind == "images" else ["#/", "#/item/7"]:
            settle(page, f"{addresses[kind]}{view}")
            page.reload()
            expect(page.locator("main li, main .chart").first).to_be_attached()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_dark_follows_the_system_and_the_switch(browser, addresses):
    def luminance():
        return page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[1]")

    with opened(browser, color_scheme="dark") as page:
        settle(page, addresses["texts"])
        assert luminance() < 50
        switch = page.get_by_role("button", name="Dark colours")
        expect(switch).to_have_attribute("aria-pressed", "true")
        switch.click()
        assert luminance() > 200
        page.reload()
        expect(switch).to_have_attribute("aria-pressed", "false")
        assert luminance() > 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_issue(browser, addresses, scheme):
    axe = Axe()
    views = [f"{addresses['images']}{view}" for view in VIEWS] + [f"{addresses['texts']}#/item/7"]
    with opened(browser, color_scheme=scheme) as page:
        for view in views:
            settle(page, view)
            if "digit" in view:
                page.get_by_label("Weights").check(force=True)
                expect(page.locator(".moved").first).to_be_visible()
            issues = axe.run(page).response["violations"]
            assert [issue["id"] for issue in issues if issue["impact"] in ("serious", "critical")] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_issue_where_there_is_nothing_and_in_the_large_view(browser, addresses, scheme):
    def check():
        issues = Axe().run(page).response["violations"]
        assert [issue["id"] for issue in issues if issue["impact"] in ("serious", "critical")] == []

    with opened(browser, color_scheme=scheme) as page:
        settle(page, f"{addresses['images']}{VIEWS[1]}")
        page.get_by_label("Bits", exact=True).check(force=True)
        page.get_by_label("Radius").fill("0")
        expect(page.locator("#results-nothing")).to_be_visible()
        check()
        page.locator("#query button").click()
        expect(page.locator("#large img")).to_be_visible()
        check()
        page.goto(f"{addresses['images']}docs")
        page.locator("#post-search summary").click()
        check()
        page.goto(f"{addresses['images']}#/?label=none")
        expect(page.locator("#collection-nothing")).to_be_visible()
        check()


def test_a_key_is_asked_for_and_kept_in_the_tab(browser, addresses):
    with opened(browser, allowed="401") as page:
        page.goto(addresses["locked"])
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        issues = Axe().run(page).response["violations"]
        assert [issue["id"] for issue in issues if issue["impact"] in ("serious", "critical")] == []
        page.get_by_label("API key").fill("wrong")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("The service does not know this key.")
        page.get_by_label("API key").fill(KEY)
        page.keyboard.press("Enter")
        expect(page.locator("#collection-items li")).to_have_count(60)
        expect(page.locator("#collection-items img").first).to_have_js_property("naturalWidth", 32)
        assert page.evaluate("Object.values({...sessionStorage}).length") == 1
        page.reload()
        expect(page.locator("#collection-items li")).to_have_count(60)
        expect(dialog).to_be_hidden()


def test_without_a_key_the_page_says_so(browser, addresses):
    with opened(browser, allowed="401") as page:
        page.goto(addresses["locked"])
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#collection-error")).to_contain_text("key")
