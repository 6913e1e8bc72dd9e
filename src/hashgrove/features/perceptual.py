"""Perceptual codes: the signs of a picture's low frequencies, which copies of the picture keep.

A picture becomes a grey thumbnail, and a code the signs of its cosine transform at 16 x 16 frequencies; the first of
them, which is the mean, is always zero. Copies that were saved again, resized or brightened differ in few bits. A copy
that was cut shows another part of the picture, so there are also codes of parts: `WINDOWS` lists them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import pack

__all__ = ["MIRROR", "N_BITS", "SIDE", "WINDOWS", "perceptual_codes", "thumbnail"]

SIDE = 80  # pixels of a thumbnail
N_FREQUENCIES = 16  # along each side
N_BITS = N_FREQUENCIES**2
SHARES = 0.95, 0.9, 0.8  # of the sides of the picture that parts show


def _windows() -> tuple[tuple[int, int, int], ...]:
    """Side, top and left of the whole thumbnail, and of parts at nine places for each of the `SHARES`."""
    found = [(SIDE, 0, 0)]
    for side in (round(share * SIDE) for share in SHARES):
        places = 0, (SIDE - side) // 2, SIDE - side
        found += [(side, top, left) for top in places for left in places]
    return tuple(found)


WINDOWS = _windows()
MIRROR = pack(np.tile(np.arange(N_FREQUENCIES) % 2 == 1, N_FREQUENCIES)[None])[0]
"""Bits that differ between the code of a picture and that of its mirror image: those of odd horizontal frequencies."""


def thumbnail(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A grey thumbnail, (SIDE, SIDE), of an RGB image: all of it is shown, whatever its shape.

    >>> thumbnail(np.full((3, 5, 3), 9, np.uint8)).shape
    (80, 80)
    """
    from PIL import Image

    small = Image.fromarray(image).convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    return np.asarray(small)


def perceptual_codes(thumbnails: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes of thumbnails and of their parts: packed, of shape (n, len(WINDOWS), N_BITS / 8), the whole first.

    >>> grey = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE)).astype(np.uint8)
    >>> perceptual_codes(grey).shape
    (2, 28, 32)
    >>> bool((perceptual_codes(grey[:, :, ::-1])[:, 0] == perceptual_codes(grey)[:, 0] ^ MIRROR).all())
    True
    """
    values = thumbnails.astype(np.float64)
    codes = np.empty((len(values), len(WINDOWS), N_BITS // 8), np.uint8)
    for number, (side, top, left) in enumerate(WINDOWS):
        part = values[:, top : top + side, left : left + side]
        part = part - part.mean(axis=(1, 2), keepdims=True)  # a plain picture has no frequencies, not even by rounding
        cosines = _cosines(side)
        spectrum = cosines @ part @ cosines.T
        spectrum[:, 0, 0] = 0
        codes[:, number] = pack(spectrum.reshape(len(values), -1) > 0)
    return codes


@lru_cache(maxsize=len(SHARES) + 1)
def _cosines(side: int) -> NDArray[np.float64]:
    """The lowest frequencies of the cosine transform (DCT-II), (N_FREQUENCIES, side)."""
    return np.cos(np.pi / side * np.arange(N_FREQUENCIES)[:, None] * (np.arange(side) + 0.5))
