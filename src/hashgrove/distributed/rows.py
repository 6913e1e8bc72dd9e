"""Training rows on their way to a worker: a file that all workers see travels as its name, other rows as they are."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.rounding import marked_places
from hashgrove.storage.feature_store import FeatureStore
from hashgrove.storage.formats import FileError

__all__ = ["by_reference", "opened"]


@dataclass(frozen=True)
class _Store:
    """A `FeatureStore`, which knows its checksum."""

    path: str
    checksum: tuple[int, ...]

    def open(self) -> FeatureStore:
        store = FeatureStore(self.path)
        if tuple(store.checksum().tolist()) != self.checksum:
            raise FileError(f"{self.path}: must be the store that the fit began with. It is another one.")
        return store


@dataclass(frozen=True)
class _MappedRows:
    """Rows that are mapped from a file, and the checksum of some of them."""

    path: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    checksum: int

    def open(self) -> NDArray[Any]:
        try:
            content = np.memmap(self.path, np.uint8, "r")
            rows = np.ndarray(self.shape, self.dtype, content.data, self.offset, self.strides)
        except OSError as error:
            raise FileError(f"{self.path}: cannot be read: {error.strerror}") from error
        except (TypeError, ValueError) as error:
            raise FileError(f"{self.path}: is smaller than when the fit began") from error
        if _checksum(rows) != self.checksum:
            raise FileError(f"{self.path}: must have the rows that the fit began with. It has others.")
        return rows


def by_reference(rows: Any) -> Any:
    """A stand-in to send for ``rows``: a small object if they are in a file; see `opened`.

    >>> by_reference(np.zeros((2, 2))).shape
    (2, 2)
    """
    if isinstance(rows, FeatureStore):
        return _Store(os.path.abspath(rows.path), tuple(rows.checksum().tolist()))
    file = rows
    while isinstance(getattr(file, "base", None), np.ndarray):
        file = file.base
    if not isinstance(file, np.memmap) or not isinstance(rows, np.ndarray) or file.filename is None:
        return rows
    offset = file.offset + rows.__array_interface__["data"][0] - file.__array_interface__["data"][0]
    path = os.path.abspath(file.filename)
    return _MappedRows(path, offset, rows.shape, rows.strides, rows.dtype.str, _checksum(rows))


def opened(reference: Any) -> Any:
    """The rows that `by_reference` stands for, in the process that needs them."""
    return reference.open() if isinstance(reference, _Store | _MappedRows) else reference


def _checksum(rows: NDArray[Any]) -> int:
    """A checksum of at most 1,000 evenly spaced rows."""
    return zlib.crc32(np.ascontiguousarray(rows[marked_places(len(rows))]).data)
