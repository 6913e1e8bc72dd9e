"""Reads bytes of untrusted files: at most a limit, at least what the file declares, with errors that name the file."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from hashgrove.storage.formats import DEFLATE_RATIO, FileError, MissingFileError, check_fits_memory, one_line

__all__ = ["members", "open_file", "read_array", "read_lines"]

LINES_LIMIT = 2**28  # bytes of a text file
UNPACKED_LIMIT = 2**30  # bytes of an unpacked archive of CIFAR with its headers; the real ones have 0.19 GB


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, and unpack it if its name ends in .gz; any failure becomes an error of one line that names it."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            with open(path, "rb") as file:
                yield file
    except FileError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: no such file") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FileError(f"{path}: must be a .gz file. It is damaged: {one_line(error)}") from error
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or one_line(error)}") from error


def read_array(path: Path, file: IO[bytes], size: int) -> NDArray[np.uint8]:
    """Read the next ``size`` bytes, which must be the last ones; the file's size is checked before allocation."""
    stored = os.path.getsize(path)
    largest = stored * DEFLATE_RATIO if path.suffix == ".gz" else stored - file.tell()
    if size > largest:
        raise FileError(f"{path}: must hold {size} more bytes, as its header declares. Got at most {largest}.")
    check_fits_memory(str(path), size)
    array = np.empty(size, np.uint8)
    done = 0
    view = array.data
    while done < size:
        n_read = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not n_read:
            raise FileError(f"{path}: must hold {size} more bytes, as its header declares. Got {done}.")
        done += n_read
    if file.read(1):
        raise FileError(f"{path}: must end after {size} more bytes, as its header declares. It is longer.")
    return array


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not empty, without surrounding spaces."""
    with open_file(path) as file:
        content = file.read(LINES_LIMIT + 1)
    if len(content) > LINES_LIMIT:
        raise FileError(f"{path}: must have at most {LINES_LIMIT} bytes. Got more.")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: must be text in UTF-8: {one_line(error)}") from error
    return [line.strip() for line in text.split("\n") if line.strip()]


def members(path: Path, names: Collection[str], *, limit: int) -> Iterator[tuple[str, bytes]]:
    """Contents of the files ``names``, each of at most ``limit`` bytes, in a folder or in a .tar.gz archive.

    An archive is read from start to end, and nothing is unpacked to disk. The folders inside it do not matter.
    """
    found = set()
    for name, content in (_folder if path.is_dir() else _archive)(path, names, limit):
        if name not in found:
            found.add(name)
            yield name, content
    missing = sorted(set(names) - found)
    if missing:
        raise FileError(f"{path}: must hold the file {missing[0]}. It does not.")


def _folder(path: Path, names: Collection[str], limit: int) -> Iterator[tuple[str, bytes]]:
    for name in names:
        with open_file(path / name) as file:
            content = file.read(limit + 1)
        _check_limit(path / name, len(content), limit)
        yield name, content


def _archive(path: Path, names: Collection[str], limit: int) -> Iterator[tuple[str, bytes]]:
    try:
        with open_file(path) as file, tarfile.open(fileobj=_Limited(path, file), mode="r|") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name not in names or not member.isreg():
                    continue
                _check_limit(path / name, member.size, limit)
                content = archive.extractfile(member)
                assert content is not None  # because it is a regular file
                yield name, content.read()
    except FileError:
        raise
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise FileError(f"{path}: must be a .tar.gz archive. It is damaged: {one_line(error)}") from error


def _check_limit(path: Path, size: int, limit: int) -> None:
    if size > limit:
        raise FileError(f"{path}: must have at most {limit} bytes. Got more.")


class _Limited(io.RawIOBase):
    """A stream of limited length, because a small .gz file may unpack to an endless one."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file, self._left = path, file, UNPACKED_LIMIT

    def read(self, size: int = -1) -> bytes:
        part = self._file.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(part)
        if self._left < 0:
            raise FileError(f"{self._path}: must unpack to at most {UNPACKED_LIMIT} bytes. It is longer.")
        return part
