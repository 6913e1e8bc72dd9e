"""`FeatureStore`: training rows in bins, feature by feature, in one file that is mapped into memory.

Trees need no more of the rows than one byte per value. The file is made once (`hashgrove.build_store`) and never
changed.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError, MissingFileError, PathLike, check_shape

__all__ = ["FeatureStore", "StoreWriter", "write_store"]

MAGIC = b"HGBINS1\n"
PAGE = 4096  # bytes of the header, and what the bins are aligned to
CHUNK = 2**24  # bytes that are checked at a time
COLUMN_CHUNK = 2**20  # bytes that are read ahead at a time
NUMBERS = "n_rows", "n_features", "n_marks", "crc"


class FeatureStore:
    """Training rows in 256 bins per feature, mapped from a file, for learners that need no more of them.

    Opening a store reads it once, to compare it with its checksum.

    Parameters
    ----------
    path : path
        A file that `hashgrove.build_store` wrote. It is treated as untrusted.

    Attributes
    ----------
    path : str
    shape : (int, int)
        Number of rows and of features.
    bins : uint8 array of shape (n_features, n_rows)
    low, scale : float64 arrays of shape (n_features,)
        The value of bin 0, and the number of bins per unit.
    marks : list of int
        Marks of some rows, by which a model knows what it was trained on.
    source : str or None
        What identifies the files that the store was made of.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = name = os.fspath(path)
        try:
            with open(name, "rb") as file:
                header = _header(name, file.read(PAGE))
                n, d, n_marks, self._crc = (header[number] for number in NUMBERS)
                start = _first_bin(d, n_marks)
                if os.fstat(file.fileno()).st_size != start + check_shape(name, (d, n), 1):
                    raise FileError(
                        f"{name}: must have {start + n * d} bytes, as its header says. Remove it, and make it again."
                    )
                # Private and writable, so that kernels are compiled once for this and for arrays; nothing is written.
                content = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
        except FileNotFoundError as error:
            raise MissingFileError(f"{name}: no such file") from error
        except OSError as error:
            raise FileError(f"{name}: cannot be read: {error.strerror}") from error
        if _crc_of(content) != self._crc:
            raise FileError(f"{name}: damaged: its content does not match its checksum. Remove it, and make it again.")
        limits = content[PAGE : PAGE + 16 * d].view("<f8").reshape(2, d)
        if not np.isfinite(limits).all():
            raise FileError(f"{name}: damaged: its limits must be finite")
        self.low, self.scale = (np.array(part, np.float64) for part in limits)
        self.marks: list[int] = content[PAGE + 16 * d : PAGE + 16 * d + 8 * n_marks].view("<u8").tolist()
        self._start = start
        self.bins: NDArray[np.uint8] = content[start:].reshape(d, n)
        self.shape = n, d
        self.source: str | None = header["source"]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"FeatureStore({self.shape[0]:,} rows x {self.shape[1]:,} features in {self.path})"

    def rows(self, numbers: NDArray[Any]) -> NDArray[np.float64]:
        """Some rows, with the middle of its bin in the place of each value: what was learned from bins is the same."""
        usable = self.scale > 0
        steps = np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=usable)
        return np.ascontiguousarray(self.low + self.bins[:, numbers].T * steps)

    def read_columns(self, features: NDArray[Any]) -> None:
        """Read the bins of these features, one after the other, so that they are in the page cache."""
        room = bytearray(COLUMN_CHUNK)
        with open(self.path, "rb", buffering=0) as file:
            for feature in features.tolist():
                file.seek(self._start + feature * self.shape[0])
                left = self.shape[0]
                while left > 0 and (n_read := file.readinto(memoryview(room)[:left])):
                    left -= n_read

    def checksum(self) -> NDArray[np.int64]:
        """Numbers that tell this store from others."""
        return np.array([*self.shape, self._crc])


class StoreWriter:
    """The parts of a store that is being written."""

    def __init__(self, file: int, shape: tuple[int, int], start: int) -> None:
        self._file, self._shape, self._start = file, shape, start

    def write_bins(self, first_row: int, bins: NDArray[np.uint8]) -> None:
        """Write the bins of some rows, uint8 of shape (n_features, rows)."""
        for feature, part in enumerate(bins):
            _write_at(self._file, np.ascontiguousarray(part), self._start + feature * self._shape[0] + first_row)

    def write_marks(self, marks: list[int]) -> None:
        """Write the marks of some rows."""
        _write_at(self._file, np.array(marks, "<u8").view(np.uint8), PAGE + 16 * self._shape[1])


@contextmanager
def write_store(
    path: PathLike,
    *,
    shape: tuple[int, int],
    low: NDArray[np.float64],
    scale: NDArray[np.float64],
    n_marks: int,
    source: str | None,
) -> Iterator[StoreWriter]:
    """A block that writes the bins of a new store; the file appears, complete and durable, at the end of the block."""
    (n, d), start = shape, _first_bin(shape[1], n_marks)
    with atomic_write(path) as file:
        file.truncate(start + n * d)
        _write_at(file.fileno(), np.concatenate([low, scale]).astype("<f8").view(np.uint8), PAGE)
        yield StoreWriter(file.fileno(), shape, start)
        with open(file.name, "rb") as written:
            written.seek(PAGE)
            crc = 0
            while content := written.read(CHUNK):
                crc = zlib.crc32(content, crc)
        fields = {**dict(zip(NUMBERS, (n, d, n_marks, crc), strict=True)), "source": source}
        text = json.dumps({"hashgrove-bins": fields, "sha256": _digest(fields)}).encode()
        page = (MAGIC + struct.pack("<Q", len(text)) + text).ljust(PAGE, b"\0")
        _write_at(file.fileno(), np.frombuffer(page, np.uint8), 0)


def _header(name: str, page: bytes) -> dict[str, Any]:
    """The fields of the header; anything but what `write_store` writes is refused."""
    start = len(MAGIC) + 8
    if len(page) < PAGE or page[: len(MAGIC)] != MAGIC:
        raise FileError(f"{name}: must be a feature store. Got another file, or one that is cut short.")
    length = struct.unpack("<Q", page[len(MAGIC) : start])[0]
    try:
        outer = json.loads(page[start : start + length])
        fields = dict(outer["hashgrove-bins"])
        intact = outer["sha256"] == _digest(fields)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(f"{name}: damaged: its header cannot be read") from error
    if not intact or fields.keys() != {*NUMBERS, "source"}:
        raise FileError(f"{name}: damaged: its header does not match its checksum")
    if not all(type(fields[number]) is int and 0 <= fields[number] < 2**62 for number in NUMBERS):
        raise FileError(f"{name}: damaged: its numbers must be whole and not negative")
    if not (fields["n_rows"] and fields["n_features"] and isinstance(fields["source"], str | None)):
        raise FileError(f"{name}: damaged: its header must say how many rows it has, and of what")
    return fields


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _first_bin(n_features: int, n_marks: int) -> int:
    """Where the bins begin: behind the header, the limits and the marks."""
    return PAGE + -(-(16 * n_features + 8 * n_marks) // PAGE) * PAGE


def _crc_of(content: Any) -> int:
    crc = 0
    for start in range(PAGE, len(content), CHUNK):
        crc = zlib.crc32(content[start : start + CHUNK], crc)
    return crc


def _write_at(file: int, content: Any, offset: int) -> None:
    while len(content):  # a disk that is nearly full takes a part
        n_written = os.pwrite(file, content, offset)
        content, offset = content[n_written:], offset + n_written
