"""Queries that wait share a pass, and get what they would get alone."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from hashgrove import FlatIndex
from hashgrove.index import Rerank
from hashgrove.web.batching import Batcher, Full, Query


@pytest.fixture(scope="module")
def data():
    """An index with many equal distances, features of its items, and queries."""
    rng = np.random.default_rng(0)
    codes, queries = rng.integers(0, 256, (300, 2), dtype=np.uint8), rng.integers(0, 256, (40, 2), dtype=np.uint8)
    features = rng.standard_normal((300, 5))
    index = FlatIndex(codes)
    index.keep_features(features)
    return index, queries, rng.standard_normal((40, 5)), rng.random((40, 16))


RERANK = Rerank()


class Gated(FlatIndex):
    """An index whose first search waits until the test has asked for more, so that the others share a pass."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.begun, self.gate = threading.Event(), threading.Event()

    def _search(self, *arguments):
        self.begun.set()
        self.gate.wait(20)
        return super()._search(*arguments)


def kinds_of_queries(queries, features, weights):
    """Queries of every kind, several of each, of different sizes and k."""
    found = []
    for start, k in ((0, 3), (5, 10), (12, 1), (20, 60)):
        rows = slice(start, start + 1 + k % 4)
        found += [
            Query(queries[rows], k),
            Query(queries[rows], k, allowed=np.arange(0, 300, 3), group="third"),
            Query(queries[rows], k, allowed=np.arange(k), group=object()),
            Query(queries[rows], k, order=RERANK, features=features[rows]),
            Query(queries[rows], k, weights=weights[rows]),
        ]
    return found


def alone(index, query):
    """The result of the index itself for a query."""
    if query.order is not None:
        return index.search(query.codes, query.k, rerank=query.order, features=query.features)
    if query.weights is not None:
        return index.search(query.codes, query.k, weights=query.weights)
    return index.search(query.codes, query.k, allowed=query.allowed)


def test_results_do_not_depend_on_who_shares_the_pass(data):
    index, queries, features, weights = data
    asked = kinds_of_queries(queries, features, weights) * 2
    sizes = []

    async def ask():
        batcher = Batcher(index, max_waiting=10_000, on_pass=sizes.append)
        found = await asyncio.gather(*(batcher.search(query) for query in asked))
        batcher.close()
        return found

    for query, (results, waited, searched) in zip(asked, asyncio.run(ask()), strict=True):
        for got, expected in zip(results, alone(index, query), strict=True):
            assert got.dtype == expected.dtype
            assert got.tolist() == expected.tolist()
        assert min(waited, searched) >= 0
    assert sum(sizes) == sum(len(query.codes) for query in asked)


def test_what_arrives_during_a_pass_is_the_next_pass(data):
    index = Gated(data[0].codes)
    sizes = []

    async def ask():
        batcher = Batcher(index, max_waiting=100, on_pass=sizes.append)
        first = asyncio.ensure_future(batcher.search(Query(data[1][:1], 3)))
        await asyncio.to_thread(index.begun.wait)
        others = [asyncio.ensure_future(batcher.search(Query(data[1][[row]], 3))) for row in range(1, 31)]
        await asyncio.sleep(0)
        assert batcher.n_waiting == 30
        index.gate.set()
        await asyncio.gather(first, *others)
        batcher.close()

    asyncio.run(ask())
    assert sizes == [1, 30]


def test_too_many_are_refused_and_those_who_leave_make_room(data):
    index = Gated(data[0].codes)

    async def ask():
        batcher = Batcher(index, max_waiting=3, on_pass=lambda rows: None)
        first = asyncio.ensure_future(batcher.search(Query(data[1][:1], 3)))
        await asyncio.to_thread(index.begun.wait)
        leaving = asyncio.ensure_future(batcher.search(Query(data[1][:3], 3)))
        await asyncio.sleep(0)
        with pytest.raises(Full):
            await batcher.search(Query(data[1][:1], 3))
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert batcher.n_waiting == 0
        staying = asyncio.ensure_future(batcher.search(Query(data[1][:2], 3)))
        await asyncio.sleep(0)
        index.gate.set()
        assert (await staying)[0][1].shape == (2, 3)
        await first
        batcher.close()
        with pytest.raises(Full):
            await batcher.search(Query(data[1][:1], 3))

    asyncio.run(ask())


def test_an_error_of_one_query_is_none_of_the_others(data):
    index = FlatIndex(data[0].codes)
    index.keep_features(np.eye(300, 5)[:299], ids=np.arange(299))  # the last item has none
    last = index.codes[299:]
    far = np.array([code for code in data[1] if np.unpackbits(code ^ last[0]).sum() > 11][:1])

    async def ask():
        batcher = Batcher(index, max_waiting=100, on_pass=lambda rows: None)
        queries = [Query(codes, 1, order=RERANK, features=np.ones((1, 5))) for codes in (far, last, far)]
        found = await asyncio.gather(*(batcher.search(query) for query in queries), return_exceptions=True)
        batcher.close()
        return found

    one, wrong, two = asyncio.run(ask())
    assert "features of all items" in str(wrong)
    assert one[0][1].tolist() == two[0][1].tolist()
