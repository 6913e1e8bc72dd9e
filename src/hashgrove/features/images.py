"""Untrusted image files as 8-bit RGB; a file that Pillow cannot open is an error of one line.

`hashgrove.features.decoding` decodes one file. Pillow comes with the extra ``images``.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.features.decoding import decode
from hashgrove.features.image_limits import ImageLimitError
from hashgrove.runtime.parameters import Integer, OneOf, Several
from hashgrove.runtime.threads import run_tasks
from hashgrove.storage.formats import FileError, MissingFileError, PathLike, one_line

__all__ = [
    "MAX_PIXELS",
    "RESAMPLING",
    "ImageFileError",
    "count_pixels",
    "list_images",
    "read_image",
    "read_images",
    "resize_images",
]

MAX_PIXELS = 2**26  # 67 million: more than any camera has, and less than where Pillow starts to warn
RESAMPLING = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
ENDINGS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".dib", ".tif", ".tiff", ".webp", ".pbm", ".pgm", ".ppm",
    ".pnm", ".jp2", ".j2k", ".jpx", ".avif",
)  # fmt: skip
IMAGE_SIZE = Several(
    Integer(1, 2**15), low=2, high=2, or_one=True, or_none=True
)  # a side in pixels, or height and width
ON_ERROR = OneOf(("raise", "skip"))


class ImageFileError(FileError):
    """An image file that cannot be used. The message is one line: the file and the `reason`."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


class _MissingImageError(ImageFileError, MissingFileError):
    pass


def image_size_pair(size: Any, *, parameter: str = "image_size") -> tuple[int, int] | None:
    """Height and width from ``size``: one side for a square, a pair, or None.

    >>> image_size_pair(32)
    (32, 32)
    """
    IMAGE_SIZE.check(parameter, size)
    if size is None:
        return None
    height, width = size if isinstance(size, tuple | list) else (size, size)
    return int(height), int(width)


def read_image(
    path: PathLike,
    *,
    size: int | tuple[int, int] | None = None,
    resampling: str = "bilinear",
    max_pixels: int = MAX_PIXELS,
) -> NDArray[np.uint8]:
    """Read an image file as RGB; an animation gives its first frame.

    Palettes, grey, CMYK, Lab and black-and-white become RGB, transparency is laid over white, 16-bit values lose
    their lower byte, and the image is rotated as its EXIF orientation says.

    Parameters
    ----------
    path : path
    size : int, (int, int), optional
        Height and width of the result: the image is scaled until it covers them, and the centre is cut out.
    resampling : {"nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"}
        Filter of the scaling, as in Pillow: when an image shrinks, all of its pixels count.
    max_pixels : int
        A file that declares more pixels is refused before it is decoded. So is a file that declares more than 2 million
        pixels and 8,256 for each of its bytes.

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
    shape, name = image_size_pair(size, parameter="size"), os.fspath(path)
    filter_ = _filter(resampling)
    from PIL import ImageOps

    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            raise ImageFileError(name, "must be an image file. Got a folder or a device.")
        image = decode(name, max_pixels=max_pixels)
        if shape is not None and (image.height, image.width) != shape:
            image = ImageOps.fit(image, shape[::-1], method=filter_)
        return np.asarray(image)
    except ImageFileError:
        raise
    except ImageLimitError as error:
        raise ImageFileError(name, str(error)) from error
    except FileNotFoundError as error:
        raise _MissingImageError(name, "no such file") from error
    except Exception as error:  # Pillow's decoders raise nearly any type on damaged or hostile files
        reason = getattr(error, "strerror", None) or one_line(error)
        described = "its format is not supported" if reason.startswith("cannot identify image file") else reason
        raise ImageFileError(name, f"not an image, or one that is cut short or damaged: {described}") from error


def count_pixels(path: PathLike) -> int:
    """Number of pixels that a file says that its image has; only its header is read."""
    try:
        with _pillow().open(path) as image:
            return int(image.width * image.height)
    except (OSError, ValueError) as error:
        raise ImageFileError(os.fspath(path), f"cannot be read: {one_line(error)}") from error


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise FileError("Image files need Pillow: pip install 'hashgrove[images]'") from error
    return Image


def _filter(resampling: str) -> Any:
    OneOf(RESAMPLING).check("resampling", resampling)
    return getattr(_pillow().Resampling, resampling.upper())


def resize_images(
    images: NDArray[np.uint8], size: int | tuple[int, int], *, resampling: str = "bilinear"
) -> NDArray[np.uint8]:
    """Scale and cut the images of an array (n, height, width) or (n, height, width, 3), as `read_image` does.

    Examples
    --------
    >>> resize_images(np.full((1, 4, 6), 7, np.uint8), 2).tolist()
    [[[7, 7], [7, 7]]]
    """
    shape = image_size_pair(size, parameter="size")
    if shape is None or images.shape[1:3] == shape:
        return images
    Image, filter_ = _pillow(), _filter(resampling)
    from PIL import ImageOps

    resized = [ImageOps.fit(Image.fromarray(image), shape[::-1], method=filter_) for image in images]
    return np.stack([np.asarray(image) for image in resized])


def list_images(folder: PathLike) -> list[str]:
    """Sorted paths of the image files in a folder and in all folders below it.

    Images are recognised by the ending of their names. Hidden files are left out. Links to folders are not followed,
    because they may form a loop.

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
        raise FileError(f"{name}: must be a folder of images. Got something else.")

    def refuse(error: OSError) -> None:
        raise FileError(f"{error.filename}: cannot be read: {error.strerror}") from error

    found = [
        os.path.join(place, file)
        for place, _, files in os.walk(name, onerror=refuse)
        for file in files
        if not file.startswith(".") and os.path.splitext(file)[1].lower() in ENDINGS
    ]
    if not found:
        raise FileError(
            f"{name}: must hold image files. Got no name that ends in .jpg, .png or another ending of images."
        )
    return sorted(found)


def read_images(
    paths: Sequence[PathLike],
    *,
    size: int | tuple[int, int] | None = None,
    resampling: str = "bilinear",
    on_error: str = "raise",
    n_jobs: int | None = None,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read image files into an array; they must have one size or are resized to one.

    Parameters
    ----------
    paths : sequence of paths
    size, resampling
        As in `read_image`; without a size all images must have the same size.
    on_error : {"raise", "skip"}
        What happens if a file cannot be used: an error, or a warning that names the file.
    n_jobs : int, optional
        Number of threads; all cores by default.

    Returns
    -------
    images : uint8 array of shape (n, height, width, 3)
    kept : int64 array of shape (n,)
        Numbers of the ``paths`` that they come from.

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
    """Like `read_images`, but returns the errors of skipped files instead of giving warnings."""
    ON_ERROR.check("on_error", on_error)

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
                os.fspath(paths[number]),
                f"must be {images[0].shape[1]} x {images[0].shape[0]} pixels, as "
                f"{os.fspath(paths[kept[0]])} is. Got {image.shape[1]} x {image.shape[0]}; set a size for all.",
            )
    height, width = image_size_pair(size, parameter="size") or (0, 0)
    stacked = np.stack(images) if images else np.empty((0, height, width, 3), np.uint8)
    errors = [result for result in results if isinstance(result, ImageFileError)]
    return stacked, np.array(kept, np.int64), errors
