"""Milvus as an engine: what comes on top of the contract, which `test_index_contract` checks."""

from __future__ import annotations

import random
import uuid
from functools import partial

import numpy as np
import pytest
from pymilvus import DataType, MilvusClient

import servers
from hashgrove import LSH, FlatIndex, reencode
from hashgrove.index import connect
from hashgrove.index.engines import EngineError
from index_writer import codes_of, content, killed
from indexes import at_once
from makers import random_codes


@pytest.fixture
def collection():
    return f"t{uuid.uuid4().hex}"


@pytest.fixture
def url(collection):
    return f"{servers.milvus()}?collection={collection}"


@pytest.fixture
def client():
    """A client as any other program has it."""
    return MilvusClient(uri=servers.milvus().replace("milvus://", "http://"))


def refused(url, match, **options):
    with pytest.raises(ValueError, match=match) as caught:
        connect(url, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_equal(found, expected):
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, two)


def test_items_are_there_when_it_is_opened_again_and_the_kind_of_ids_may_change_without_items(url):
    refused(url, "must have items that hashgrove has stored", create=False)
    with connect(url, n_bits=61, model="mine") as index:
        index.add(random_codes(5), ids=[3, 1, 4, 0, 2], model="mine")
        expected = content(index)
    with connect(url, create=False) as again:
        assert (content(again), again.model, again.n_bytes) == (expected, "mine", 8)
        again.remove(range(5))
        again.add(random_codes(1), ids=["text"], model="mine")
        assert content(again) == {"text": bytes(random_codes(1)[0])}
    refused(url, "must be the model of the index, mine. Got other", model="other")


def test_texts_with_characters_that_mean_something_in_a_filter(url, client, collection):
    ids = ["a'b", 'a"b', "a\\b", "{a,b}", "%", "\\u0041", "]", " ", "\u2028", "日本", "a" * 1024]
    with connect(url) as index:
        index.add(random_codes(len(ids)), ids=ids)
        assert index.ids.tolist() == ids
        assert all(i in index for i in ids)
        assert index.search(random_codes(1), 99, allowed=ids[3:]).ids.shape == (1, len(ids) - 3)
        rows = client.query(collection, filter='id == "日本"', output_fields=["code"], consistency_level="Strong")
        assert rows[0]["code"] == [bytes(random_codes(len(ids))[ids.index("日本")])]
        assert index.remove(ids) == len(ids)
        assert len(index) == 0


def test_more_items_than_milvus_returns(url):
    """20,000 items of which 18,000 are equal: beyond the limit of 16,384, by ties, by k and by the filter."""
    codes = np.concatenate([np.full((18_000, 2), 5, np.uint8), random_codes(2000, 16)])
    ids = np.random.default_rng(0).permutation(20_000)
    queries = np.array([[5, 5], [0, 9]], np.uint8)
    truth = FlatIndex(codes, ids=ids)
    with connect(url) as index:
        index.add(codes, ids=ids)
        assert_equal(index.search(queries, 7), truth.search(queries, 7))
        assert_equal(index.search(queries, 17_000), truth.search(queries, 17_000))
        assert_equal(index.search(queries, 7, allowed=range(17_000)), truth.search(queries, 7, allowed=range(17_000)))
        assert_equal(index.search_radius(queries, 0).ids, truth.search_radius(queries, 0).ids)


def test_an_approximate_index_is_searched_as_a_whole_unless_that_is_asked_for(url, client, collection):
    codes, queries = random_codes(6000), random_codes(20, seed=1)
    truth = FlatIndex(codes)
    with connect(url) as index:
        index.add(codes)
    client.flush(collection)  # only what is flushed is indexed
    with connect(url, search="ivf") as approximate:
        assert client.describe_index(collection, "code")["index_type"] == "BIN_IVF_FLAT"
        distances, ids = approximate.search(queries, 10)
        for q, (row, found) in enumerate(zip(distances, ids, strict=True)):
            assert row.tolist() == np.bitwise_count(codes[found] ^ queries[q]).sum(axis=1).tolist()
    with connect(url) as exact:
        assert_equal(exact.search(queries, 10), truth.search(queries, 10))
        assert_equal(exact.search_radius(queries, 20).ids, truth.search_radius(queries, 20).ids)


def test_clients_see_each_others_changes_and_never_make_two_items_with_one_id(url):
    with connect(url, n_bits=64) as one, connect(url) as two:
        one.add(random_codes(10))
        two.remove([9])
        one.add(random_codes(1, seed=1))
        assert one.ids.tolist() == two.ids.tolist() == list(range(10))
        two.add(random_codes(2), ids=[70, 80])
        one.add(random_codes(1))
        assert 81 in two
        options = {"ids": range(100, 150), "replace": True}
        codes = [random_codes(50, seed=1), random_codes(50, seed=2)]
        at_once(partial(one.add, codes[0], **options), partial(two.add, codes[1], **options))
        assert len(one) == len(two.ids) == 63


def test_what_has_returned_survives_the_end_of_a_writer(url):
    items, sizes, pauses = {}, [], random.Random(0)
    with connect(url, n_bits=64) as index:
        for run in range(3):
            possible = killed(url, items, seed=run, n_done=pauses.randint(1, 4), seconds=pauses.uniform(0, 0.3))
            items = content(index)
            assert items in possible
            sizes.append(len(items))
    assert max(sizes) > 0


def test_what_has_returned_survives_the_end_of_the_server():
    server = servers.Server("milvus", "milvus that is killed")
    index = connect(f"milvus://127.0.0.1:{server.port}", n_bits=64)
    for version in range(5):
        index.add(codes_of(range(100 * version, 100 * version + 100), version))
    index.remove(range(50))
    index.update(codes_of(range(60, 70), 9), ids=range(60, 70))
    expected = content(index)
    index.close()
    server.kill()
    server.start()
    with connect(f"milvus://127.0.0.1:{server.port}", create=False) as again:
        assert content(again) == expected
    server.kill()  # it would go on until the end of the session


def test_what_is_not_hashgroves_is_refused(url, client, collection):
    schema = client.create_schema(description="my photos")
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("code", DataType.BINARY_VECTOR, dim=8)
    client.create_collection(collection, schema=schema)
    refused(url, f"the collection {collection} must be new, or one that hashgrove has made")
    client.drop_collection(collection)


def test_wrong_urls_and_servers():
    refused("milvus://", "must be milvus://user@host:port/database")
    refused(f"{servers.milvus()}?search=fast", r"'search' parameter must be one of \['exact', 'ivf'\]")
    refused(f"{servers.milvus()}?collection=a-b", "'collection' parameter must be a name")
    with pytest.raises(EngineError, match=r"milvus://ann@127.0.0.1:\d+: .*connect") as caught:
        connect(f"milvus://ann:secret@127.0.0.1:{servers.free_port()}")
    assert "secret" not in str(caught.value)


def test_reencoding_is_refused_because_items_cannot_be_replaced_in_one_step(url, tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 8))
    old, new = LSH(16, random_state=0).fit(X), LSH(16, random_state=1).fit(X)
    new.save(tmp_path / "new.hashgrove")
    with connect(url) as index:
        index.add(old.transform(X))
    with pytest.raises(EngineError, match=r"cannot be replaced in one step.* push them to another collection"):
        reencode(url, tmp_path / "new.hashgrove", X=X, work=tmp_path / "work")
    with connect(url, create=False) as index:
        np.testing.assert_array_equal(index.codes, old.transform(X))
