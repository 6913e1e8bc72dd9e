"""Images as the commands take them: a folder, one image, a list of paths or an array."""

from __future__ import annotations

import os
import re
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.features.images import ENDINGS, ImageFileError, list_images, read_image
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError, MissingFileError
from hashgrove.storage.matrices import read as read_array
from hashgrove.storage.matrices import read_matrix

__all__ = ["names_file", "read_image_input", "usable_images", "write_names"]


def read_image_input(path: str, *, or_matrix: bool = False) -> NDArray[Any] | list[str]:
    """Images of a command's argument: an array from a file, or the paths of a folder, one image or a list.

    With ``or_matrix`` the file may hold a matrix of features instead.
    """
    if os.path.isdir(path):
        found = list_images(path)
        if any(name.splitlines() != [name] for name in found):
            raise FileError(f"{path}: must hold no image with a line break in its name, for names are listed by line.")
        return found
    if path.lower().endswith((".csv", ".parquet")) and or_matrix:
        return read_matrix(path)
    if path.lower().endswith(ENDINGS):
        return [path]
    if not re.search(r"(?i)\.np[yz](:[^/\\]+)?$", path):
        return _read_list(path)
    array, _ = read_array(path, None)
    if (array.dtype != np.uint8 or array.ndim not in (3, 4)) and not (or_matrix and array.ndim == 2):
        raise FileError(
            f"{path}: images must be uint8 of shape (n, height, width) or (n, height, width, 3). "
            f"Got {array.dtype} of shape {array.shape} instead."
        )
    return array


def _read_list(path: str) -> list[str]:
    """Paths of a text file, one per line; a relative path starts from the folder of that file."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.rstrip("\r\n") for line in file]
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: no such file or folder") from error
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: must be images, or a text file with their paths. It cannot be read.") from error
    paths = [os.path.join(os.path.dirname(path), line) for line in lines if line.strip()]
    if not paths or any("\0" in line for line in paths):
        raise FileError(f"{path}: must be a text file with the path of an image on each line. Got none.")
    return paths


def usable_images(paths: list[str]) -> list[str]:
    """The files that are images; each of the others gives a warning."""
    usable = []
    for path in paths:
        try:
            read_image(path)
            usable.append(path)
        except ImageFileError as error:
            warnings.warn(f"{error}; skipped", stacklevel=2)
    if not usable:
        raise ImageFileError(f"{paths[0]} and the other files", "at least one of them must be an image. None is.")
    return usable


def names_file(output: str) -> str:
    """File with the names of the rows of ``output``: X.names.txt for X.npy.

    >>> names_file("X.npy")
    'X.names.txt'
    """
    return f"{os.path.splitext(output)[0]}.names.txt"


def write_names(output: str, names: list[str]) -> None:
    """Write the path of the image of each row of ``output``, one per line."""
    with atomic_write(names_file(output)) as file:
        file.write("".join(f"{name}\n" for name in names).encode(errors="surrogateescape"))
