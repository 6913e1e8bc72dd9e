"""The four file formats of features, labels and codes: .npy, .npz, .csv and .parquet.

Files are treated as untrusted. Nothing is unpickled, and before anything is allocated, the size that a file declares is
compared with its real size or, if it is compressed, with the memory of this machine.
"""

from __future__ import annotations

import csv
import math
import os
import re
import stat
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

__all__ = [
    "MEMORY_LIMIT",
    "FileError",
    "MissingFileError",
    "PathLike",
    "Table",
    "check_fits_memory",
    "listed",
    "one_line",
    "read",
]

PathLike = str | os.PathLike[str]
Table = tuple[NDArray[Any], NDArray[Any] | None]

MEMORY_LIMIT = 64 * 2**30  # bytes that a compressed array may declare; the machine's memory if that is smaller


class FileError(ValueError):
    """A file cannot be used. The message is one line: the file, what it must be, and what it is."""


class MissingFileError(FileError, FileNotFoundError):
    """A file does not exist."""


def one_line(error: BaseException) -> str:
    """The message of another library's error, on one line of at most 200 characters.

    >>> one_line(ValueError("two\\n  lines"))
    'two lines'
    """
    return " ".join(str(error).split())[:200] or type(error).__name__


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
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            raise FileError(f"{name}: must be a regular file. Got a folder or a device instead.")
        if suffix == ".npy":
            return _read_npy(name), None
        if suffix == ".npz":
            return _read_npz(name, member), None
        return (_read_csv if suffix == ".csv" else _read_parquet)(name, column, only_column)
    except FileNotFoundError as error:
        raise MissingFileError(f"{name}: no such file") from error
    except OSError as error:
        raise FileError(f"{name}: cannot be read: {error.strerror or one_line(error)}") from error


def _check_npy_header(name: str, file: IO[bytes], size: int) -> None:
    """Read the header of .npy data and check that it declares exactly ``size`` bytes, header included."""
    try:
        version = npy.read_magic(file)  # type: ignore[arg-type, unused-ignore]
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, _, dtype = read_header(file)  # type: ignore[arg-type, unused-ignore]
    except Exception as error:  # numpy parses Python literals: a damaged or hostile header may raise anything
        raise FileError(f"{name}: must be a .npy file of numbers or text. Its header is damaged.") from error
    if dtype.hasobject:
        raise FileError(f"{name}: must hold numbers or text (dtype=str). Got pickled objects, which are never read.")
    declared = file.tell() + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or declared != size:
        raise FileError(
            f"{name}: must have {declared} bytes because its header declares {dtype} of shape {shape}. "
            f"Got {size} bytes."
        )


def _read_npy(name: str) -> NDArray[Any]:
    size = os.path.getsize(name)
    with open(name, "rb") as file:
        _check_npy_header(name, file, size)
        empty = file.tell() == size
    return np.load(name, mmap_mode=None if empty else "r", allow_pickle=False)


def check_fits_memory(name: str, size: int) -> None:
    """Refuse a file whose content, ``size`` bytes by its own declaration, does not fit the memory of this machine."""
    limit = MEMORY_LIMIT
    if hasattr(os, "sysconf"):
        limit = min(limit, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if size > limit:
        raise FileError(f"{name}: must unpack to at most {limit} bytes here. It declares {size} bytes.")


def _read_npz(name: str, member: str | None) -> NDArray[Any]:
    try:
        with zipfile.ZipFile(name) as archive:
            names = [entry.removesuffix(".npy") for entry in archive.namelist()]
            if member is None and len(names) == 1:
                member = names[0]
            if member is None or member not in names:
                wanted = "no name" if member is None else repr(member)
                raise FileError(f"{name}: must be given as {name}:NAME, one of {listed(names)}. Got {wanted}.")
            entry = archive.infolist()[names.index(member)]
            check_fits_memory(f"{name}:{member}", entry.file_size)
            with archive.open(entry) as file:
                _check_npy_header(f"{name}:{member}", file, entry.file_size)
            with archive.open(entry) as file:
                return npy.read_array(file, allow_pickle=False)  # type: ignore[arg-type, unused-ignore]
    except FileError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise FileError(f"{name}: must be a .npz archive of arrays. It is damaged: {one_line(error)}") from error


def listed(names: list[str]) -> str:
    """A list of names for an error message, cut off after the first twenty.

    >>> listed(["a", "b"])
    '[a, b]'
    """
    return "[" + ", ".join(names[:20]) + (", ...]" if len(names) > 20 else "]")


def _column_index(name: str, names: list[str], column: str | int) -> int:
    """Position of the column with this name or number."""
    if isinstance(column, str) and names.count(column) == 1:
        return names.index(column)
    is_number = not isinstance(column, str) or re.fullmatch(r"-?[0-9]{1,9}", column)
    number = int(column) if is_number else len(names)
    if not -len(names) <= number < len(names):
        raise FileError(
            f"{name}: column must be one of {listed(names)}, or its number, counted from 0. Got {column!r}."
        )
    return number % len(names)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _csv_header(name: str, file: IO[str]) -> tuple[list[str], int]:
    """Names of the columns, and the number of lines to skip. Without a header the names are the column numbers.

    The first row is a header if it has no number and the second row has one. If both rows are text, as in a file of
    class names, the first one is a header unless it occurs again, since the name of a class usually does.
    """
    reader = csv.reader(file)
    rows = (row for row in reader if row)
    first = next(rows, None)
    if first is None:
        raise FileError(f"{name}: must have at least one row. Got an empty file.")
    skipped = reader.line_num
    second = next(rows, None)
    if any(map(_is_number, first)) or second is None:
        is_header = False
    else:
        is_header = any(map(_is_number, second)) or (second != first and first not in rows)
    if is_header:
        return [field.strip() for field in first], skipped
    return [str(number) for number in range(len(first))], 0


def _read_csv(name: str, column: str | int | None, only_column: bool) -> Table:
    codes: dict[str, int] = {}
    try:
        with open(name, encoding="utf-8-sig", newline="") as file:
            names, skipped = _csv_header(name, file)
            file.seek(0)
            if column is None and only_column and len(names) == 1:
                column = 0
            index = None if column is None else _column_index(name, names, column)
            numbered: dict[int | str, Any] = {}
            if index is not None:
                numbered[index] = lambda text: codes.setdefault(text.strip(), len(codes))
            options: dict[str, Any] = {
                "delimiter": ",",
                "quotechar": '"',
                "comments": None,
                "encoding": "utf-8",
            }
            matrix = np.loadtxt(file, ndmin=2, skiprows=skipped, converters=numbered, **options)
    except FileError:
        raise
    except (ValueError, csv.Error) as error:
        reason = one_line(error).split(";")[0]
        raise FileError(f"{name}: must be a table of comma-separated numbers, except for labels: {reason}") from error
    if index is None:
        return matrix, None
    if "" in codes:
        raise FileError(f"{name}: must have a label in every row of column {column!r}. Got an empty one.")
    return np.delete(matrix, index, axis=1), _typed(list(codes))[matrix[:, index].astype(np.intp)]


def _typed(texts: list[str]) -> NDArray[Any]:
    """The texts as integers or, failing that, as floats or, failing that, as they are."""
    for dtype in (np.int64, np.float64):
        try:
            return np.array(texts).astype(dtype)
        except (ValueError, OverflowError):
            continue
    return np.array(texts)


def _read_parquet(name: str, column: str | int | None, only_column: bool) -> Table:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise FileError(f"{name}: .parquet files need pyarrow: pip install 'hashgrove[parquet]'") from error
    try:
        file = parquet.ParquetFile(name)
        groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
        values = sum(group.column(j).num_values for group in groups for j in range(group.num_columns))
        check_fits_memory(name, 8 * values)
        table = file.read()
    except pa.ArrowException as error:
        raise FileError(f"{name}: must be a .parquet file. It is damaged: {one_line(error)}") from error
    names = table.column_names
    if column is None and only_column and len(names) == 1:
        column = 0
    index = None if column is None else _column_index(name, names, column)
    arrays = [_arrow_to_numpy(f"{name}: column {label!r}", table.column(j)) for j, label in enumerate(names)]
    labels = None if index is None else arrays.pop(index)
    names = [label for j, label in enumerate(names) if j != index]
    text = [label for label, array in zip(names, arrays, strict=True) if array.dtype.kind == "U"]
    if text:
        raise FileError(f"{name}: must hold numbers in all columns of the matrix. Got text in {text[0]!r}.")
    return np.column_stack(arrays) if arrays else np.empty((table.num_rows, 0)), labels


def _arrow_to_numpy(what: str, column: Any) -> NDArray[Any]:
    """One column as an array: text or numbers of shape (rows,), or lists of equal length of shape (rows, length)."""
    from pyarrow import compute, types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type):
        lengths = compute.list_value_length(column).unique()
        if column.null_count or len(lengths) != 1:
            raise FileError(f"{what} must have lists of equal length without missing values.")
        return _arrow_to_numpy(what, compute.list_flatten(column)).reshape(len(column), -1)
    if column.null_count:
        raise FileError(f"{what} must have no missing values. Got {column.null_count}.")
    if types.is_string(column.type) or types.is_large_string(column.type):
        return np.array(column.to_pylist(), dtype=str)
    if not (types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type)):
        raise FileError(f"{what} must hold numbers or text. Got {column.type} instead.")
    return column.to_numpy()
