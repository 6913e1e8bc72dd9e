"""Binning: the range of each feature is divided into 256 bins, so a value is one byte and a split compares bytes.

As in the authors' code, the range of each feature in training is widened by a thousandth on both sides and divided
into 255 steps. A value goes to the nearest step; values outside of the range are clipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.simd import constant, pointer, prefetch
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["N_BINS", "TILE", "BinnedData", "bin_features", "bin_tiles", "fit_bins"]

N_BINS = 256  # so a bin is a uint8
ROWS_PER_CHUNK = 1024
TILE = 64  # rows that are binned and encoded together; a row is one bit of a word or one byte of a vector
LANES = 16  # values that one vector instruction bins
AHEAD = 1024  # distance of a prefetch, in values: about what is read while memory answers


@dataclass(frozen=True, eq=False)
class BinnedData:
    """Training rows in 256 bins per feature, and the binning that made them.

    Attributes
    ----------
    bins : uint8 array of shape (n_features, n)
    low, scale : float64 arrays of shape (n_features,)
        What `fit_bins` gave.
    n_jobs : int or None
        Number of threads that work on the rows.
    rows : uint8 array of shape (n, n_features) or (0, 0)
        The same bins with one row per example, for the small nodes of deep trees: their examples are far apart in
        ``bins``. Empty where that does not pay.
    read_columns : function of feature numbers, or None
        Reads the bins of these features from their file, so that they are in the page cache when a tree asks for them;
        None if all bins are in memory anyway.
    """

    bins: NDArray[np.uint8]
    low: NDArray[np.float64]
    scale: NDArray[np.float64]
    n_jobs: int | None
    rows: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 0), np.uint8))
    read_columns: Callable[[NDArray[np.uint32]], None] | None = None


def fit_bins(X: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The value of bin 0 and the number of bins per unit, for each feature; both are 0 for a constant feature.

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
    """The bins of ``X``, transposed: uint8 of shape (n_features, n)."""
    bins = np.empty((X.shape[1], len(X)), np.uint8)

    def bin_chunk(start: int, stop: int) -> None:
        _bin(np.ascontiguousarray(X[start:stop]), low, scale, bins[:, start:stop])

    run_tasks(bin_chunk, chunks(len(X), ROWS_PER_CHUNK), n_jobs=n_jobs)
    return bins


@kernel
def _bin(rows, low, scale, out):
    """Write the bin of each value of ``rows`` (n, d) to ``out`` (d, n)."""
    n, d = rows.shape
    scratch = np.empty((TILE, _tile_width(d)), np.uint8)
    tile = np.empty(TILE * _tile_width(d), np.uint8)
    values = rows.reshape(-1)
    for start in range(0, n, TILE):
        size = min(TILE, n - start)
        _bin_tile(values, start, size, low, scale, scratch, tile)
        for j in range(d):
            for i in range(np.uint64(size)):
                out[j, start + np.int64(i)] = tile[np.uint64(j * TILE) + i]


@kernel
def bin_tiles(rows, low, scale):
    """(tiles, whether all values are finite): the bins of ``rows`` (n, d), flat, in tiles of 64 rows.

    Within a tile they lie feature by feature. The last tile is filled up with bins that mean nothing.
    """
    n, d = rows.shape
    width = _tile_width(d)
    values, finite = rows.reshape(-1), True
    scratch = np.zeros((TILE, width), np.uint8)
    n_tiles = (n + TILE - 1) // TILE
    room = np.empty((n_tiles * width + 1) * TILE, np.uint8)
    aligned = -room.ctypes.data % TILE  # a load of 64 bytes takes twice as long if it crosses a cache line
    tiles = room[aligned : aligned + n_tiles * width * TILE].reshape(n_tiles, width * TILE)
    for t in range(n_tiles):
        finite &= _bin_tile(values, t * TILE, min(TILE, n - t * TILE), low, scale, scratch, tiles[t])
    return tiles.reshape(-1), finite


@kernel
def _tile_width(n_features):
    """Number of features in a tile: ``n_features``, rounded up to whole words of 8 bytes."""
    return (n_features + 7) // 8 * 8


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _bin_lanes(typing_context: Any, values: Any, at: Any, low: Any, scale: Any, feature: Any, out: Any, to: Any) -> Any:
    """Write the bins of ``values[at : at + 16]`` to ``out[to : to + 16]``; return 16 bits, 1 where not finite."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, at, low, scale, feature, out, to = arguments
        number = context.get_value_type(signature.args[0].dtype)
        doubles, bytes_ = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.IntType(8), LANES)

        def load(place: int, array: Any, offset: Any, element: Any) -> Any:
            kind = ir.VectorType(element, LANES)
            return builder.load(pointer(context, builder, signature.args[place], array, offset, kind), align=1)

        read = load(0, values, at, number)
        wide = read if number == ir.DoubleType() else _convert(builder, number)(read, doubles)
        shifted = builder.fsub(wide, load(2, low, feature, ir.DoubleType()))
        position = builder.fmul(shifted, load(3, scale, feature, ir.DoubleType()))
        position = builder.fadd(position, constant(doubles, 0.5))
        for compare, bound in ((">", constant(doubles, 0.0)), ("<", constant(doubles, 255.0))):
            position = builder.select(builder.fcmp_ordered(compare, position, bound), position, bound)
        whole = builder.fptosi(position, ir.VectorType(ir.IntType(32), LANES))
        place = pointer(context, builder, signature.args[5], out, to, bytes_)
        builder.store(builder.trunc(whole, bytes_), place, align=1)
        return builder.bitcast(_not_finite(builder, read, number), ir.IntType(LANES))

    return types.uint16(values, types.uint64, low, scale, types.uint64, out, types.uint64), generate


def _convert(builder: Any, number: Any) -> Any:
    return builder.uitofp if isinstance(number, ir.IntType) else builder.fpext


def _not_finite(builder: Any, vector: Any, number: Any) -> Any:
    """A vector of flags: 1 where all bits of the exponent are 1, which is NaN or infinity."""
    if isinstance(number, ir.IntType):
        return ir.Constant(ir.VectorType(ir.IntType(1), LANES), [0] * LANES)
    size, exponent = (64, 0x7FF0 << 48) if number == ir.DoubleType() else (32, 0x7F80 << 16)
    bits = ir.VectorType(ir.IntType(size), LANES)
    masked = builder.and_(builder.bitcast(vector, bits), constant(bits, exponent))
    return builder.icmp_unsigned("==", masked, constant(bits, exponent))


@kernel
def _bin_tile(values, first, n, low, scale, scratch, tile):
    """Write the bins of ``n`` rows, at most 64, feature by feature to ``tile``, uint8, flat (_tile_width(d) x 64).

    ``values`` holds all rows, flat, as float32, float64 or uint8; ``first`` is the number of the first row to read.
    ``scratch`` is uint8 (64, _tile_width(d)). Returns whether all values are finite; if not, the bins mean nothing.
    Runs at the speed of memory: vectors along each row, then a transposition of 8 x 8 bytes at a time.
    """
    d, width = np.uint64(len(low)), np.uint64(scratch.shape[1])
    whole = d - d % np.uint64(LANES)
    flat, lost = scratch.reshape(-1), np.uint16(0)
    for i in range(np.uint64(n)):
        source, target = (np.uint64(first) + i) * d, i * width
        for j in range(np.uint64(0), whole, np.uint64(LANES)):
            prefetch(values, source + j + np.uint64(AHEAD))
            lost |= _bin_lanes(values, source + j, low, scale, j, flat, target + j)
        for j in range(whole, d):
            value = np.float64(values[source + j])
            position = (value - low[j]) * scale[j] + 0.5
            flat[target + j] = np.uint8(np.int32(min(max(position, 0.0), 255.0)))
            lost |= np.uint16(not np.isfinite(value))
    words, columns = scratch.view(np.uint64), tile.view(np.uint64)
    for left in range(np.uint64(words.shape[1])):
        for top in range(np.uint64(TILE // 8)):
            _transpose_bytes(words, columns, left, top)
    return lost == 0


@kernel
def _swap(a, b, shift, mask):
    """Exchange bits of ``a`` and ``b``: bit i + shift of ``a`` with bit i of ``b``, wherever bit i of ``mask`` is 1."""
    moved = ((a >> shift) ^ b) & mask
    return a ^ (moved << shift), b ^ moved


@kernel
def _transpose_bytes(words, columns, left, top):
    """Transpose 8 x 8 bytes: word ``left`` of the rows from 8 * top on to word ``top`` of the columns from 8 * left."""
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
