"""Ids as an index keeps them: consecutive integers, integers and texts do the same as lists."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import naive
from hashgrove.index import FlatIndex
from hashgrove.index.keys import Consecutive, Integers, Texts, keys_of
from hashgrove.index.texts import compare_neighbours, copy_texts, find_texts


def random_texts(seed, n=200):
    """Texts that share beginnings, among them such as are the beginning of another."""
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(["a", "b", "é", "\U0001f600", "ab"], rng.integers(1, 7))) for _ in range(n)]


LISTS = {
    "consecutive": (Consecutive, list(range(-3, 40))),
    "integers": (Integers, [5, -2, 2**62, 9, 9, 0, -2]),
    "texts": (Texts, random_texts(0)),
    "one long text": (Texts, ["b", "x" * 1024, "a", "x" * 1023]),
}


@pytest.mark.parametrize(("kind", "ids"), LISTS.values(), ids=LISTS)
def test_keys_do_what_lists_do(kind, ids):
    array = np.array(ids)
    keys = keys_of(array)
    assert type(keys) is kind
    assert len(keys) == len(ids)
    assert keys.values().tolist() == ids
    places = np.random.default_rng(0).integers(len(ids), size=(5, 4))
    assert keys[places].tolist() == array[places].tolist()
    assert keys[places].dtype.kind == array.dtype.kind
    assert keys[places[:0]].shape == (0, 4)
    assert keys.select(places[0]).values().tolist() == array[places[0]].tolist()
    assert keys.head(3).values().tolist() == ids[:3]
    assert keys.order().tolist() == np.argsort(array, kind="stable").tolist()
    assert keys.repeated().tolist() == [a == b for a, b in pairwise(ids)]
    joined = keys.joined(keys_of(array[:2]))
    assert joined.values().tolist() == [*ids, *ids[:2]]
    assert keys.joined(keys.head(0)) is keys
    assert keys.head(0).joined(keys) is keys
    for part in (ids, sorted(set(ids)), [*sorted(set(ids)), min(ids)], sorted(ids)):
        some = keys_of(np.array(part))
        for start in range(len(part)):
            expected = all(a < b for a, b in zip(part[max(start - 1, 0) :], part[max(start, 1) :], strict=False))
            assert some.is_ascending(start) == expected
        assert (some.at(0) < some.at(-1)) == (part[0] < part[-1])


@pytest.mark.parametrize(("kind", "ids"), LISTS.values(), ids=LISTS)
def test_the_last_of_equal_keys_is_found(kind, ids):
    ascending = sorted(ids)
    others = ["", "a", "zzz", "éa", "x" * 1030] if kind is Texts else [-(2**63), -4, 41, 2**63 - 1]
    wanted = [*others, *ids]
    positions, known = keys_of(np.array(ascending)).find(np.array(wanted))
    assert known.tolist() == [value in set(ids) for value in wanted]
    for position, value in zip(positions[known].tolist(), np.array(wanted)[known].tolist(), strict=True):
        assert position == len(ascending) - 1 - ascending[::-1].index(value)


def test_consecutive_keys_go_on_as_long_as_they_can():
    keys = Consecutive(5, 2).joined(Consecutive(7, 3))
    assert isinstance(keys, Consecutive)
    assert keys.values().tolist() == [5, 6, 7, 8, 9]
    assert Consecutive(5, 2).joined(Consecutive(8, 1)).values().tolist() == [5, 6, 8]
    assert Consecutive(5, 2).joined(Consecutive(6, 1)).values().tolist() == [5, 6, 6]
    assert type(keys.select(np.array([1, 2]))) is Consecutive
    assert type(keys_of(np.array([5, 7, 6, 8]))) is Integers


@pytest.mark.parametrize("seed", range(3))
def test_kernels_of_texts(seed):
    texts = random_texts(seed)
    keys = Texts.of(texts)
    assert naive.texts_at(keys.data, keys.ends) == [text.encode() for text in texts]
    for first in (0, 1, len(texts) - 1):
        out = np.empty(len(texts) - first - 1, np.int8)
        compare_neighbours(keys.data, keys.ends, first, out)
        assert out.tolist() == naive.compared_neighbours([text.encode() for text in texts[first:]])
    places = np.random.default_rng(seed).integers(len(texts), size=300)
    size = sum(len(texts[place].encode()) for place in places)
    data, ends = np.empty(size, np.uint8), np.empty(300, np.int64)
    copy_texts(keys.data, keys.ends, places, data, ends)
    assert naive.texts_at(data, ends) == [texts[place].encode() for place in places]
    ascending, sought = Texts.of(sorted(texts)), Texts.of(random_texts(seed + 9))
    positions, known = np.empty(len(sought), np.int64), np.empty(len(sought), np.bool_)
    find_texts(ascending.data, ascending.ends, sought.data, sought.ends, positions, known)
    expected = naive.found_texts(*(naive.texts_at(part.data, part.ends) for part in (ascending, sought)))
    assert (positions.tolist(), known.tolist()) == expected


def test_a_long_id_makes_no_others_wide():
    """Three hundred thousand ids took 310 MB with one of 1,024 characters, and 7 MB without."""
    ids = [f"{i:06}" for i in range(3000)]
    index = FlatIndex(np.zeros((3000, 1), np.uint8), ids=ids)
    index.add(np.zeros((1, 1), np.uint8), ids=["x" * 1024])
    kept = index._items.ids
    assert kept.data.nbytes == 6 * 3000 + 1024
    assert kept.ends.nbytes == 8 * 3001
    found = index.search(np.zeros((1, 1), np.uint8), 2).ids
    assert found.tolist() == [["000000", "000001"]]
    assert found.itemsize == 6 * 4
