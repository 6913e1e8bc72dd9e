"""Images from files: every mode of Pillow, orientation, and the many ways in which a file can be none."""

from __future__ import annotations

import os
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from hashgrove.features.images import (
    ImageFileError,
    list_images,
    read_image,
    read_images,
    resize_images,
)
from hashgrove.storage.formats import FileError

RED, WHITE = [255, 0, 0], [255, 255, 255]


def photo(height=24, width=36, seed=0):
    """A smooth colour image, so that lossy formats keep it."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (3, 4, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def png(width, height):
    """A PNG that declares a size and has hardly any data."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def refused(path, match, **settings):
    with pytest.raises(ImageFileError, match=match) as caught:
        read_image(path, **settings)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("ending", ["png", "bmp", "tif", "ppm"])
def test_lossless_formats_give_the_pixels(tmp_path, ending):
    image = photo()
    image.save(tmp_path / f"a.{ending}")
    result = read_image(tmp_path / f"a.{ending}")
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, np.asarray(image))


@pytest.mark.parametrize("ending", ["jpg", "webp"])
def test_lossy_formats_come_near(tmp_path, ending):
    photo().save(tmp_path / f"a.{ending}", quality=95)
    result = read_image(tmp_path / f"a.{ending}").astype(int)
    assert np.abs(result - np.asarray(photo())).mean() < 4


@pytest.mark.parametrize(
    ("mode", "ending"),
    [("1", "png"), ("L", "png"), ("P", "png"), ("CMYK", "tif"), ("CMYK", "jpg"), ("LAB", "tif"), ("YCbCr", "jpg")],
)
def test_modes_become_rgb_as_pillow_has_it(tmp_path, mode, ending):
    image = photo().convert(mode) if mode != "LAB" else Image.new("LAB", (3, 2), (128, 128, 128))
    image.save(tmp_path / f"a.{ending}")
    result = read_image(tmp_path / f"a.{ending}")
    with Image.open(tmp_path / f"a.{ending}") as again:
        np.testing.assert_array_equal(result, np.asarray(again.convert("RGB")))
    assert result.shape == (image.height, image.width, 3)


def test_transparency_is_laid_over_white(tmp_path):
    pixels = np.array([[[255, 0, 0, 255], [255, 0, 0, 0], [0, 0, 0, 128]]], np.uint8)
    Image.fromarray(pixels, "RGBA").save(tmp_path / "rgba.png")
    assert read_image(tmp_path / "rgba.png").tolist() == [[RED, WHITE, [127, 127, 127]]]
    Image.fromarray(pixels[..., [0, 3]], "LA").save(tmp_path / "la.png")
    assert read_image(tmp_path / "la.png").tolist()[0][:2] == [WHITE, WHITE]
    palette = Image.new("P", (2, 1))
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.putpixel((1, 0), 1)
    palette.save(tmp_path / "p.png", transparency=1)
    assert read_image(tmp_path / "p.png").tolist() == [[RED, WHITE]]
    Image.new("RGB", (1, 1), (1, 2, 3)).save(tmp_path / "key.png", transparency=(1, 2, 3))
    assert read_image(tmp_path / "key.png").tolist() == [[WHITE]]


def test_more_than_eight_bits(tmp_path):
    values = np.array([[0, 255, 256, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    Image.fromarray(values).save(tmp_path / "a.tif")
    for name in ("a.png", "a.tif"):
        assert read_image(tmp_path / name)[0, :, 0].tolist() == [0, 0, 1, 255]
    for values, expected in (([[0, 0.5, 1]], [0, 128, 255]), ([[-3, 200, np.inf]], [0, 200, 255])):
        Image.fromarray(np.array(values, np.float32)).save(tmp_path / "f.tif")
        assert read_image(tmp_path / "f.tif")[0, :, 2].tolist() == expected


def test_orientation_is_applied(tmp_path):
    image = photo()
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    image.save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), np.rot90(np.asarray(image), -1))


def test_the_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("RGB", (4, 3), colour) for colour in ("red", "blue", "green")]
    for name in ("a.gif", "a.webp", "a.tif"):
        lossless = {"lossless": True} if name == "a.webp" else {}
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], **lossless)
        assert read_image(tmp_path / name)[0, 0].tolist() == RED


def test_size_covers_and_cuts_the_middle(tmp_path):
    pixels = np.zeros((4, 12, 3), np.uint8)
    pixels[:, 4:8] = 255  # the middle square is white
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png", size=4).min() == 255
    assert read_image(tmp_path / "a.png", size=(2, 6), resampling="box").tolist()[0][:3] == [[0] * 3, [0] * 3, WHITE]
    np.testing.assert_array_equal(resize_images(pixels[None], 4)[0], read_image(tmp_path / "a.png", size=4))
    for size in (0, 2.5, True, (3,), "8"):
        with pytest.raises(ValueError, match="'size' parameter must be"):
            read_image(tmp_path / "a.png", size=size)
    with pytest.raises(ValueError, match="'resampling' parameter must be one of"):
        read_image(tmp_path / "a.png", resampling="sinc")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "not an image"),
        (b"this is text\n" * 100, "not an image"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 50, "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 5\n%%EndComments\nshowpage\n", "not an image"),
        (png(10, 10), "cut short or damaged"),
        (png(2**15, 2**12), r"at most 67108864 pixels. Got 32768 x 4096"),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_what_is_no_image(tmp_path, content, match):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    refused(path, match)


def test_a_bomb_is_refused_before_it_is_decoded(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "bomb.png"
    path.write_bytes(png(2**17, 2**17))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(path, "bomb|pixels")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB
    photo().save(path)
    refused(path, "at most 800 pixels. Got 36 x 24", max_pixels=800)


@pytest.mark.parametrize("ending", ["jpg", "png", "gif", "tif", "webp", "bmp"])
def test_truncated_files(tmp_path, ending):
    photo(60, 90).save(tmp_path / f"whole.{ending}")
    content = (tmp_path / f"whole.{ending}").read_bytes()
    path = tmp_path / f"cut.{ending}"
    for share in (0.1, 0.5, 0.8):
        path.write_bytes(content[: int(len(content) * share)])
        refused(path, "cut short or damaged")


def test_links_folders_and_missing_files(tmp_path):
    os.symlink(tmp_path / "loop.png", tmp_path / "loop.png")
    refused(tmp_path / "loop.png", "symbolic links")
    refused(tmp_path, "folder")
    assert isinstance(refused(tmp_path / "no.png", "no such file"), FileNotFoundError)
    os.mkfifo(tmp_path / "pipe.png")
    refused(tmp_path / "pipe.png", "device")


def test_list_images(tmp_path):
    (tmp_path / "b" / "c").mkdir(parents=True)
    for name in ("z.png", "b/y.JPEG", "b/c/x.webp", "b/notes.txt", ".hidden.png"):
        (tmp_path / name).touch()
    os.symlink(tmp_path, tmp_path / "b" / "round")  # a loop of folders
    os.symlink(tmp_path / "nowhere.gif", tmp_path / "broken.gif")  # reading says what is wrong with it
    names = [os.path.relpath(path, tmp_path) for path in list_images(tmp_path)]
    assert names == ["b/c/x.webp", "b/y.JPEG", "broken.gif", "z.png"]
    (tmp_path / "b/c/x.webp").unlink()
    with pytest.raises(FileError, match="must hold image files"):
        list_images(tmp_path / "b" / "c")
    with pytest.raises(FileError, match="must be a folder"):
        list_images(tmp_path / "z.png")


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_read_images(tmp_path, n_jobs):
    paths = []
    for number in range(5):
        paths.append(tmp_path / f"{number}.png")
        photo(seed=number).save(paths[-1])
    images, kept = read_images(paths, n_jobs=n_jobs)
    assert kept.tolist() == [0, 1, 2, 3, 4]
    for number in range(5):
        np.testing.assert_array_equal(images[number], np.asarray(photo(seed=number)))
    paths[2].write_bytes(b"no image")
    with pytest.raises(ImageFileError, match=r"2\.png: not an image"):
        read_images(paths, n_jobs=n_jobs)
    with pytest.warns(UserWarning, match=r"2\.png: not an image.*; skipped"):
        some, kept = read_images(paths, on_error="skip", n_jobs=n_jobs)
    assert kept.tolist() == [0, 1, 3, 4]
    np.testing.assert_array_equal(some, images[kept])
    photo(10, 10).save(paths[2])
    with pytest.raises(ImageFileError, match=r"2\.png: must be 36 x 24 pixels, as .*0\.png is. Got 10 x 10"):
        read_images(paths, n_jobs=n_jobs)
    assert read_images(paths, size=8, n_jobs=n_jobs)[0].shape == (5, 8, 8, 3)
    with pytest.raises(ValueError, match="'on_error' parameter"):
        read_images(paths, on_error="ignore")


def test_without_pillow_an_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(FileError, match=r"pip install 'hashgrove\[images\]'"):
        read_image(tmp_path / "a.png")
