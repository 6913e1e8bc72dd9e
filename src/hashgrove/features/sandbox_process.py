"""A program that decodes one image file under a limit of memory and of processor time.

`hashgrove.features.sandbox` runs it as a script, in a process of its own, for formats whose decoders may allocate far
more than the declared size of an image asks for. It imports nothing but Pillow, so that it starts fast.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["address_space", "limit", "main"]


def main(path: str, formats: str, max_pixels: str, spare: str, per_pixel: str, seconds: str) -> None:
    """Write a line of JSON to stdout and, if the image could be decoded, its pixels.

    Parameters
    ----------
    path, formats : str
        The file, and the names of the formats that it may have, separated by commas.
    max_pixels : str
        The image is not decoded if it declares more pixels.
    spare, per_pixel : str
        Bytes of memory for any image, and more for each declared pixel.
    seconds : str
        Limit of processor time.
    """
    from PIL import AvifImagePlugin, Image, ImageOps

    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # the stacks of more threads would count as memory
    Image.init()
    at_start = address_space()
    limit("RLIMIT_CPU", int(seconds))
    limit("RLIMIT_AS", at_start + int(spare))
    try:
        with Image.open(path, formats=formats.split(",")) as image:
            n_pixels = image.width * image.height
            if n_pixels > int(max_pixels):
                report: dict[str, Any] = {"declared": image.size}
                pixels = b""
            else:
                limit("RLIMIT_AS", at_start + int(spare) + int(per_pixel) * n_pixels)
                ImageOps.exif_transpose(image, in_place=True)
                report, pixels = {"mode": image.mode, "size": image.size}, image.tobytes()
    except Exception as error:  # Pillow's decoders raise nearly any type on damaged or hostile files
        report, pixels = {"error": " ".join(str(error).split())[:200] or type(error).__name__}, b""
    sys.stdout.buffer.write(json.dumps(report).encode() + b"\n")
    sys.stdout.buffer.write(pixels)


def address_space() -> int:
    """Bytes of address space that this process has."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * 4096
    except OSError:  # not Linux: a guess that is too high keeps the limit from being too low
        return 2**33


def limit(what: str, value: int) -> None:
    """Limit a resource of this process, unless the system has no such limit or a lower one is set already."""
    try:
        import resource
    except ImportError:  # Windows
        return
    highest = resource.getrlimit(getattr(resource, what))[1]
    lowest = value if highest == resource.RLIM_INFINITY else min(value, highest)
    resource.setrlimit(getattr(resource, what), (lowest, highest))


if __name__ == "__main__":
    main(*sys.argv[1:])
