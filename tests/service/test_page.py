"""The page of the service in a real browser: from the collection to neighbours, and every way to ask."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from playwright.sync_api import expect

from hashgrove import FlatIndex
from hashgrove.web.app import create_app
from hashgrove.web.collection import Collection
from hashgrove.web.details import Details
from hashgrove.web.opening import open_index
from hashgrove.web.several import RootPath, Several
from page_service import N_IMAGES, chromium, collection_of_texts, collection_with_images, opened
from web_service import at_address, at_app

QUERY = "digit 008.png"


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A collection with images, and the folder that they are in."""
    folder = tmp_path_factory.mktemp("digits")
    return collection_with_images(folder), folder / "images"


@pytest.fixture(scope="module")
def address(digits):
    with at_address(digits[0]) as address:
        yield address


@pytest.fixture(scope="module")
def texts():
    with at_address(collection_of_texts()) as address:
        yield address


@pytest.fixture
def page(browser):
    with opened(browser) as page:
        yield page


@pytest.fixture
def refused(browser):
    """A page that is refused something, which the browser logs."""
    with opened(browser, allowed="Failed to load resource") as page:
        yield page


def by_bits(page):
    """Rank by plain bits, which is not the default where features are stored."""
    expect(page.locator("#results-items li").first).to_be_visible()
    page.get_by_label("Bits", exact=True).check(force=True)
    expect(page.locator("#results-items .moved")).to_have_count(0)


def found(page):
    """The ids of the neighbours on the page, nearest first."""
    expect(page.locator("#results-items li").first).to_be_visible()
    return page.locator("#results-items a").evaluate_all("links => links.map(link => link.dataset.id)")


def nearest(collection, code, k, *, but=None):
    """The ids of the nearest items, which the page must show."""
    ids = collection.index.search(code[None], k + 1).ids[0].tolist()
    return [id_ for id_ in ids if id_ != but][:k]


def code_of(collection, id_):
    return collection.codes_of(np.array([id_]))[0][0]


def give_file(page, event, name, content, kind):
    """Drop a file onto the page, or paste it."""
    page.evaluate(
        """([event, name, bytes, type]) => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], name, {type}));
            const init = {bubbles: true, cancelable: true};
            document.body.dispatchEvent(event === "drop"
                ? new DragEvent("drop", {...init, dataTransfer: data})
                : new ClipboardEvent("paste", {...init, clipboardData: data}));
        }""",
        [event, name, list(content), kind],
    )


def paste_text(page, text):
    page.evaluate(
        """text => {
            const data = new DataTransfer();
            data.setData("text", text);
            const init = {bubbles: true, cancelable: true, clipboardData: data};
            document.body.dispatchEvent(new ClipboardEvent("paste", init));
        }""",
        text,
    )


def test_the_collection_has_pages_images_and_a_filter(page, address):
    page.goto(address)
    items = page.locator("#collection-items li")
    expect(items).to_have_count(60)
    expect(page.locator("#collection-summary")).to_have_text(f"1 to 60 of {N_IMAGES} items")
    first = items.first.locator("img")
    assert first.get_attribute("loading") == "lazy"
    expect(page.locator("#collection-items img").first).to_have_js_property("naturalWidth", 32)
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#collection-summary")).to_have_text(f"61 to 120 of {N_IMAGES} items")
    page.locator("#filter-label").select_option("3")
    expect(page.locator("#pager")).to_be_hidden()
    assert set(items.locator(".label").all_inner_texts()) == {"3"}


def test_a_click_gives_the_neighbours_and_back_returns(page, address, digits):
    page.goto(address)
    page.locator(f'#collection [data-id="{QUERY}"]').click()
    expect(page.locator("#results-title")).to_be_focused()
    by_bits(page)
    assert found(page) == nearest(digits[0], code_of(digits[0], QUERY), 20, but=QUERY)
    expect(page.locator("#query .label")).to_have_text("8")
    same = page.locator("#results-items .label.same").count()
    expect(page.locator("#results-summary")).to_have_text(f"20 items, {same} with the label 8")
    assert page.locator("#times dt").all_inner_texts() == ["Waiting", "Search", "In the service", "Round trip"]
    page.go_back()
    expect(page.locator(f'#collection [data-id="{QUERY}"]')).to_be_focused()


def test_differing_bits_are_marked_for_the_neighbour_under_cursor_or_focus(page, address):
    page.goto(f"{address}#/item/{QUERY}")
    last = page.locator("#results-items a").last
    expect(last).to_be_visible()
    distance = int(last.locator(".distance").inner_text().split()[0])
    assert distance > 0
    marks = page.locator("#code .differs")
    expect(marks).to_have_count(0)
    last.hover()
    expect(marks).to_have_count(distance)
    expect(page.locator("#code-caption")).to_contain_text(f"{distance} of 32 bits")
    page.mouse.move(0, 0)
    expect(marks).to_have_count(0)
    last.focus()
    expect(marks).to_have_count(distance)
    expect(page.locator("#code .one, #code .zero")).to_have_count(32)


def test_sliders_set_the_number_of_results_and_the_radius(page, address, digits):
    collection = digits[0]
    page.goto(f"{address}#/item/{QUERY}")
    by_bits(page)
    page.get_by_label("Results").fill("7")
    expect(page.locator("#results-items li")).to_have_count(7)
    page.get_by_label("Results").fill("100")
    page.get_by_label("Radius").fill("9")
    distances, ids = (part[0] for part in collection.index.search_radius(code_of(collection, QUERY)[None], 9))
    within = ids.tolist()
    assert 3 < len(within) < N_IMAGES // 2
    expect(page.locator("#results-items li")).to_have_count(len(within) - 1)
    assert found(page) == [id_ for id_ in within if id_ != QUERY]
    expect(page.locator("#results-summary")).to_contain_text(f"{len(within) - 1} items within 9 bits")
    assert page.locator("#histogram .bar").count() == 33
    assert page.locator("#histogram .bar.marked").count() == distances.max() + 1
    expect(page.locator("#results-summary")).not_to_contain_text("are shown")
    page.get_by_label("Results").fill("2")
    expect(page.locator("#results-items li")).to_have_count(2)
    expect(page.locator("#results-summary")).to_contain_text("within 9 bits, the nearest 2 are shown")


@pytest.mark.parametrize("way", ["Weights", "Features"])
def test_other_rankings_show_how_items_have_moved(page, address, way):
    page.goto(f"{address}#/item/{QUERY}")
    by_bits(page)
    before = found(page)
    page.get_by_label(way).check(force=True)
    expect(page.locator("#results-items .moved").first).to_be_visible()
    after = found(page)
    assert after != before
    signs = page.locator("#results-items .moved [aria-hidden]").all_inner_texts()
    for rank, (id_, sign) in enumerate(zip(after, signs, strict=True)):
        if id_ in before:
            places = before.index(id_) - rank
            assert sign == ("=" if places == 0 else f"▲ {places}" if places > 0 else f"▼ {-places}")
        else:
            assert sign.startswith("▲")
    expect(page.get_by_label("Radius")).to_be_disabled()


@pytest.mark.parametrize("way", ["drop", "paste", "choose"])
def test_an_image_finds_itself(page, address, digits, way):
    content = (digits[1] / QUERY).read_bytes()
    page.goto(address)
    expect(page.locator("#ask-image")).to_be_visible()
    if way == "choose":
        page.locator("#ask-file").set_input_files({"name": "mine.png", "mimeType": "image/png", "buffer": content})
    else:
        give_file(page, way, "mine.png", content, "image/png")
    by_bits(page)
    assert found(page) == nearest(digits[0], code_of(digits[0], QUERY), 20)
    expect(page.locator("#query")).to_contain_text("mine.png")
    expect(page.locator("#query img").first).to_have_js_property("naturalWidth", 32)
    assert page.locator("#times dt").first.inner_text() == "Image to features"


def test_a_vector_is_pasted_and_a_code_typed(page, address, digits):
    collection = digits[0]
    vector = collection.features_of(np.array([QUERY]))[0]
    page.goto(address)
    expect(page.locator("#collection-items li").first).to_be_visible()
    paste_text(page, str(vector.tolist()))
    expected = nearest(collection, code_of(collection, QUERY), 20)
    by_bits(page)
    assert found(page) == expected
    expect(page.locator("#query")).to_have_text("Vector of 512 numbers")
    page.keyboard.press("Escape")
    page.get_by_label("Find similar items").fill(code_of(collection, QUERY).tobytes().hex())
    page.keyboard.press("Enter")
    expect(page.locator("#query")).to_contain_text("Code")
    assert found(page) == expected
    expect(page.get_by_label("Weights")).to_be_disabled()  # a code has no scores


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Nothing to search with yet."),
        ("1, 2, 3", "The vector must have 512 numbers. Got 3."),
        ("1 2 3 four 5", "The vector must consist of numbers. Got “four”."),
        ("no such item", "no such item"),
    ],
)
def test_a_wrong_text_is_named_beside_the_box(refused, address, text, message):
    refused.goto(address)
    refused.get_by_label("Find similar items").fill(text)
    refused.get_by_role("button", name="Search").click()
    expect(refused.locator("#ask-error")).to_contain_text(message)
    expect(refused.locator("#collection")).to_be_visible()
    paste_text(refused, QUERY)  # and a right one takes the message away
    expect(refused.locator("#results-title")).to_have_text(f"Nearest to {QUERY}")
    expect(refused.locator("#ask-error")).to_be_hidden()


def test_a_bad_file_is_named_beside_the_box(refused, address):
    refused.goto(address)
    expect(refused.locator("#ask-image")).to_be_visible()
    give_file(refused, "drop", "notes.png", b"this is no image", "image/png")
    expect(refused.locator("#ask-error")).to_contain_text("image")
    expect(refused.locator("#collection")).to_be_visible()


def test_an_address_of_no_item_shows_no_neighbours_of_another(refused, address):
    refused.goto(f"{address}#/item/{QUERY}")
    assert len(found(refused)) == 20
    refused.goto(f"{address}#/item/gone.png")
    expect(refused.locator("#results-error")).to_contain_text("gone.png")
    expect(refused.locator("#results-items")).to_be_hidden()
    refused.go_back()
    assert len(found(refused)) == 20
    expect(refused.locator("#results-error")).to_be_hidden()


def test_a_service_that_is_down_can_be_tried_again(refused):
    with at_address(collection_of_texts()) as address:
        refused.goto(address)
        expect(refused.locator("#collection-items li")).to_have_count(40)
    refused.locator("#collection-items a").first.click()
    expect(refused.locator("#results-error")).to_contain_text("The service does not answer.")
    with at_address(collection_of_texts(), port=int(address.rstrip("/").rsplit(":", 1)[1])):
        refused.get_by_role("button", name="Try again").click()
        expect(refused.locator("#results-items li")).to_have_count(20)
        expect(refused.locator("#results-error")).to_be_hidden()


def test_texts_are_rows_and_never_markup(page, texts):
    page.goto(texts)
    first = page.locator("#collection-items a").first
    expect(first).to_contain_text("title <img src='x' onerror='alert(1)'>")
    expect(first).to_contain_text("year 1990")
    assert page.locator("#collection-items img").count() == 0
    expect(page.locator("#ask-image")).to_be_hidden()
    expect(page.locator("#to-quality")).to_be_hidden()
    first.click()
    assert len(found(page)) == 20
    expect(page.locator("#ranking")).to_be_hidden()


def test_the_quality_report(page, address):
    page.goto(address)
    page.get_by_role("link", name="Quality").click()
    expect(page.locator(".figures")).to_be_visible()
    report = page.evaluate("fetch('/report').then(answer => answer.json())")["report"]
    figures = page.locator(".figures strong").all_inner_texts()
    assert float(figures[0]) == pytest.approx(report["map"], abs=0.001)
    assert figures[2] == str(report["distinct"]["codes"])
    rows = page.locator("#quality tbody tr")
    expect(rows).to_have_count(10)
    values = [float(value) for value in rows.locator("td:nth-child(3)").all_inner_texts()]
    assert values == pytest.approx([row["map"] for row in report["per_class"]], abs=0.001)
    expect(page.locator("#quality .dot")).to_have_count(len(report["precision"]))


def test_an_empty_collection(page):
    with at_address(Collection(FlatIndex(np.empty((0, 8), np.uint8)), "empty.hgi")) as address:
        page.goto(address)
        expect(page.locator("#collection-nothing")).to_contain_text("There are no items yet.")
        expect(page.locator("#collection-nothing a")).to_have_attribute("href", "docs#post-items")
        expect(page.locator("#about")).to_contain_text("empty.hgi: 0 items")


def test_a_radius_without_items_says_how_far_the_nearest_is(page, address, digits):
    distances = digits[0].index.search(code_of(digits[0], QUERY)[None], 2).distances[0]
    nearest = int(distances[1])
    assert nearest > 0, "the query has a twin"
    page.goto(f"{address}#/item/{QUERY}")
    by_bits(page)
    page.get_by_label("Radius").fill("0")
    expect(page.locator("#results-summary")).to_have_text(f"Nothing within 0 bits, the nearest is {nearest} away")
    expect(page.locator("#results-items li")).to_have_count(0)
    page.get_by_role("button", name=f"Show items within {nearest} bits").click()
    expect(page.locator("#results-items li").first).to_be_visible()
    expect(page.locator("#results-nothing")).to_be_hidden()
    expect(page.get_by_label("Radius")).to_have_value(str(nearest))


def test_places_without_items_lead_on(page, address):
    page.goto(f"{address}#/?label=none")
    expect(page.locator("#collection-nothing")).to_contain_text("No item has the label none.")
    page.get_by_role("link", name="Show all items").click()
    expect(page.locator("#collection-items li").first).to_be_visible()
    expect(page.locator("#collection-nothing")).to_be_hidden()
    page.goto(f"{address}#/?page=99")
    page.get_by_role("link", name="Go to the first page").click()
    expect(page.locator("#collection-summary")).to_have_text(f"1 to 60 of {N_IMAGES} items")


def test_the_only_item_has_no_neighbours(page):
    with at_address(Collection(FlatIndex(np.zeros((1, 8), np.uint8)), "one.hgi")) as address:
        page.goto(f"{address}#/item/0")
        expect(page.locator("#results-nothing")).to_have_text("There is no other item in the collection.")


def test_a_large_view_of_an_image_and_those_beside_it(page, address):
    page.goto(address)
    first, second = page.locator("#collection-items a").nth(0), page.locator("#collection-items a").nth(1)
    names = [first.get_attribute("data-id"), second.get_attribute("data-id")]
    page.locator("#collection-items li").first.hover()
    page.get_by_role("button", name=f"Larger view of {names[0]}").click()
    title = page.locator("#large-title")
    expect(title).to_have_text(names[0])
    expect(page.locator("#large-image img")).to_have_js_property("complete", True)
    expect(page.locator("#large-before")).to_be_disabled()
    page.keyboard.press("ArrowRight")
    expect(title).to_have_text(names[1])
    page.get_by_role("link", name="Find similar items").click()
    expect(page.locator("#large")).to_be_hidden()
    expect(page.locator("#results-title")).to_have_text(f"Nearest to {names[1]}")
    page.locator("#query button").click()
    expect(title).to_have_text(names[1])
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#large")).to_be_hidden()


def test_names_are_shown_whole(page):
    name = "holiday-by-the-sea-" * 4 + "end"
    details = Details(np.array(["a"]), columns={"name": [name]})
    with at_address(
        Collection(FlatIndex(np.zeros((1, 8), np.uint8), ids=["a"]), "one.hgi", details=details)
    ) as address:
        page.set_viewport_size({"width": 360, "height": 740})
        page.goto(address)
        shown = page.locator("#collection-items .name")
        expect(shown).to_have_text(name)
        assert shown.evaluate(
            "one => one.scrollWidth <= one.clientWidth && getComputedStyle(one).overflow === 'visible'"
        )


def test_the_page_says_that_it_waits(page, address):
    page.goto(f"{address}#/item/{QUERY}")
    found(page)
    busy = page.locator("#busy")
    expect(busy).to_be_hidden()
    waiting = []
    page.route("**/search", lambda route: waiting.append(route))
    page.get_by_label("Results").fill("7")
    expect(busy).to_be_visible()
    expect(busy).to_have_text("Waiting for the service …")
    for request in waiting:
        request.continue_()
    expect(busy).to_be_hidden()
    expect(page.locator("#results-items li")).to_have_count(7)


def test_the_reference_sends_requests(refused, address):
    page = refused
    page.goto(f"{address}docs#post-search")
    section = page.locator("#post-search")
    section.locator("summary").click()
    body = section.locator("textarea")
    expect(body).not_to_have_value("{}")
    section.get_by_role("button", name="Send").click()
    expect(section.locator(".answer p")).to_contain_text("200 OK")
    answer = json.loads(section.locator(".answer pre").inner_text())
    first = json.loads(body.input_value())["id"]
    assert answer["results"][0][0]["id"] == first
    body.fill("[]")
    section.get_by_role("button", name="Send").click()
    expect(section.locator(".answer p")).to_contain_text("422")
    image = page.locator("#get-images-id")
    image.locator("summary").click()
    expect(image.get_by_label("id")).to_have_value(first)
    image.get_by_role("button", name="Send").click()
    expect(image.locator(".answer img")).to_have_js_property("naturalWidth", 32)
    expect(page.locator("#delete-items-id input")).to_have_value("")


def test_a_picture_is_added_and_shown_among_its_neighbours(page, tmp_path):
    collection = open_index(build_writable(tmp_path))
    content = (tmp_path / "built" / "images" / QUERY).read_bytes()
    with at_address(collection) as address:
        page.goto(address)
        page.get_by_role("button", name="Add a picture").click()
        dialog = page.get_by_role("dialog", name="Add a picture")
        expect(dialog.get_by_role("button", name="Add")).to_be_disabled()
        page.locator("#add-file").set_input_files({"name": "mine.png", "mimeType": "image/png", "buffer": content})
        expect(dialog.locator("img")).to_have_js_property("naturalWidth", 32)
        page.get_by_label("Label (optional)").fill("drawn by hand")
        page.keyboard.press("Enter")
        expect(page.locator("#results-title")).to_have_text("Nearest to mine.png")
        assert found(page)[0] == QUERY  # the same picture
        expect(page.locator("#query .label")).to_have_text("drawn by hand")
        expect(page.locator("#about")).to_contain_text("21 items")
        page.keyboard.press("Escape")
        expect(page.locator("#collection-summary")).to_have_text("1 to 21 of 21 items")
        expect(page.locator("#collection-items img").last).to_have_js_property("naturalWidth", 32)
        page.locator("#filter-label").select_option("drawn by hand")
        expect(page.locator("#collection-summary")).to_have_text("1 to 1 of 1 item")


def test_a_picture_that_is_refused_is_named_in_the_dialog(refused, tmp_path):
    with at_address(open_index(build_writable(tmp_path))) as address:
        refused.goto(address)
        refused.get_by_role("button", name="Add a picture").click()
        file = {"name": "notes.png", "mimeType": "image/png", "buffer": b"this is no image"}
        refused.locator("#add-file").set_input_files(file)
        refused.get_by_role("button", name="Add", exact=True).click()
        expect(refused.locator("#add-error")).to_contain_text("must be an image")
        expect(refused.locator("#add")).to_be_visible()
        refused.locator("#add-id").fill(QUERY)
        content = (tmp_path / "built" / "images" / QUERY).read_bytes()
        refused.locator("#add-file").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": content})
        refused.get_by_role("button", name="Add", exact=True).click()
        expect(refused.locator("#add-error")).to_contain_text("There is an item with the id")
        refused.get_by_role("button", name="Cancel").click()
        expect(refused.locator("#collection-summary")).to_have_text("1 to 20 of 20 items")


def build_writable(folder):
    """An index of twenty digits in a folder, with its model."""
    (folder / "built").mkdir()
    collection = collection_with_images(folder / "built")
    ids = [f"digit {number:03}.png" for number in range(20)]
    place = folder / "digits.hgi"
    index = FlatIndex(collection.codes_of(np.array(ids))[0], ids=ids, model=collection.model)
    index.keep_features(collection.features_of(np.array(ids)), ids=ids)
    index.save(place)
    shutil.copy(folder / "built" / "model.hashgrove", place / "model.hashgrove")
    return str(place)


def test_an_item_is_found_by_the_name_on_its_card(refused):
    ids = np.array(["a/1.png", "b/1.png", "c/2.png"])
    details = Details(ids, columns={"name": ["The Scream", "Mona Lisa", "Mona Lisa"], "year": ["1893", "1503", "1919"]})
    codes = np.array([[1], [2], [3]], np.uint8)
    with at_address(Collection(FlatIndex(codes, ids=ids), "art", details=details)) as address:
        refused.goto(address)
        box = refused.get_by_label("Find similar items")
        box.fill("The Scream")
        refused.keyboard.press("Enter")
        expect(refused.locator("#results-title")).to_have_text("Nearest to The Scream")
        assert found(refused) == ["c/2.png", "b/1.png"]
        box.fill("Mona Lisa")
        refused.keyboard.press("Enter")
        expect(refused.locator("#collection-summary")).to_have_text("1 to 2 of 2 items called Mona Lisa")
        expect(refused.locator("#collection-items li")).to_have_count(2)


def test_one_of_several_indexes_is_chosen(page, digits):
    names = ["digits", "texts"]
    apps = {
        name: create_app(collection, names=names)
        for name, collection in zip(names, (digits[0], collection_of_texts()), strict=True)
    }
    with at_app(RootPath(Several(apps), "/codes")) as address:
        page.goto(f"{address}codes/")
        expect(page).to_have_url(f"{address}codes/digits/")
        expect(page.locator("#collection-items img").first).to_have_js_property("naturalWidth", 32)
        page.get_by_label("Index").select_option("texts")
        expect(page).to_have_url(f"{address}codes/texts/")
        expect(page.locator("#about")).to_contain_text("reports.hgi: 40 items")
        page.get_by_role("link", name="API").click()
        page.locator("#get-health summary").click()
        page.locator("#get-health button").click()
        expect(page.locator("#get-health .answer")).to_contain_text('"items": 40')
        file = page.get_by_role("link", name="openapi.json")
        assert file.evaluate("link => link.href") == f"{address}codes/texts/openapi.json"


def test_the_reference_adds_an_item_as_it_stands(page, tmp_path):
    with at_address(open_index(build_writable(tmp_path))) as address:
        page.goto(f"{address}docs#post-items")
        section = page.locator("#post-items")
        section.locator("summary").click()
        expect(section.locator("textarea")).not_to_have_value("{}")
        section.get_by_role("button", name="Send").click()
        expect(section.locator(".answer p")).to_contain_text("201")
        expect(section.locator(".answer pre")).to_contain_text("new-item")
