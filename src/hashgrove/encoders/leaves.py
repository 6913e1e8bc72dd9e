"""Kernels that sum the leaves of trees over rows: small trees by vector code, deeper ones by walking through them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hashgrove.encoders.binning import TILE
from hashgrove.encoders.leaf_sums import BIAS, DEEP, NEVER, SHALLOW, record_size, summing
from hashgrove.encoders.walking import walk
from hashgrove.runtime.compiling import kernel

__all__ = ["compile_leaves", "sum_leaves"]

SHALLOW_RECORD, DEEP_RECORD = record_size(SHALLOW), record_size(DEEP)
_sum_shallow, _sum_deep = summing(SHALLOW), summing(DEEP)


def compile_leaves(unit: int, tree_ptr: Any, feature: Any, threshold: Any, child: Any, value: Any) -> Any:
    """Records of all trees, uint32, flat; empty if a tree is too deep. The place of feature j is j * ``unit``."""
    for depth, size in ((SHALLOW, SHALLOW_RECORD), (DEEP, DEEP_RECORD)):
        records = np.zeros((len(tree_ptr) - 1, size), np.uint32)
        if _compile(depth, np.uint32(unit), tree_ptr, feature, threshold, child, value, records):
            return records.reshape(-1)
    return np.zeros(0, np.uint32)


@kernel
def _compile(depth, unit, tree_ptr, feature, threshold, child, value, records):
    """Fill in the records; return False if a tree is deeper than ``depth``.

    A tree is filled up to its full depth: below a leaf, tests that no row passes lead left to the same leaf.
    """
    n_tests = 2**depth - 1
    place = np.zeros(2 * n_tests + 1, np.uint32)  # the node at each place of the full tree
    for t in range(len(records)):
        start = np.uint32(tree_ptr[t])
        place[0] = start
        leaves = records[t, 2 * n_tests :].view(np.uint8)
        for k in range(n_tests):
            node = place[k]
            is_leaf = child[node] == 0
            records[t, k] = np.uint32(0) if is_leaf else feature[node] * unit
            records[t, n_tests + k] = NEVER if is_leaf else np.uint32(threshold[node]) * np.uint32(0x01010101)
            place[2 * k + 1] = node if is_leaf else start + child[node]
            place[2 * k + 2] = node if is_leaf else start + child[node] + np.uint32(1)
        for k in range(n_tests + 1):
            node = place[n_tests + k]
            if child[node] > 0:
                return False
            leaves[k] = np.uint8(np.int16(value[node]) + BIAS)
    return True


@kernel
def _walk(bins, unit, place, size, start, stop, tree_ptr, feature, threshold, child, value, sums):
    """Write the sums of the leaves of the trees [start, stop) to ``sums``, for up to 64 rows and trees of any depth.

    The bin of feature j in row i is ``bins[j * unit + place + i]``.
    """
    places, nodes = place + np.arange(size).astype(np.uint64), np.empty(size, np.uint64)
    sums[:] = 0
    for t in range(start, stop):
        walk(bins, unit, places, np.uint64(tree_ptr[t]), feature, threshold, child, nodes)
        for i in range(np.uint64(size)):
            sums[i] += value[nodes[i]]


@kernel
def sum_leaves(bins, unit, step, first, last, forest, out):
    """Write the sum of the leaves of each bit and row to ``out``, int16 (n_bits, n), for the rows [first, last).

    ``forest`` is (bit_ptr, records by `compile_leaves`, tree_ptr, feature, threshold, child, value). The bin of feature
    j in row i is ``bins[j * unit + i // 64 * step + i % 64]``; ``first`` is a multiple of 64. If the unit is 64, the
    last tile is filled up.
    """
    bit_ptr, records, tree_ptr, feature, threshold, child, value = forest
    sums = np.empty(TILE, np.int16)
    record = len(records) // (len(tree_ptr) - 1)
    for b in range(out.shape[0]):
        start, stop = np.uint64(bit_ptr[b]), np.uint64(bit_ptr[b + 1])
        for row in range(first, last, TILE):
            size = min(TILE, last - row)
            place = np.uint64(row // TILE * step)
            full = unit == TILE or size == TILE
            if full and record == SHALLOW_RECORD:
                _sum_shallow(bins, place, records, start, stop, sums)
            elif full and record == DEEP_RECORD:
                _sum_deep(bins, place, records, start, stop, sums)
            else:
                _walk(bins, np.uint64(unit), place, size, start, stop,
                      tree_ptr, feature, threshold, child, value, sums)  # fmt: skip
            for i in range(size):
                out[b, row + i] = sums[i]
