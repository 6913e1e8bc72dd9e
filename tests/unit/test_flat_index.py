"""What is special to `FlatIndex`: its several ways to scan. The contract is tested in test_index_contract.py."""

from __future__ import annotations

import numpy as np
import pytest

import naive
from hashgrove.codes import as_columns, as_words, hamming, pack
from hashgrove.index import FlatIndex, batch, scan, sliced
from hashgrove.index.strips import next_near, width_of
from makers import random_codes


@pytest.mark.parametrize("n_bits", [8, 64, 200])
@pytest.mark.parametrize("k", [1, 100, 129, 3000, 20000, 20001])
def test_search_of_many_codes_agrees_with_a_stable_argsort(n_bits, k):
    """Enough codes for the buffered scan, full buffers, several tiles, and the counting scan of a large k."""
    n = 20000
    codes, queries = random_codes(n, n_bits, 1), random_codes(40, n_bits, 2)
    distances, ids = FlatIndex(codes).search(queries, k)
    bits = np.unpackbits(codes, axis=1).astype(np.int32)
    for q in (0, 33, 39):
        truth = (bits != np.unpackbits(queries[q])).sum(axis=1)
        order = np.argsort(truth, kind="stable")[:k]
        np.testing.assert_array_equal(ids[q], order)
        np.testing.assert_array_equal(distances[q], truth[order])


def test_search_when_every_next_code_is_nearer():
    """The worst case of the buffer: each item enters it."""
    values = np.sort(np.random.default_rng(0).integers(0, 65, 30000))[::-1]
    codes = pack(np.arange(64) < values[:, None])
    distances, ids = FlatIndex(codes).search(np.zeros((1, 8), np.uint8), 200)
    order = np.argsort(values, kind="stable")[:200]
    np.testing.assert_array_equal(ids[0], order)
    np.testing.assert_array_equal(distances[0], values[order])


def test_few_queries_divide_up_the_database(monkeypatch):
    """With fewer chunks of queries than threads, slices of the database are searched separately and merged."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, (40_000, 2)).astype(np.uint8)  # 16 different codes: ties everywhere, across slices too
    queries = rng.integers(0, 4, (3, 2)).astype(np.uint8)
    index = FlatIndex(codes)
    expected = index.search(queries, 100, n_jobs=1)
    monkeypatch.setattr("hashgrove.index.flat.MIN_SLICE", 9_000)
    for n_jobs in (2, 3, 4):
        distances, ids = index.search(queries, 100, n_jobs=n_jobs)
        assert (distances == expected.distances).all()
        assert (ids == expected.ids).all()


def test_columns_follow_the_codes():
    index = FlatIndex(random_codes(5, 100))
    np.testing.assert_array_equal(index.columns, as_columns(index.codes))
    index.add(random_codes(2, 100, 1), ids=[-1, -2])
    np.testing.assert_array_equal(index.columns, as_columns(index.codes[[6, 5, 0, 1, 2, 3, 4]]))
    with pytest.raises(ValueError, match="read-only"):
        index.columns[0] = 0


WIDTHS = [1, 2, 3, 8, 16, 17, 33]  # words: compiled for a width, and with a loop over the words


@pytest.mark.parametrize("n_words", WIDTHS)
@pytest.mark.parametrize("n", [1, 7, 8, 63, 64, 65, 200, 328])
def test_near_items_of_strips_agree_with_the_naive_ones(n_words, n):
    """Every strip, its whole vectors and its last items; with a mask, and from any item on without one."""
    codes, query = random_codes(n, 64 * n_words, 1), random_codes(1, 64 * n_words, 2)
    distances = naive.hamming(query, codes)[0]
    words, asked = as_columns(codes).reshape(-1), as_words(query).reshape(-1)
    mask = np.random.default_rng(0).integers(2**64, size=-(-n // 64), dtype=np.uint64)
    allowed = np.unpackbits(mask.view(np.uint8), bitorder="little")[:n].astype(bool)
    for limit in (0, int(np.median(distances)), 32 * n_words, 64 * n_words + 1):
        for bitmap, first in ((scan.ALL, 0), (scan.ALL, min(3, n)), (mask, 0)):
            near, strip = [], np.uint64(first)
            while strip < n:
                strip, found = next_near(
                    words, np.uint64(n), asked, np.uint64(0), np.uint64(n_words), width_of(n_words), np.uint64(limit),
                    bitmap, strip, np.uint64(n),
                )  # fmt: skip
                near += [int(strip) + bit for bit in range(64) if int(found) >> bit & 1]
                strip += np.uint64(64)
            expected = [i for i in range(first, n) if distances[i] < limit and (bitmap is scan.ALL or allowed[i])]
            assert near == expected


@pytest.mark.parametrize("n_words", [1, 2, 3, 8, 16])
def test_near_items_of_a_sliced_block_agree_with_the_naive_ones(n_words):
    """Any limit, also those that no item and that every item is below."""
    codes, queries = random_codes(600, 64 * n_words, 1), random_codes(5, 64 * n_words, 2)
    codes[60], codes[61] = queries[0], ~queries[0]
    words, tables = as_columns(codes).reshape(-1), batch.aligned(n_words * sliced.TABLE_WORDS)
    sliced.slice_block(words, np.uint64(600), np.uint64(n_words), np.uint64(50), tables)
    offsets, found = sliced.offsets_of(as_words(queries)).reshape(-1), np.empty(8, np.uint64)
    for q, distances in enumerate(naive.hamming(queries, codes[50:562])):
        limits = {0, 1, 32 * n_words, 64 * n_words, 64 * n_words + 1, *np.quantile(distances, (0.1, 0.6)).astype(int)}
        for limit in limits:
            some = sliced.near_in_block(tables, offsets, np.uint64(q), width_of(n_words), np.uint64(limit), found)
            near = np.unpackbits(found.view(np.uint8), bitorder="little").astype(bool)
            np.testing.assert_array_equal(near, distances < limit)
            assert bool(some) == near.any()


@pytest.mark.parametrize("n_words", [1, 2, 16, 17])
@pytest.mark.parametrize("n_queries", [1, 3, 5, 16, 64])
def test_searches_of_many_queries(n_words, n_queries):
    """Strips are copied for several queries, and blocks are sliced for many; a limit that falls, ties, and a mask."""
    rng = np.random.default_rng(0)
    codes, queries = random_codes(3000, 64 * n_words, 1), random_codes(n_queries, 64 * n_words, 2)
    codes[rng.integers(3000, size=900)] = queries[0]
    index, truth = FlatIndex(codes), hamming(queries, codes)
    for allowed in (np.arange(3000) >= 0, rng.random(3000) < 0.9):
        places = np.flatnonzero(allowed)
        distances, ids = index.search(queries, 20, allowed=None if allowed.all() else allowed)
        near, within = index.search_radius(queries, 28 * n_words, allowed=None if allowed.all() else allowed)
        for q in range(n_queries):
            order = places[np.argsort(truth[q, places], kind="stable")]
            np.testing.assert_array_equal(ids[q], order[:20])
            np.testing.assert_array_equal(distances[q], truth[q, order[:20]])
            np.testing.assert_array_equal(within[q], order[truth[q, order] <= 28 * n_words])
            np.testing.assert_array_equal(near[q], truth[q, within[q]])


@pytest.mark.parametrize("n_bits", [64, 128, 1088])
def test_the_limit_is_guessed_from_a_sample(n_bits):
    """Enough codes for a guess; a mask that allows most items, and one that allows too few for a guess."""
    n = 4 * scan.MIN_STRIPS * scan.STRIP // 3 + 11
    codes, queries = random_codes(n, n_bits, 1), random_codes(3, n_bits, 2)
    index = FlatIndex(codes)
    truth = hamming(queries, codes)
    for step in (1, 2, 500):
        allowed = np.arange(n) % step == 0
        places = np.flatnonzero(allowed)
        distances, ids = index.search(queries, 20, allowed=None if step == 1 else allowed)
        for q in range(3):
            order = places[np.argsort(truth[q, places], kind="stable")[:20]]
            np.testing.assert_array_equal(ids[q], order)
            np.testing.assert_array_equal(distances[q], truth[q, order])


def test_a_guess_that_finds_too_few_items_is_given_up():
    """All near codes are in strips of the sample, which therefore promises more than there are."""
    n_near, k, step = 70, 100, 4 * scan.STRIP
    codes = np.full((scan.SAMPLE * step, 8), 255, np.uint8)
    codes[: n_near * step : step] = 0
    queries, guesses = np.zeros((2, 8), np.uint8), np.full(2, 65, np.uint64)
    index = FlatIndex(codes)
    scan._guess_limits(width_of(1), index.columns, scan.ALL, 0, len(codes), as_words(queries), k, guesses)
    assert guesses.tolist() == [1, 1]
    distances, ids = index.search(queries, k)
    assert distances.tolist() == [[0] * n_near + [64] * (k - n_near)] * 2
    assert (ids == np.argsort(codes[:, 0] > 0, kind="stable")[:k]).all()


@pytest.mark.parametrize("n_words", WIDTHS)
def test_radius_search_of_any_width(n_words):
    codes, queries = random_codes(700, 64 * n_words, 1), random_codes(40, 64 * n_words, 2)
    truth = hamming(queries, codes)
    radius = int(np.quantile(truth, 0.1))
    distances, ids = FlatIndex(codes).search_radius(queries, radius)
    for q in range(40):
        order = np.argsort(truth[q], kind="stable")[: (truth[q] <= radius).sum()]
        np.testing.assert_array_equal(ids[q], order)
        np.testing.assert_array_equal(distances[q], truth[q, order])
