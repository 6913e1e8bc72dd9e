"""Items with equal codes, grouped by a hash table whose seed must not matter."""

from __future__ import annotations

import numpy as np
import pytest

import naive
from hashgrove.codes import as_words
from hashgrove.index.distinct import group_equal, number_equal, order_by_number
from hashgrove.metrics import collapse, count_distinct

CODES = {
    "distinct": np.arange(300, dtype=np.uint64)[:, None].view(np.uint8),
    "few": np.random.default_rng(0).integers(0, 2, (400, 3), np.uint8),
    "equal": np.full((70, 8), 9, np.uint8),
    "of two words": np.random.default_rng(1).integers(0, 2, (300, 2), np.uint64).view(np.uint8),
    "one": np.zeros((1, 1), np.uint8),
    "none": np.zeros((0, 4), np.uint8),
}


@pytest.mark.parametrize("codes", CODES.values(), ids=CODES)
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_numbers_are_in_the_order_of_the_first_items(codes, seed):
    n = len(codes)
    numbers, firsts = np.empty(n, np.uint32), np.empty(n, np.uint32)
    slots = np.zeros(2 ** (n + 1).bit_length(), np.uint64)
    n_distinct = number_equal(as_words(codes), np.uint64(seed), slots, numbers, firsts)
    assert (numbers.tolist(), firsts[:n_distinct].tolist()) == naive.numbered(codes)
    starts, order = np.zeros(n_distinct + 1, np.uint32), np.empty(n, np.uint32)
    order_by_number(numbers, starts, order)
    assert order.tolist() == np.argsort(numbers, kind="stable").tolist()
    assert starts.tolist() == [0, *np.bincount(numbers, minlength=n_distinct).cumsum().tolist()]


@pytest.mark.parametrize("codes", CODES.values(), ids=CODES)
def test_groups(codes, monkeypatch):
    order, starts = group_equal(codes)
    groups = np.split(order, starts[1:-1].astype(int)) if len(codes) else []
    assert sorted(order.tolist()) == list(range(len(codes)))
    assert [group[0] for group in groups] == naive.numbered(codes)[1]
    for group in groups:
        assert (np.diff(group.astype(int)) > 0).all()
        assert (codes[group] == codes[group[0]]).all()
    for few in (0, 10**6):
        monkeypatch.setattr(collapse, "FEW", few)
        assert count_distinct(codes) == len(groups)
