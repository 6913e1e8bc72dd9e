"""Tables in .parquet files and in memory, by Arrow: numbers, lists of numbers, and columns of labels and ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.storage.formats import FileError, Table, check_fits_memory, one_line
from hashgrove.storage.tables import check_labels, column_index

__all__ = [
    "arrow_array",
    "arrow_codes",
    "import_pyarrow",
    "label_array",
    "matrix_of",
    "open_parquet",
    "parquet_batches",
    "parquet_matrix",
    "read_arrow",
    "read_parquet",
    "without_views",
]

ROWS_PER_BATCH = 2**16  # rows of a .parquet file that are decoded at a time


def read_parquet(name: str, column: str | int | None, only_column: bool) -> Table:
    """Read a .parquet file; the parameters are those of `hashgrove.storage.matrices.read`."""
    table = read_arrow(name)
    names = table.column_names
    if column is None and only_column and len(names) == 1:
        column = 0
    index = None if column is None else column_index(name, names, column)
    labels = None if index is None else arrow_array(name, table, index)
    return matrix_of(name, table.select([place for place in range(len(names)) if place != index])), labels


def read_arrow(name: str, places: Callable[[list[str]], list[int]] | None = None) -> Any:
    """The table in a .parquet file; ``places`` chooses columns by the names of all of them."""
    with _arrow_errors(name):
        return _arrow_table(name, places)


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
        return matrix_of(name, table)


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
    pa = import_pyarrow(name)
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.strerror:  # pyarrow raises OSError for damaged files, too
            raise FileError(f"{name}: cannot be read: {error.strerror}") from error
        raise FileError(f"{name}: must be a .parquet file. It is damaged: {one_line(error)}") from error


def import_pyarrow(name: str) -> Any:
    """pyarrow; ``name`` is what needs it, for the error."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise FileError(f"{name}: .parquet files and tables need pyarrow: pip install 'hashgrove[parquet]'") from error
    return pa


def without_views(table: Any) -> Any:
    """A table whose texts are not views, which polars gives, and which few functions of Arrow take."""
    import pyarrow as pa

    fields = [
        field.with_type(pa.large_string()) if str(field.type) == "string_view" else field for field in table.schema
    ]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))


def matrix_of(name: str, table: Any) -> NDArray[Any]:
    """All columns of an Arrow table as a matrix of numbers."""
    arrays = [arrow_array(name, table, place) for place in range(table.num_columns)]
    text = [label for label, array in zip(table.column_names, arrays, strict=True) if array.dtype.kind == "U"]
    if text:
        raise FileError(
            f"{name}: must hold numbers in all columns of the matrix. Got text in {text[0]!r}; name the columns of "
            "features by --feature-columns, or 'features' in Python."
        )
    return np.column_stack(arrays) if arrays else np.empty((table.num_rows, 0))


def label_array(name: str, table: Any, place: int) -> NDArray[Any]:
    """A column of labels; those that are missing are None."""
    column = table.column(place)
    if not column.null_count:
        return arrow_array(name, table, place)
    there = column.drop_null()
    known = _arrow_to_numpy(f"{name}: column {table.column_names[place]!r}", there)
    labels = np.full(len(column), None, object)
    labels[np.flatnonzero(column.is_valid().to_numpy())] = known
    return labels


def arrow_array(name: str, table: Any, place: int) -> NDArray[Any]:
    """One column of an Arrow table as an array."""
    with _arrow_errors(name):
        return _arrow_to_numpy(f"{name}: column {table.column_names[place]!r}", table.column(place))


def _arrow_table(name: str, places: Callable[[list[str]], list[int]] | None) -> Any:
    """The table of a .parquet file, decoded in batches whose sizes are added up against the memory of this machine.

    Only the totals of the metadata are looked at: pyarrow ends the process when it describes a damaged row group.
    """
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(name) as file:
        schema = file.schema_arrow
        if places is not None:
            schema = pa.schema([schema.field(place) for place in places(schema.names)])
        check_fits_memory(name, 8 * file.metadata.num_rows * len(schema.names))
        batches, size = [], 0
        for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=None if places is None else schema.names):
            batches.append(batch)
            size += batch.nbytes
            check_fits_memory(name, size)
        return pa.Table.from_batches(batches, schema=schema)


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
        check_labels(what, rows=len(column), width=compute.max(compute.utf8_length(column)).as_py() or 0)
        return np.array(column.to_pylist(), dtype=str)
    if types.is_fixed_size_binary(column.type):
        chunks = [_bytes_of(chunk) for chunk in column.chunks if len(chunk)]
        return np.concatenate([np.empty((0, column.type.byte_width), np.uint8), *chunks])
    if not (types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type)):
        raise FileError(
            f"{what} must hold numbers or text. Got {column.type} instead; name the columns of features by "
            "--feature-columns, or 'features' in Python, and others are ignored."
        )
    return column.to_numpy()


def _bytes_of(chunk: Any) -> NDArray[np.uint8]:
    """Arrow's fixed-size binary without missing values as a matrix of uint8."""
    width = chunk.type.byte_width
    content = np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * width, chunk.offset * width)
    return content.reshape(len(chunk), width)
