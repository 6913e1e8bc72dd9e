"""Patches of images: contrast-normalised vectors, random samples of them, and ZCA whitening.

Coates & Ng, "The importance of encoding versus training with sparse coding and vector quantization", ICML 2011,
section 3.1, with the constants of their published settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.numerics.eigen import inverse_root
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["covariance", "normalised_patches", "patch_grid", "sample_patches", "whiten", "zca"]

CONTRAST = 10.0  # added to the variance of a patch of values 0 to 255, so that flat patches stay small
ROWS_PER_CHUNK = 8192
IMAGES_PER_CHUNK = 32


def patch_grid(height: int, width: int, *, patch_size: int, stride: int) -> tuple[int, int]:
    """Rows and columns of the grid of patches in one image.

    >>> patch_grid(32, 32, patch_size=6, stride=1)
    (27, 27)
    """
    return (height - patch_size) // stride + 1, (width - patch_size) // stride + 1


@kernel
def normalised_patches(image, patch_size, stride, out):
    """Write every patch of ``image`` (height, width, channels; uint8) to a row of ``out`` (patches, values; float32).

    A patch is read row by row, with channels innermost. Its mean is subtracted, and it is divided by the square root of
    variance + `CONTRAST`. Patches are in the order of the rows of the image. Mean and variance come from sums over all
    rectangles that start in the top left corner; these are integers and therefore exact. About 0.2 ns per value.
    """
    height, width, channels = image.shape
    pixels = np.empty((height, width * channels), np.float32)
    totals = np.zeros((height + 1, width + 1), np.int64)
    squares = np.zeros((height + 1, width + 1), np.int64)
    for y in range(height):
        total, square = np.int64(0), np.int64(0)
        for x in range(width):
            for c in range(channels):
                value = np.int64(image[y, x, c])
                pixels[y, x * channels + c] = value
                total += value
                square += value * value
            totals[y + 1, x + 1] = totals[y, x + 1] + total
            squares[y + 1, x + 1] = squares[y, x + 1] + square
    length = np.uint64(patch_size * channels)  # neighbouring values of one row of a patch
    row = 0
    for top in range(0, height - patch_size + 1, stride):
        for left in range(0, width - patch_size + 1, stride):
            total = _rectangle(totals, top, left, patch_size)
            mean, scale = _contrast(total, _rectangle(squares, top, left, patch_size), out.shape[1])
            patch = out[row]
            at = np.uint64(0)
            for y in range(top, top + patch_size):
                start = np.uint64(left * channels)
                for i in range(length):
                    patch[at + i] = (pixels[y, start + i] - mean) * scale
                at += length
            row += 1


@kernel
def _rectangle(sums, top, left, size):
    """Sum over a square, from sums over the rectangles that start in the top left corner."""
    return sums[top + size, left + size] - sums[top, left + size] - sums[top + size, left] + sums[top, left]


@kernel
def _contrast(total, squares, n):
    """Mean of ``n`` values, and 1 / root of (variance + `CONTRAST`), from their sum and sum of squares."""
    variance = (squares - total * total / n) / max(n - 1, 1)
    return np.float32(total / n), np.float32(1 / np.sqrt(variance + CONTRAST))


@kernel
def _patches_at(images, numbers, corners, patch_size, out):
    """Write the patch of image ``numbers[i]`` whose top left corner is ``corners[i]`` to ``out[i]``, normalised."""
    channels, n = images.shape[3], out.shape[1]
    for i in range(len(numbers)):
        total, squares, at = np.int64(0), np.int64(0), 0
        for y in range(corners[i, 0], corners[i, 0] + patch_size):
            for x in range(corners[i, 1], corners[i, 1] + patch_size):
                for c in range(channels):
                    value = np.int64(images[numbers[i], y, x, c])
                    total += value
                    squares += value * value
                    out[i, at] = value
                    at += 1
        mean, scale = _contrast(total, squares, n)
        for at in range(n):
            out[i, at] = (out[i, at] - mean) * scale


def sample_patches(
    read: Callable[[int, int], NDArray[np.uint8]],
    n_images: int,
    n_patches: int,
    *,
    patch_size: int,
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> NDArray[np.float32]:
    """Normalised patches from random places of random images, with replacement, in random order.

    ``read(start, stop)`` gives images as uint8 (n, height, width) or (n, height, width, channels); it is called for a
    few images at a time.
    """
    numbers = np.sort(rng.integers(n_images, size=n_patches))
    places = rng.random((n_patches, 2))
    order = rng.permutation(n_patches)  # so that the first rows of the sample are not all from the first images
    drawn = np.unique(numbers)

    def sample(start: int, stop: int) -> NDArray[np.float32]:
        first, last = drawn[start], drawn[stop - 1] + 1
        images = read(int(first), int(last))
        images = images if images.ndim == 4 else images[..., None]
        _, height, width, channels = images.shape
        begin, end = np.searchsorted(numbers, [first, last])
        room = np.array([height - patch_size + 1, width - patch_size + 1])
        corners = (places[begin:end] * room).astype(np.int64)
        out = np.empty((end - begin, patch_size * patch_size * channels), np.float32)
        _patches_at(images, numbers[begin:end] - first, corners, patch_size, out)
        return out

    parts = run_tasks(sample, chunks(len(drawn), IMAGES_PER_CHUNK), n_jobs=n_jobs)
    patches = np.empty((n_patches, parts[0].shape[1]), np.float32)
    begin = 0
    for part in parts:
        patches[order[begin : begin + len(part)]] = part
        begin += len(part)
    return patches


def covariance(rows: NDArray[np.float32], *, n_jobs: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and covariance of ``rows``, in float64, summed over chunks of a fixed size."""

    def sums(start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        part = rows[start:stop].astype(np.float64)
        return part.sum(axis=0), part.T @ part

    parts = run_tasks(sums, chunks(len(rows), ROWS_PER_CHUNK), n_jobs=n_jobs)
    mean = np.sum([total for total, _ in parts], axis=0) / len(rows)
    second = np.sum([products for _, products in parts], axis=0) / len(rows)
    return mean, second - np.outer(mean, mean)


def zca(covariance: NDArray[Any], epsilon: float) -> NDArray[Any]:
    """The symmetric whitening matrix V (diag(eigenvalues) + epsilon)^(-1/2) V'.

    >>> zca(np.diag([3.9, 0.15]), 0.1).round(6).tolist()
    [[0.5, 0.0], [0.0, 2.0]]
    """
    return inverse_root(covariance, added=epsilon)


def whiten(rows: NDArray[np.float32], mean: NDArray[Any], whitener: NDArray[Any], *, n_jobs: int | None = None) -> None:
    """Subtract ``mean`` and multiply by ``whitener``, in place, because the sample is the largest array of a fit."""
    shift, matrix = mean.astype(np.float32), whitener.astype(np.float32)

    def of_chunk(start: int, stop: int) -> None:
        rows[start:stop] = (rows[start:stop] - shift) @ matrix

    run_tasks(of_chunk, chunks(len(rows), ROWS_PER_CHUNK), n_jobs=n_jobs)
