"""`StoredRows`: training rows in files, of which a fit reads the parts that it needs, when it needs them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from hashgrove.runtime.parameters import ParameterError
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError, PathLike
from hashgrove.storage.matrices import FEATURE_DTYPES, check_finite
from hashgrove.storage.streams import NpyRows, identity, list_shards, open_rows

__all__ = ["Chunks", "StoredRows", "joined", "matrices_of", "rows_of"]

PIECE_BYTES = 2**26  # of rows that are read, or made, at a time
GAP_BYTES = 2**16  # between two rows that are read together, with what lies between them
SPAN_BYTES = 2**24  # of the file, that are read together for some rows

Chunks = Callable[[], Iterable[NDArray[Any]]]


class StoredRows:
    """Training rows in files. A fit reads the parts that it needs, so that they are never in memory all at once.

    Parameters
    ----------
    source : path, or callable
        A ``.npy`` file, or a folder of shards in the order of their names. Or a ``.parquet`` file, shards of this kind,
        or a function that gives an iterator of matrices: these are written to a ``.npy`` file in ``cache`` first.
    cache : path, optional
        A folder for what is made of the rows once, and used again by later fits: the bins that boosted trees learn from
        (one byte per value), and rows that had to be decoded. It may be deleted at any time. Without it, the bins are
        in memory.

    Attributes
    ----------
    shape : (int, int)
        Number of rows and of features.
    dtype : dtype
        float64, float32 or uint8; other numbers become float64.
    cache : str or None

    Examples
    --------
    >>> import tempfile
    >>> from hashgrove import FastHash
    >>> X, path = np.random.default_rng(0).random((100, 4)), tempfile.mkdtemp() + "/X.npy"
    >>> np.save(path, X)
    >>> rows = StoredRows(path)
    >>> rows[10:12].tolist() == X[10:12].tolist()
    True
    >>> FastHash(8, hash_function="posterior", random_state=0).fit(rows, X[:, 0] > 0.5).n_bits
    8
    """

    def __init__(self, source: PathLike | Chunks, *, cache: PathLike | None = None) -> None:
        self.cache = None if cache is None else os.fspath(cache)
        if self.cache is not None:
            try:
                os.makedirs(self.cache, exist_ok=True)
            except OSError as error:
                raise FileError(f"{self.cache}: cannot be made: {error.strerror}") from error
        self._files: list[NpyRows | _MoreRows] = [*_by_rows(source, self.cache)]
        name = self._files[0].name if callable(source) else os.fspath(source)
        widths = sorted({file.n_features for file in self._files})
        if len(widths) > 1:
            raise FileError(f"{name}: must have shards of equally many columns. Got {widths[0]} and {widths[-1]}.")
        self._starts = np.cumsum([0] + [file.n_rows for file in self._files])
        if self._starts[-1] == 0:
            raise FileError(f"{name}: must have rows. Got none.")
        found = np.result_type(*(file.dtype for file in self._files))
        self.name, self.dtype = name, found if found in FEATURE_DTYPES else np.dtype(np.float64)
        self.shape = int(self._starts[-1]), widths[0]
        self._numbers: NDArray[np.int64] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"cache": self.cache and os.path.abspath(self.cache)}

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"StoredRows({self.shape[0]:,} rows x {self.shape[1]:,} features in {self.name})"

    def __getitem__(self, numbers: slice | NDArray[Any]) -> NDArray[Any]:
        """Some of the rows, in memory; a slice without a step, row numbers in any order, or a mask. All are finite."""
        if isinstance(numbers, slice):
            start, stop, _ = numbers.indices(len(self))
            if self._numbers is None:
                return self._read(start, max(start, stop))
            return self._pick(self._numbers[start:stop])
        numbers = np.asarray(numbers)
        numbers = np.flatnonzero(numbers) if numbers.dtype == bool else numbers
        return self._pick(numbers if self._numbers is None else self._numbers[numbers])

    def subset(self, numbers: NDArray[Any]) -> Self:
        """Some of the rows, which stay in the files; ``numbers`` are row numbers, or a mask."""
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        chosen = np.arange(len(self))[numbers] if self._numbers is None else self._numbers[numbers]
        part._numbers, part.shape = chosen, (len(chosen), self.shape[1])
        return part

    def joined(self, more: NDArray[Any]) -> Self:
        """These rows, followed by some that are in memory."""
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        n_stored = int(self._starts[-1])
        part._files = [*self._files, _MoreRows(more)]
        part._starts = np.append(self._starts, n_stored + len(more))
        part.shape = len(self) + len(more), self.shape[1]
        if self._numbers is not None:
            part._numbers = np.append(self._numbers, n_stored + np.arange(len(more)))
        return part

    def pieces(self) -> list[slice]:
        """All rows, as slices of about 64 MB, which can be read one after the other or by several threads."""
        size = max(PIECE_BYTES // (self.shape[1] * self.dtype.itemsize), 1)
        return [slice(start, min(start + size, len(self))) for start in range(0, len(self), size)]

    @property
    def key(self) -> str:
        """Identity of these rows: a digest of the names, sizes and times of change of the files."""
        digest = hashlib.sha256(json.dumps([file.identity for file in self._files]).encode())
        if self._numbers is not None:
            digest.update(np.ascontiguousarray(self._numbers, "<i8").data)
        return digest.hexdigest()

    def checksum(self) -> NDArray[np.uint8]:
        """The same as numbers, for a fingerprint."""
        return np.frombuffer(bytes.fromhex(self.key), np.uint8)

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        """Consecutive rows of the files."""
        parts = []
        for file, first, last in zip(self._files, self._starts[:-1], self._starts[1:], strict=True):
            if first < stop and start < last:
                low, high = int(max(start - first, 0)), int(min(stop, last) - first)
                part = file.read(low, high)
                check_finite(file.name, part, first_row=low)
                parts.append(part.astype(self.dtype, copy=False))
        if not parts:
            return np.empty((0, self.shape[1]), self.dtype)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _pick(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Rows of the files in any order; near ones are read together."""
        out = np.empty((len(numbers), self.shape[1]), self.dtype)
        order = np.argsort(numbers, kind="stable")
        ascending, size = numbers[order], self.shape[1] * self.dtype.itemsize
        span = max(SPAN_BYTES // size, 1)
        breaks = (np.diff(ascending) > max(GAP_BYTES // size, 1)) | (np.diff(ascending // span) > 0)
        for places in np.split(order, np.flatnonzero(breaks) + 1):
            if len(places):
                first = int(numbers[places[0]])
                out[places] = self._read(first, int(numbers[places[-1]]) + 1)[numbers[places] - first]
        return out


class _MoreRows:
    """Rows in memory in the place of a file."""

    name = "rows in memory"

    def __init__(self, rows: NDArray[Any]) -> None:
        self._rows, self.dtype, (self.n_rows, self.n_features) = rows, rows.dtype, rows.shape

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """The rows from ``start`` to ``stop``."""
        return self._rows[start:stop]

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of these rows."""
        return {"sha256": hashlib.sha256(np.ascontiguousarray(self._rows).data).hexdigest()}


def joined(X: Any, more: NDArray[Any]) -> Any:
    """The rows of ``X``, in memory or `StoredRows`, followed by more rows of the same type.

    >>> joined(np.zeros((1, 2)), np.ones((1, 2), np.float32)).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    more = more.astype(X.dtype, copy=False)
    return X.joined(more) if isinstance(X, StoredRows) else np.concatenate([X, more])


def rows_of(X: Any, numbers: NDArray[Any]) -> Any:
    """Some rows of ``X``: in memory if it is, in their files if it is `StoredRows`.

    >>> rows_of(np.arange(6).reshape(3, 2), np.array([2, 0])).tolist()
    [[4, 5], [0, 1]]
    """
    return X.subset(numbers) if isinstance(X, StoredRows) else X[numbers]


def matrices_of(source: PathLike | Chunks) -> Iterator[NDArray[Any]]:
    """The rows of a file, of all shards of a folder, or of what a function gives, piece by piece, none of them empty.

    Numbers of a type that learners do not take become float64.
    """
    if callable(source):
        pieces: Iterable[NDArray[Any]] = map(np.asarray, source())
    else:
        opened = open_rows(source)
        width = next((piece.read().shape[1] for piece in opened.pieces(1)), 1)
        pieces = (piece.read() for piece in opened.pieces(max(PIECE_BYTES // (4 * width), 1)))
    for rows in pieces:
        if len(rows):
            yield rows if rows.dtype in FEATURE_DTYPES else rows.astype(np.float64)


def _by_rows(source: PathLike | Chunks, cache: str | None) -> list[NpyRows]:
    """The ``.npy`` files to read: those of the source, or one that is made of it."""
    if not callable(source):
        files = list_shards(source) if os.path.isdir(source) else [os.fspath(source)]
        if all(file.lower().endswith(".npy") for file in files):
            opened = [NpyRows(file) for file in files]
            if all(file.is_by_rows for file in opened):
                return opened
    name = "a function" if callable(source) else os.fspath(source)
    if cache is None:
        raise ParameterError(
            "cache",
            f"must be a folder for {name}: only .npy files, with the values of a row side by side, can be read in "
            "parts, so the rows are written to such a file first. Got None.",
        )
    key = "" if callable(source) else json.dumps([identity(file) for file in files])
    path = os.path.join(cache, f"rows-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy")
    if callable(source) or not os.path.exists(path):
        _write_rows(source, name, path)
    if not callable(source) and key != json.dumps([identity(file) for file in files]):
        os.unlink(path)
        raise FileError(f"{name}: has been changed while it was read")
    return [NpyRows(path)]


def _write_rows(source: PathLike | Chunks, name: str, path: str) -> None:
    """Write the rows of a source to a ``.npy`` file; their number is filled in at the end."""
    n_rows, first = 0, np.empty((0, 0))
    with atomic_write(path) as file:
        for rows in matrices_of(source):
            if rows.ndim != 2 or (n_rows and rows.shape[1] != first.shape[1]):
                wanted = f"matrices with {first.shape[1]} columns, as the first one" if n_rows else "matrices"
                raise ParameterError("source", f"must give {wanted}. Got shape {rows.shape} at row {n_rows} of {name}.")
            if not n_rows:
                first = rows[:0]
                _write_header(file, first)
            if not np.can_cast(rows.dtype, first.dtype):
                wanted = f"must give numbers of one type, {first.dtype} as the first ones"
                raise ParameterError("source", f"{wanted}. Got {rows.dtype} at row {n_rows} of {name}.")
            file.write(np.ascontiguousarray(rows, first.dtype).data)
            n_rows += len(rows)
        if not n_rows:
            raise FileError(f"{name}: must have rows. Got none.")
        file.seek(0)
        _write_header(file, first, n_rows)


def _write_header(file: BinaryIO, like: NDArray[Any], n_rows: int = 0) -> None:
    """Its length does not depend on the number of rows: NumPy leaves room for 21 digits."""
    described = {"descr": npy.dtype_to_descr(like.dtype), "fortran_order": False, "shape": (n_rows, like.shape[1])}
    npy.write_array_header_1_0(file, described)
