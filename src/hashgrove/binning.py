"""256 linear levels per feature: one byte instead of four, and a split is a comparison of bytes.

As in the authors' code: the range of each feature in training is widened by a thousandth on both sides and divided
into 255 steps; values outside are clipped. "n_bins == 256, so uint8."
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.jit import chunks, kernel, run

__all__ = ["N_BINS", "TILE", "bin_features", "bin_tile", "fit_bins", "tile_width"]

N_BINS = 256
ROWS_PER_CHUNK = 1024
TILE = 64  # rows that are binned and encoded together: one bit of a word, one byte of a vector each


def fit_bins(X: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lowest level's value and the number of levels per unit, for each feature; 0 where it is constant.

    >>> low, scale = fit_bins(np.array([[0.0], [1.0]]))
    >>> bin_features(np.array([[-5.0], [0.0], [0.5], [1.0], [9.0]]), low, scale)
    array([[  0,   0, 128, 255, 255]], dtype=uint8)
    """
    smallest, largest = X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        margin = (largest - smallest) / 1000
        low, scale = smallest - margin, (N_BINS - 1) / (largest - smallest + 2 * margin)
    usable = np.isfinite(scale) & np.isfinite(low)  # neither constant nor beyond the range of float64
    return np.where(usable, low, 0.0), np.where(usable, scale, 0.0)


def bin_features(
    X: NDArray[Any], low: NDArray[np.float64], scale: NDArray[np.float64], *, n_jobs: int | None = None
) -> NDArray[np.uint8]:
    """The levels of ``X``, transposed: uint8 of shape (n_features, n)."""
    bins = np.empty((X.shape[1], len(X)), np.uint8)

    def bin_chunk(start: int, stop: int) -> None:
        rows = X[start:stop]
        rows = np.ascontiguousarray(rows, dtype=np.float32 if rows.dtype == np.uint8 else rows.dtype)
        _bin(rows, low, scale, bins[:, start:stop])

    run(bin_chunk, chunks(len(X), ROWS_PER_CHUNK), n_jobs=n_jobs)
    return bins


@kernel
def _bin(rows, low, scale, out):
    """Write the level of each value of ``rows`` (n, d) to ``out`` (d, n)."""
    n, d = rows.shape
    levels = np.empty((TILE, tile_width(d)), np.uint8)
    tile = np.empty(TILE * tile_width(d), np.uint8)
    for start in range(0, n, TILE):
        size = min(TILE, n - start)
        bin_tile(rows[start : start + size], low, scale, levels, tile)
        for j in range(d):
            for i in range(np.uint64(size)):
                out[j, start + np.int64(i)] = tile[np.uint64(j * TILE) + i]


@kernel
def tile_width(n_features):
    """Features of a tile: as many as there are, filled up to whole words."""
    return (n_features + 7) // 8 * 8


@kernel
def bin_tile(rows, low, scale, levels, tile):
    """The levels of at most 64 ``rows`` (n, d), feature by feature: ``tile``, uint8, flat (tile_width(d) x 64).

    ``levels`` is scratch, uint8 (64, tile_width(d)). About 0.5 ns a value: a vector loop along the row, and then a
    transposition of bytes, eight by eight.
    """
    n, d = rows.shape
    for i in range(n):
        row, out = rows[i], levels[i]
        for j in range(np.uint64(d)):
            level = (np.float64(row[j]) - low[j]) * scale[j] + 0.5
            out[j] = np.uint8(np.int32(min(max(level, 0.0), 255.0)))
    words, columns = levels.view(np.uint64), tile.view(np.uint64)
    for left in range(np.uint64(words.shape[1])):
        for top in range(np.uint64(TILE // 8)):
            _transpose_bytes(words, columns, left, top)


@kernel
def _swap(a, b, shift, mask):
    """Exchange the bits of ``a`` above ``shift`` with those of ``b`` below it, where ``mask`` is one."""
    moved = ((a >> shift) ^ b) & mask
    return a ^ (moved << shift), b ^ moved


@kernel
def _transpose_bytes(words, columns, left, top):
    """Transpose 8 x 8 bytes: word ``left`` of rows 8 ``top``... becomes word ``top`` of columns 8 ``left``..."""
    row = top * np.uint64(8)
    a0, a1, a2, a3 = (
        words[row, left],
        words[row + np.uint64(1), left],
        words[row + np.uint64(2), left],
        words[row + np.uint64(3), left],
    )
    row += np.uint64(4)
    a4, a5, a6, a7 = (
        words[row, left],
        words[row + np.uint64(1), left],
        words[row + np.uint64(2), left],
        words[row + np.uint64(3), left],
    )
    half, mask = np.uint64(32), np.uint64(0x00000000FFFFFFFF)
    a0, a4 = _swap(a0, a4, half, mask)
    a1, a5 = _swap(a1, a5, half, mask)
    a2, a6 = _swap(a2, a6, half, mask)
    a3, a7 = _swap(a3, a7, half, mask)
    half, mask = np.uint64(16), np.uint64(0x0000FFFF0000FFFF)
    a0, a2 = _swap(a0, a2, half, mask)
    a1, a3 = _swap(a1, a3, half, mask)
    a4, a6 = _swap(a4, a6, half, mask)
    a5, a7 = _swap(a5, a7, half, mask)
    half, mask = np.uint64(8), np.uint64(0x00FF00FF00FF00FF)
    a0, a1 = _swap(a0, a1, half, mask)
    a2, a3 = _swap(a2, a3, half, mask)
    a4, a5 = _swap(a4, a5, half, mask)
    a6, a7 = _swap(a6, a7, half, mask)
    step = np.uint64(TILE // 8)
    place = left * np.uint64(TILE) + top
    for word in (a0, a1, a2, a3, a4, a5, a6, a7):
        columns[place] = word
        place += step
