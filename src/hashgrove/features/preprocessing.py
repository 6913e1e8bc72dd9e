"""Scaling of pixels for a network: the usual ways by name, and a measure that tells a wrong one from the right one.

An ONNX file does not say how its input is scaled, and with wrong numbers it gives features without any complaint. They
are worse in a way that needs no labels to see: pictures that have nothing in common become similar. `separation`
measures it, `choose` takes the way that does best, and `better` finds whether another one does much better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hashgrove.features.source import ImageSource

__all__ = ["AUTO", "MIN_IMAGES", "PREPROCESSING", "Preprocessing", "better", "choose", "sample", "separation"]

AUTO = "auto"
MAX_IMAGES = 16  # that are looked at
MIN_IMAGES = 4
GOOD = 0.5  # a separation that no wrong scaling was seen to reach, so that others need not be tried
DEGENERATE = 0.8  # times the separation of another way


@dataclass(frozen=True)
class Preprocessing:
    """The input of a network is (pixel - mean) / std, with pixels from 0 to 255.

    Attributes
    ----------
    mean, std : float or three floats
        One number, or one per channel in the order of ``channels``.
    channels : {"rgb", "bgr"}
    """

    mean: float | tuple[float, float, float]
    std: float | tuple[float, float, float]
    channels: str = "rgb"

    @property
    def n_numbers(self) -> int:
        """Numbers that mean and std have: one, or one per channel."""
        return max(np.size(self.mean), np.size(self.std))

    def __call__(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """The input of a network for pixels (n, height, width, channels) in the order RGB.

        >>> Preprocessing(127.5, 127.5)(np.array([[[[0, 255, 127.5]]]], np.float32)).tolist()
        [[[[-1.0, 1.0, 0.0]]]]
        """
        ordered = pixels[..., ::-1] if self.channels == "bgr" else pixels
        mean, std = np.asarray(self.mean, np.float32), np.asarray(self.std, np.float32)
        scaled: NDArray[np.float32] = (ordered - mean) / std
        return scaled


PREPROCESSING = {
    "raw": Preprocessing(0.0, 1.0),
    "unit": Preprocessing(0.0, 255.0),
    "symmetric": Preprocessing(127.5, 127.5),
    "imagenet": Preprocessing((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "clip": Preprocessing((122.7709383, 116.7460125, 104.09373615), (68.5005327, 66.6321579, 70.32316305)),
    "caffe": Preprocessing((103.939, 116.779, 123.68), 1.0, "bgr"),
}


def sample(source: ImageSource) -> NDArray[np.uint8]:
    """Up to 16 of the images, evenly spaced; files that are no images, or have another size than the first, count not.

    Shape (n, height, width) or (n, height, width, 3).
    """
    images: list[NDArray[np.uint8]] = []
    for place in np.unique(np.linspace(0, len(source) - 1, MAX_IMAGES).astype(int)).tolist():
        image = source.read(place, place + 1, on_error="skip")[0]
        if len(image) and (not images or image.shape == images[0].shape):
            images.append(image)
    return np.concatenate(images) if images else np.empty((0, 1, 1), np.uint8)


def separation(features: NDArray[np.float32], mirrored: NDArray[np.float32]) -> float:
    """The similarity of images to their own mirror images, less that to each other: a mean of cosines, 0 to 1.

    >>> separation(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32))
    1.0
    >>> separation(np.full((3, 2), np.inf, np.float32), np.full((3, 2), np.nan, np.float32))
    0.0
    """
    rows, others = _unit(features), _unit(mirrored)
    similar = rows @ rows.T
    n = len(rows)
    among = (float(similar.sum()) - float(np.trace(similar))) / (n * (n - 1))
    return float((rows * others).sum(axis=1).mean()) - among


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Rows of length 1; zeros in the place of a row without a direction, or with numbers that are not finite."""
    known = np.isfinite(rows).all(axis=1, keepdims=True)
    wide = np.where(known, rows, 0).astype(np.float64)  # squares of large float32 are beyond float32
    lengths = np.sqrt((wide**2).sum(axis=1, keepdims=True))
    unit: NDArray[np.float64] = wide / np.where(lengths > 0, lengths, 1)
    return unit


def choose(measure: Callable[[Preprocessing], float], *, n_channels: int) -> str:
    """The name of the way with the best ``measure``, a `separation`; the first of several that are equally good."""
    found = {name: measure(way) for name, way in PREPROCESSING.items() if way.n_numbers <= n_channels}
    return max(found, key=found.__getitem__)


def better(
    way: Preprocessing, measure: Callable[[Preprocessing], float], *, n_channels: int
) -> tuple[str, float, float] | None:
    """Another way that is far better than this one, by name, with the measures of both; None if there is none."""
    own = measure(way)
    if own >= GOOD:
        return None
    name = choose(measure, n_channels=n_channels)
    best = measure(PREPROCESSING[name])
    return (name, own, best) if own < DEGENERATE * best else None
