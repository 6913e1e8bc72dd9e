"""What is special to `FlatIndex`: its several ways to scan. The contract is tested in test_index_contract.py."""

from __future__ import annotations

import numpy as np
import pytest

from hashgrove.codes import as_columns, pack
from hashgrove.index import FlatIndex
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
    np.testing.assert_array_equal(index.columns, as_columns(index.codes))
    with pytest.raises(ValueError, match="read-only"):
        index.columns[0] = 0
