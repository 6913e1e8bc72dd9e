"""Kernels that evaluate small trees on 64 rows at a time: each test of a tree compares 64 bytes, without branches.

The bins lie in memory feature by feature. A test gives a word with one bit per row. The words of a tree, 15 at depth 4,
are combined by selection, and one masked addition gives the votes of the tree to the rows where it says +1. Trees
deeper than 6 are walked row by row, which costs as much as their paths instead of all their nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hashgrove.encoders.binning import TILE
from hashgrove.encoders.walking import walk
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import pointer, splat

__all__ = ["compile_trees", "sum_votes"]

SHALLOW, DEEP = 4, 6  # depths with code without branches; a tree is filled up to one of them
NEVER = np.uint32(0xFFFFFFFF)  # a threshold that no bin is above


def _record_size(depth: int) -> int:
    """Length of a compiled tree in uint32: places of the features, thresholds, and one byte per lowest test."""
    return 2 * (2**depth - 1) + 2 ** (depth - 1) // 4


SHALLOW_RECORD, DEEP_RECORD = _record_size(SHALLOW), _record_size(DEEP)


def _tree_of(depth: int) -> Any:
    """An intrinsic that evaluates a tree of this depth without branches."""
    word, n_tests = ir.IntType(64), 2**depth - 1

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def tree(typing_context: Any, bins: Any, first: Any, records: Any, start: Any) -> Any:
        """Evaluate the tree whose record starts at ``records[start]`` on 64 rows: one bit per row, 1 for +1.

        The bin of row i is ``bins[place + first + i]``, where the record gives the place of the feature.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            bins, first, records, start = arguments
            record = pointer(context, builder, signature.args[2], records, start, ir.IntType(32))
            flips = builder.bitcast(builder.gep(record, [ir.Constant(word, 2 * n_tests)]), ir.IntType(8).as_pointer())

            def field(k: int) -> Any:
                return builder.load(builder.gep(record, [ir.Constant(word, k)]))

            def test(k: int) -> Any:
                place = builder.add(builder.zext(field(k), word), first)
                vector = ir.VectorType(ir.IntType(8), TILE)
                rows = builder.load(pointer(context, builder, signature.args[0], bins, place, vector), align=1)
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

        return types.uint64(bins, types.uint64, records, types.uint64), generate

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
    """Records of all trees, uint32, flat; empty if a tree is too deep. The place of feature j is j * ``unit``."""
    for depth, size in ((SHALLOW, SHALLOW_RECORD), (DEEP, DEEP_RECORD)):
        records = np.zeros((len(tree_ptr) - 1, size), np.uint32)
        if _compile(depth, np.uint32(unit), tree_ptr, feature, threshold, child, value, records):
            return records.reshape(-1)
    return np.zeros(0, np.uint32)


@kernel
def _compile(depth, unit, tree_ptr, feature, threshold, child, value, records):
    """Fill in the records; return False if a tree is deeper than ``depth``.

    A tree is filled up to its full depth: below a leaf, tests that no row passes lead left to the same leaf. The result
    of a lowest test with the leaves (-1, +1) is its word, with (+1, -1) the inverse. With equal leaves no row passes
    the test, and the result is inverted if the leaves are +1.
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
def _vote_shallow(bins, first, records, weights, start, stop, votes):
    """Add the votes of the trees [start, stop) to ``votes`` (64): about 0.5 cycles per tree and row with AVX-512."""
    for t in range(np.uint64(start), np.uint64(stop)):
        _add_where(votes, _shallow_tree(bins, first, records, t * np.uint64(SHALLOW_RECORD)), weights[t])


@kernel
def _vote_deep(bins, first, records, weights, start, stop, votes):
    """The same as `_vote_shallow`, for trees of depth 5 and 6."""
    for t in range(np.uint64(start), np.uint64(stop)):
        _add_where(votes, _deep_tree(bins, first, records, t * np.uint64(DEEP_RECORD)), weights[t])


@kernel
def _vote_walking(bins, unit, first, size, weights, start, stop, tree_ptr, feature, threshold, child, value, votes):
    """The same as `_vote_shallow`, for any depth and up to 64 rows; feature j starts at bins[j * unit + first]."""
    places, nodes = first + np.arange(size).astype(np.uint64), np.empty(size, np.uint64)
    for t in range(start, stop):
        walk(bins, unit, places, np.uint64(tree_ptr[t]), feature, threshold, child, nodes)
        for i in range(np.uint64(size)):
            if value[nodes[i]] > 0:
                votes[i] += weights[t]


@kernel
def _vote(bins, unit, first, size, forest, b, votes):
    """Write the votes for +1 of bit ``b`` to ``votes``, int16 (64), for ``size`` rows of ``bins``, at most 64."""
    bit_ptr, records, weights, tree_ptr, feature, threshold, child, value = forest
    record = len(records) // len(weights) if size == TILE else 0
    start, stop = bit_ptr[b], bit_ptr[b + 1]
    votes[:] = 0
    if record == SHALLOW_RECORD:
        _vote_shallow(bins, first, records, weights, start, stop, votes)
    elif record == DEEP_RECORD:
        _vote_deep(bins, first, records, weights, start, stop, votes)
    else:
        _vote_walking(bins, unit, first, size, weights, start, stop, tree_ptr, feature, threshold, child, value, votes)


@kernel
def sum_votes(bins, unit, step, first, last, forest, out):
    """Write the votes for +1 of each bit and row to ``out``, int16 (n_bits, n), for the rows [first, last).

    ``forest`` is (bit_ptr, records by `compile_trees`, weights, tree_ptr, feature, threshold, child, value). The bin of
    feature j in row i is ``bins[j * unit + i // 64 * step + i % 64]``; ``first`` is a multiple of 64. If the unit is
    64, the last tile is filled up. The trees of a bit are read once for all rows: their bins should fit into the cache.
    """
    votes = np.empty(TILE, np.int16)
    for b in range(out.shape[0]):
        for row in range(first, last, TILE):
            size = min(TILE, last - row)
            full = TILE if unit == TILE else size
            _vote(bins, np.uint64(unit), np.uint64(row // TILE * step), full, forest, b, votes)
            for i in range(size):
                out[b, row + i] = votes[i]
