"""Hostile image files: what a file may ask for is known before it is decoded, and bounded as docs/formats.md says."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from fuzz_images import tiled_tiff
from PIL import Image, features

from hashgrove.features.image_limits import ImageLimitError, check_pixels
from hashgrove.features.images import MAX_PIXELS, ImageFileError, read_image

SOF0, SOF2, SOS = b"\xff\xc0", b"\xff\xc2", b"\xff\xda"
JPEG2000 = pytest.mark.skipif(not features.check("jpg_2000"), reason="Pillow without JPEG 2000")
AVIF = pytest.mark.skipif(not features.check("avif"), reason="Pillow without AVIF")
LINUX = pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs /proc and RLIMIT_AS")

PEAKS = """
import os, sys
from pathlib import Path
from PIL import Image
from hashgrove.features.images import read_image

def status(key):
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key)]
    return int(line.split()[1]) * 1024

Image.new("RGB", (8, 8)).save("first.png")
read_image("first.png", size=4)  # imports what is needed
for name in sys.argv[1:]:
    if process := os.fork():
        os.waitpid(process, 0)
        continue
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = status("VmRSS")
    read_image(name, size=8)
    print(name, status("VmHWM") - before, flush=True)
    os._exit(0)
"""

CHILD_PEAK = """
import runpy, sys
from pathlib import Path

sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
[line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(int(line.split()[1]) * 1024, file=sys.stderr)
"""


def peaks(folder, names):
    """The memory that reading each image takes, in processes that keep no memory of an image before it."""
    command = [sys.executable, "-c", PEAKS, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return {name: int(peak) for name, peak in map(str.split, done.stdout.splitlines())}


def child_peak(path, monkeypatch):
    """Memory of the process that decodes a file in the sandbox; one that decodes a tiny file is taken off."""
    peaks, run = [], subprocess.run

    def measured(command, **settings):
        command = [command[0], "-c", CHILD_PEAK, *command[2:]]
        done = run(command, **settings | {"stderr": subprocess.PIPE})
        peaks.append(int(done.stderr) if done.returncode == 0 else 0)
        return done

    tiny = path.with_name("tiny")
    tiny.write_bytes(saved(Image.new("RGB", (8, 8)), "JPEG2000"))
    monkeypatch.setattr(subprocess, "run", measured)
    for file in (tiny, path):
        with suppress(ImageFileError):
            read_image(file)
    return peaks[1] - peaks[0]


def bound(path, n_pixels):
    return 2**26 + 4 * path.stat().st_size + 32 * n_pixels


def saved(image, format_, **settings):
    buffer = io.BytesIO()
    image.save(buffer, format_, **settings)
    return buffer.getvalue()


def jpeg(width, height, *, n_scans=0):
    """A progressive JPEG of 16 x 16 pixels that declares another size, with more scans than it needs."""
    content = bytearray(saved(Image.new("RGB", (16, 16)), "JPEG", progressive=True))
    place = content.index(SOF2)
    content[place + 5 : place + 9] = struct.pack(">HH", height, width)
    last = bytes(content[content.rindex(SOS) : -2])
    return bytes(content[:-2]) + last * n_scans + b"\xff\xd9"


def refused(path, content, match):
    path.write_bytes(content)
    with pytest.raises(ImageFileError, match=match) as caught:
        read_image(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_few_bytes_cannot_declare_millions_of_pixels(tmp_path):
    refused(tmp_path / "a.jpg", jpeg(8000, 8000), r"at most \d+ pixels, as it has \d+ bytes\. Got 8000 x 8000")
    blank = saved(Image.new("RGBA", (4000, 4000), "red"), "WEBP", save_all=True, lossless=True)
    refused(tmp_path / "a.webp", blank, r"pixels, as it has \d+ bytes")


def test_the_limits_of_pixels_include_the_last_one(tmp_path):
    path, n_bytes = tmp_path / "a.png", 100
    path.write_bytes(saved(Image.new("RGB", (36, 24)), "PNG"))
    assert read_image(path, max_pixels=36 * 24).shape == (24, 36, 3)
    with pytest.raises(ImageFileError, match=r"at most 863 pixels\. Got 36 x 24"):
        read_image(path, max_pixels=36 * 24 - 1)
    most = 2**21 + 8256 * n_bytes
    check_pixels(1, most, n_bytes=n_bytes, max_pixels=MAX_PIXELS)
    with pytest.raises(ImageLimitError, match=f"at most {most} pixels, as it has 100 bytes"):
        check_pixels(1, most + 1, n_bytes=n_bytes, max_pixels=MAX_PIXELS)


@pytest.mark.parametrize("mode", ["1", "L", "RGB"])
def test_blank_pages_are_read(tmp_path, mode):
    """Deflate packs a blank page as densely as the limit allows."""
    Image.new(mode, (5000, 5000)).save(tmp_path / "blank.png")
    assert read_image(tmp_path / "blank.png", size=4).tolist() == np.zeros((4, 4, 3)).tolist()


def test_a_tile_may_be_larger_than_its_image_but_not_by_far(tmp_path):
    path = tmp_path / "a.tif"
    path.write_bytes(tiled_tiff())
    assert read_image(path).shape == (7, 9, 3)
    wide = struct.pack("<HHII", 322, 4, 1, 16), struct.pack("<HHII", 322, 4, 1, 32768)
    long = struct.pack("<HHII", 323, 4, 1, 16), struct.pack("<HHII", 323, 4, 1, 16384)
    refused(path, tiled_tiff().replace(*wide).replace(*long), r"tiles of at most 67108864 pixels\. Got 32768 x 16384")


def test_a_jpeg_file_has_a_limited_number_of_scans(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(16, 16, n_scans=50))
    assert read_image(path).shape == (16, 16, 3)
    refused(path, jpeg(16, 16, n_scans=100), "at most 100 scans")


def test_scans_are_counted_in_the_image_itself_only(tmp_path):
    """A comment, a thumbnail or a film behind the image may have the same bytes."""
    path = tmp_path / "a.jpg"
    plain = saved(Image.new("RGB", (16, 16)), "JPEG")
    comment = b"\xff\xfe" + struct.pack(">H", 2 + 2 * 500) + SOS * 500
    path.write_bytes(plain[:2] + comment + plain[2:] + SOS * 500)
    assert read_image(path).shape == (16, 16, 3)


@LINUX
def test_memory_is_bounded_by_the_pixels(tmp_path):
    """A photograph of 50 megapixels, and formats and modes that take much memory."""
    noise = np.random.default_rng(0).integers(0, 256, (700, 715, 4), dtype=np.uint8)
    small = Image.fromarray(noise).resize((2145, 2100), Image.Resampling.NEAREST)
    large = Image.fromarray(noise[..., :3]).resize((7150, 7000), Image.Resampling.NEAREST)
    made = {
        "photo.jpg": saved(large, "JPEG"),
        "cmyk.jpg": saved(small.convert("CMYK"), "JPEG", progressive=True, subsampling=0),
        "rgba.webp": saved(small, "WEBP", lossless=True, method=0),
        "rgba.png": saved(small, "PNG", compress_level=1),
        "float.tif": saved(small.convert("F"), "TIFF"),
    }
    for name, content in made.items():
        (tmp_path / name).write_bytes(content)
    measured = peaks(tmp_path, made)
    assert measured.keys() == made.keys()
    for name, peak in measured.items():
        image = large if name == "photo.jpg" else small
        n_pixels = image.width * image.height
        assert 3 * n_pixels < peak <= bound(tmp_path / name, n_pixels), name


@LINUX
@JPEG2000
@pytest.mark.parametrize("settings", [{}, {"tile_size": (8, 8)}], ids=str)
def test_jpeg2000_cannot_take_more_than_other_formats(tmp_path, monkeypatch, settings):
    """Small tiles ask for 195 bytes per pixel."""
    path = tmp_path / "a.j2k"
    path.write_bytes(saved(Image.new("RGB", (1500, 1500), "red"), "JPEG2000", no_jp2=True, **settings))
    assert child_peak(path, monkeypatch) <= bound(path, 1500 * 1500)
    monkeypatch.undo()
    if settings:
        refused(path, path.read_bytes(), "cut short or damaged")
    else:
        assert read_image(path, size=1).tolist() == [[[255, 0, 0]]]


@LINUX
@AVIF
def test_an_avif_file_with_two_sizes(tmp_path):
    """The container says 16 x 16, and the picture in it has 64 million pixels."""
    content = bytearray(saved(Image.new("RGB", (8000, 8000), "red"), "AVIF", speed=10))
    place = content.index(b"ispe") + 8
    content[place : place + 8] = struct.pack(">II", 16, 16)
    refused(tmp_path / "a.avif", content, "cut short or damaged")


@pytest.mark.parametrize(
    ("format_", "settings"),
    [
        pytest.param("JPEG2000", {"irreversible": False}, marks=JPEG2000),
        pytest.param("AVIF", {"quality": 100, "subsampling": "4:4:4"}, marks=AVIF),
    ],
)
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_a_child_process_gives_the_same_pixels(tmp_path, format_, settings, mode):
    pixels = np.random.default_rng(1).integers(0, 256, (9, 7, 4), dtype=np.uint8)
    pixels[..., 3] = 255
    path = tmp_path / "image"
    path.write_bytes(saved(Image.fromarray(pixels).convert(mode), format_, **settings))
    with Image.open(path) as image:
        np.testing.assert_array_equal(read_image(path), np.asarray(image.convert("RGB")))


@AVIF
def test_a_child_process_turns_the_image(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.new("RGB", (6, 4), "red")
    path = tmp_path / "a.avif"
    path.write_bytes(saved(image, "AVIF", exif=exif))
    assert read_image(path).shape == (6, 4, 3)


@pytest.mark.parametrize(
    "content", [b"\xff\x4f\xff\x51" + bytes(50), b"\0\0\0\x1cftypavif" + bytes(40), b"\0\0\0\x18ftypheic"]
)
def test_what_the_child_cannot_decode(tmp_path, content):
    refused(tmp_path / "image", content, "not an image, or one that is cut short or damaged")


@JPEG2000
def test_the_child_is_found_from_any_folder_and_by_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("PIL.py").write_text("raise ImportError('a file of the working folder must not be imported')")
    Path("-c.jp2").write_bytes(saved(Image.new("RGB", (6, 4), "red"), "JPEG2000"))
    assert read_image("-c.jp2").shape == (4, 6, 3)


def test_text_in_a_png_file_is_bounded(tmp_path):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    bomb = chunk(b"zTXt", b"x\0\0" + zlib.compress(bytes(2**27), 9))
    plain = saved(Image.new("RGB", (4, 4)), "PNG")
    refused(tmp_path / "a.png", plain[:33] + bomb + plain[33:], "too large")


@LINUX
def test_a_chunk_cannot_be_longer_than_its_file(tmp_path):
    """Python allocates as many bytes as are asked for before it reads; the length is in the file."""
    content = bytearray(saved(Image.new("RGB", (4, 4)), "PNG"))
    place = content.index(b"IDAT")
    content[place - 4 : place] = struct.pack(">I", 2**31 - 1)
    path = tmp_path / "a.png"
    path.write_bytes(content)
    code = """
import resource, sys
from PIL import Image
from hashgrove.features.images import ImageFileError, read_image
Image.new("RGB", (8, 8)).save("first.png")
read_image("first.png", size=4)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26))
try:
    read_image("a.png")
except ImageFileError as error:
    print(type(error.__cause__).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "MemoryError" not in done.stdout
