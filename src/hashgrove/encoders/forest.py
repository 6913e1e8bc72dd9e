"""Small trees on 64 rows at a time: every test of a tree is one comparison of 64 bytes, and no branch is taken.

Levels lie feature by feature. A test gives a word with one bit a row; the words of a tree, 15 at depth 4, are combined
by selection; the rows where it says +1 get its votes by one masked addition. Trees deeper than 6 are walked row by
row, which costs what their paths cost instead of what all their nodes cost.

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

SHALLOW, DEEP = 4, 6  # depths that there is straight code for; a tree is filled up to one of them
NEVER = np.uint32(0xFFFFFFFF)  # a threshold that no level is above


def _record_size(depth: int) -> int:
    """Length in uint32 of a compiled tree: places of the features, thresholds, and a byte for each lowest test."""
    return 2 * (2**depth - 1) + 2 ** (depth - 1) // 4


SHALLOW_RECORD, DEEP_RECORD = _record_size(SHALLOW), _record_size(DEEP)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, element: Any) -> Any:
    """Pointer to an ``element`` type at ``offset`` of a flat array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), element.as_pointer())


def _splat(builder: Any, value: Any, count: int) -> Any:
    undefined = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), count), None))


def _tree_of(depth: int) -> Any:
    """An intrinsic that evaluates a tree of this depth as straight code."""
    word, n_tests = ir.IntType(64), 2**depth - 1

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def tree(typing_context: Any, levels: Any, first: Any, records: Any, start: Any) -> Any:
        """The 64 rows where the tree with the record ``records[start:]`` says +1, one bit each.

        Row i of a feature is ``levels[place + first + i]``, with its place in the record.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            levels, first, records, start = arguments
            record = _pointer(context, builder, signature.args[2], records, start, ir.IntType(32))
            flips = builder.bitcast(builder.gep(record, [ir.Constant(word, 2 * n_tests)]), ir.IntType(8).as_pointer())

            def field(k: int) -> Any:
                return builder.load(builder.gep(record, [ir.Constant(word, k)]))

            def test(k: int) -> Any:
                place = builder.add(builder.zext(field(k), word), first)
                vector = ir.VectorType(ir.IntType(8), TILE)
                rows = builder.load(_pointer(context, builder, signature.args[0], levels, place, vector), align=1)
                limits = builder.bitcast(_splat(builder, field(n_tests + k), TILE // 4), vector)
                return builder.bitcast(builder.icmp_unsigned(">", rows, limits), word)

            def subtree(k: int) -> Any:
                rows = test(k)
                if k >= n_tests // 2:
                    flip = builder.load(builder.gep(flips, [ir.Constant(word, k - n_tests // 2)]))
                    return builder.xor(rows, builder.sext(flip, word))
                left, right = subtree(2 * k + 1), subtree(2 * k + 2)
                return builder.xor(left, builder.and_(rows, builder.xor(left, right)))

            return subtree(0)

        return types.uint64(levels, types.uint64, records, types.uint64), generate

    return tree


_shallow_tree, _deep_tree = _tree_of(SHALLOW), _tree_of(DEEP)


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


def compile_trees(unit: int, tree_ptr: Any, feature: Any, threshold: Any, child: Any, value: Any) -> Any:
    """Records of trees, uint32 flat, with the place of feature j at j * ``unit``; none where a tree is too deep."""
    for depth, size in ((SHALLOW, SHALLOW_RECORD), (DEEP, DEEP_RECORD)):
        records = np.zeros((len(tree_ptr) - 1, size), np.uint32)
        if _compile(depth, np.uint32(unit), tree_ptr, feature, threshold, child, value, records):
            return records.reshape(-1)
    return np.zeros(0, np.uint32)


@kernel
def _compile(depth, unit, tree_ptr, feature, threshold, child, value, records):
    """Fill in the records; False where a tree is deeper.

    A tree is filled up: below a leaf, tests that no row passes lead left to the same leaf. A lowest test with the
    leaves (-1, +1) is its word, (+1, -1) its inverse; with equal leaves it never passes, or is inverted too.
    """
    n_tests = 2**depth - 1
    place = np.zeros(n_tests, np.uint32)  # the node at each place of the full tree
    for t in range(len(records)):
        start = np.uint32(tree_ptr[t])
        place[0] = start
        flips = records[t, 2 * n_tests :].view(np.uint8)
        for k in range(n_tests):
            node = place[k]
            is_leaf = child[node] == 0
            left = node if is_leaf else start + child[node]
            right = node if is_leaf else left + np.uint32(1)
            records[t, k] = np.uint32(0) if is_leaf else feature[node] * unit
            records[t, n_tests + k] = NEVER if is_leaf else np.uint32(threshold[node]) * np.uint32(0x01010101)
            if 2 * k + 2 < n_tests:
                place[2 * k + 1] = left
                place[2 * k + 2] = right
                continue
            if child[left] > 0 or child[right] > 0:
                return False
            if value[left] == value[right]:
                records[t, n_tests + k] = NEVER
            if value[left] > 0:
                flips[k - n_tests // 2] = 255
    return True


@kernel
def _vote_shallow(levels, first, records, weights, start, stop, base, votes):
    """Add the votes of the trees [start, stop) to the 64 places of ``votes`` from ``base`` on.

    About 0.5 processor cycles a tree and row with AVX-512.
    """
    for t in range(np.uint64(start), np.uint64(stop)):
        _add_where(votes, base, _shallow_tree(levels, first, records, t * np.uint64(SHALLOW_RECORD)), weights[t])


@kernel
def _vote_deep(levels, first, records, weights, start, stop, base, votes):
    """What `_vote_shallow` does, for trees of depth 5 and 6."""
    for t in range(np.uint64(start), np.uint64(stop)):
        _add_where(votes, base, _deep_tree(levels, first, records, t * np.uint64(DEEP_RECORD)), weights[t])


@kernel
def _vote_walking(
    levels, unit, first, size, weights, start, stop, base, tree_ptr, feature, threshold, child, value, votes
):
    """What `_vote_shallow` does, for trees of any depth and up to 64 rows; feature j is at j * unit + first."""
    for t in range(start, stop):
        root = np.uint64(tree_ptr[t])
        for i in range(np.uint64(size)):
            node = root
            while child[node] > 0:
                level = levels[np.uint64(feature[node]) * unit + first + i]
                node = root + np.uint64(child[node]) + np.uint64(level > threshold[node])
            if value[node] > 0:
                votes[base + i] += weights[t]


@kernel
def _vote(levels, unit, first, size, forest, votes):
    """Write the votes for +1 of each bit, int16 flat (n_bits x 64), for ``size`` rows of ``levels``, at most 64."""
    bit_ptr, records, weights, tree_ptr, feature, threshold, child, value = forest
    record = len(records) // len(weights) if size == TILE else 0
    votes[:] = 0
    for b in range(len(bit_ptr) - 1):
        start, stop, base = bit_ptr[b], bit_ptr[b + 1], np.uint64(b * TILE)
        if record == SHALLOW_RECORD:
            _vote_shallow(levels, first, records, weights, start, stop, base, votes)
        elif record == DEEP_RECORD:
            _vote_deep(levels, first, records, weights, start, stop, base, votes)
        else:
            _vote_walking(
                levels, unit, first, size, weights, start, stop, base, tree_ptr, feature, threshold, child, value, votes
            )


@kernel
def vote_rows(rows, low, scale, forest, out):
    """Write the votes for +1 of each bit and row, int16 (n_bits, n), for ``rows`` (n, d) of features.

    ``forest`` is (bit_ptr, records by `compile_trees` with unit 64, weights, tree_ptr, feature, threshold, child,
    value).
    """
    n, d = rows.shape
    levels = np.zeros((TILE, tile_width(d)), np.uint8)
    tile = np.empty(TILE * tile_width(d), np.uint8)
    votes = np.empty(out.shape[0] * TILE, np.int16)
    for start in range(0, n, TILE):
        size = min(TILE, n - start)
        bin_tile(rows[start : start + size], low, scale, levels, tile)
        _vote(tile, np.uint64(TILE), np.uint64(0), TILE, forest, votes)
        for b in range(out.shape[0]):
            out[b, start : start + size] = votes[b * TILE : b * TILE + size]


@kernel
def vote_levels(levels, n, first, last, forest, out):
    """What `vote_rows` does, for rows [first, last) of ``levels``, flat (d x n), with records of unit n."""
    votes = np.empty(out.shape[0] * TILE, np.int16)
    for start in range(first, last, TILE):
        size = min(TILE, last - start)
        _vote(levels, np.uint64(n), np.uint64(start), size, forest, votes)
        for b in range(out.shape[0]):
            out[b, start : start + size] = votes[b * TILE : b * TILE + size]
