"""What the commands read: files checked against each other before long work; errors name the file."""

from __future__ import annotations

import math
import os
import re
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Encoder
from hashgrove.features import FeatureExtractor, ImageEncoder
from hashgrove.features import load as load_extractor
from hashgrove.features.images import ENDINGS, ImageFileError, list_images, read_image
from hashgrove.hasher import load
from hashgrove.runtime.progress import image_progress
from hashgrove.runtime.threads import chunks
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError, MissingFileError
from hashgrove.storage.formats import read as read_array
from hashgrove.storage.matrices import read_codes, read_labels, read_matrix, read_table

__all__ = [
    "check_output",
    "encode_file",
    "names_file",
    "read_database",
    "read_extractor",
    "read_image_input",
    "read_rows_labels",
    "read_training",
    "usable_images",
    "write_names",
]

CHUNK_BYTES = 2**26  # of features that are read and encoded at a time


def check_output(path: str, *, inputs: Iterable[str | None]) -> None:
    """Refuse an output file that could not be written, or that is an input, before any work is done."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise FileError(f"{path}: cannot be written: there is no folder {folder}")
    if os.path.exists(path) and not os.path.isfile(path):
        raise FileError(f"{path}: must be a regular file. Got a folder or a device.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(f"{path}: cannot be written: no permission to write in the folder {folder}")
    for name in filter(None, inputs):
        file = re.sub(r"(?i)(\.npz):[^/\\]+$", r"\1", name)
        if os.path.exists(path) and os.path.exists(file) and os.path.samefile(path, file):
            raise FileError(f"{path}: must not be the input file {name} itself. Give another output.")


def read_training(
    features: str, labels: str | None, label_column: str | None, pairs: str | None
) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]:
    """Features, with labels or tags (from a file or a column) or with pairs; one of these two is None."""
    X, y = read_table(features, label_column=label_column)
    check_finite(features, X)
    if pairs is not None:
        affinity = read_matrix(pairs)
        check_finite(pairs, affinity)
        return X, None, affinity
    if labels is not None:
        y = read_rows_labels(labels, rows=len(X), of=features)
    elif y is not None:
        check_finite(features, y)
    return X, y, None


def read_rows_labels(path: str, *, rows: int, of: str) -> NDArray[Any]:
    """Class labels, shape (rows,), or tags, shape (rows, tags), of the rows of another file."""
    labels = read_labels(path)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if len(labels) != rows:
        raise FileError(f"{path}: must have {rows} rows, one for each row of {of}. Got {len(labels)} instead.")
    check_finite(path, labels)
    return labels


def read_database(
    codes: str, queries: str, model: str | None, *, n_jobs: int | None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Codes of the database and of the queries, which are features where a model is given."""
    database = _read_packed(codes, advice="encode them first")
    if model is None:
        found = _read_packed(queries, advice="give --model")
        if found.shape[1] != database.shape[1]:
            raise FileError(
                f"{queries}: codes must have {database.shape[1]} bytes a row, as {codes} has. "
                f"Got {found.shape[1]} instead; if they are features, give --model."
            )
        return database, found
    encoder = load(model)
    width = (encoder.n_bits + 7) // 8
    if database.shape[1] != width:
        raise FileError(
            f"{codes}: codes must have {width} bytes a row, as the {encoder.n_bits} bits of {model} make. "
            f"Got {database.shape[1]} instead."
        )
    return database, encode_file(encoder, queries, model=model, n_jobs=n_jobs)[0]


def _read_packed(path: str, *, advice: str) -> NDArray[np.uint8]:
    """Packed codes; real numbers are refused even where they are whole, for they are features."""
    if not path.lower().endswith(".csv"):
        matrix = read_matrix(path)
        if matrix.dtype != np.uint8:
            raise FileError(
                f"{path}: must be packed codes, a 2-D array of uint8. Got {matrix.dtype} instead; "
                f"if they are features, {advice}."
            )
    return read_codes(path)


def encode_file(
    encoder: Encoder | ImageEncoder, path: str, *, model: str, n_jobs: int | None
) -> tuple[NDArray[np.uint8], list[str] | None]:
    """Codes of the features or, by an `ImageEncoder`, of the images in a file; for image files, their names."""
    if isinstance(encoder, ImageEncoder):
        images = read_image_input(path, or_matrix=True)
        if isinstance(images, list) or images.ndim > 2:
            return _encode_images(encoder, images, n_jobs), images if isinstance(images, list) else None
        encoder = encoder.encoder
    return _encode_features(encoder, path, model, n_jobs), None


def _encode_images(encoder: ImageEncoder, images: NDArray[Any] | list[str], n_jobs: int | None) -> NDArray[np.uint8]:
    parts = []
    with image_progress(len(images)) as show:
        for done, _, block in encoder.features.blocks(images, n_jobs=n_jobs):
            parts.append(encoder.encoder.encode(block, n_jobs=n_jobs))
            show(done)
    return np.concatenate(parts)


def _encode_features(encoder: Encoder, path: str, model: str, n_jobs: int | None) -> NDArray[np.uint8]:
    """Codes of a matrix that is read chunk by chunk, with a bar where stderr is a terminal."""
    from rich.console import Console
    from rich.progress import track

    X = read_matrix(path)
    if X.shape[1] != encoder.n_features:
        raise FileError(
            f"{path}: must have {encoder.n_features} features a row, as {model} was trained on. "
            f"Got {X.shape[1]} instead."
        )
    codes = np.empty((len(X), (encoder.n_bits + 7) // 8), np.uint8)
    parts = chunks(len(X), _rows_per_chunk(X))
    quiet = len(parts) < 2 or not sys.stderr.isatty()
    for start, stop in track(parts, "encoding", console=Console(stderr=True), disable=quiet):
        check_finite(path, X[start:stop], first_row=start)
        codes[start:stop] = encoder.encode(X[start:stop], n_jobs=n_jobs)
    return codes


def read_image_input(path: str, *, or_matrix: bool = False) -> NDArray[Any] | list[str]:
    """Images as the commands take them: an array from a file, or the paths of a folder, an image or a list.

    With ``or_matrix`` the array may be a matrix of features instead.
    """
    if os.path.isdir(path):
        found = list_images(path)
        if any("\n" in name for name in found):
            raise FileError(f"{path}: must hold no image with a line break in its name, for names are listed by line.")
        return found
    if path.lower().endswith((".csv", ".parquet")) and or_matrix:
        return read_matrix(path)
    if not path.lower().endswith(ENDINGS) and not re.search(r"(?i)\.np[yz](:[^/\\]+)?$", path):
        return _read_list(path)
    if path.lower().endswith(ENDINGS):
        return [path]
    array, _ = read_array(path, None)
    if (array.dtype != np.uint8 or array.ndim not in (3, 4)) and not (or_matrix and array.ndim == 2):
        raise FileError(
            f"{path}: images must be uint8 of shape (n, height, width) or (n, height, width, 3). "
            f"Got {array.dtype} of shape {array.shape} instead."
        )
    return array


def _read_list(path: str) -> list[str]:
    """Paths of a text file, one a line; relative ones are beside the file."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.rstrip("\r\n") for line in file]
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: no such file or folder") from error
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: must be images, or a text file of their paths. It cannot be read.") from error
    paths = [os.path.join(os.path.dirname(path), line) for line in lines if line.strip()]
    if not paths or any("\0" in line for line in paths):
        raise FileError(f"{path}: must be a text file with the path of an image on each line. Got none.")
    return paths


def usable_images(paths: list[str]) -> list[str]:
    """Those of the files that are images, with a warning for each other one."""
    usable = []
    for path in paths:
        try:
            read_image(path)
            usable.append(path)
        except ImageFileError as error:
            warnings.warn(f"{error}; skipped", stacklevel=2)
    if not usable:
        raise ImageFileError(f"{paths[0]} and the other files: must have an image among them. None is one.")
    return usable


def names_file(output: str) -> str:
    """Where the names of the rows of ``output`` are: X.names.txt for X.npy.

    >>> names_file("X.npy")
    'X.names.txt'
    """
    return f"{os.path.splitext(output)[0]}.names.txt"


def write_names(output: str, names: list[str]) -> None:
    """Write the path of the image of each row of ``output``, one a line."""
    with atomic_write(names_file(output)) as file:
        file.write("".join(f"{name}\n" for name in names).encode(errors="surrogateescape"))


def read_extractor(path: str | None, *, n_features: int, of: str) -> FeatureExtractor | None:
    """The extractor in a file, if one is given, which must give as many features as ``of`` has."""
    if path is None:
        return None
    extractor = load_extractor(path)
    if extractor.n_features_ != n_features:
        raise FileError(
            f"{path}: must give {n_features} features, as {of} has in a row. Got {extractor.n_features_} instead."
        )
    return extractor


def _rows_per_chunk(X: NDArray[Any]) -> int:
    return max(1, CHUNK_BYTES // (8 * max(1, math.prod(X.shape[1:]))))


def check_finite(path: str, array: NDArray[Any], *, first_row: int = 0) -> None:
    """Refuse NaN and infinity, and say where the first one is."""
    if array.dtype.kind != "f":
        return
    for start, stop in chunks(len(array), _rows_per_chunk(array)):
        wrong = np.argwhere(~np.isfinite(array[start:stop]))
        if len(wrong):
            value = array[start:stop][tuple(wrong[0])]
            row = first_row + start + wrong[0][0]
            column = f", column {wrong[0][1]}" if array.ndim == 2 else ""
            raise FileError(f"{path}: must hold finite numbers. Got {value} in row {row}{column}, counted from 0.")
