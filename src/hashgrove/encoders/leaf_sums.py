"""Vector code that sums the leaves of small trees over 64 rows at a time, without branches.

A tree is a record: the places of the features that it tests, the thresholds, and its leaves, one byte each. The bins
lie in memory feature by feature, and a test compares 64 bytes. The tests give the number of each row's leaf, and a
table lookup gives the leaf (`hashgrove.runtime.simd.look_up`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hashgrove.encoders.binning import TILE
from hashgrove.runtime.simd import constant, look_up, pointer, splat

__all__ = ["BIAS", "DEEP", "NEVER", "SHALLOW", "record_size", "summing"]

SHALLOW, DEEP = 4, 6  # depths with code without branches; a tree is filled up to one of them
NEVER = np.uint32(0xFFFFFFFF)  # a threshold that no bin is above
BIAS = 128  # is added to the leaves of a record, so that they are not negative

BYTE, WORD = ir.IntType(8), ir.IntType(64)
BYTES = ir.VectorType(BYTE, TILE)
PAIRS = ir.VectorType(ir.IntType(16), TILE // 2)  # the same vector, as pairs of rows


def record_size(depth: int) -> int:
    """Length of a record in uint32: place and threshold of each test, and one byte per leaf.

    >>> record_size(4), record_size(6)
    (34, 142)
    """
    return 2 * (2**depth - 1) + 2**depth // 4


class _Tree:
    """Emits the code of one tree for 64 rows; ``rows`` points to the bins of feature 0, ``record`` to the record."""

    def __init__(self, builder: Any, rows: Any, record: Any, n_tests: int) -> None:
        self.builder, self.rows, self.record, self.n_tests = builder, rows, record, n_tests

    def field(self, k: int) -> Any:
        """Entry k of the record."""
        return self.builder.load(self.builder.gep(self.record, [WORD(k)]))

    def leaves(self) -> Any:
        """Pointer to the leaves."""
        start = self.builder.gep(self.record, [WORD(2 * self.n_tests)])
        return self.builder.bitcast(start, BYTE.as_pointer())

    def test(self, k: int) -> Any:
        """Flags of the rows that pass test k and go to the right."""
        place = self.builder.gep(self.rows, [self.builder.zext(self.field(k), WORD)])
        bins = self.builder.load(self.builder.bitcast(place, BYTES.as_pointer()), align=1)
        limits = self.builder.bitcast(splat(self.builder, self.field(self.n_tests + k), TILE // 4), BYTES)
        return self.builder.icmp_unsigned(">", bins, limits)

    def leaf_number(self, k: int, depth: int) -> Any:
        """The number of each row's leaf below test k."""
        if depth == 1:
            return self.builder.zext(self.test(k), BYTES)
        left, right = self.leaf_number(2 * k + 1, depth - 1), self.leaf_number(2 * k + 2, depth - 1)
        further = self.builder.add(right, constant(BYTES, 2 ** (depth - 1)))
        return self.builder.select(self.test(k), further, left)


def summing(depth: int) -> Any:
    """An intrinsic that sums the leaves of trees of this depth."""
    n_tests, size = 2**depth - 1, record_size(depth)

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def sum_records(typing_context: Any, bins: Any, place: Any, records: Any, start: Any, stop: Any, sums: Any) -> Any:
        """Write the sums of the leaves of the trees [start, stop) for 64 rows to ``sums``, int16.

        The bin of row i is ``bins[f + place + i]``, where the record of a tree gives f for each of its tests. The
        leaves of two rows are read as one number, leaf + 256 x second leaf. These numbers and the second leaves are
        summed in 16 bits each, and the sums of the first leaves follow by subtraction.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            bins, place, records, start, stop, sums = arguments
            rows = pointer(context, builder, signature.args[0], bins, place, BYTE)
            record = pointer(context, builder, signature.args[2], records, WORD(0), ir.IntType(32))
            both, second = (cgutils.alloca_once_value(builder, ir.Constant(PAIRS, None)) for _ in range(2))
            with cgutils.for_range_slice(builder, start, stop, WORD(1), intp=WORD) as (t, _):
                tree = _Tree(builder, rows, builder.gep(record, [builder.mul(t, WORD(size))]), n_tests)
                number = tree.leaf_number(0, depth)
                leaves = builder.bitcast(look_up(context, builder, tree.leaves(), 2**depth, number), PAIRS)
                builder.store(builder.add(builder.load(both), leaves), both)
                upper = builder.lshr(leaves, constant(PAIRS, 8))
                builder.store(builder.add(builder.load(second), upper), second)
            n = builder.trunc(builder.sub(stop, start), ir.IntType(16))
            _store_sums(context, builder, signature.args[5], sums, (both, second), n)
            return context.get_dummy_value()

        return types.void(bins, types.uint64, records, types.uint64, types.uint64, sums), generate

    return sum_records


def _store_sums(context: Any, builder: Any, kind: Any, sums: Any, pairs: tuple[Any, Any], n_trees: Any) -> None:
    """Emit code that separates the sums of pairs of rows, subtracts the bias of all trees, and stores the result."""
    both, second = (builder.load(part) for part in pairs)
    bias = splat(builder, builder.mul(n_trees, ir.IntType(16)(BIAS)), TILE // 2)
    first = builder.sub(builder.sub(both, builder.shl(second, constant(PAIRS, 8))), bias)
    order = [place for i in range(TILE // 2) for place in (i, TILE // 2 + i)]
    mask = ir.Constant(ir.VectorType(ir.IntType(32), TILE), order)
    vector = builder.shuffle_vector(first, builder.sub(second, bias), mask)
    builder.store(vector, pointer(context, builder, kind, sums, WORD(0), vector.type), align=2)
