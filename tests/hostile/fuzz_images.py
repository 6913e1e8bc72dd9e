"""Image files for tests/hostile/fuzz.py, and the functions that read them."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
from fuzz_seeds import RNG, Seed


def saved(image, format_, **settings):
    buffer = io.BytesIO()
    image.save(buffer, format_, **settings)
    return Seed(buffer.getvalue())


def pictures():
    """A small image of random colours, and a larger one that compresses well."""
    from PIL import Image

    random = Image.fromarray(RNG.integers(0, 256, (9, 7, 3), dtype=np.uint8))
    return random, Image.new("RGB", (700, 500), "red")


def image_seeds():
    from PIL import Image

    random, plain = pictures()
    for format_ in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"):
        yield saved(random, format_)
    yield saved(random.convert("P"), "PNG")
    yield saved(random.convert("CMYK"), "JPEG")
    yield saved(random.convert("1"), "TIFF")
    yield saved(Image.fromarray(RNG.integers(0, 2**16, (5, 4)).astype(np.uint16)), "PNG")
    yield saved(plain, "JPEG", progressive=True)
    yield saved(plain.convert("RGBA"), "PNG")
    yield saved(plain.convert("1"), "TIFF", compression="group4")
    yield saved(plain, "TIFF", compression="tiff_adobe_deflate")
    yield saved(plain.convert("RGBA"), "WEBP", lossless=True)
    yield saved(plain, "WEBP", save_all=True, append_images=[plain.rotate(90)])
    yield Seed(tiled_tiff())


def tiled_tiff():
    """A TIFF file of one tile, 16 x 16, larger than the image; Pillow writes none."""
    data = zlib.compress(bytes(range(256)))
    values = {
        256: 9,
        257: 7,
        258: 8,
        259: 8,
        262: 1,
        277: 1,
        322: 16,
        323: 16,
        324: 8 + 2 + 12 * 10 + 4,
        325: len(data),
    }
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items())
    return b"II*\0" + struct.pack("<IH", 8, len(values)) + entries + bytes(4) + data


def sandbox_seeds():
    decoders()
    random, plain = pictures()
    for image in (random, plain.convert("RGBA").resize((70, 50))):
        yield saved(image, "AVIF")
        yield saved(image, "JPEG2000")
    yield saved(random, "JPEG2000", tile_size=(4, 4), codeblock_size=(4, 4), no_jp2=True)


def memory_of_pixels(path):
    """32 bytes for each pixel that a file declares, if it may declare so many; what docs/formats.md allows."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels = image.width * image.height
    except Exception:  # the reader will say what is wrong
        return 0
    return 32 * pixels if pixels <= 2**21 + 8256 * path.stat().st_size else 0


def read_one(path):
    from hashgrove.features.images import read_image

    read_image(path, size=8)


def read_in_sandbox(path):
    """Read an image; the decoder runs in a copy of a small process, since a new one would take 80 ms per file."""
    from hashgrove.features import sandbox

    with patch.object(sandbox.subprocess, "run", run_in_copy):
        read_one(path)


@cache
def decoders():
    """A process of tests/hostile/fuzz_sandbox.py."""
    from hashgrove.features import sandbox

    command = [sys.executable, os.fspath(Path(__file__).with_name("fuzz_sandbox.py")), os.fspath(sandbox.CHILD)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_in_copy(command, **settings):
    """Do what `subprocess.run` would do with the command of a decoder."""
    arguments = command[command.index(decoders().args[-1]) + 1 :]
    output = Path(f"{arguments[0]}.pixels")
    print(json.dumps([os.fspath(output), *arguments]), file=decoders().stdin, flush=True)
    status = int(decoders().stdout.readline())
    return subprocess.CompletedProcess(command, status, output.read_bytes())
