"""Atomic writes: a file has either its old content or all of the new one, never a part."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from hashgrove.storage.formats import FileError, PathLike

__all__ = ["atomic_write"]


@contextmanager
def atomic_write(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file for writing so that it has either its old content or all of the new one, never a part.

    The bytes go to a temporary file in the same folder. It replaces ``path`` when the ``with`` statement ends, and is
    deleted if an error occurs before. Symbolic links are followed and permissions are kept, as with ``open``.

    Parameters
    ----------
    path : path
        An existing regular file, or a new file in an existing folder.

    Yields
    ------
    file
        A binary file object.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "greeting"
    >>> with atomic_write(path) as file:
    ...     _ = file.write(b"hello")
    >>> path.read_bytes()
    b'hello'
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".hashgrove-{secrets.token_hex(8)}.tmp")
    try:
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            raise FileError(f"{os.fspath(path)}: must be a regular file. Got a folder or a device.")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise FileError(f"{os.fspath(path)}: cannot be written: {error.strerror}") from error
    try:
        with open(handle, "wb") as file:
            if mode is not None:
                os.chmod(temporary, stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, on systems that can sync a folder; on the others there is nothing to do."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
