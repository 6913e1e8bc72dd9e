"""Matrices in files, read and written piece by piece in bounded memory: .npy, .parquet, and folders of such shards.

A source gives its rows in pieces that can be read by any thread, so that reading and the work on the rows overlap.
`hashgrove.storage.matrices` reads whole matrices.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from hashgrove.storage.arrow import arrow_codes, import_pyarrow, open_parquet, parquet_batches, parquet_matrix
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError, MissingFileError, PathLike, one_line, read_npy
from hashgrove.storage.matrices import read_matrix

__all__ = [
    "SHARD_ENDINGS",
    "NpyRows",
    "Piece",
    "RowSource",
    "check_output_ending",
    "identity",
    "list_shards",
    "open_rows",
    "write_codes",
]

SHARD_ENDINGS = (".npy", ".parquet")
OUTPUT_ENDINGS = (".npy", ".csv", ".parquet")
ROWS_PER_GROUP = 2**18  # codes in a row group of a .parquet file


class Piece(NamedTuple):
    """Consecutive rows of a file: its name, the number of the first one in it, and a function that reads them."""

    file: str
    first_row: int
    read: Callable[[], NDArray[Any]]


class RowSource(ABC):
    """A matrix in a file or in several.

    Attributes
    ----------
    name : str
        For messages.
    n_rows : int
        As the files declare it.
    """

    name: str
    n_rows: int

    @abstractmethod
    def pieces(self, n_rows: int) -> Iterator[Piece]:
        """All rows in order, in pieces of ``n_rows``; fewer at the end of a file.

        The pieces may be read at any time, in any order and by several threads.
        """


def _check_matrix(name: str, array: NDArray[Any]) -> None:
    if array.ndim != 2 or array.dtype.kind not in "biuf" or array.shape[1] == 0:
        raise FileError(f"{name}: must be a 2-D matrix of numbers. Got {array.dtype} of shape {array.shape} instead.")


class NpyRows(RowSource):
    """A .npy file. Its rows are read, not mapped, so that they take no more memory than the pieces in use.

    Attributes
    ----------
    n_features : int
    dtype : dtype
        As in the file.
    identity : dict
        What `identity` gave when it was opened; if it gives something else later, `read` refuses.
    is_by_rows : bool
        Whether the values of a row are side by side; otherwise reading some rows may read all of the file.
    """

    def __init__(self, path: str) -> None:
        self.identity = identity(path)
        array = read_npy(path)  # checks the header against the size
        _check_matrix(path, array)
        self.name, (self.n_rows, self.n_features), self.dtype = path, array.shape, array.dtype
        self.is_by_rows = bool(array.flags.c_contiguous) or not isinstance(array, np.memmap)
        self._offset = array.offset if isinstance(array, np.memmap) else 0

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"name": os.path.abspath(self.name)}  # another process may be in another folder

    def pieces(self, n_rows: int) -> Iterator[Piece]:
        """All rows in order, in pieces of ``n_rows``."""
        for start in range(0, self.n_rows, n_rows):
            yield Piece(self.name, start, partial(self.read, start, min(start + n_rows, self.n_rows)))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """The rows from ``start`` to ``stop``; may be called by several threads."""
        if identity(self.name) != self.identity:
            raise FileError(f"{self.name}: has been changed while it was read")
        if not self.is_by_rows:  # mapped for this piece only
            return np.array(read_npy(self.name)[start:stop], order="C")
        rows = np.empty((stop - start, self.n_features), self.dtype)
        content: Any = rows.reshape(-1).view(np.uint8)
        offset = self._offset + start * self.n_features * self.dtype.itemsize
        try:
            with open(self.name, "rb", buffering=0) as file:
                file.seek(offset)
                while len(content):
                    n_read = file.readinto(content)
                    if not n_read:
                        raise FileError(f"{self.name}: has been changed while it was read")
                    content = content[n_read:]
        except OSError as error:
            raise FileError(f"{self.name}: cannot be read: {error.strerror}") from error
        return rows


class _Parquet(RowSource):
    """A .parquet file, decoded as its pieces are taken."""

    def __init__(self, path: str) -> None:
        self.name = path
        with open_parquet(path) as file:
            self.n_rows = file.metadata.num_rows

    def pieces(self, n_rows: int) -> Iterator[Piece]:
        first_row = 0
        for table in parquet_batches(self.name, n_rows):
            yield Piece(self.name, first_row, partial(parquet_matrix, self.name, table))
            first_row += table.num_rows


class _Folder(RowSource):
    """The shards of a folder, one after the other, in the order of their names."""

    def __init__(self, path: str) -> None:
        self.name = path
        self._shards = [open_rows(shard) for shard in list_shards(path)]
        self.n_rows = sum(shard.n_rows for shard in self._shards)

    def pieces(self, n_rows: int) -> Iterator[Piece]:
        for shard in self._shards:
            yield from shard.pieces(n_rows)


class _InMemory(RowSource):
    """Rows in memory: those of a file that can only be read as a whole (.csv and .npz), or given as an array."""

    def __init__(self, name: str, matrix: NDArray[Any]) -> None:
        self.name, self._matrix, self.n_rows = name, matrix, len(matrix)

    def pieces(self, n_rows: int) -> Iterator[Piece]:
        for start in range(0, self.n_rows, n_rows):
            yield Piece(self.name, start, partial(self._matrix.__getitem__, slice(start, start + n_rows)))


def open_rows(path: PathLike | NDArray[Any]) -> RowSource:
    """The rows of a file, or of all shards of a folder; an array is taken as it is.

    ``.npy`` and ``.parquet`` are read piece by piece, ``.csv`` and ``.npz`` as a whole.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/X.npy"
    >>> np.save(path, np.arange(6).reshape(3, 2))
    >>> [(piece.first_row, piece.read().tolist()) for piece in open_rows(path).pieces(2)]
    [(0, [[0, 1], [2, 3]]), (2, [[4, 5]])]
    """
    if isinstance(path, np.ndarray):
        _check_matrix("the rows", path)
        return _InMemory("the rows", path)
    name = os.fspath(path)
    try:
        if os.path.isdir(name):
            return _Folder(name)
        kinds: dict[str, type[NpyRows | _Parquet]] = {".npy": NpyRows, ".parquet": _Parquet}
        kind = kinds.get(Path(name).suffix.lower())
        return _InMemory(name, read_matrix(name)) if kind is None else kind(name)
    except FileNotFoundError as error:
        raise MissingFileError(f"{name}: no such file") from error
    except OSError as error:
        raise FileError(f"{name}: cannot be read: {error.strerror or one_line(error)}") from error


def list_shards(folder: PathLike) -> list[str]:
    """The .npy and .parquet files of a folder, sorted by name; hidden ones, and those that begin with _, are left out.

    >>> import tempfile
    >>> list_shards(tempfile.mkdtemp())
    Traceback (most recent call last):
        ...
    hashgrove.storage.formats.FileError: ...: must hold shards that end in .npy or .parquet. Got none.
    """
    name = os.fspath(folder)
    try:
        with os.scandir(name) as entries:
            found = sorted(
                entry.path
                for entry in entries
                if entry.name.lower().endswith(SHARD_ENDINGS) and entry.name[0] not in "._" and entry.is_file()
            )
    except OSError as error:
        raise FileError(f"{name}: cannot be read: {error.strerror or one_line(error)}") from error
    if not found:
        raise FileError(f"{name}: must hold shards that end in {' or '.join(SHARD_ENDINGS)}. Got none.")
    return found


def identity(path: PathLike) -> dict[str, Any]:
    """The name of a file, its size, and the time of its last change: what tells it from another file in its place."""
    name = os.fspath(path)
    try:
        found = os.stat(name)
    except FileNotFoundError as error:
        raise MissingFileError(f"{name}: no such file") from error
    except OSError as error:
        raise FileError(f"{name}: cannot be read: {error.strerror}") from error
    return {"name": os.path.basename(name), "bytes": found.st_size, "modified_ns": found.st_mtime_ns}


def check_output_ending(path: PathLike) -> str:
    """The ending of a file of codes, which must be one that `write_codes` knows."""
    suffix = Path(path).suffix.lower()
    if suffix not in OUTPUT_ENDINGS:
        raise FileError(f"{os.fspath(path)}: must end in .npy, .csv or .parquet. Got {suffix!r} instead.")
    return suffix


@contextmanager
def write_codes(
    path: PathLike, *, n_rows: int, n_bytes: int, model: str | None = None
) -> Iterator[Callable[[NDArray[np.uint8]], None]]:
    """A block with a function that appends codes to a file, which appears whole at the end of the block.

    Parameters
    ----------
    path : path
        ``.npy``, ``.csv``, or ``.parquet`` with one column, ``code``, of Arrow's fixed-size binary.
    n_rows : int
        The number of codes that will be written in all.
    n_bytes : int
        Bytes per code.
    model : str, optional
        Digest of the model; a .parquet file keeps it in its metadata as ``hashgrove.model``.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/codes.npy"
    >>> with write_codes(path, n_rows=2, n_bytes=1) as write:
    ...     write(np.array([[1]], np.uint8))
    ...     write(np.array([[2]], np.uint8))
    >>> np.load(path).tolist()
    [[1], [2]]
    """
    suffix, written = check_output_ending(path), 0
    if suffix == ".parquet":
        import_pyarrow(os.fspath(path))
        appended = partial(_parquet_codes, n_bytes=n_bytes, model=model)
    else:
        appended = partial(_plain_codes, shape=(n_rows, n_bytes), is_csv=suffix == ".csv")
    with atomic_write(path) as file, appended(file) as append:

        def write(codes: NDArray[np.uint8]) -> None:
            nonlocal written
            written += len(codes)
            append(codes)

        yield write
        if written != n_rows:
            raise FileError(f"{os.fspath(path)}: must get {n_rows} codes. Got {written}: the input has changed.")


@contextmanager
def _plain_codes(file: BinaryIO, *, shape: tuple[int, int], is_csv: bool) -> Iterator[Callable[[NDArray[Any]], Any]]:
    if is_csv:
        yield lambda codes: np.savetxt(file, codes, delimiter=",", fmt="%d")
        return
    npy.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    yield lambda codes: file.write(np.ascontiguousarray(codes).data)


@contextmanager
def _parquet_codes(file: BinaryIO, *, n_bytes: int, model: str | None) -> Iterator[Callable[[NDArray[np.uint8]], None]]:
    """Row groups have a fixed size, whatever the pieces are."""
    schema, make_table = arrow_codes(n_bytes, model)
    waiting = np.empty((0, n_bytes), np.uint8)
    from pyarrow import parquet

    with parquet.ParquetWriter(file, schema) as writer:

        def append(codes: NDArray[np.uint8]) -> None:
            nonlocal waiting
            waiting = np.concatenate([waiting, codes])
            while len(waiting) >= ROWS_PER_GROUP:
                writer.write_table(make_table(waiting[:ROWS_PER_GROUP]))
                waiting = waiting[ROWS_PER_GROUP:]

        yield append
        if len(waiting):
            writer.write_table(make_table(waiting))
