"""Limits of what an image file may declare, checked before Pillow allocates or decodes anything.

Decoding takes at most 64 MB + 4 times the file + `BYTES_PER_PIXEL` for each pixel. So the number of pixels that a file
declares is limited: by a number that the caller chooses, and by the size of the file, because a few bytes can declare
any number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hashgrove.storage.formats import DEFLATE_RATIO

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["BYTES_PER_PIXEL", "SPARE_BYTES", "ImageLimitError", "check_declared", "check_pixels", "pixel_budget"]

SPARE_BYTES = 2**26  # memory that reading any image may take, besides 4 times its file
BYTES_PER_PIXEL = 32  # the most that a decoder and the conversion to RGB take; transparent WebP comes near it
FREE_PIXELS = 2**21  # pixels that any file may declare
PIXELS_PER_BYTE = 8 * DEFLATE_RATIO  # deflate packs no more black-and-white pixels into a byte
MAX_SCANS = 100  # of a JPEG file; each is a pass over the whole image, and usual files have 1 to 12
TILE_WIDTH, TILE_LENGTH = 322, 323  # tags of TIFF
MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")  # of JPEG, except for those within the data of a scan
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
WITHOUT_LENGTH = {0x01, 0xD8}


class ImageLimitError(ValueError):
    """A file that declares too much. The message says what is allowed, without the name of the file."""


def pixel_budget(n_bytes: int, max_pixels: int) -> int:
    """Number of pixels that a file of ``n_bytes`` may declare.

    >>> pixel_budget(100, 2**26), pixel_budget(10**6, 2**26)
    (2922752, 67108864)
    """
    return min(max_pixels, FREE_PIXELS + PIXELS_PER_BYTE * n_bytes)


def check_pixels(width: int, height: int, *, n_bytes: int, max_pixels: int, what: str = "") -> None:
    """Refuse an image of more than ``max_pixels``, or of more than the bytes of its file can hold.

    >>> check_pixels(9999, 999, n_bytes=600, max_pixels=10**6)
    Traceback (most recent call last):
        ...
    hashgrove.features.image_limits.ImageLimitError: must have at most 1000000 pixels. Got 9999 x 999.
    """
    budget = pixel_budget(n_bytes, max_pixels)
    if width * height > max_pixels:
        raise ImageLimitError(f"must have {what}at most {max_pixels} pixels. Got {width} x {height}.")
    if width * height > budget:
        why = f"as it has {n_bytes} bytes"
        raise ImageLimitError(f"must have {what}at most {budget} pixels, {why}. Got {width} x {height}.")


def check_declared(image: Image.Image, *, n_bytes: int, max_pixels: int) -> None:
    """Check what an open file declares: its pixels, the tiles of a TIFF file, the scans of a JPEG file."""
    check_pixels(image.width, image.height, n_bytes=n_bytes, max_pixels=max_pixels)
    tags = getattr(image, "tag_v2", {}) if image.format == "TIFF" else {}
    if TILE_WIDTH in tags and TILE_LENGTH in tags:  # a tile may be larger than the image, and is decoded whole
        tile = int(tags[TILE_WIDTH]), int(tags[TILE_LENGTH])
        check_pixels(*tile, n_bytes=n_bytes, max_pixels=max_pixels, what="tiles of ")
    if image.format in ("JPEG", "MPO"):
        _check_scans(image)


def _check_scans(image: Image.Image) -> None:
    """Refuse a JPEG file of so many scans that it would be decoded for hours."""
    file = image.fp
    assert file is not None  # it is open
    place = file.tell()
    file.seek(0)
    n_scans = sum(1 for _ in _scans(file.read()))
    file.seek(place)
    if n_scans > MAX_SCANS:
        raise ImageLimitError(f"must have at most {MAX_SCANS} scans. Got more.")


def _scans(content: bytes) -> Iterator[int]:
    """Places of the scans of the first image in a JPEG file; at most one more than `MAX_SCANS`."""
    place = count = 0
    while (found := MARKER.search(content, place)) and count <= MAX_SCANS:
        kind, place = found[1][0], found.end()
        if kind == END_OF_IMAGE:
            return
        if kind == START_OF_SCAN:
            count += 1
            yield found.start()
        if kind not in WITHOUT_LENGTH:
            place += int.from_bytes(
                content[place : place + 2]
            )  # skips the segment; after a scan's header comes its data
