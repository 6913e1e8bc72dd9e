"""Soft thresholds and spatial pooling: from the scores of an image's patches to one feature vector.

Regions are the cells of a 1x1, a 2x2 and a 3x3 grid (or others). The borders of all regions cut the image into small
cells. Each score is read once, thresholded and added to its small cell, and a region is a union of small cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel

__all__ = ["ENCODINGS", "add_codes", "combine", "regions", "small_cells"]

ENCODINGS = ("positive", "absolute", "split")  # a kernel takes the position in this tuple


def _borders(length: int, level: int) -> list[int]:
    return [(2 * length * i + level) // (2 * level) for i in range(level + 1)]


def small_cells(length: int, levels: Sequence[int]) -> NDArray[np.int64]:
    """Starts of the small cells along a side of ``length`` patches, and the end of the last one.

    >>> small_cells(27, (1, 2, 3)).tolist()
    [0, 9, 14, 18, 27]
    """
    return np.unique([border for level in levels for border in _borders(length, level)]).astype(np.int64)


def regions(n_rows: int, n_columns: int, levels: Sequence[int]) -> NDArray[np.int64]:
    """First and last (exclusive) small cell of each region, vertically and horizontally: shape (regions, 4).

    >>> regions(4, 4, (1, 2)).tolist()
    [[0, 2, 0, 2], [0, 1, 0, 1], [0, 1, 1, 2], [1, 2, 0, 1], [1, 2, 1, 2]]
    """
    found = []
    for level in levels:
        down = np.searchsorted(small_cells(n_rows, levels), _borders(n_rows, level))
        across = np.searchsorted(small_cells(n_columns, levels), _borders(n_columns, level))
        found += [(*down[i : i + 2], *across[j : j + 2]) for i in range(level) for j in range(level)]
    return np.array(found, np.int64)


@kernel
def add_codes(scores, first, bias, threshold, encoding, maximum, rows, columns, cells):
    """Pool the codes of a strip of an image into ``cells`` (small cells, maps), float32.

    The strip starts at row ``first`` of the grid of patches. ``scores`` (patches, atoms), float32, are in image order;
    ``bias`` (atoms,) is subtracted first. ``encoding`` is the position in `ENCODINGS`: 0 keeps how far the score is
    above ``threshold``, 1 the same for |score|, and 2 for both signs as separate maps (maps = 2 atoms). ``maximum``
    chooses the maximum instead of the sum; ``rows`` and ``columns`` are those of `small_cells`. Cells start at zero,
    which is also neutral for the maximum because codes are never negative. About 0.2 ns per score.
    """
    n_atoms = scores.shape[1]
    width, across = columns[-1], len(columns) - 1
    for y in range(len(scores) // width):
        down = np.searchsorted(rows, first + y, side="right") - 1
        for c in range(across):
            cell = cells[down * across + c]
            for x in range(columns[c], columns[c + 1]):
                row = scores[y * width + x]
                if encoding == 1:
                    _add_absolute(row, bias, threshold, maximum, cell)
                else:
                    _add(row, bias, np.float32(1), threshold, maximum, cell[:n_atoms])
                    if encoding == 2:
                        _add(row, bias, np.float32(-1), threshold, maximum, cell[n_atoms:])


@kernel
def combine(cells, maximum, rows, columns, regions, out):
    """Write the features of an image to ``out`` (regions, maps): the maximum or mean over each region."""
    across = len(columns) - 1
    for region in range(len(regions)):
        top, bottom, left, right = regions[region]
        target = out[region]
        target[:] = 0
        for r in range(top, bottom):
            for c in range(left, right):
                cell = cells[r * across + c]
                for j in range(len(target)):
                    target[j] = max(target[j], cell[j]) if maximum else target[j] + cell[j]
        if not maximum:
            count = np.float32((rows[bottom] - rows[top]) * (columns[right] - columns[left]))
            for j in range(len(target)):
                target[j] /= count


@kernel
def _add(row, bias, sign, threshold, maximum, cell):
    """Pool max(0, sign (row - bias) - threshold) into ``cell``; both loops use vector instructions."""
    zero = np.float32(0)
    if maximum:
        for j in range(len(row)):
            cell[j] = max(cell[j], sign * (row[j] - bias[j]) - threshold)
    else:
        for j in range(len(row)):
            cell[j] += max(sign * (row[j] - bias[j]) - threshold, zero)


@kernel
def _add_absolute(row, bias, threshold, maximum, cell):
    """Pool max(0, |row - bias| - threshold) into ``cell``."""
    zero = np.float32(0)
    if maximum:
        for j in range(len(row)):
            cell[j] = max(cell[j], abs(row[j] - bias[j]) - threshold)
    else:
        for j in range(len(row)):
            cell[j] += max(abs(row[j] - bias[j]) - threshold, zero)
