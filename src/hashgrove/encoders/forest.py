"""Small trees on 64 rows at a time: every test of a tree is one comparison of 64 bytes, and no branch is taken.

Levels lie feature by feature. A test gives a word with one bit a row; a tree of depth 4 is 15 such words, combined by
selection; the rows where it says +1 get its votes by one masked addition. Deeper trees are walked row by row, which
costs what their paths cost instead of what all their nodes cost.

The explicit vectors (64 bytes) are LLVM's: on a processor with narrower ones it splits them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hashgrove.binning import TILE, bin_tile, tile_width
from hashgrove.jit import kernel

__all__ = ["compile_trees", "vote_levels", "vote_rows"]

MAX_DEPTH = 4
N_TESTS = 2**MAX_DEPTH - 1
RECORD = 32  # uint32 of a compiled tree: places of 15 features, 15 thresholds, 8 bytes for flips of the lowest tests
NEVER = np.uint32(0xFFFFFFFF)  # a threshold that no level is above


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, element: Any) -> Any:
    """Pointer to an ``element`` type at ``offset`` of a flat array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), element.as_pointer())


def _splat(builder: Any, value: Any, count: int) -> Any:
    undefined = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), count), None))


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _tree(typing_context: Any, levels: Any, stride: Any, first: Any, records: Any, start: Any) -> Any:
    """The 64 rows where a tree says +1, one bit each, as straight code; its record is ``records[start:]``.

    Row i of a feature is ``levels[place * stride + first + i]``, with its place in the record.
    """
    word = ir.IntType(64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        levels, stride, first, records, start = arguments

        record = _pointer(context, builder, signature.args[3], records, start, ir.IntType(32))
        flips = builder.bitcast(builder.gep(record, [ir.Constant(word, 2 * N_TESTS)]), ir.IntType(8).as_pointer())

        def field(k: int) -> Any:
            return builder.load(builder.gep(record, [ir.Constant(word, k)]))

        def test(k: int) -> Any:
            place = builder.add(builder.mul(builder.zext(field(k), word), stride), first)
            vector = ir.VectorType(ir.IntType(8), TILE)
            rows = builder.load(_pointer(context, builder, signature.args[0], levels, place, vector), align=1)
            limits = builder.bitcast(_splat(builder, field(N_TESTS + k), TILE // 4), vector)
            return builder.bitcast(builder.icmp_unsigned(">", rows, limits), word)

        def subtree(k: int) -> Any:
            rows = test(k)
            if k >= N_TESTS // 2:
                flip = builder.load(builder.gep(flips, [ir.Constant(word, k - N_TESTS // 2)]))
                return builder.xor(rows, builder.sext(flip, word))
            left, right = subtree(2 * k + 1), subtree(2 * k + 2)
            return builder.xor(left, builder.and_(rows, builder.xor(left, right)))

        return subtree(0)

    return types.uint64(levels, types.uint64, types.uint64, records, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _add_where(typing_context: Any, votes: Any, offset: Any, rows: Any, weight: Any) -> Any:
    """votes[offset + i] += weight (int16) where bit i of ``rows`` is one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        votes, offset, rows, weight = arguments
        vector = ir.VectorType(ir.IntType(16), TILE)
        pointer = _pointer(context, builder, signature.args[0], votes, offset, vector)
        mask = builder.bitcast(rows, ir.VectorType(ir.IntType(1), TILE))
        added = builder.select(mask, _splat(builder, weight, TILE), ir.Constant(vector, None))
        builder.store(builder.add(builder.load(pointer, align=2), added), pointer, align=2)
        return context.get_dummy_value()

    return types.void(votes, types.uint64, types.uint64, types.int16), generate


@kernel
def compile_trees(unit, tree_ptr, feature, threshold, child, value):
    """Records of trees, uint32 flat (n_trees x RECORD), or none where one of them is deeper than MAX_DEPTH.

    The place of feature j is j * ``unit``. A tree is filled up to depth 4: below a leaf, tests that no row passes lead
    left to the same leaf. A lowest test with the leaves (-1, +1) is its word, (+1, -1) its inverse; with equal leaves
    it never passes, or is inverted too.
    """
    n_trees = len(tree_ptr) - 1
    records = np.zeros((n_trees, RECORD), np.uint32)
    place = np.zeros(N_TESTS, np.uint32)  # the node at each place of the full tree
    for t in range(n_trees):
        start = np.uint32(tree_ptr[t])
        place[0] = start
        flips = records[t, 2 * N_TESTS :].view(np.uint8)
        for k in range(N_TESTS):
            node = place[k]
            is_leaf = child[node] == 0
            left = node if is_leaf else start + child[node]
            right = node if is_leaf else left + np.uint32(1)
            records[t, k] = np.uint32(0) if is_leaf else feature[node] * np.uint32(unit)
            records[t, N_TESTS + k] = NEVER if is_leaf else np.uint32(threshold[node]) * np.uint32(0x01010101)
            if 2 * k + 2 < N_TESTS:
                place[2 * k + 1] = left
                place[2 * k + 2] = right
                continue
            if child[left] > 0 or child[right] > 0:
                return np.zeros(0, np.uint32)
            if value[left] == value[right]:
                records[t, N_TESTS + k] = NEVER
            if value[left] > 0:
                flips[k - N_TESTS // 2] = 255
    return records.reshape(-1)


@kernel
def _walk(levels, stride, first, size, forest, votes):
    """Add the votes for +1 of each bit to ``votes``, int16 flat (n_bits x 64), for up to 64 rows, row by row.

    Row i of feature j is ``levels[j * stride + first + i]``.
    """
    bit_ptr, _, weights, tree_ptr, feature, threshold, child, value = forest
    for b in range(len(bit_ptr) - 1):
        for t in range(bit_ptr[b], bit_ptr[b + 1]):
            root = np.uint64(tree_ptr[t])
            for i in range(np.uint64(size)):
                node = root
                while child[node] > 0:
                    level = levels[np.uint64(feature[node]) * stride + first + i]
                    node = root + np.uint64(child[node]) + np.uint64(level > threshold[node])
                if value[node] > 0:
                    votes[np.uint64(b * TILE) + i] += weights[t]


@kernel
def vote_rows(rows, low, scale, forest, out):
    """Write the votes for +1 of each bit and row, int16 (n_bits, n), for ``rows`` (n, d) of features.

    ``forest`` is (bit_ptr, records by `compile_trees` with unit 64, weights, tree_ptr, feature, threshold, child,
    value). About 0.5 processor cycles a tree and row with AVX-512, where there are records.
    """
    n, d = rows.shape
    levels = np.zeros((TILE, tile_width(d)), np.uint8)
    tile = np.empty(TILE * tile_width(d), np.uint8)
    votes = np.empty(out.shape[0] * TILE, np.int16)
    bit_ptr, records, weights = forest[0], forest[1], forest[2]
    for start in range(0, n, TILE):
        size = min(TILE, n - start)
        bin_tile(rows[start : start + size], low, scale, levels, tile)
        votes[:] = 0
        if len(records) == 0:
            _walk(tile, np.uint64(TILE), np.uint64(0), size, forest, votes)
        else:
            for b in range(len(bit_ptr) - 1):
                for t in range(np.uint64(bit_ptr[b]), np.uint64(bit_ptr[b + 1])):
                    plus = _tree(tile, np.uint64(1), np.uint64(0), records, t * np.uint64(RECORD))
                    _add_where(votes, np.uint64(b * TILE), plus, weights[t])
        for b in range(out.shape[0]):
            out[b, start : start + size] = votes[b * TILE : b * TILE + size]


@kernel
def vote_levels(levels, n, first, last, forest, out):
    """What `vote_rows` does, for rows [first, last) of ``levels`` that are binned already, flat (d x n).

    Here the records of ``forest`` have unit 1.
    """
    votes = np.empty(out.shape[0] * TILE, np.int16)
    bit_ptr, records, weights = forest[0], forest[1], forest[2]
    for start in range(first, last, TILE):
        size = min(TILE, last - start)
        votes[:] = 0
        if len(records) == 0 or size < TILE:
            _walk(levels, np.uint64(n), np.uint64(start), size, forest, votes)
        else:
            for b in range(len(bit_ptr) - 1):
                for t in range(np.uint64(bit_ptr[b]), np.uint64(bit_ptr[b + 1])):
                    plus = _tree(levels, np.uint64(n), np.uint64(start), records, t * np.uint64(RECORD))
                    _add_where(votes, np.uint64(b * TILE), plus, weights[t])
        for b in range(out.shape[0]):
            out[b, start : start + size] = votes[b * TILE : b * TILE + size]
