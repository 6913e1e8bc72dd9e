"""Feature matrices, labels and codes in .npy, .npz, .csv and .parquet files.

`hashgrove.storage.formats` and `hashgrove.storage.tables` read the formats; this module checks that what they hold is a
matrix, labels or codes.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from hashgrove.runtime.threads import chunks
from hashgrove.storage.arrow import read_parquet
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError, MissingFileError, PathLike, Table, one_line, read_npy, read_npz
from hashgrove.storage.tables import read_csv

__all__ = [
    "FEATURE_DTYPES",
    "check_finite",
    "file_errors",
    "read",
    "read_codes",
    "read_labels",
    "read_matrix",
    "read_table",
    "rows_per_chunk",
    "write_matrix",
]

FEATURE_DTYPES = [np.float64, np.float32, np.uint8]  # kept as they are; any other type is converted to the first
CHUNK_BYTES = 2**26  # of features that are checked or encoded at a time


def read(path: PathLike, column: str | int | None, *, only_column: bool = False) -> Table:
    """Read a file: an array and, if a column was chosen, the values of that column.

    Parameters
    ----------
    path : path
        A .npy, .npz, .csv or .parquet file; ``file.npz:name`` for one of several arrays.
    column : str, int or None
        Name or number of a column of a .csv or .parquet file, which is left out of the array.
    only_column : bool
        If the file is a table of a single column and ``column`` is None, choose that column.

    Returns
    -------
    array : ndarray
    values : ndarray or None
    """
    name, member = os.fspath(path), None
    match = re.fullmatch(r"(.+\.npz):([^/\\]+)", name, flags=re.IGNORECASE | re.DOTALL)
    if match and not os.path.exists(name):
        name, member = match.groups()
    suffix = Path(name).suffix.lower()
    if suffix not in (".npy", ".npz", ".csv", ".parquet"):
        raise FileError(f"{name}: must end in .npy, .npz, .csv or .parquet. Got {suffix!r} instead.")
    if column is not None and suffix in (".npy", ".npz"):
        raise FileError(f"{name}: a column can be chosen in .csv and .parquet files only. Got column {column!r}.")
    with file_errors(name):
        if suffix == ".npy":
            return read_npy(name), None
        if suffix == ".npz":
            return read_npz(name, member), None
        return (read_csv if suffix == ".csv" else read_parquet)(name, column, only_column)


@contextmanager
def file_errors(name: str) -> Iterator[None]:
    """Refuse what is no regular file, and turn errors of the system into errors of one line."""
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            raise FileError(f"{name}: must be a regular file. Got a folder or a device instead.")
        yield
    except FileNotFoundError as error:
        raise MissingFileError(f"{name}: no such file") from error
    except OSError as error:
        raise FileError(f"{name}: cannot be read: {error.strerror or one_line(error)}") from error


def read_matrix(path: PathLike) -> NDArray[Any]:
    """Read a feature matrix of shape (rows, features). A .npy file is memory-mapped.

    Parameters
    ----------
    path : path
        ``.npy``; ``.npz`` with one array, or ``file.npz:name``; ``.csv`` with or without a header row;
        ``.parquet``.

    Returns
    -------
    ndarray
        2-D, numbers only, with the dtype of the file (float64 for .csv).

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "X.csv"
    >>> _ = path.write_text("height,width\\n1,2\\n3,4\\n")
    >>> read_matrix(path)
    array([[1., 2.],
           [3., 4.]])
    """
    return read_table(path)[0]


def read_table(path: PathLike, *, label_column: str | int | None = None) -> Table:
    """Read a feature matrix and, from a .csv or .parquet file, the labels in one of its columns.

    Parameters
    ----------
    path : path
        As in `read_matrix`.
    label_column : str or int, optional
        Name or number (counted from 0) of the column with the labels, which is left out of the matrix.

    Returns
    -------
    matrix : ndarray of shape (rows, features)
    labels : ndarray of shape (rows,) or None
        Integers if all values are; otherwise floats if all values are numbers; otherwise text.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "animals.csv"
    >>> _ = path.write_text("4,2,cat\\n5,3,dog\\n")
    >>> matrix, labels = read_table(path, label_column=2)
    >>> matrix.tolist(), labels.tolist()
    ([[4.0, 2.0], [5.0, 3.0]], ['cat', 'dog'])
    """
    matrix, labels = read(path, label_column)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf" or matrix.shape[1] == 0:
        raise FileError(f"{os.fspath(path)}: must be a 2-D matrix of numbers. Got {_describe(matrix)} instead.")
    return matrix, labels


def read_labels(path: PathLike, *, column: str | int | None = None) -> NDArray[Any]:
    """Read class labels (numbers or text) of shape (rows,), or a tag matrix of shape (rows, tags).

    Parameters
    ----------
    path : path
        As in `read_matrix`. A .csv or .parquet file with one column holds classes, one with several columns tags.
    column : str or int, optional
        Name or number (counted from 0) of the column of a .csv or .parquet file that holds the classes.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "y.csv"
    >>> _ = path.write_text("label\\ncat\\ndog\\ncat\\n")
    >>> read_labels(path).tolist()
    ['cat', 'dog', 'cat']
    """
    labels, chosen = read(path, column, only_column=True)
    labels = labels if chosen is None else chosen
    if labels.ndim not in (1, 2) or labels.dtype.kind not in ("biufU" if labels.ndim == 1 else "biuf"):
        raise FileError(
            f"{os.fspath(path)}: labels must be 1-D numbers or text, or a 2-D tag matrix of numbers. "
            f"Got {_describe(labels)} instead."
        )
    return labels


def read_codes(path: PathLike) -> NDArray[np.uint8]:
    """Read packed codes: uint8 of shape (rows, bytes).

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "codes.csv"
    >>> write_matrix(path, np.array([[255, 0]], np.uint8))
    >>> read_codes(path)
    array([[255,   0]], dtype=uint8)
    """
    matrix = read_matrix(path)
    is_text = Path(path).suffix.lower() == ".csv"  # text has no dtype, so whole numbers may be codes
    if is_text and np.all((matrix >= 0) & (matrix <= 255) & (matrix == np.trunc(matrix))):
        matrix = matrix.astype(np.uint8)
    if matrix.dtype != np.uint8:
        raise FileError(f"{os.fspath(path)}: codes must be a 2-D array of uint8. Got {_describe(matrix)} instead.")
    return matrix


def write_matrix(path: PathLike, array: ArrayLike) -> None:
    """Write numbers to a .npy file, or to a .csv file without a header, atomically.

    Parameters
    ----------
    path : path
        A name that ends in ``.csv`` or ``.npy``. A name without an ending gives a .npy file.
    array : array of numbers

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "X.npy"
    >>> write_matrix(path, [[1, 2]])
    >>> read_matrix(path).tolist()
    [[1, 2]]
    """
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise FileError(f"{os.fspath(path)}: must be given an array of numbers only. Got {_describe(array)} instead.")
    suffix = Path(path).suffix.lower()
    if suffix not in (".npy", ".csv", ""):
        raise FileError(f"{os.fspath(path)}: must end in .npy or .csv. Got {suffix!r} instead.")
    with atomic_write(path) as file:
        if suffix == ".csv":
            np.savetxt(file, array, delimiter=",", fmt=_csv_format(array.dtype))
        else:
            array = np.asarray(array, order="C")
            npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(array))
            file.write(array.data)  # unlike np.save, it says what is wrong when the disk is full


def rows_per_chunk(X: NDArray[Any]) -> int:
    """Number of rows that take about `CHUNK_BYTES` as float64."""
    return max(1, CHUNK_BYTES // (8 * max(1, math.prod(X.shape[1:]))))


def check_finite(path: str, array: NDArray[Any], *, first_row: int = 0, allow_nan: bool = False) -> None:
    """Refuse infinity and, unless allowed, NaN, and say where the first one is."""
    if array.dtype.kind != "f":
        return
    for start, stop in chunks(len(array), rows_per_chunk(array)):
        part = array[start:stop]
        wrong = np.argwhere(np.isinf(part) if allow_nan else ~np.isfinite(part))
        if len(wrong):
            value = part[tuple(wrong[0])]
            row = first_row + start + wrong[0][0]
            column = f", column {wrong[0][1]}" if array.ndim == 2 else ""
            raise FileError(f"{path}: must hold finite numbers. Got {value} in row {row}{column}, counted from 0.")


def _describe(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"


def _csv_format(dtype: np.dtype[Any]) -> str:
    if dtype.kind != "f":
        return "%d"
    return "%.9g" if dtype.itemsize <= 4 else "%.17g"  # enough digits to read the same number back
