"""Arrays in .npy and .npz files, and the errors and checks of sizes that all readers of untrusted files share.

Nothing is unpickled. Before anything is allocated, the size that a file declares is compared with its real size or, if
it is compressed, with what so many bytes can hold and with the memory of this machine. `hashgrove.storage.tables` reads
.csv and .parquet files.
"""

from __future__ import annotations

import math
import os
import sys
import zipfile
import zlib
from collections.abc import Iterable
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from hashgrove.runtime.credentials import hide_credentials
from hashgrove.runtime.memory import memory_limit

__all__ = [
    "DEFLATE_RATIO",
    "MEMORY_LIMIT",
    "FileError",
    "MissingFileError",
    "PathLike",
    "Table",
    "check_fits_memory",
    "check_shape",
    "listed",
    "one_line",
    "read_npy",
    "read_npz",
]

PathLike = str | os.PathLike[str]
Table = tuple[NDArray[Any], NDArray[Any] | None]

MEMORY_LIMIT = 64 * 2**30  # bytes that a compressed array may declare; the machine's memory if that is smaller
DEFLATE_RATIO = 1032  # deflate packs at most this many bytes into one
MAX_DIMENSIONS = 32  # of every version of numpy
MAX_NAME = 50  # characters of a name in a list
LINE_BREAKS = {ord(char): ascii(char)[1:-1] for char in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}  # of str.splitlines


class FileError(ValueError):
    """A file that cannot be used. The message is one line: the file, what it must be, and what it is.

    A line break in the name of the file, or in what is quoted from it, is escaped, and passwords of URLs are hidden.
    """

    def __init__(self, message: str) -> None:
        super().__init__(hide_credentials(message).translate(LINE_BREAKS))


class MissingFileError(FileError, FileNotFoundError):
    """A file that does not exist."""


def one_line(error: BaseException) -> str:
    """The message of another library's error, on one line of at most 200 characters.

    >>> one_line(ValueError("two\\n  lines"))
    'two lines'
    """
    return hide_credentials(" ".join(str(error).split()))[:200] or type(error).__name__


def listed(names: list[str]) -> str:
    """A list of names for an error message, cut off after the first twenty; long names are cut, too.

    >>> listed(["a", "b"])
    '[a, b]'
    """
    shown = [name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}..." for name in names[:20]]
    return "[" + ", ".join(shown) + (", ...]" if len(names) > 20 else "]")


def check_shape(name: str, shape: Iterable[Any], itemsize: int) -> int:
    """Number of bytes of an array of this shape; a shape that no array can have is refused.

    >>> check_shape("X.npy", (3, 4), 8)
    96
    >>> check_shape("X.npy", (0, 2**64), 8)
    Traceback (most recent call last):
        ...
    hashgrove.storage.formats.FileError: X.npy: must declare a possible shape. Got (0, 18446744073709551616).
    """
    sizes = tuple(shape)
    # numpy multiplies all sizes but 0, so a shape may overflow even if the array is empty
    possible = len(sizes) <= MAX_DIMENSIONS and all(type(size) is int and size >= 0 for size in sizes)
    if not possible or math.prod(size for size in sizes if size) * max(itemsize, 1) > sys.maxsize:
        raise FileError(f"{name}: must declare a possible shape. Got {str(sizes)[:200]}.")
    return math.prod(sizes) * itemsize


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
    if dtype.kind == "V" or dtype.itemsize == 0:  # records, arrays in arrays, and texts of length 0
        raise FileError(f"{name}: must hold numbers or text. Got items of type {str(dtype)[:200]}.")
    declared = file.tell() + check_shape(name, shape, dtype.itemsize)
    if declared != size:
        raise FileError(
            f"{name}: must have {declared} bytes because its header declares {dtype} of shape {shape}. "
            f"Got {size} bytes."
        )


def read_npy(name: str) -> NDArray[Any]:
    """Map the array of a .npy file into memory."""
    size = os.path.getsize(name)
    with open(name, "rb") as file:
        _check_npy_header(name, file, size)
        empty = file.tell() == size
    return np.load(name, mmap_mode=None if empty else "r", allow_pickle=False)


def check_fits_memory(name: str, size: int) -> None:
    """Refuse a file whose content, ``size`` bytes by its own declaration, does not fit the memory of this machine."""
    limit = min(MEMORY_LIMIT, memory_limit())
    if size > limit:
        raise FileError(f"{name}: must unpack to at most {limit} bytes here. It declares {size} bytes.")


def read_npz(name: str, member: str | None) -> NDArray[Any]:
    """Read the array ``member`` of a .npz file; None for the only array of the file."""
    try:
        with zipfile.ZipFile(name) as archive:
            names = [entry.removesuffix(".npy") for entry in archive.namelist()]
            if member is None and len(names) == 1:
                member = names[0]
            if member is None or member not in names:
                wanted = "no name" if member is None else repr(member)
                raise FileError(f"{name}: must be given as {name}:NAME, one of {listed(names)}. Got {wanted}.")
            entry = archive.infolist()[names.index(member)]
            _check_entry(f"{name}:{member}", entry, os.path.getsize(name))
            with archive.open(entry) as file:
                _check_npy_header(f"{name}:{member}", file, entry.file_size)
            with archive.open(entry) as file:
                return npy.read_array(file, allow_pickle=False)  # type: ignore[arg-type, unused-ignore]
    except FileError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise FileError(f"{name}: must be a .npz archive of arrays. It is damaged: {one_line(error)}") from error


def _check_entry(name: str, entry: zipfile.ZipInfo, archive_size: int) -> None:
    """Refuse an entry that cannot be as large as it declares, whatever the bytes in the archive are."""
    ratios = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_RATIO}
    if entry.compress_type not in ratios:
        raise FileError(f"{name}: must be stored or deflated, as numpy writes it. Got another compression.")
    largest = ratios[entry.compress_type] * min(entry.compress_size, archive_size)
    if entry.file_size > largest:
        raise FileError(f"{name}: must unpack to at most {largest} bytes, by its size. It declares {entry.file_size}.")
    check_fits_memory(name, entry.file_size)
