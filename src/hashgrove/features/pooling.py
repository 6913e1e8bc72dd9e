"""Soft thresholds and spatial pooling: from the scores of an image's patches to one feature vector.

Regions are the cells of a 1x1, a 2x2 and a 3x3 grid (or others). Their borders cut the image into small cells; a score
is read once, thresholded and added to its small cell, and the regions are made of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel

__all__ = ["ENCODINGS", "add_codes", "combine", "regions", "small_cells"]

ENCODINGS = ("positive", "absolute", "split")  # numbers of the kernel are places in this list


def _borders(length: int, level: int) -> list[int]:
    return [(2 * length * i + level) // (2 * level) for i in range(level + 1)]


def small_cells(length: int, levels: Sequence[int]) -> NDArray[np.int64]:
    """Where the small cells begin along a side of ``length`` patches, and the end.

    >>> small_cells(27, (1, 2, 3)).tolist()
    [0, 9, 14, 18, 27]
    """
    return np.unique([border for level in levels for border in _borders(length, level)]).astype(np.int64)


def regions(n_rows: int, n_columns: int, levels: Sequence[int]) -> NDArray[np.int64]:
    """For each region its first and last small cell, down and across (half-open): shape (regions, 4).

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
    """Pool the codes of a strip of an image, grid rows from ``first`` on, into ``cells`` (small cells, maps), float32.

    ``scores`` (patches, atoms) float32 in the order of the image; ``bias`` (atoms,) is taken off first. ``encoding``:
    0 keeps what is above ``threshold``, 1 what |score| is above, 2 both signs as maps of their own (maps = 2 atoms).
    ``maximum`` pools by the maximum, else by the sum; ``rows`` and ``columns`` are those of `small_cells`. Cells start
    at zero, which is neutral for the maximum, too: codes are never negative. 0.2 ns a score.
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
    """Write the features of an image to ``out`` (regions, maps): maximum or mean over each of `regions`."""
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
    """Pool max(0, sign (row - bias) - threshold) into ``cell``; the two loops are one vector loop each."""
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
