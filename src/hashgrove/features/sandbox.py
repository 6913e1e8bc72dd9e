"""A sandbox for JPEG 2000 and AVIF: these files are decoded in a child process with limits of memory and time.

The size that a file declares says little about what the decoders of these formats allocate. A JPEG 2000 file chooses
the size of its code blocks and tiles, each of which costs hundreds of bytes; an AVIF file has the size of its images in
a second place, which need not agree with the first. `hashgrove.features.sandbox_process` is the child process. It
cannot take more memory than other formats do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashgrove.features.image_limits import BYTES_PER_PIXEL, SPARE_BYTES, check_pixels, pixel_budget

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["ChildError", "decode_in_sandbox", "needs_sandbox"]

SANDBOXED = ("JPEG2000", "AVIF")
JPEG2000_STARTS = (b"\xff\x4f\xff\x51", b"\x00\x00\x00\x0cjP  ")
SECONDS = 300  # of processor time; 67 million pixels take 5 to 30
CHILD = Path(__file__).with_name("sandbox_process.py")


class ChildError(ValueError):
    """A file that the child process could not decode within its limits."""


def needs_sandbox(name: str) -> bool:
    """Whether a file begins like JPEG 2000 or like a file of the family of AVIF."""
    with open(name, "rb") as file:
        start = file.read(12)
    return start.startswith(JPEG2000_STARTS) or start[4:8] == b"ftyp"


def decode_in_sandbox(name: str, *, max_pixels: int) -> Image.Image:
    """Decode a file in a child process: the image in a mode of Pillow, turned as its orientation says.

    The child may take as much memory as `hashgrove.features.image_limits` allows for the size that the file declares.
    """
    from PIL import Image

    n_bytes = os.path.getsize(name)
    report, pixels = _run(name, max_pixels=pixel_budget(n_bytes, max_pixels), spare=SPARE_BYTES + 4 * n_bytes)
    if "declared" in report:
        width, height = report["declared"]
        check_pixels(width, height, n_bytes=n_bytes, max_pixels=max_pixels)
    if "mode" not in report:
        raise ChildError(report.get("error") or "decoding needs more than an image of its size may take")
    return Image.frombytes(report["mode"], tuple(report["size"]), pixels)


def _run(name: str, *, max_pixels: int, spare: int) -> tuple[dict[str, Any], memoryview]:
    """Run the child process on a file; return its report and the pixels, both empty if it hit a limit or crashed."""
    limits = map(str, (max_pixels, spare, BYTES_PER_PIXEL, SECONDS))
    command = [sys.executable, "-P", str(CHILD), os.path.abspath(name), ",".join(SANDBOXED), *limits]
    # one arena, because address space that is only reserved counts, too
    environment = os.environ | {"MALLOC_ARENA_MAX": "1", "PYTHONWARNINGS": "ignore"}
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    done = subprocess.run(command, stdin=null, stdout=pipe, stderr=null, env=environment, check=False)
    line, _, pixels = done.stdout.partition(b"\n")
    return (json.loads(line), memoryview(pixels)) if done.returncode == 0 else ({}, memoryview(b""))
