"""Images from files, which are untrusted: everything that Pillow can open becomes 8-bit RGB, or one line of error.

The size that a file declares is compared with a limit before a pixel is decoded, and formats that need another program
(PostScript) are not opened at all. Pillow is the extra ``images``.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.threads import run_tasks
from hashgrove.storage.formats import FileError, MissingFileError, PathLike, one_line

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["MAX_PIXELS", "RESAMPLING", "ImageFileError", "list_images", "read_image", "read_images", "resize_images"]

MAX_PIXELS = 2**26  # 67 million: above any camera's, below where Pillow itself begins to warn
RESAMPLING = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF")
ENDINGS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".dib", ".tif", ".tiff", ".webp", ".pbm", ".pgm", ".ppm",
    ".pnm", ".jp2", ".j2k", ".jpx", ".avif",
)  # fmt: skip


class ImageFileError(FileError):
    """An image file that cannot be used; one line that names the file and says why."""


class _MissingImageError(ImageFileError, MissingFileError):
    pass


def check_size(size: Any, *, parameter: str = "size") -> tuple[int, int] | None:
    """Height and width of ``size``: an integer for a square, a pair, or None."""
    if size is None:
        return None
    pair = tuple(size) if isinstance(size, tuple | list) else (size, size)
    whole = all(isinstance(side, int | np.integer) and not isinstance(side, bool) for side in pair)
    if len(pair) != 2 or not whole or not all(1 <= side <= 2**15 for side in pair):
        raise ValueError(
            f"The {parameter!r} parameter must be None, a number of pixels from 1 to {2**15}, or a pair "
            f"(height, width) of them. Got {size!r} instead."
        )
    return int(pair[0]), int(pair[1])


def read_image(
    path: PathLike,
    *,
    size: int | tuple[int, int] | None = None,
    resampling: str = "bilinear",
    max_pixels: int = MAX_PIXELS,
) -> NDArray[np.uint8]:
    """Read an image file as RGB; of an animation, the first frame.

    Palettes, grey, CMYK, Lab and black-and-white become RGB, transparency is laid over white, 16-bit values lose
    their lower byte, and the image is turned as its EXIF orientation says.

    Parameters
    ----------
    path : path
    size : int, (int, int), optional
        Height and width; the image is scaled until it covers them, and the middle is cut out.
    resampling : {"nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"}
        How it is scaled; as Pillow does it, an image that shrinks is averaged.
    max_pixels : int
        A file that declares more is refused before it is decoded.

    Returns
    -------
    uint8 array of shape (height, width, 3)

    Raises
    ------
    ImageFileError

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> path = tempfile.mkdtemp() + "/red.png"
    >>> Image.new("RGB", (6, 4), "red").save(path)
    >>> read_image(path).shape, read_image(path, size=2).tolist()[0]
    ((4, 6, 3), [[255, 0, 0], [255, 0, 0]])
    """
    shape, name = check_size(size), os.fspath(path)
    Image = _pillow()
    filter_ = _filter(resampling)
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            raise ImageFileError(f"{name}: must be an image file. Got a folder or a device.")
        with Image.open(name, formats=_formats()) as image:
            if image.width * image.height > max_pixels:
                raise ImageFileError(
                    f"{name}: must have at most {max_pixels} pixels. Got {image.width} x {image.height}."
                )
            return _pixels(image, shape, filter_)
    except ImageFileError:
        raise
    except FileNotFoundError as error:
        raise _MissingImageError(f"{name}: no such file") from error
    except Exception as error:  # Pillow's decoders let out nearly any type on damaged or hostile files
        reason = getattr(error, "strerror", None) or one_line(error).removeprefix("cannot identify image file")
        described = reason if reason and name not in reason else "no format that is read here"
        raise ImageFileError(f"{name}: not an image, or one that is cut short or damaged: {described}") from error


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise FileError("Image files need Pillow: pip install 'hashgrove[images]'") from error
    return Image


@lru_cache(maxsize=1)
def _formats() -> tuple[str, ...]:
    """Those of FORMATS that this build of Pillow has."""
    Image = _pillow()
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _filter(resampling: str) -> Any:
    if resampling not in RESAMPLING:
        raise ValueError(f"The 'resampling' parameter must be one of {list(RESAMPLING)}. Got {resampling!r} instead.")
    return getattr(_pillow().Resampling, resampling.upper())


def _pixels(image: Image.Image, shape: tuple[int, int] | None, filter_: Any) -> NDArray[np.uint8]:
    from PIL import ImageOps

    image.load()
    rgb = _rgb(ImageOps.exif_transpose(image))
    if shape is not None and (rgb.height, rgb.width) != shape:
        rgb = ImageOps.fit(rgb, shape[::-1], method=filter_)
    return np.asarray(rgb)


def _rgb(image: Image.Image) -> Image.Image:
    Image = _pillow()
    if image.mode == "F" or image.mode.startswith("I"):
        image = Image.fromarray(_eight_bits(np.asarray(image), is_float=image.mode == "F"))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        # from premultiplied alpha Pillow knows the way to the same colours only
        straight = {"La": "LA", "RGBa": "RGBA"}.get(image.mode)
        rgba = (image.convert(straight) if straight else image).convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(values: NDArray[Any], *, is_float: bool) -> NDArray[np.uint8]:
    """Integers are of 16 bits; real numbers go from 0 to 1 or, where one is above 1, to 255."""
    if not is_float:
        return (np.clip(values, 0, 2**16 - 1).astype(np.uint16) >> 8).astype(np.uint8)
    values = np.nan_to_num(values, nan=0.0, posinf=255.0, neginf=0.0)
    return np.clip(np.rint(values * (1 if values.max(initial=0) > 1 else 255)), 0, 255).astype(np.uint8)


def resize_images(
    images: NDArray[np.uint8], size: int | tuple[int, int], *, resampling: str = "bilinear"
) -> NDArray[np.uint8]:
    """Images of an array, shape (n, height, width) or (n, height, width, 3), scaled and cut as by `read_image`.

    Examples
    --------
    >>> resize_images(np.full((1, 4, 6), 7, np.uint8), 2).tolist()
    [[[7, 7], [7, 7]]]
    """
    shape = check_size(size)
    if shape is None or images.shape[1:3] == shape:
        return images
    Image, filter_ = _pillow(), _filter(resampling)
    from PIL import ImageOps

    resized = [ImageOps.fit(Image.fromarray(image), shape[::-1], method=filter_) for image in images]
    return np.stack([np.asarray(image) for image in resized])


def list_images(folder: PathLike) -> list[str]:
    """Paths of the image files in a folder and all folders in it, sorted; known by their ending.

    Hidden files are left out, and links to folders are not followed, so that a loop of them has an end.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("b.png", "a.JPG", "notes.txt"):
    ...     (folder / name).touch()
    >>> [pathlib.Path(path).name for path in list_images(folder)]
    ['a.JPG', 'b.png']
    """
    name = os.fspath(folder)
    if not os.path.isdir(name):
        raise FileError(f"{name}: must be a folder of images. Got no folder.")

    def refuse(error: OSError) -> None:
        raise FileError(f"{error.filename}: cannot be read: {error.strerror}") from error

    found = [
        os.path.join(place, file)
        for place, _, files in os.walk(name, onerror=refuse)
        for file in files
        if not file.startswith(".") and os.path.splitext(file)[1].lower() in ENDINGS
    ]
    if not found:
        raise FileError(f"{name}: must hold image files. Got none that ends as an image does.")
    return sorted(found)


def read_images(
    paths: Sequence[PathLike],
    *,
    size: int | tuple[int, int] | None = None,
    resampling: str = "bilinear",
    on_error: str = "raise",
    n_jobs: int | None = None,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read image files of one size, or that are brought to one, into an array.

    Parameters
    ----------
    paths : sequence of paths
    size, resampling
        As in `read_image`; without a size the images must have the same one.
    on_error : {"raise", "skip"}
        What becomes of a file that cannot be used: an error, or a warning that names it.
    n_jobs : int, optional

    Returns
    -------
    images : uint8 array of shape (n, height, width, 3)
    kept : int64 array of shape (n,)
        Which of ``paths`` they are.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> path = tempfile.mkdtemp() + "/grey.png"
    >>> Image.new("L", (6, 4), 9).save(path)
    >>> images, kept = read_images([path, path])
    >>> images.shape, kept.tolist()
    ((2, 4, 6, 3), [0, 1])
    """
    images, kept, errors = try_images(paths, size=size, resampling=resampling, on_error=on_error, n_jobs=n_jobs)
    for error in errors:
        warnings.warn(f"{error}; skipped", UserWarning, stacklevel=2)
    return images, kept


def try_images(
    paths: Sequence[PathLike],
    *,
    size: int | tuple[int, int] | None,
    resampling: str,
    on_error: str,
    n_jobs: int | None = 1,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[ImageFileError]]:
    """As `read_images`, with the errors of the files that are skipped instead of warnings."""
    check_on_error(on_error)

    def attempt(path: PathLike) -> NDArray[np.uint8] | ImageFileError:
        try:
            return read_image(path, size=size, resampling=resampling)
        except ImageFileError as error:
            if on_error == "raise":
                raise
            return error

    results = run_tasks(attempt, [(path,) for path in paths], n_jobs=n_jobs)
    kept = [number for number, result in enumerate(results) if not isinstance(result, ImageFileError)]
    images = [results[number] for number in kept]
    for number, image in zip(kept, images, strict=True):
        if image.shape != images[0].shape:
            raise ImageFileError(
                f"{os.fspath(paths[number])}: must be {images[0].shape[1]} x {images[0].shape[0]} pixels, as "
                f"{os.fspath(paths[kept[0]])} is. Got {image.shape[1]} x {image.shape[0]}; give a size for all."
            )
    height, width = check_size(size) or (0, 0)
    stacked = np.stack(images) if images else np.empty((0, height, width, 3), np.uint8)
    errors = [result for result in results if isinstance(result, ImageFileError)]
    return stacked, np.array(kept, np.int64), errors


def check_on_error(on_error: str) -> None:
    """Refuse anything but "raise" and "skip"."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f"The 'on_error' parameter must be 'raise' or 'skip'. Got {on_error!r} instead.")
