"""A lock on a file, so that one process at a time writes. The system releases it when the process ends, however."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import BinaryIO

from hashgrove.storage.formats import FileError, PathLike

__all__ = ["lock_file"]

if sys.platform == "win32":
    import msvcrt

    def _lock(file: BinaryIO) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: BinaryIO) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_file(path: PathLike, message: str, *, opener: Callable[[str, int], int] | None = None) -> BinaryIO:
    """Open and lock a file, which is created if necessary; closing it releases the lock.

    ``opener`` is that of the function ``open``.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/lock"
    >>> held = lock_file(path, "taken")
    >>> lock_file(path, "taken")
    Traceback (most recent call last):
        ...
    hashgrove.storage.formats.FileError: taken
    >>> held.close()
    """
    try:
        file = open(path, "ab", opener=opener)  # noqa: SIM115 -- the caller keeps it open
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        _lock(file)
    except OSError as error:
        file.close()
        raise FileError(message) from error
    return file
