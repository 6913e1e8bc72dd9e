"""Tables of multi-index hashing: distinct codes, sorted once per table by a part of their bits.

The bits are divided up among m tables. In each table, the codes whose bits in that part are equal lie in one bucket,
one after the other, so that a bucket is read as fast as a scan reads. Two codes at a distance of r differ in at most
r // m bits of some part, so the codes near a query are in few buckets (Norouzi, Punjani and Fleet, 2014, "Fast exact
search in Hamming space with multi-index hashing").

Learned codes are skewed: many items share a code, and bits are correlated. So only distinct codes are in the tables,
and the bits of a part are chosen to be as independent as possible, if that makes the buckets more even.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import as_words
from hashgrove.index.items import read_only
from hashgrove.runtime.compiling import kernel

__all__ = [
    "MAX_ITEMS",
    "Division",
    "Tables",
    "bases_of",
    "choose_n_tables",
    "divide",
    "padding",
    "part_of",
    "permute_bits",
    "table_limits",
]

MAX_ITEMS = 2**32 - 2  # numbers of items and codes are uint32
MAX_LENGTH = 24  # bits of a part: a table has an entry for each of their values
LINE = 16  # numbers of 4 bytes in a cache line


@dataclass(frozen=True, eq=False)
class Division:
    """How the bits are divided up, and which items have which of the distinct codes.

    Codes are numbered in the order of their first items.

    Attributes
    ----------
    bits : int64 array of shape (64 n_words,)
        The bit of a code that comes to each place before the codes are divided into parts.
    parts : int64 array of shape (m, 2)
        The first bit of each part, and the bit after its last.
    starts, order : uint32 arrays of shape (n_distinct + 1,) and (n,)
        The items with code i are ``order[starts[i] : starts[i + 1]]``, ascending.
    """

    bits: NDArray[np.int64]
    parts: NDArray[np.int64]
    starts: NDArray[np.uint32]
    order: NDArray[np.uint32]

    @property
    def n_tables(self) -> int:
        """Number of tables."""
        return len(self.parts)

    @property
    def n_distinct(self) -> int:
        """Number of distinct codes."""
        return len(self.starts) - 1

    @property
    def n(self) -> int:
        """Number of items."""
        return len(self.order)

    def permuted(self, codes: NDArray[np.uint8]) -> NDArray[np.uint64]:
        """Codes as words with the bits in the order of the tables, uint64 (n, n_words)."""
        words = as_words(codes)
        out = np.empty_like(words)
        permute_bits(words, self.bits, out)
        return out


@dataclass(frozen=True, eq=False)
class Tables(Division):
    """The distinct codes of some items, in m tables.

    Attributes
    ----------
    masks : uint64 array of shape (m, n_words)
        The bits of each part.
    offsets : uint32 array
        Where the buckets begin: bucket ``key`` of table t is ``offsets[bases[t] + key : bases[t] + key + 2]``.
    bases : int64 array of shape (m,)
    words : uint64 array of shape (m, n_words, n_distinct)
        The codes in the order of the buckets, with the bits in the order of ``bits``.
    numbers : uint32 array of shape (m, n_distinct)
        The numbers of these codes.
    """

    masks: NDArray[np.uint64]
    offsets: NDArray[np.uint32]
    bases: NDArray[np.int64]
    words: NDArray[np.uint64]
    numbers: NDArray[np.uint32]

    @classmethod
    def from_arrays(cls, n_bits: int, *arrays: NDArray[Any]) -> Tables:
        """Tables of codes of some length from the arrays of `layout`, in this order; what follows from them is added.

        All arrays are made read-only, so that kernels are compiled once for tables in memory and in files.
        """
        bits, starts, order, offsets, numbers, _, words = (read_only(array) for array in arrays)
        parts = divide(n_bits, len(words))
        masks, bases = _masks(parts, words.shape[1]), bases_of(parts)[:-1]
        return cls(bits, parts, starts, order, masks, offsets, bases, words, numbers)

    @staticmethod
    def layout(n_bits: int, n_tables: int, n_distinct: int, n: int) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of each array in the file of the tables of ``n`` codes, in the order of the file."""
        n_words = -(-n_bits // 64)
        n_offsets = int(bases_of(divide(n_bits, n_tables))[-1])
        before = n_distinct + 1 + n + n_offsets + n_tables * n_distinct
        return {
            "bits": ("<i8", (64 * n_words,)),
            "starts": ("<u4", (n_distinct + 1,)),
            "order": ("<u4", (n,)),
            "offsets": ("<u4", (n_offsets,)),
            "numbers": ("<u4", (n_tables, n_distinct)),
            "padding": ("<u4", (-before % LINE,)),  # so that the words begin at a cache line
            "words": ("<u8", (n_tables, n_words, n_distinct)),
        }

    def arrays(self) -> Iterator[NDArray[Any]]:
        """The arrays of `layout`, one after the other."""
        yield from (self.bits, self.starts, self.order, self.offsets, self.numbers, padding(self), self.words)

    def fault(self) -> str | None:
        """What is wrong with tables that a stranger wrote; None if no search by them can read beyond an array.

        Codes in the wrong buckets are not noticed. They make results wrong, as wrong codes in the index do.
        """
        if not np.array_equal(np.sort(self.bits), np.arange(len(self.bits))):
            return "each bit must have a place"
        if not _ascend(self.starts, 1, len(self.order)):
            return "each code must have items"
        if self.order.max() >= len(self.order):
            return "it must name items of the index"
        ends = [*self.bases[1:].tolist(), len(self.offsets)]
        if not all(_ascend(self.offsets[a:b], 0, self.n_distinct) for a, b in zip(self.bases, ends, strict=True)):
            return "buckets must follow each other"
        if self.numbers.max() >= self.n_distinct:
            return "it must name codes of the index"
        return None

    @property
    def nbytes(self) -> int:
        """Memory of all arrays, in bytes."""
        return sum(value.nbytes for value in vars(self).values())


def padding(tables: Division) -> NDArray[np.uint32]:
    """What comes before the words in a file."""
    n_bits = int(tables.parts[-1, 1])
    return np.zeros(Tables.layout(n_bits, tables.n_tables, tables.n_distinct, tables.n)["padding"][1], np.uint32)


def choose_n_tables(n: int, n_bits: int) -> int:
    """Number of tables for ``n`` distinct codes: parts of about log2(n) bits, which measured best.

    >>> [choose_n_tables(n, 64) for n in (10**6, 10**7, 10**8)], choose_n_tables(10**7, 128)
    ([3, 3, 3], 6)
    """
    length = min(max(np.log2(max(n, 2)), 8), MAX_LENGTH)
    return max(table_limits(n_bits)[0], round(n_bits / length), 1)


def table_limits(n_bits: int) -> tuple[int, int]:
    """The smallest and the largest number of tables for codes of some length.

    >>> table_limits(64)
    (3, 64)
    """
    return -(-n_bits // MAX_LENGTH), n_bits


def divide(n_bits: int, n_tables: int) -> NDArray[np.int64]:
    """The first bit of each part and the bit after its last; lengths differ by one at most.

    >>> divide(8, 3).tolist()
    [[0, 3], [3, 6], [6, 8]]
    """
    ends = np.cumsum([n_bits // n_tables + (t < n_bits % n_tables) for t in range(n_tables)])
    return np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1)


def _masks(parts: NDArray[np.int64], n_words: int) -> NDArray[np.uint64]:
    masks = np.zeros((len(parts), n_words), np.uint64)
    for t, (first, last) in enumerate(parts):
        for bit in range(first, last):
            masks[t, bit // 64] |= np.uint64(1) << np.uint64(bit % 64)
    return masks


def bases_of(parts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the offsets of each table begin, and where those of the last one end."""
    return np.concatenate([[0], (2 ** (parts[:, 1] - parts[:, 0]) + 1).cumsum()])


def _ascend(values: NDArray[Any], step: int, last: int) -> bool:
    """Whether numbers go from zero to ``last``, each at least ``step`` (0 or 1) above the one before."""
    pairs = values[:-1], values[1:]
    ordered = pairs[0] < pairs[1] if step else pairs[0] <= pairs[1]
    return bool(values[0] == 0 and values[-1] == last and ordered.all())


@kernel
def permute_bits(words: Any, bits: Any, out: Any) -> None:
    """Write the codes with their bits in another order: bit ``bits[i]`` comes to place i. O(codes x bits).

    ``words`` and ``out`` are uint64 (n, n_words), ``bits`` is int64 (64 n_words,).
    """
    one, low = np.uint64(1), np.uint64(63)
    for i in range(words.shape[0]):
        for w in range(words.shape[1]):
            word = np.uint64(0)
            for place in range(64):
                bit = np.uint64(bits[64 * w + place])
                word |= (words[i, bit >> np.uint64(6)] >> (bit & low) & one) << np.uint64(place)
            out[i, w] = word


@kernel
def part_of(words: Any, first: int, last: int) -> Any:
    """Bits ``first`` to ``last`` (at most 24) of a code, uint64 (n_words,), as a number."""
    low, shift = first >> 6, np.uint64(first & 63)
    key = words[low] >> shift
    if last > 64 * (low + 1):
        key |= words[low + 1] << (np.uint64(64) - shift)
    return key & ((np.uint64(1) << np.uint64(last - first)) - np.uint64(1))
