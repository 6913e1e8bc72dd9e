"""Decodes an untrusted image file to RGB with Pillow.

The size that a file declares is compared with limits before any pixel is decoded (`hashgrove.features.image_limits`).
JPEG 2000 and AVIF are decoded in a child process (`hashgrove.features.sandbox`). Formats that need another
program, such as PostScript, are not opened at all.
"""

from __future__ import annotations

import io
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.features.image_limits import check_declared
from hashgrove.features.sandbox import decode_in_sandbox, needs_sandbox

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["decode"]

FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")


def decode(name: str, *, max_pixels: int) -> Image.Image:
    """The first frame of an image file in RGB, turned as its EXIF orientation says.

    Raises
    ------
    ImageLimitError
        If the file declares too much.
    Exception
        Any type, if the file is damaged.
    """
    from PIL import Image, ImageOps

    if needs_sandbox(name):
        return _rgb(decode_in_sandbox(name, max_pixels=max_pixels))
    with _Clipped(name) as file, Image.open(file, formats=_formats()) as image:
        check_declared(image, n_bytes=file.size, max_pixels=max_pixels)
        ImageOps.exif_transpose(image, in_place=True)
        return _rgb(image)


class _Clipped(io.BufferedReader):
    """A file that is never asked for more bytes than it has, since Python allocates as many as are asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(io.FileIO(name))
        self.size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """Read ``size`` bytes, or all that are left."""
        left = max(0, self.size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


@lru_cache(maxsize=1)
def _formats() -> tuple[str, ...]:
    """The members of FORMATS that this build of Pillow has."""
    from PIL import Image

    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _rgb(image: Image.Image) -> Image.Image:
    from PIL import Image

    if image.mode == "F" or image.mode.startswith("I"):
        image = Image.fromarray(_eight_bits(np.asarray(image), is_float=image.mode == "F"))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        # Pillow converts premultiplied alpha only to straight alpha of the same colours
        straight = {"La": "LA", "RGBa": "RGBA"}.get(image.mode)
        rgba = (image.convert(straight) if straight else image).convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(values: NDArray[Any], *, is_float: bool) -> NDArray[np.uint8]:
    """8-bit values of 16-bit integers, or of real numbers from 0 to 1 or, if one is above 1, from 0 to 255."""
    if not is_float:
        return (np.clip(values, 0, 2**16 - 1).astype(np.uint16) >> 8).astype(np.uint8)
    values = np.nan_to_num(values, nan=0.0, posinf=255.0, neginf=0.0)
    return np.clip(np.rint(values * (1 if values.max(initial=0) > 1 else 255)), 0, 255).astype(np.uint8)
