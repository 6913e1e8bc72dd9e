"""The service and its page with a model whose codes can be decoded: queries that it encodes are ranked by classes."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import expect

from hashgrove import hamming
from hashgrove.index import Decoded
from page_service import chromium, opened
from web_service import collection_that_decodes, error_of, served

K = 20
BINARY = {"content-type": "application/octet-stream", "accept": "application/octet-stream"}


@pytest.fixture(scope="module")
def digits():
    """The collection and vectors of queries."""
    return collection_that_decodes()


@pytest.fixture(scope="module")
def client(digits):
    with served(digits[0]) as found:
        yield found


def search(client, **asked):
    answer = client.post("/search", json={"k": K} | asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def found_by(answer):
    """(ids, distances) of all queries of an answer."""
    return [[[hit[name] for hit in hits] for hits in answer["results"]] for name in ("id", "distance")]


def expected(collection, queries):
    """The same, from the index itself."""
    model = collection.model
    distances, ids = collection.index.search(model.encode(queries), K, rerank=Decoded(model), features=queries)
    return ids.astype(str).tolist(), pytest.approx(distances, abs=1e-4)


def plain(collection, codes):
    distances, ids = collection.index.search(codes, K, model=collection.model)
    return [ids.astype(str).tolist(), distances.tolist()]


def test_vectors_are_ranked_by_classes_unless_bits_are_asked_for(client, digits):
    collection, queries = digits
    answer = search(client, features=queries.tolist())
    ids, distances = found_by(answer)
    assert answer["ranked_by"] == "classes"
    assert ids == expected(collection, queries)[0]
    assert np.array(distances) == expected(collection, queries)[1]
    bits = search(client, features=queries.tolist(), plain=True)
    assert bits["ranked_by"] == "bits"
    assert found_by(bits) == plain(collection, collection.model.encode(queries)) != [ids, distances]


def test_a_distance_is_one_minus_the_probability_of_the_class_of_the_query(client, digits):
    collection, queries = digits
    (hit, *_), *_ = search(client, features=queries.tolist(), show_code=True)["results"]
    stated = collection.model.decoder.decode(np.frombuffer(bytes.fromhex(hit["code"]), np.uint8)[None])[0]
    probability = stated @ collection.model.as_queries(queries).probabilities[0]
    assert hit["distance"] == pytest.approx(1 - probability, abs=1e-4)


def test_binary_rows_are_ranked_in_the_same_way(client, digits):
    rows = digits[1].astype("<f4").tobytes()
    for params, ranked_by in (({}, "classes"), ({"plain": "true"}, "bits")):
        answer = client.post("/search", params={"k": K} | params, content=rows, headers=BINARY)
        given = np.frombuffer(answer.content, "<i8", offset=len(answer.content) - 8 * K * len(digits[1]))
        in_json = search(client, features=digits[1].tolist(), **params and {"plain": True})
        assert given.astype(str).reshape(-1, K).tolist() == found_by(in_json)[0]
        assert answer.headers["x-ranked-by"] == in_json["ranked_by"] == ranked_by


def test_codes_and_radii_are_plain_bits(client, digits):
    collection, queries = digits
    codes = collection.model.encode(queries)
    answer = search(client, codes=[code.tobytes().hex() for code in codes], model=collection.digest)
    assert (answer["ranked_by"], found_by(answer)) == ("bits", plain(collection, codes))
    within = search(client, features=queries[:1].tolist(), radius=3)
    assert within["ranked_by"] == "bits"
    near = np.sort(hamming(codes[:1], collection.index.codes)[0])
    assert found_by(within)[1] == [near[near <= 3][:K].tolist()]


def test_an_item_is_ranked_by_classes_if_its_features_are_stored(client, digits):
    collection = digits[0]
    item = search(client, id=0)
    rows = collection.features_of(np.array([0]))
    assert item["ranked_by"] == "classes"
    assert found_by(item)[0] == expected(collection, rows)[0]
    without = search(client, id=299)
    assert (without["ranked_by"], found_by(without)) == ("bits", plain(collection, collection.index.codes[-1:]))


def test_other_rankings_are_said_too_and_exclude_plain_bits(client, digits):
    query = digits[1][:1].tolist()
    assert client.get("/info").json()["can_decode"] is True
    for name, ranked_by in (("rerank", "features"), ("weights", "weights")):
        assert search(client, features=query, allowed=list(range(100)), **{name: True})["ranked_by"] == ranked_by
        refused = client.post("/search", json={"features": query, "plain": True, name: True})
        assert (error_of(refused, 422)["field"], name in refused.text) == ("plain", True)


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


def shown(page):
    """The ids of the neighbours on the page, nearest first."""
    expect(page.locator("#results-items li").first).to_be_visible()
    return page.locator("#results-items a").evaluate_all("links => links.map(link => link.dataset.id)")


def test_the_page_ranks_by_classes_and_a_switch_gives_bits(browser, client, digits):
    collection, queries = digits
    with opened(browser) as page:
        page.goto(str(client.base_url))
        page.locator("#ask-text").fill(", ".join(str(value) for value in queries[0]))
        page.locator("#ask-text").press("Enter")
        assert shown(page) == expected(collection, queries[:1])[0][0]
        expect(page.get_by_label("Classes")).to_be_checked()
        expect(page.locator("#options-hint")).to_contain_text("one minus the probability")
        expect(page.locator("#results-items .moved").first).to_be_visible()
        page.get_by_label("Bits", exact=True).check(force=True)
        expect(page.locator("#results-items .moved")).to_have_count(0)
        assert shown(page) == plain(collection, collection.model.encode(queries[:1]))[0][0]


def test_the_page_ranks_a_code_by_bits_and_the_next_vector_by_classes_again(browser, client, digits):
    collection, queries = digits
    code = collection.model.encode(queries[:1])
    with opened(browser) as page:
        page.goto(str(client.base_url))
        page.locator("#ask-text").fill(code.tobytes().hex())
        page.locator("#ask-text").press("Enter")
        assert shown(page) == plain(collection, code)[0][0]
        expect(page.get_by_label("Classes")).to_be_disabled()
        page.goto(f"{client.base_url}/#/item/0")
        expect(page.get_by_label("Classes")).to_be_checked()
        page.goto(f"{client.base_url}/#/item/299")
        expect(page.locator("#results-summary")).to_contain_text("ranked by bits, because the item has no features")
