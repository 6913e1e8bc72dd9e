"""Histograms of distances by vector code, against counting one by one."""

from __future__ import annotations

import numpy as np
import pytest

from hashgrove.codes import as_columns, as_words, hamming
from hashgrove.index import counting, scan
from makers import random_codes


@pytest.mark.parametrize("n", [0, 1, 64, 511, 512, 1100, counting.BYTE_TILE])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 8), (3, 70), (0, 72), (0, 256), (200, 256)])
def test_a_histogram_counts_every_value(n, low, high):
    """Whole blocks and the rest; few values, which are counted eight at a time, and many, which are not."""
    tile = np.random.default_rng(0).integers(low, high, n).astype(np.uint8)
    table = np.arange(counting.TABLE_SIZE)
    counting.add_histogram(tile, table)
    np.testing.assert_array_equal((table - np.arange(len(table)))[:256], np.bincount(tile, minlength=256))
    assert (table[256:] == np.arange(256, len(table))).all()


@pytest.mark.parametrize("n_words", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [1, 700, counting.BYTE_TILE + 77])
def test_counts_agree_with_the_distances(n_words, n):
    """Codes whose distances fit a byte, and longer ones; all items, and some."""
    codes, queries = random_codes(n, 64 * n_words, 1), random_codes(5, 64 * n_words, 2)
    codes[: n // 3] = queries[0]
    codes[0] = ~queries[0]  # as far away as a code can be
    truth = hamming(queries, codes)
    mask = np.random.default_rng(0).integers(2**64, size=-(-n // 64), dtype=np.uint64)
    allowed = np.unpackbits(mask.view(np.uint8), bitorder="little")[:n].astype(bool)
    for bitmap, chosen in ((scan.ALL, np.ones(n, bool)), (mask, allowed)):
        counts = np.ones((5, 64 * n_words + 1), np.int64)
        counting.count(as_columns(codes), bitmap, as_words(queries), counts)
        for q in range(5):
            expected = np.bincount(truth[q, chosen], minlength=64 * n_words + 1)
            np.testing.assert_array_equal(counts[q] - 1, expected)
