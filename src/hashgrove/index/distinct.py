"""Items with equal codes: which they are, and how many different codes there are."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import as_words
from hashgrove.index.keys import read_only
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import prefetch

__all__ = ["group_equal", "n_different", "number_equal", "order_by_number"]


def group_equal(codes: ArrayLike) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Group items that have equal codes. The codes are numbered in the order of their first items.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes)
        At most 2^32 - 2 of them.

    Returns
    -------
    order : uint32 array of shape (n,)
        The items, those with equal codes one after the other, each time in ascending order.
    starts : uint32 array of shape (n_distinct + 1,)
        Items ``order[starts[i] : starts[i + 1]]`` have the i-th code.

    Examples
    --------
    >>> order, starts = group_equal(np.array([[7], [1], [7]], np.uint8))
    >>> order.tolist(), starts.tolist()
    ([0, 2, 1], [0, 2, 3])
    """
    n_distinct, numbers, firsts = _numbered(codes)
    n = len(numbers)
    if n_distinct == n:
        return np.arange(n, dtype=np.uint32), np.arange(n + 1, dtype=np.uint32)
    starts, order = np.zeros(n_distinct + 1, np.uint32), firsts
    order_by_number(numbers, starts, order)
    return order, starts


def n_different(codes: ArrayLike) -> int:
    """Number of different codes.

    >>> n_different(np.array([[7], [1], [7]], np.uint8))
    2
    """
    return _numbered(codes)[0]


def _numbered(codes: ArrayLike) -> tuple[int, NDArray[np.uint32], NDArray[np.uint32]]:
    """The number of different codes, and the two arrays that `number_equal` writes."""
    words = read_only(as_words(codes))  # so that the kernel is compiled once
    n = len(words)
    if n > 2**32 - 2:
        raise ValueError(f"There must be at most {2**32 - 2} codes. Got {n}.")
    numbers, firsts = np.empty(n, np.uint32), np.empty(n, np.uint32)
    slots = np.zeros(1 << (n + n // 4).bit_length(), np.uint64)
    # strangers do not know the seed, so they cannot make codes whose places collide; the numbers do not depend on it
    return number_equal(words, np.uint64(secrets.randbits(64)), slots, numbers, firsts), numbers, firsts


@kernel
def number_equal(words: Any, seed: Any, slots: Any, numbers: Any, firsts: Any) -> int:
    """Number the codes in the order of their first items, and write the number of each item; return how many there are.

    ``words`` is uint64 (n, n_words); ``slots``, uint64 and all zero, has a power of two of entries, more than n.
    ``numbers`` and ``firsts``, the first item of each code, are uint32 (n,). Reads about two places of memory per item.
    """
    n, n_words = words.shape
    ahead, low = 16, np.uint64(32)
    places = np.empty(ahead, np.uint64)
    size = 0
    for i in range(n + ahead):
        if i < n:
            place = seed
            for w in range(n_words):
                place = (place ^ words[i, w]) * np.uint64(0x9E3779B97F4A7C15)
                place ^= place >> low
            place *= np.uint64(0xD6E8FEB86659FD93)
            place ^= place >> low
            prefetch(slots, place & np.uint64(slots.size - 1))
        if i >= ahead:
            item, mixed = i - ahead, places[i % ahead]
            at = mixed & np.uint64(slots.size - 1)
            tag = mixed >> low << low
            while True:
                slot = slots[at]
                if slot == 0:
                    slots[at] = tag | np.uint64(size + 1)
                    firsts[size] = item
                    numbers[item] = size
                    size += 1
                    break
                if slot >> low << low == tag:
                    number = (slot & np.uint64(0xFFFFFFFF)) - np.uint64(1)
                    first, same = firsts[number], True
                    for w in range(n_words):
                        same &= words[first, w] == words[item, w]
                    if same:
                        numbers[item] = number
                        break
                at = (at + np.uint64(1)) & np.uint64(slots.size - 1)
        places[i % ahead] = place
    return size


@kernel
def order_by_number(numbers: Any, starts: Any, order: Any) -> None:
    """Write the items in the order of their numbers, and in each number ascending, and where each number begins.

    ``numbers`` and ``order`` are uint32 (n,), ``starts`` is uint32 (n_numbers + 1,) and all zero.
    """
    for i in range(numbers.size):
        starts[numbers[i] + np.uint64(1)] += np.uint32(1)
    for number in range(1, starts.size):
        starts[number] += starts[number - 1]
    for i in range(numbers.size):  # the start of each number is moved to its end,
        place = starts[numbers[i]]
        starts[numbers[i]] += np.uint32(1)
        order[place] = i
    for number in range(starts.size - 1, 0, -1):  # which is the start of the next one
        starts[number] = starts[number - 1]
    starts[0] = 0
