"""Histograms of distances: how many items are at each distance from a query; for evaluation, and for a large k.

Codes of up to three words have distances that fit a byte, and 64 of them are one vector. The distances of a tile are
counted by vector code, eight values at a time, which is several times as fast as one increment per item.

A k that is a large part of the database is searched by counting: `count` in a first pass, `fill` in a second one. Both
read the items in ascending order of position. ``columns`` is uint64 (n_words, n), ``queries`` uint64 (n_queries,
n_words), and ``mask``, uint64 (ceil(n / 64),) or empty, has a bit for each item that may be found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from hashgrove.codes import TILE, distances_to_range
from hashgrove.index.strips import LANES, STRIP, Comparison, distance_to, width_of
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import constant, look_up, pointer, splat

__all__ = ["BYTE_TILE", "BYTE_WORDS", "TABLE_SIZE", "add_histogram", "byte_distances", "count", "fill"]

BYTE_WORDS = 3  # codes of more words may have distances that do not fit a byte
BYTE_TILE = 4096  # items whose distances are counted at once
GROUP = 8  # distances that are counted in one pass over a tile
TABLE_SIZE = 256 + GROUP
BLOCK = 8 * STRIP
MAX_DISTANCES = 72  # if more distances occur in a tile, one increment per item is faster
BYTE, WORD = ir.IntType(8), ir.IntType(64)
BYTES = ir.VectorType(BYTE, STRIP)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _strip_distances(
    typing_context: Any, words: Any, n: Any, queries: Any, query: Any, n_words: Any, width: Any, first: Any, out: Any,
    to: Any,
) -> Any:  # fmt: skip
    """Write the distances of the 64 items from ``first`` on to ``out[to : to + 64]``, uint8."""
    number, vector = types.uint64, ir.VectorType(BYTE, LANES)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        compare = Comparison(context, builder, signature, arguments, STRIP // LANES)
        place = pointer(context, builder, signature.args[7], arguments[7], arguments[8], BYTE)
        for k, total in enumerate(compare.sums(arguments[6])):
            part = builder.bitcast(builder.gep(place, [WORD(k * LANES)]), vector.as_pointer())
            builder.store(builder.trunc(total, vector), part, align=1)
        return context.get_dummy_value()

    return types.void(words, number, queries, number, number, width, number, out, number), generate


def _over_blocks(builder: Any, tile: Any, n_blocks: Any, starts: list[Any], step: Any) -> list[Any]:
    """Code that goes through blocks of 8 strips, at least one; returns the last values of ``step``.

    ``step(strips, values)`` gives the next values from the 8 vectors of a block and the values before, which are
    ``starts`` at first. ``tile`` points to the first strip.
    """
    before, body = builder.block, builder.append_basic_block("blocks")
    end = builder.append_basic_block("blocks.end")
    builder.branch(body)
    builder.position_at_end(body)
    number, values = builder.phi(WORD), [builder.phi(start.type) for start in starts]
    block = builder.gep(tile, [builder.mul(number, WORD(8))])
    results = step([builder.load(builder.gep(block, [WORD(i)]), align=1) for i in range(8)], values)
    following = builder.add(number, WORD(1))
    for phi, start, result in zip([number, *values], [WORD(0), *starts], [following, *results], strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(result, body)
    builder.cbranch(builder.icmp_unsigned("<", following, n_blocks), body, end)
    builder.position_at_end(end)
    return results


def _function(builder: Any, name: str, result: Any, n_arguments: int) -> Any:
    """A function of LLVM on vectors of 64 bytes."""
    kind = ir.FunctionType(result, [BYTES] * n_arguments)
    return builder.module.declare_intrinsic(f"llvm.{name}.v{STRIP}i8", (), kind)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _extent(typing_context: Any, tile: Any, n_blocks: Any) -> Any:
    """The smallest byte of whole blocks, at least one, plus 256 times the largest one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = pointer(context, builder, signature.args[0], arguments[0], WORD(0), BYTES)
        kinds = ("umin", "umax")
        lanes = [_function(builder, kind, BYTES, 2) for kind in kinds]

        def step(strips: list[Any], values: list[Any]) -> list[Any]:
            for strip in strips:
                values = [builder.call(function, [v, strip]) for function, v in zip(lanes, values, strict=True)]
            return values

        found = _over_blocks(builder, place, arguments[1], [constant(BYTES, 255), constant(BYTES, 0)], step)
        low, high = (
            builder.zext(builder.call(_function(builder, f"vector.reduce.{kind}", BYTE, 1), [value]), WORD)
            for kind, value in zip(kinds, found, strict=True)
        )
        return builder.or_(low, builder.shl(high, WORD(8)))

    return types.uint64(tile, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _count_group(typing_context: Any, tile: Any, n_blocks: Any, first: Any, table: Any) -> Any:
    """Add how often the bytes ``first``, ..., ``first + 7`` occur in whole blocks, at least one, to ``table``, int64.

    A byte ``first + p`` becomes 1 << p, any other one 0. So ``first + p`` occurs as often as bit p is set; and the bits
    of 8 vectors are added by full adders before any are counted.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tile, n_blocks, first, table = arguments
        place = pointer(context, builder, signature.args[0], tile, WORD(0), BYTES)
        powers = ir.Constant(ir.ArrayType(BYTE, 16), [1 << p for p in range(GROUP)] + [0] * 8)
        powers = builder.bitcast(cgutils.global_constant(builder, "powers", powers), BYTE.as_pointer())
        least, firsts = _function(builder, "umin", BYTES, 2), splat(builder, builder.trunc(first, BYTE), STRIP)

        def power(strip: Any) -> Any:
            place = builder.call(least, [builder.sub(strip, firsts), constant(BYTES, 15)])
            return look_up(context, builder, powers, 16, place)

        def add(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
            """The sum of three bits, as a low and a high bit."""
            differ = builder.xor(a, b)
            return builder.xor(differ, c), builder.or_(builder.and_(a, b), builder.and_(differ, c))

        def ones_of(vector: Any, p: int) -> Any:
            chosen = builder.and_(vector, constant(BYTES, 1 << p))
            return builder.ctpop(builder.bitcast(builder.icmp_unsigned("!=", chosen, constant(BYTES, 0)), WORD))

        def step(strips: list[Any], values: list[Any]) -> list[Any]:
            (ones, twos, fours, *counts), carried, fours_carried = values, [], []
            for pair in range(4):
                ones, carry = add(ones, power(strips[2 * pair]), power(strips[2 * pair + 1]))
                carried.append(carry)
            for pair in range(2):
                twos, carry = add(twos, carried[2 * pair], carried[2 * pair + 1])
                fours_carried.append(carry)
            fours, eights = add(fours, *fours_carried)
            return [ones, twos, fours, *(builder.add(n, ones_of(eights, p)) for p, n in enumerate(counts))]

        starts = [constant(BYTES, 0)] * 3 + [WORD(0)] * GROUP
        parts = _over_blocks(builder, place, n_blocks, starts, step)
        cells = pointer(context, builder, signature.args[3], table, first, WORD)
        for p, total in enumerate(parts[3:]):
            for vector in parts[2::-1]:  # fours, twos, ones
                total = builder.add(builder.add(total, total), ones_of(vector, p))
            cell = builder.gep(cells, [WORD(p)])
            builder.store(builder.add(builder.load(cell), total), cell)
        return context.get_dummy_value()

    return types.void(tile, types.uint64, types.uint64, table), generate


@kernel
def byte_distances(
    words: Any, n: Any, queries: Any, query: Any, n_words: Any, width: Any, first: Any, last: Any, tile: Any
) -> None:
    """Write the distances of the items from ``first`` to ``last`` to ``tile``, uint8, for at most `BYTE_WORDS` words.

    The arguments are those of `hashgrove.index.strips`; numbers are uint64.
    """
    at, size = np.uint64(0), last - first
    while at + np.uint64(STRIP) <= size:
        _strip_distances(words, n, queries, query, n_words, width, first + at, tile, at)
        at += np.uint64(STRIP)
    while at < size:
        tile[at] = distance_to(words, n, queries, query, n_words, first + at)
        at += np.uint64(1)


@kernel
def add_histogram(tile: Any, table: Any) -> None:
    """Add how often each value occurs in ``tile``, uint8, to ``table``, int64 (TABLE_SIZE,)."""
    n_blocks = len(tile) // BLOCK
    counted = 0
    if n_blocks:
        extent = np.int64(_extent(tile, np.uint64(n_blocks)))
        low, high = extent & 255, extent >> 8
        if high - low < MAX_DISTANCES:
            for first in range(low, high + 1, GROUP):
                _count_group(tile, np.uint64(n_blocks), np.uint64(first), table)
            counted = n_blocks * BLOCK
    for i in range(np.uint64(counted), np.uint64(len(tile))):
        table[np.uint64(tile[i])] += 1


def count(
    columns: NDArray[np.uint64], mask: NDArray[np.uint64], queries: NDArray[np.uint64], counts: NDArray[np.int64]
) -> None:
    """Add the number of allowed items at each distance to ``counts``, int64 (n_queries, n_distances)."""
    if columns.shape[0] <= BYTE_WORDS and mask.size == 0:
        _count_bytes(width_of(columns.shape[0]), columns, queries, counts)
    else:
        _count(columns, mask, queries, counts)


@kernel
def _count_bytes(width: Any, columns: Any, queries: Any, counts: Any) -> None:
    """`count` for codes of at most `BYTE_WORDS` words, if all items are allowed."""
    n_words, n = np.uint64(columns.shape[0]), np.uint64(columns.shape[1])
    words, asked = columns.reshape(-1), queries.reshape(-1)
    tile, tables = np.empty(BYTE_TILE, np.uint8), np.zeros((queries.shape[0], TABLE_SIZE), np.int64)
    for start in range(np.uint64(0), n, np.uint64(BYTE_TILE)):
        stop = min(start + np.uint64(BYTE_TILE), n)
        for q in range(queries.shape[0]):
            byte_distances(words, n, asked, np.uint64(q) * n_words, n_words, width, start, stop, tile)
            add_histogram(tile[: stop - start], tables[q])
    counts += tables[:, : counts.shape[1]]


@kernel
def _count(columns: Any, mask: Any, queries: Any, counts: Any) -> None:
    """`count` for codes of any length, and with a mask."""
    n = columns.shape[1]
    tile = np.empty(TILE, np.uint16)
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        for q in range(queries.shape[0]):
            distances_to_range(columns, queries[q], start, stop, tile)
            if mask.size == 0:
                for i in range(np.uint64(stop - start)):
                    counts[q, tile[i]] += 1
            else:
                for i in range(np.uint64(stop - start)):
                    counts[q, tile[i]] += np.int64(_allows(mask, np.uint64(start) + i))


@kernel
def _allows(mask: Any, item: int) -> Any:
    return mask[item >> np.uint64(6)] >> (item & np.uint64(63)) & np.uint64(1)


@kernel
def fill(
    columns: Any, mask: Any, queries: Any, limits: Any, cursors: Any, ends: Any, distances: Any, positions: Any
) -> None:
    """Write the allowed items at distance <= ``limits[q]`` of each query q: the second pass after `count`.

    ``cursors``, int64 (n_queries, n_distances), says where the next item at each distance goes in the flat outputs
    ``distances`` (uint16) and ``positions`` (int64). Items whose place is not below ``ends[q]`` are dropped.
    """
    n = columns.shape[1]
    tile = np.empty(TILE, np.uint16)
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        for q in range(queries.shape[0]):
            distances_to_range(columns, queries[q], start, stop, tile)
            limit = limits[q]
            end = ends[q]
            for i in range(np.uint64(stop - start)):
                if tile[i] <= limit and (mask.size == 0 or _allows(mask, np.uint64(start) + i)):
                    place = cursors[q, tile[i]]
                    if place < end:
                        cursors[q, tile[i]] = place + 1
                        distances[place] = tile[i]
                        positions[place] = start + np.int64(i)
