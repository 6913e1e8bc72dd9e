"""Which leaf of a deep tree each training row is in, known from the tree's growth for the rows that it grew on.

An encoder has to walk every row through a tree that is deeper than 6. While the tree grows, its examples are divided
among the leaves anyway; so only the rows that were trimmed are walked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders.binning import TILE
from hashgrove.encoders.walking import walk
from hashgrove.functions.gathered import prefetch_row
from hashgrove.functions.levels import example_ahead
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import prefetch
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["UNKNOWN", "find_others", "number_leaves"]

UNKNOWN = np.uint32(2**32 - 1)  # the number of a row that the tree did not grow on
ROWS_PER_CHUNK = 2**14


@kernel
def number_leaves(bins, level, feature, threshold, child, opened, numbers):
    """Write the number of the leaf of each example of a level whose node is a leaf, or has a child that is one.

    ``feature``, ``threshold`` and ``child`` are the tables of the tree after the split of this level, and ``opened``
    are the nodes of the next level, in order. (Examples of these may get a number too, which is not their last.)
    """
    n_passed = 0
    for k in range(len(level.nodes)):
        node = level.nodes[k]
        examples, left = level.examples[level.starts[k] : level.starts[k + 1]], np.int64(child[node])
        n_before = n_passed
        while left > 0 and n_passed < len(opened) and opened[n_passed] <= left + 1:
            n_passed += 1
        if left == 0:
            for t in range(np.uint64(len(examples))):
                numbers[examples[t]] = node
        elif n_passed - n_before < 2:
            feature_bins, limit = bins[feature[node]], threshold[node]
            for t in range(np.uint64(len(examples))):
                prefetch(feature_bins, example_ahead(examples, t))
                numbers[examples[t]] = left + (feature_bins[examples[t]] > limit)


def find_others(
    bins: NDArray[np.uint8],
    rows: NDArray[np.uint8],
    feature: NDArray[np.uint32],
    threshold: NDArray[np.uint8],
    child: NDArray[np.uint32],
    numbers: NDArray[np.uint32],
    *,
    n_jobs: int | None = None,
) -> None:
    """Replace each UNKNOWN in ``numbers`` by the number of the leaf of that row, a column of ``bins``.

    ``rows`` has the same bins row by row, or is empty, (0, 0). In it, the bins of a row are side by side.
    """
    layout = (rows.reshape(-1), 1, rows.shape[1]) if len(rows) else (bins.reshape(-1), bins.shape[1], 1)
    arguments = *layout, feature, threshold, child, numbers
    run_tasks(_find, [(*arguments, *part) for part in chunks(len(numbers), ROWS_PER_CHUNK)], n_jobs=n_jobs)


@kernel
def _find(flat, unit, step, feature, threshold, child, numbers, first, last):
    """The same for the rows [first, last); the bin of feature j in row i is ``flat[j * unit + i * step]``."""
    others, places, nodes = np.empty(TILE, np.int64), np.empty(TILE, np.uint64), np.empty(TILE, np.uint64)
    n_others = 0
    for i in range(first, last):
        ahead = min(i + 2 * TILE, last - 1)
        if unit == 1 and numbers[ahead] == UNKNOWN:
            prefetch_row(flat, np.uint64(step), ahead)
        if numbers[i] == UNKNOWN:
            others[n_others], places[n_others] = i, i * step
            n_others += 1
        if n_others == TILE or i == last - 1:
            walk(flat, np.uint64(unit), places[:n_others], np.uint64(0), feature, threshold, child, nodes)
            for t in range(n_others):
                numbers[others[t]] = nodes[t]
            n_others = 0
