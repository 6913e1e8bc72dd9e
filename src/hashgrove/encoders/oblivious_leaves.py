"""Kernels that sum the leaves of oblivious trees over rows: by vector code up to depth 6, else row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from hashgrove.encoders.binning import TILE
from hashgrove.encoders.leaf_sums import BIAS, DEEP, NEVER, SHALLOW, record_size, summing
from hashgrove.runtime.compiling import kernel

__all__ = ["compile_oblivious", "sum_oblivious"]

SHALLOW_RECORD, DEEP_RECORD = record_size(SHALLOW, "oblivious"), record_size(DEEP, "oblivious")
_sum_shallow, _sum_deep = summing(SHALLOW, "oblivious"), summing(DEEP, "oblivious")


def compile_oblivious(unit: int, feature: Any, threshold: Any, leaves: Any) -> Any:
    """Records of all trees, uint32, flat; empty if they are too deep. The place of feature j is j * ``unit``.

    A tree is filled up to its full depth by tests that no row passes, and leaves that no row reaches.
    """
    n_trees, n_levels = feature.shape
    depth = SHALLOW if n_levels <= SHALLOW else DEEP
    if n_levels > depth:
        return np.zeros(0, np.uint32)
    records = np.zeros((n_trees, record_size(depth, "oblivious")), np.uint32)
    records[:, :n_levels] = feature * np.uint32(unit)
    records[:, depth : 2 * depth] = NEVER
    records[:, depth : depth + n_levels] = threshold * np.uint32(0x01010101)
    records[:, 2 * depth :].view(np.uint8)[:, : leaves.shape[1]] = leaves.astype(np.int16) + BIAS
    return records.reshape(-1)


@kernel
def _one_by_one(bins, unit, place, size, start, stop, feature, threshold, leaves, sums):
    """Write the sums of the leaves of the trees [start, stop) to ``sums``, for up to 64 rows and trees of any depth.

    The bin of feature j in row i is ``bins[j * unit + place + i]``.
    """
    sums[:] = 0
    for t in range(start, stop):
        for i in range(np.uint64(size)):
            number = np.int64(0)
            for level in range(feature.shape[1]):
                bin_ = bins[np.uint64(feature[t, level]) * unit + place + i]
                number |= np.int64(bin_ > threshold[t, level]) << level
            sums[i] += leaves[t, number]


@kernel
def sum_oblivious(bins, unit, step, first, last, forest, out):
    """The same as `hashgrove.encoders.leaves.sum_leaves` for oblivious trees.

    ``forest`` is (bit_ptr, records by `compile_oblivious`, feature, threshold, leaves).
    """
    bit_ptr, records, feature, threshold, leaves = forest
    sums = np.empty(TILE, np.int16)
    record = len(records) // len(feature)
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
                _one_by_one(bins, np.uint64(unit), place, size, start, stop, feature, threshold, leaves, sums)
            for i in range(size):
                out[b, row + i] = sums[i]
