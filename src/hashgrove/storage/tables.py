"""Tables in .csv and .parquet files: numbers, and one column that may hold labels."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.storage.formats import FileError, Table, check_fits_memory, listed, one_line

__all__ = ["arrow_codes", "open_parquet", "parquet_batches", "parquet_matrix", "read_csv", "read_parquet"]

ROWS_PER_BATCH = 2**16  # rows of a .parquet file that are decoded at a time
MAX_LINE = 2**20  # characters of a line of a .csv file; its fields take up to 50 times as many bytes
SPARE_BYTES = 2**26  # memory that the labels of any .csv file may take, besides 64 times its size


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


def _check_lines(name: str, file: IO[str]) -> None:
    """Refuse a line that is so long that its fields alone would fill the memory."""
    longest = max(map(len, file), default=0)
    if longest > MAX_LINE:
        raise FileError(
            f"{name}: must have lines of at most {MAX_LINE} characters. Got one of {longest}; use .npy or .parquet."
        )


def _check_labels(name: str, *, rows: int, width: int, limit: int | None = None) -> None:
    """Refuse text labels that need too much memory; each takes as much as the longest."""
    size = 4 * rows * width  # numpy has four bytes per character, and one width for all
    check_fits_memory(name, size)
    if limit is not None and size > limit:
        raise FileError(
            f"{name}: must have labels that take at most {limit} bytes. Got {rows}, the longest of {width} characters."
        )


def read_csv(name: str, column: str | int | None, only_column: bool) -> Table:
    """Read a .csv file; the parameters are those of `hashgrove.storage.matrices.read`."""
    codes: dict[str, int] = {}
    try:
        with open(name, encoding="utf-8-sig") as file:
            _check_lines(name, file)
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
    limit = SPARE_BYTES + 64 * os.path.getsize(name)
    _check_labels(name, rows=max(len(matrix), len(codes)), width=max(map(len, codes)), limit=limit)
    return np.delete(matrix, index, axis=1), _typed(list(codes))[matrix[:, index].astype(np.intp)]


def _typed(texts: list[str]) -> NDArray[Any]:
    """Different texts as integers, as floats, or as they are: the first of these that keeps them different."""
    array = np.array(texts)
    # Python takes 1_0 for 10, and knows digits of other scripts; as labels they are different texts
    if not all(_is_number(text) and text.isascii() and "_" not in text for text in texts):
        return array
    if not all(re.fullmatch(r"[+-]?[0-9]+", text) for text in texts):
        return array.astype(np.float64)
    try:
        return array.astype(np.int64)
    except (OverflowError, ValueError):  # beyond int64, or beyond 4300 digits; floats could not tell them apart
        return array


def read_parquet(name: str, column: str | int | None, only_column: bool) -> Table:
    """Read a .parquet file; the parameters are those of `hashgrove.storage.matrices.read`."""
    with _arrow_errors(name):
        return _split_columns(name, _arrow_table(name), column, only_column)


@contextmanager
def open_parquet(name: str) -> Iterator[Any]:
    """The open `pyarrow.parquet.ParquetFile`. Columns are read in small parts, not as large as the file has them."""
    with _arrow_errors(name):
        from pyarrow import parquet

        with parquet.ParquetFile(name, buffer_size=2**16, pre_buffer=False) as file:
            yield file


def parquet_batches(name: str, n_rows: int) -> Iterator[Any]:
    """The tables of ``n_rows`` rows each, the last one of fewer, that a .parquet file is made of."""
    import pyarrow as pa

    with open_parquet(name) as file:
        waiting: list[Any] = []
        n_waiting = 0
        for batch in file.iter_batches(batch_size=n_rows, use_threads=False):
            while n_waiting + batch.num_rows >= n_rows:
                missing = n_rows - n_waiting
                yield pa.Table.from_batches([*waiting, batch.slice(0, missing)], schema=file.schema_arrow)
                batch, waiting, n_waiting = batch.slice(missing), [], 0
            if batch.num_rows:
                waiting.append(batch)
                n_waiting += batch.num_rows
        if waiting:
            yield pa.Table.from_batches(waiting, schema=file.schema_arrow)


def parquet_matrix(name: str, table: Any) -> NDArray[Any]:
    """The matrix in a table of `parquet_batches`."""
    with _arrow_errors(name):
        return _split_columns(name, table, None, False)[0]


def arrow_codes(n_bytes: int, model: str | None) -> tuple[Any, Callable[[NDArray[np.uint8]], Any]]:
    """The schema of a .parquet file of codes, and a function that makes a table of it from some codes."""
    import pyarrow as pa

    metadata = None if model is None else {"hashgrove.model": model}
    schema = pa.schema([pa.field("code", pa.binary(n_bytes), nullable=False)], metadata=metadata)

    def table(codes: NDArray[np.uint8]) -> Any:
        content = pa.py_buffer(np.ascontiguousarray(codes))
        column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(n_bytes), len(codes), [None, content])
        return pa.Table.from_arrays([column], schema=schema)

    return schema, table


@contextmanager
def _arrow_errors(name: str) -> Iterator[None]:
    """Say that pyarrow is missing, or that it cannot read a file."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise FileError(f"{name}: .parquet files need pyarrow: pip install 'hashgrove[parquet]'") from error
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if (
            isinstance(error, OSError) and error.strerror
        ):  # of the system; pyarrow raises OSError for damaged files, too
            raise FileError(f"{name}: cannot be read: {error.strerror}") from error
        raise FileError(f"{name}: must be a .parquet file. It is damaged: {one_line(error)}") from error


def _split_columns(name: str, table: Any, column: str | int | None, only_column: bool) -> Table:
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


def _arrow_table(name: str) -> Any:
    """The table of a .parquet file, decoded in batches whose sizes are added up against the memory of this machine.

    Only the totals of the metadata are looked at: pyarrow ends the process when it describes a damaged row group.
    """
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(name) as file:
        check_fits_memory(name, 8 * file.metadata.num_rows * file.metadata.num_columns)
        batches, size = [], 0
        for batch in file.iter_batches(batch_size=ROWS_PER_BATCH):
            batches.append(batch)
            size += batch.nbytes
            check_fits_memory(name, size)
        return pa.Table.from_batches(batches, schema=file.schema_arrow)


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
        _check_labels(what, rows=len(column), width=compute.max(compute.utf8_length(column)).as_py() or 0)
        return np.array(column.to_pylist(), dtype=str)
    if types.is_fixed_size_binary(column.type):
        chunks = [_bytes_of(chunk) for chunk in column.chunks if len(chunk)]
        return np.concatenate([np.empty((0, column.type.byte_width), np.uint8), *chunks])
    if not (types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type)):
        raise FileError(f"{what} must hold numbers or text. Got {column.type} instead.")
    return column.to_numpy()


def _bytes_of(chunk: Any) -> NDArray[np.uint8]:
    """Arrow's fixed-size binary without missing values as a matrix of uint8."""
    width = chunk.type.byte_width
    content = np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * width, chunk.offset * width)
    return content.reshape(len(chunk), width)
