"""Altered copies of pictures, such as people make them: smaller, saved again, brightened, cut."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hashgrove.features.images import read_image, resize_images

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["ALTERATIONS", "altered_copies"]

LONGEST = 1024  # pixels of a side; larger pictures are made smaller first


def _jpeg(picture: Image) -> Image:
    from PIL import Image

    file = io.BytesIO()
    picture.save(file, "JPEG", quality=30)
    return Image.open(file)


def _cut(share: float) -> Callable[[Image, int], Image]:
    """A function that cuts a share of both sides off, at a corner that depends on the number of the picture."""

    def cut(picture: Image, number: int) -> Image:
        width, height = round(share * picture.width), round(share * picture.height)
        left, top = width * (number % 2), height * (number // 2 % 2)
        return picture.crop((left, top, picture.width - width + left, picture.height - height + top))

    return cut


def _bright(factor: float) -> Callable[[Image, int], Image]:
    return lambda picture, number: picture.point(lambda value: min(255, value * factor))


ALTERATIONS: dict[str, Callable[[Image, int], Image]] = {
    "half the size": lambda picture, _: picture.resize((max(1, picture.width // 2), max(1, picture.height // 2))),
    "JPEG quality 30": lambda picture, _: _jpeg(picture),
    "brighter": _bright(1.3),
    "darker": _bright(0.7),
    "grey": lambda picture, _: picture.convert("L"),
    "turned by 2 degrees": lambda picture, _: picture.rotate(2),
    "cut by 5 %": _cut(0.05),
    "cut by 10 %": _cut(0.1),
}
"""Functions of a picture and its number that make an altered copy."""


def altered_copies(path: str, number: int) -> list[NDArray[np.uint8]]:
    """Altered copies of a picture, one per alteration, as RGB."""
    from PIL import Image

    pixels = read_image(path)
    longest = max(pixels.shape[:2])
    if longest > LONGEST:
        height, width = (max(1, side * LONGEST // longest) for side in pixels.shape[:2])
        pixels = resize_images(pixels[None], (height, width))[0]
    picture = Image.fromarray(pixels)
    return [np.asarray(alter(picture, number).convert("RGB")) for alter in ALTERATIONS.values()]
