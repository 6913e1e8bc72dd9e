"""Building of tables: group equal codes, divide the bits up, count buckets; then fill one table after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import aligned, as_words, unpack
from hashgrove.index.distinct import group_equal
from hashgrove.index.items import read_only
from hashgrove.index.tables import Division, Tables, bases_of, choose_n_tables, divide, padding, part_of, permute_bits
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import prefetch
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["Plan", "bucket_sizes", "fill_buckets", "gather_columns", "split_bits"]

SHARES = 8  # of the buckets of a table, which are filled one after the other, or by threads
CODES_PER_CHUNK = 2**20
PIECE = 2**24  # codes of one word that are gathered at a time
SAMPLE = 2**16  # codes that the division of the bits is chosen by


@dataclass(frozen=True, eq=False)
class Plan(Division):
    """The distinct codes of some items and the buckets that they come into: all that tables are made from.

    So tables can be written one after the other, in less memory than all of them take.

    Attributes
    ----------
    offsets : uint32 array
        As in `Tables`.
    words : uint64 array of shape (n_distinct, n_words)
        The distinct codes in the order of their numbers, with the bits in the order of ``bits``.
    """

    offsets: NDArray[np.uint32]
    words: NDArray[np.uint64]

    @property
    def bases(self) -> NDArray[np.int64]:
        """Where the offsets of each table begin."""
        return bases_of(self.parts)[:-1]

    @classmethod
    def of(cls, codes: NDArray[np.uint8], n_tables: int | None) -> Plan:
        """Plan the tables of some codes, of which there is at least one; None means that their number is chosen."""
        order, starts = group_equal(codes)
        distinct = codes if len(starts) > len(order) else codes[order[starts[:-1]]]
        n_bits = 8 * codes.shape[1]
        parts = divide(n_bits, n_tables or choose_n_tables(len(distinct), n_bits))
        words = read_only(as_words(distinct))
        bits = np.arange(64 * words.shape[1])
        bits[:n_bits] = split_bits(distinct, parts)
        if not np.array_equal(bits, np.arange(len(bits))):
            permuted = np.empty(words.shape, np.uint64)
            permute_bits(words, bits, permuted)
            words = read_only(permuted)
        bases = bases_of(parts)
        offsets = np.zeros(bases[-1], np.uint32)
        tasks = [(words, *parts[t].tolist(), offsets[bases[t] : bases[t + 1]]) for t in range(len(parts))]
        run_tasks(bucket_sizes, tasks)
        return cls(bits, parts, starts, order, offsets, words)

    def arrays(self) -> Iterator[NDArray[Any]]:
        """The arrays of `Tables.layout`, each made when it is asked for."""
        yield from (self.bits, self.starts, self.order, self.offsets)
        numbers = np.empty((self.n_tables, self.n_distinct), np.uint32)
        bases = bases_of(self.parts)
        for t, (first, last) in enumerate(self.parts.tolist()):
            cursors = self.offsets[bases[t] : bases[t + 1]].copy()
            shares = chunks(2 ** (last - first), -(-(2 ** (last - first)) // SHARES))
            run_tasks(fill_buckets, [(self.words, first, last, low, high, cursors, numbers[t]) for low, high in shares])
        yield from (numbers, padding(self))
        n_words = self.words.shape[1]
        for row in numbers:
            for a, b in chunks(self.n_distinct, PIECE if n_words == 1 else self.n_distinct):
                columns = np.empty((n_words, b - a), np.uint64)
                tasks = [(self.words, row[a:b], c, d, columns) for c, d in chunks(b - a, CODES_PER_CHUNK)]
                run_tasks(gather_columns, tasks)
                yield columns

    def tables(self) -> Tables:
        """Make all tables."""
        made = self.arrays()
        arrays = [next(made) for _ in range(6)]
        words = aligned((self.n_tables, self.words.shape[1], self.n_distinct), np.uint64)
        flat, size = words.reshape(-1), 0
        for columns in made:
            flat[size : size + columns.size] = columns.reshape(-1)
            size += columns.size
        n_bits = int(self.parts[-1, 1])
        return Tables.from_arrays(n_bits, *arrays, words)


def split_bits(codes: NDArray[np.uint8], parts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The order of bits that makes the buckets of the parts most even: as they are, or the least correlated together.

    Evenness is measured on a sample: how many codes share a bucket with a code, on average.
    """
    n_bits = int(parts[-1, 1])
    sample = codes[:: -(-len(codes) // SAMPLE)]
    bits = unpack(sample, n_bits=n_bits)
    centred = bits - bits.mean(axis=0, dtype=np.float32)
    scales = np.sqrt((centred**2).mean(axis=0))
    related = np.abs(centred.T @ centred) / len(bits)
    related /= np.maximum(np.outer(scales, scales), 1e-9)
    related[scales == 0] = related[:, scales == 0] = 1  # a bit that never changes divides no bucket
    chosen: list[list[int]] = [[] for _ in parts]
    free = np.argsort(np.abs(bits.mean(axis=0) - 0.5), kind="stable").tolist()  # the most even bits first
    for t in np.argsort(np.concatenate([np.arange(last - first) for first, last in parts]), kind="stable"):
        table = int(np.searchsorted(parts[:, 1], t, side="right"))
        worst = [related[bit, chosen[table]].max(initial=0.0) for bit in free]
        chosen[table].append(free.pop(int(np.argmin(worst))))
    orders = np.arange(n_bits), np.concatenate([np.array(part, np.int64) for part in chosen])
    return min(orders, key=lambda order: _crowding(bits[:, order], parts))


def _crowding(bits: NDArray[np.bool_], parts: NDArray[np.int64]) -> float:
    """Mean number of codes in the bucket of a code, added up over the tables."""
    total = 0.0
    for first, last in parts:
        keys = bits[:, first:last] @ (1 << np.arange(last - first))
        sizes = np.unique(keys, return_counts=True)[1]
        total += float((sizes.astype(np.float64) ** 2).sum()) / len(bits)
    return total


@kernel
def bucket_sizes(words: Any, first: int, last: int, offsets: Any) -> None:
    """Write where the buckets of bits ``first`` to ``last`` begin to ``offsets``, uint32 (2^length + 1,), all zero."""
    for i in range(words.shape[0]):
        offsets[part_of(words[i], first, last) + np.uint64(1)] += np.uint32(1)
    for key in range(1, offsets.size):
        offsets[key] += offsets[key - 1]


@kernel
def fill_buckets(words: Any, first: int, last: int, low: int, high: int, cursors: Any, numbers: Any) -> None:
    """Write the numbers of the codes in the buckets from ``low`` to ``high``, and in a bucket in ascending order.

    ``cursors`` is a copy of the offsets, of which those of these buckets are used up; ``numbers`` is uint32 (n,). All
    codes are read, but only a part of the buckets is written to, which stays in the cache.
    """
    for i in range(words.shape[0]):
        key = part_of(words[i], first, last)
        if np.uint64(low) <= key < np.uint64(high):
            numbers[cursors[key]] = i
            cursors[key] += np.uint32(1)


@kernel
def gather_columns(words: Any, numbers: Any, start: int, stop: int, columns: Any) -> None:
    """Write the codes with these numbers, from ``start`` to ``stop``, to ``columns``, uint64 (n_words, n)."""
    n_words = words.shape[1]
    flat = words.reshape(-1)
    for i in range(start, stop):
        prefetch(flat, np.uint64(numbers[min(i + 16, stop - 1)]) * np.uint64(n_words))
        for w in range(n_words):
            columns[w, i] = words[numbers[i], w]
