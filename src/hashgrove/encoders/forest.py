"""Small trees on 64 rows at a time: every test of a tree is one comparison of 64 bytes, and no branch is taken.

Levels lie feature by feature. A test gives a word with one bit a row; the words of a tree, 15 at depth 4, are combined
by selection; the rows where it says +1 get its votes by one masked addition. Trees deeper than 6 are walked row by
row, which costs what their paths cost instead of what all their nodes cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hashgrove.encoders.binning import TILE, bin_tile, tile_width
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import pointer, splat

__all__ = ["compile_trees", "vote_levels", "vote_rows"]

SHALLOW, DEEP = 4, 6  # depths that there is straight code for; a tree is filled up to one of them
NEVER = np.uint32(0xFFFFFFFF)  # a threshold that no level is above


def _record_size(depth: int) -> int:
    """Length in uint32 of a compiled tree: places of the features, thresholds, and a byte for each lowest test."""
    return 2 * (2**depth - 1) + 2 ** (depth - 1) // 4


SHALLOW_RECORD, DEEP_RECORD = _record_size(SHALLOW), _record_size(DEEP)


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
            record = pointer(context, builder, signature.args[2], records, start, ir.IntType(32))
            flips = builder.bitcast(builder.gep(record, [ir.Constant(word, 2 * n_tests)]), ir.IntType(8).as_pointer())

            def field(k: int) -> Any:
                return builder.load(builder.gep(record, [ir.Constant(word, k)]))

            def test(k: int) -> Any:
                place = builder.add(builder.zext(field(k), word), first)
                vector = ir.VectorType(ir.IntType(8), TILE)
                rows = builder.load(pointer(context, builder, signature.args[0], levels, place, vector), align=1)
                limits = builder.bitcast(splat(builder, field(n_tests + k), TILE // 4), vector)
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
def _add_where(typing_context: Any, votes: Any, rows: Any, weight: Any) -> Any:
    """votes[i] += weight (int16) where bit i of ``rows`` is one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        votes, rows, weight = arguments
        vector = ir.VectorType(ir.IntType(16), TILE)
        place = pointer(context, builder, signature.args[0], votes, ir.Constant(ir.IntType(64), 0), vector)
        mask = builder.bitcast(rows, ir.VectorType(ir.IntType(1), TILE))
        added = builder.select(mask, splat(builder, weight, TILE), ir.Constant(vector, None))
        builder.store(builder.add(builder.load(place, align=2), added), place, align=2)
        return context.get_dummy_value()

    return types.void(votes, types.uint64, types.int16), generate


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
def _vote_shallow(levels, first, records, weights, start, stop, votes):
    """Add the votes of the trees [start, stop) to the 64 ``votes``: about 0.5 cycles a tree and row with AVX-512."""
    for t in range(np.uint64(start), np.uint64(stop)):
        _add_where(votes, _shallow_tree(levels, first, records, t * np.uint64(SHALLOW_RECORD)), weights[t])


@kernel
def _vote_deep(levels, first, records, weights, start, stop, votes):
    """What `_vote_shallow` does, for trees of depth 5 and 6."""
    for t in range(np.uint64(start), np.uint64(stop)):
        _add_where(votes, _deep_tree(levels, first, records, t * np.uint64(DEEP_RECORD)), weights[t])


@kernel
def _vote_walking(levels, unit, first, size, weights, start, stop, tree_ptr, feature, threshold, child, value, votes):
    """What `_vote_shallow` does, for trees of any depth and up to 64 rows; feature j is at j * unit + first."""
    for t in range(start, stop):
        root = np.uint64(tree_ptr[t])
        for i in range(np.uint64(size)):
            node = root
            while child[node] > 0:
                level = levels[np.uint64(feature[node]) * unit + first + i]
                node = root + np.uint64(child[node]) + np.uint64(level > threshold[node])
            if value[node] > 0:
                votes[i] += weights[t]


@kernel
def _vote(levels, unit, first, size, forest, b, votes):
    """Write the votes for +1 of bit ``b``, 64 of int16, for ``size`` rows of ``levels``, at most 64."""
    bit_ptr, records, weights, tree_ptr, feature, threshold, child, value = forest
    record = len(records) // len(weights) if size == TILE else 0
    start, stop = bit_ptr[b], bit_ptr[b + 1]
    votes[:] = 0
    if record == SHALLOW_RECORD:
        _vote_shallow(levels, first, records, weights, start, stop, votes)
    elif record == DEEP_RECORD:
        _vote_deep(levels, first, records, weights, start, stop, votes)
    else:
        _vote_walking(
            levels, unit, first, size, weights, start, stop, tree_ptr, feature, threshold, child, value, votes
        )


@kernel
def vote_rows(rows, low, scale, forest, out):
    """Write the votes for +1 of each bit and row, int16 (n_bits, n), for ``rows`` (n, d) of features.

    ``forest`` is (bit_ptr, records by `compile_trees` with unit 64, weights, tree_ptr, feature, threshold, child,
    value). All rows are binned first, so that the trees of one bit are read once for all of them: ``rows`` should be
    a chunk whose levels, n x d bytes, fit into the cache. Returns whether all values were finite.
    """
    n, d = rows.shape
    width = tile_width(d)
    values, finite = rows.reshape(-1), True
    levels = np.zeros((TILE, width), np.uint8)
    tiles = np.empty(((n + TILE - 1) // TILE, TILE * width), np.uint8)
    votes = np.empty(TILE, np.int16)
    for t in range(len(tiles)):
        finite &= bin_tile(values, t * TILE, min(TILE, n - t * TILE), low, scale, levels, tiles[t])
    flat = tiles.reshape(-1)
    for b in range(out.shape[0]):
        for t in range(len(tiles)):
            _vote(flat, np.uint64(TILE), np.uint64(t * TILE * width), TILE, forest, b, votes)
            for i in range(min(TILE, n - t * TILE)):
                out[b, t * TILE + i] = votes[i]
    return finite


@kernel
def vote_levels(levels, n, first, last, forest, out):
    """What `vote_rows` does, for rows [first, last) of ``levels``, flat (d x n), with records of unit n."""
    votes = np.empty(TILE, np.int16)
    for b in range(out.shape[0]):
        for start in range(first, last, TILE):
            size = min(TILE, last - start)
            _vote(levels, np.uint64(n), np.uint64(start), size, forest, b, votes)
            for i in range(size):
                out[b, start + i] = votes[i]
