"""GIST: the energy of each orientation and scale in each part of an image (Oliva & Torralba, IJCV 2001).

The steps and constants are those of the authors' LMgist.m. To save two thirds of the work without changing the values,
each Gabor filter is applied only in the box of frequencies where it is not zero, and each inverse transform is
computed only where there is no padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from hashgrove.features.base import FeatureExtractor
from hashgrove.features.images import IMAGE_SIZE
from hashgrove.features.source import ImageSource
from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.parameters import Constraint, Flag, Integer, Number, ParameterError, Several

__all__ = ["Gist"]

BOUNDARY = 32  # width in pixels of the mirrored border around an image that is filtered
PREFILTER_BOUNDARY = 5  # width of the border for the prefilter
SMALLEST_CONTRAST = 0.2  # added to the local contrast of the log intensity before dividing by it
TOP_FREQUENCY = 0.3  # frequency of the finest scale, in cycles per pixel
SCALE_RATIO = 1.85  # ratio of the frequencies of two neighbouring scales
RADIAL_SHARPNESS = 3.5
NEGLIGIBLE = 1e-7  # a filter is 1 at its peak, and float32 has 7 digits
COUNT = Integer(1, 64)


class Gist(FeatureExtractor):
    """GIST: mean responses of Gabor filters in the cells of a grid.

    Parameters
    ----------
    orientations : tuple of int, default=(8, 8, 8, 8)
        Number of orientations per scale, from fine to coarse. (8, 8, 4) gives the 320 numbers of older work.
    n_cells : int, default=4
        Cells of the grid along each side of the image.
    prefilter : float, default=4
        Cycles per image below which structure is removed. Contrast is made even at that scale.
    image_size : int, (int, int) or None, default=None
        Side, or height and width, that images are resized to. Without it all images of a call must have one size, and
        features are comparable only between images of the same size.
    colour : bool, default=False
        Compute features of the red, green and blue channel, three times as many, instead of their mean.
    n_jobs : int or None, default=None
        Number of threads; None means all cores.

    Attributes
    ----------
    n_features_ : int
        sum(orientations) * n_cells ** 2, or three times that with ``colour``. They are ordered by channel, scale,
        orientation, row of the grid and column of the grid.

    References
    ----------
    A. Oliva, A. Torralba, "Modeling the shape of the scene: a holistic representation of the spatial envelope",
    International Journal of Computer Vision 42(3), 2001.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> images = load_digits().images.astype(np.uint8)
    >>> Gist().fit_transform(images[:4]).shape
    (4, 512)
    """

    name = "gist"
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "orientations": Several(COUNT, low=1, high=16),
        "n_cells": COUNT,
        "prefilter": Number(above=0, below=2**15),
        "image_size": IMAGE_SIZE,
        "colour": Flag(),
    }
    example_options = "--size 128 --save gist.hashgrove"
    resizes_arrays = True

    def __init__(
        self,
        orientations: tuple[int, ...] = (8, 8, 8, 8),
        *,
        n_cells: int = 4,
        prefilter: float = 4.0,
        image_size: int | tuple[int, int] | None = None,
        colour: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.orientations = orientations
        self.n_cells = n_cells
        self.prefilter = prefilter
        self.image_size = image_size
        self.colour = colour
        self.n_jobs = n_jobs

    def _learn(self, source: ImageSource) -> None:
        self.n_features_ = self._count_features()

    def _count_features(self) -> int:
        return int(sum(self.orientations) * self.n_cells**2 * (3 if self.colour else 1))

    def _features(self, batch: NDArray[np.uint8]) -> NDArray[np.float32]:
        if self.colour and batch.ndim != 4:
            raise ParameterError("images", "must be RGB images, because colour=True. Got grey images instead.")
        if min(batch.shape[1:3]) < self.n_cells:
            raise ParameterError(
                "images",
                f"must have images of at least {self.n_cells} x {self.n_cells} pixels, "
                f"one per cell of the grid. Got {batch.shape[1]} x {batch.shape[2]} instead.",
            )
        channels = _prefiltered(_channels(batch, colour=bool(self.colour)), float(self.prefilter))
        height, width = channels.shape[2:]
        padded = _mirrored(channels.reshape(-1, height, width), (BOUNDARY, BOUNDARY), (BOUNDARY, BOUNDARY))
        spectrum = fft.fftshift(fft.fft2(padded), axes=(1, 2))
        edges = [np.linspace(0, side, self.n_cells + 1).astype(np.int64) for side in (height, width)]
        bank = _gabor_filters(tuple(self.orientations), padded.shape[1], padded.shape[2])
        out = np.empty((len(spectrum), len(bank), self.n_cells, self.n_cells), np.float32)
        for number, gabor in enumerate(bank):
            gabor.cell_means(spectrum, edges, out[:, number])
        return out.reshape(len(batch), -1)

    @classmethod
    def from_arrays(cls, parameters: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted extractor from its checked parameters; it has no arrays."""
        if arrays:
            raise ValueError(f"'gist' features have no arrays. Got {sorted(arrays)}.")
        extractor = cls._from_parameters(parameters)
        extractor.n_features_ = extractor._count_features()
        return extractor


def _channels(batch: NDArray[np.uint8], *, colour: bool) -> NDArray[np.float32]:
    """Images as float (n, channels, h, w), each stretched so that its values range from 0 to 255."""
    values: NDArray[Any] = batch.astype(np.float32)
    if colour:
        values = np.ascontiguousarray(np.moveaxis(values, 3, 1))
    else:
        values = (values.mean(axis=3) if batch.ndim == 4 else values)[:, None]
    values -= values.min(axis=(1, 2, 3), keepdims=True)
    top = values.max(axis=(1, 2, 3), keepdims=True)
    values *= np.float32(255) / np.where(top > 0, top, np.float32(1))
    return values


def _mirrored(images: NDArray[np.float32], rows: tuple[int, int], columns: tuple[int, int]) -> NDArray[np.float32]:
    """Extend images by mirroring: ``rows`` and ``columns`` are how many to add before and after."""
    height, width = images.shape[-2:]
    i, j = _mirror_index(height, *rows), _mirror_index(width, *columns)
    return images[..., i[:, None], j]


def _mirror_index(length: int, before: int, after: int) -> NDArray[np.int64]:
    """Index of each position of a mirrored row: ... 1 0 | 0 1 2 | 2 1 ..."""
    place = np.arange(-before, length + after) % (2 * length)
    return np.where(place < length, place, 2 * length - 1 - place)


def _prefiltered(images: NDArray[np.float32], cycles: float) -> NDArray[np.float32]:
    """Remove the low frequencies of the log intensity, and divide by the local contrast of all channels together."""
    height, width = images.shape[-2:]
    border = PREFILTER_BOUNDARY
    side = max(height, width) + 2 * border
    side += side % 2
    after = (side - height - border, side - width - border)
    images = _mirrored(np.log1p(images), (border, border), (border, border))
    images = _mirrored(images, (0, after[0] - border), (0, after[1] - border))
    low_pass = _low_pass(side, cycles)

    def smooth(values: NDArray[np.float32]) -> NDArray[np.float32]:
        return fft.irfft2(fft.rfft2(values) * low_pass, s=(side, side))

    images -= smooth(images)
    contrast = np.sqrt(np.abs(smooth(images.mean(axis=1, keepdims=True) ** 2)))
    images /= SMALLEST_CONTRAST + contrast
    return np.ascontiguousarray(images[..., border : border + height, border : border + width])


@lru_cache(maxsize=8)
def _low_pass(side: int, cycles: float) -> NDArray[np.float32]:
    """Gaussian that falls to one half at ``cycles``, as a half spectrum for `rfft2`; ``side`` must be even."""
    rows, columns = fft.fftfreq(side, 1 / side), np.arange(side // 2 + 1)
    return np.exp(-(rows[:, None] ** 2 + columns**2) * (np.log(2) / cycles**2)).astype(np.float32)


@dataclass(frozen=True)
class _GaborFilter:
    """One filter: its values in a box of the centred spectrum, outside of which they are negligible."""

    rows: slice
    columns: slice
    values: NDArray[np.float32]
    shape: tuple[int, int]

    def cell_means(
        self, spectrum: NDArray[np.complex64], edges: list[NDArray[np.int64]], out: NDArray[np.float32]
    ) -> None:
        """Write the mean magnitude of the response in each cell to ``out`` (n, cells, cells).

        ``spectrum`` belongs to the images, and ``edges`` are the borders of the cells. The box is treated as if it
        began at frequency zero, which changes the phase of the response but not its magnitude. The longer side is
        transformed first, which takes fewer transforms, and the boundary is dropped before the other side.
        """
        box = spectrum[:, self.rows, self.columns] * self.values
        first = 0 if box.shape[2] <= box.shape[1] else 1
        half = fft.ifft(box, n=self.shape[first], axis=1 + first, overwrite_x=True)
        inner = slice(BOUNDARY, self.shape[first] - BOUNDARY)
        half = half[:, inner] if first == 0 else half[:, :, inner]
        response = fft.ifft(half, n=self.shape[1 - first], axis=2 - first)
        starts = [edges[axis] + (0 if axis == first else BOUNDARY) for axis in (0, 1)]
        _magnitude_means(response, *starts, out)


@lru_cache(maxsize=8)
def _gabor_filters(orientations: tuple[int, ...], height: int, width: int) -> tuple[_GaborFilter, ...]:
    """The filters for padded images of one size, scale by scale.

    In the frequency domain a filter is exp(-3.5 (f / f_scale - 1)^2 - 2 pi s angle^2), f in cycles per pixel of
    the width, and s = orientations^2 / 64.
    """
    y, x = np.meshgrid(np.arange(height) - height / 2, np.arange(width) - width / 2, indexing="ij")
    # as in the authors' code: one fftshift to the order of the transform, and another one back to the centre
    frequency, angle = (fft.fftshift(fft.fftshift(grid)) for grid in (np.hypot(x, y) / width, np.arctan2(y, x)))
    filters = []
    for scale, count in enumerate(orientations):
        distance = frequency / (TOP_FREQUENCY / SCALE_RATIO**scale) - 1
        for number in range(count):
            turned = angle + np.pi * number / count
            turned = np.where(turned > np.pi, turned - 2 * np.pi, turned)
            exponent = RADIAL_SHARPNESS * distance**2 + 2 * np.pi * (count**2 / 64) * turned**2
            filters.append(_boxed(np.exp(-exponent)))
    return tuple(filters)


def _boxed(values: NDArray[np.float64]) -> _GaborFilter:
    rows, columns = (np.flatnonzero((values > NEGLIGIBLE).any(axis=axis)) for axis in (1, 0))
    box = slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)
    return _GaborFilter(*box, values[box].astype(np.float32), (values.shape[0], values.shape[1]))


@kernel
def _magnitude_means(response, rows, columns, out):
    """Mean magnitude of complex64 ``response`` (n, h, w) in each cell; ``rows`` and ``columns`` are the cells' borders.

    Writes float32 ``out`` (n, len(rows) - 1, len(columns) - 1). Costs n h w square roots.
    """
    sums = np.empty(response.shape[2], np.float32)
    for image in range(len(response)):
        for i in range(len(rows) - 1):
            sums[:] = 0
            for row in range(rows[i], rows[i + 1]):
                for column in range(columns[0], columns[-1]):  # neighbouring columns: vector instructions
                    value = response[image, row, column]
                    sums[column] += np.sqrt(value.real * value.real + value.imag * value.imag)
            for j in range(len(columns) - 1):
                total = np.float32(0)
                for column in range(columns[j], columns[j + 1]):
                    total += sums[column]
                out[image, i, j] = total / ((rows[i + 1] - rows[i]) * (columns[j + 1] - columns[j]))
